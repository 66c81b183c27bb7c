// SPDX-License-Identifier: MIT
// Completions of a test's own making, and a completion channel.
#pragma once

#include <fcntl.h>

#include "provider/verbs/cq/completion_channel.h"
#include "tests/unit/provider/pair.h"

namespace uiw::test {

inline ibv_wc completion_of(std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS) {
  ibv_wc completion{};
  completion.wr_id = id;
  completion.status = status;
  return completion;
}

class Channel {
 public:
  Channel() : fd_(provider::create_completion_channel()) {
    REQUIRE(fd_ >= 0);
    REQUIRE((::fcntl(fd_, F_GETFD) & FD_CLOEXEC) != 0);
  }
  ~Channel() {
    provider::forget_completion_channel(fd_);
    ::close(fd_);
  }
  int fd() const { return fd_; }
  // The handle in the next event; 0 where there is none now, or in this time.
  std::uint64_t next(std::chrono::milliseconds patience = {}) const {
    pollfd ready{fd_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(patience.count())) != 1) return 0;
    ib_uverbs_comp_event_desc event{};
    REQUIRE(::read(fd_, &event, sizeof event) == sizeof event);
    return event.cq_handle;
  }

 private:
  int fd_;
};

}  // namespace uiw::test
