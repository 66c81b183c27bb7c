// SPDX-License-Identifier: MIT
// Observes what passes on one stream, for a capture. A TcpStream owns its tap (TcpStream::set_tap), and a SharedStream
// uses that of its TCP connection. Called by the sender and the receiver of the stream, possibly at the same time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

namespace uiw {

class StreamTap {
 public:
  enum class Direction { sent, received };
  enum class End { fin, rst };

  virtual ~StreamTap() = default;

  // The first `size` octets of `octets` have passed. They may be read until this returns.
  virtual void passed(Direction direction, std::span<const iovec> octets, std::size_t size) noexcept = 0;
  // Nothing more passes in this direction, or, after a reset, in either. Only the first end counts.
  virtual void ended(Direction direction, End end) noexcept = 0;

 protected:
  StreamTap() = default;
  StreamTap(const StreamTap&) = default;
  StreamTap& operator=(const StreamTap&) = default;
};

}  // namespace uiw
