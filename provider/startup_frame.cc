// SPDX-License-Identifier: MIT
#include "provider/startup_frame.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace uiw::provider {

StartupFrame::Result StartupFrame::read(int fd) {
  for (;;) {
    const std::size_t goal = header_ ? mpa::kStartupHeaderSize + header_->pd_length : mpa::kStartupHeaderSize;
    while (size_ < goal) {
      const ssize_t n = ::recv(fd, octets_.data() + size_, goal - size_, MSG_DONTWAIT);
      if (n > 0) {
        size_ += static_cast<std::size_t>(n);
        if (!plausible()) return Result::invalid;
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      return n < 0 && errno == EAGAIN ? Result::more : Result::closed;
    }
    if (header_) return Result::frame;
    header_ = mpa::decode_startup_header({octets_.data(), size_});
    if (!header_) return Result::invalid;
    if (header_->pd_length == 0) return Result::frame;
  }
}

// A caller of another protocol is turned away at its first octets.
bool StartupFrame::plausible() const {
  const auto matches = [&](std::string_view key) {
    return std::memcmp(octets_.data(), key.data(), std::min(size_, key.size())) == 0;
  };
  return matches(mpa::kRequestKey) || matches(mpa::kReplyKey);
}

}  // namespace uiw::provider
