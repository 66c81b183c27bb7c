// SPDX-License-Identifier: MIT
// Reads one MPA start-up frame (RFC 5044 section 7.1) from a socket.
//
// Reads no further than the end of the frame, since the octets after the frame belong to the stream. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "base/stream/tcp_stream.h"
#include "mpa/startup.h"

namespace uiw::provider {

class StartupFrame {
 public:
  enum class Result { more, frame, closed, invalid };

  // Reads what is available. Returns `more` while the frame is incomplete. After `frame`, header() and private_data()
  // may be used, as long as this object lives. After `closed` (also for lack of memory) and `invalid` no function may
  // be called.
  Result read(TcpStream& socket);
  // Whether any octet has arrived.
  bool is_begun() const { return size_ > 0 || header_.has_value(); }
  const mpa::StartupHeader& header() const { return *header_; }
  Octets private_data() const { return {private_data_.get(), header_->pd_length}; }

 private:
  bool plausible() const;
  Result take(TcpStream& socket, MutableOctets to);

  std::array<std::byte, mpa::kStartupHeaderSize> key_;  // the header of the frame, which begins with the key
  std::size_t size_ = 0;  // octets that have arrived, of the header or of the private data
  std::optional<mpa::StartupHeader> header_;
  std::unique_ptr<std::byte[]> private_data_;
};

}  // namespace uiw::provider
