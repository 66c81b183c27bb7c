// SPDX-License-Identifier: MIT
#include "provider/process/netlink/link_watch.h"

#include <linux/rtnetlink.h>
#include <netlink/netlink.h>
#include <netlink/route/link.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "mpa/descriptor.h"
#include "provider/process/device.h"
#include "provider/process/netlink/netlink_socket.h"

namespace uiw::provider {

namespace {

// Observers are never removed, so that they can be called without a lock.
constinit std::array<std::atomic<RemovalObserver>, kRemovalObservers> observers{};

int note(nl_msg* message, void*) {
  const nlmsghdr* header = nlmsg_hdr(message);
  if (header->nlmsg_type != RTM_DELLINK || !nlmsg_valid_hdr(header, sizeof(ifinfomsg))) return NL_OK;
  const auto* link = static_cast<const ifinfomsg*>(nlmsg_data(header));
  // A bridge sends the same message type when a port leaves it; the interface itself still exists then.
  if (link->ifi_family != AF_UNSPEC) return NL_OK;
  for (const auto& one : observers) {
    if (const RemovalObserver removed = one.load()) removed(static_cast<unsigned>(link->ifi_index));
  }
  return NL_OK;
}

class LinkWatch final : public CmLoop::Handler {
 public:
  explicit LinkWatch(nl_sock* socket) : socket_(socket) {}
  ~LinkWatch() override { free_netlink_socket(socket_); }
  bool open() {
    const int fd = mpa::DescriptorChange().take(make_netlink_socket(), "news of network interfaces");
    if (!use_netlink_socket(socket_, fd)) return false;
    fd_ = fd;
    return nl_socket_set_nonblocking(socket_) == 0;
  }
  int fd() const { return fd_; }
  // Messages that were lost because the socket's buffer was full are not recovered; the event is not essential.
  void ready(std::uint32_t) override { nl_recvmsgs_default(socket_); }

 private:
  nl_sock* const socket_;
  int fd_ = -1;
};

}  // namespace

void observe_removed_interfaces(RemovalObserver observer) {
  for (auto& place : observers) {
    RemovalObserver nobody = nullptr;
    if (place.compare_exchange_strong(nobody, observer) || nobody == observer) return;
  }
}

std::shared_ptr<CmLoop::Handler> make_link_watch(int& fd) {
  const std::unique_lock lock = hold_libnl();
  nl_sock* socket = nl_socket_alloc();
  if (socket == nullptr) return nullptr;
  auto watch = std::make_shared<LinkWatch>(socket);
  nl_socket_disable_seq_check(socket);
  if (nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, note, nullptr) < 0 || !watch->open() ||
      nl_socket_add_memberships(socket, RTNLGRP_LINK, 0) < 0) {
    return nullptr;
  }
  fd = watch->fd();
  return watch;
}

}  // namespace uiw::provider
