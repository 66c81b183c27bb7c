// SPDX-License-Identifier: MIT
#include "provider/connect/startup/startup_frame.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

namespace uiw::provider {

StartupFrame::Result StartupFrame::read(TcpStream& socket) {
  if (!header_) {
    if (const Result result = take(socket, key_); result != Result::frame) return result;
    const auto header = mpa::decode_startup_header(key_);
    if (!header) return Result::invalid;
    private_data_.reset(new (std::nothrow) std::byte[header->pd_length]);
    if (private_data_ == nullptr) return Result::closed;
    header_ = header;
    size_ = 0;
  }
  return take(socket, {private_data_.get(), header_->pd_length});
}

// Reads until `to` is full, or until the socket has nothing more for now.
StartupFrame::Result StartupFrame::take(TcpStream& socket, MutableOctets to) {
  while (size_ < to.size()) {
    const ssize_t n = socket.receive(to.subspan(size_));
    if (n > 0) {
      size_ += static_cast<std::size_t>(n);
      if (!header_ && !plausible()) return Result::invalid;
      continue;
    }
    return n == -EAGAIN ? Result::more : Result::closed;
  }
  return Result::frame;
}

// Whether the first octets can belong to a start-up frame. If not, the start-up fails before a whole header has
// arrived.
bool StartupFrame::plausible() const {
  const auto matches = [&](std::string_view key) {
    return std::memcmp(key_.data(), key.data(), std::min(size_, key.size())) == 0;
  };
  return matches(mpa::kRequestKey) || matches(mpa::kReplyKey);
}

}  // namespace uiw::provider
