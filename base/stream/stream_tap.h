// SPDX-License-Identifier: MIT
// Observes the octets that are sent and received on one stream, for a capture. A TcpStream owns its tap
// (TcpStream::set_tap), and a SharedStream uses the tap of its TCP connection. The sender and the receiver of the
// stream call the functions, possibly at the same time.
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

  // The first `size` octets of `octets` have been sent or received. They may be read until this function returns, by
  // guarded copies (guarded_copy.h), since they may be in memory of the program or of a shared ring.
  virtual void passed(Direction direction, std::span<const iovec> octets, std::size_t size) noexcept = 0;
  // No more octets pass in this direction; after a reset, in neither. Only the first end of a direction counts.
  virtual void ended(Direction direction, End end) noexcept = 0;

 protected:
  StreamTap() = default;
  StreamTap(const StreamTap&) = default;
  StreamTap& operator=(const StreamTap&) = default;
};

}  // namespace uiw
