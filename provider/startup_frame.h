// SPDX-License-Identifier: MIT
// Has a whole MPA start-up frame (RFC 5044 section 7.1) come on this socket?
//
// It is read no further than its end: what follows belongs to the stream. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
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
  mpa::Octets private_data() const { return {octets_.data() + mpa::kStartupHeaderSize, header_->pd_length}; }

 private:
  bool plausible() const;

  std::array<std::byte, mpa::kMaxStartupFrame> octets_;
  std::size_t size_ = 0;
  std::optional<mpa::StartupHeader> header_;
};

}  // namespace uiw::provider
