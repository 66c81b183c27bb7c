// SPDX-License-Identifier: MIT
// Has a whole MPA start-up frame (RFC 5044 section 7.1) come on this socket?
//
// It is read no further than its end: what follows belongs to the stream. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "mpa/startup.h"

namespace uiw::provider {

class StartupFrame {
 public:
  enum class Result { more, frame, closed, invalid };

  // Takes what is there of it on a non-blocking socket. Once it says `frame`, header() and private_data() may be used;
  // after `closed` and `invalid` nothing may.
  Result read(int fd);
  const mpa::StartupHeader& header() const { return *header_; }
  mpa::Octets private_data() const { return {private_data_.get(), header_->pd_length}; }

 private:
  bool plausible() const;
  Result take(int fd, mpa::MutableOctets to);

  std::array<std::byte, mpa::kStartupHeaderSize> key_;  // and what follows it: the octets of the header
  std::size_t size_ = 0;                                // that have come, of the header or of what is behind it
  std::optional<mpa::StartupHeader> header_;
  std::unique_ptr<std::byte[]> private_data_;
};

}  // namespace uiw::provider
