// SPDX-License-Identifier: MIT
#include "provider/process/netlink/link_watch.h"

#include <linux/rtnetlink.h>
#include <netlink/netlink.h>
#include <netlink/route/link.h>

#include <array>
#include <atomic>
#include <exception>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "provider/process/device.h"
#include "provider/process/netlink/netlink_socket.h"

namespace uiw::provider {

namespace {

// Observers are never removed, so that they can be called without a lock.
constinit std::array<std::atomic<InterfaceObserver>, kInterfaceObservers> observers{};

void tell(const InterfaceNews& news) {
  for (const auto& one : observers) {
    if (const InterfaceObserver observer = one.load()) observer(news);
  }
}

void note_link(const nlmsghdr* header) {
  if (!nlmsg_valid_hdr(header, sizeof(ifinfomsg))) return;
  const auto* link = static_cast<const ifinfomsg*>(nlmsg_data(header));
  // When a port leaves a bridge, the kernel sends RTM_DELLINK with the family AF_BRIDGE. The interface still exists
  // then.
  if (link->ifi_family != AF_UNSPEC) return;
  InterfaceNews news{InterfaceNews::Kind::link, static_cast<unsigned>(link->ifi_index)};
  if (header->nlmsg_type == RTM_DELLINK) news.kind = InterfaceNews::Kind::removed;
  news.active = is_active(link->ifi_flags);
  tell(news);
}

void note_address(nlmsghdr* header) {
  if (!nlmsg_valid_hdr(header, sizeof(ifaddrmsg))) return;
  const auto* message = static_cast<const ifaddrmsg*>(nlmsg_data(header));
  if (message->ifa_family != AF_INET && message->ifa_family != AF_INET6) return;
  const nlattr* octets = nlmsg_find_attr(header, sizeof(ifaddrmsg), IFA_LOCAL);
  if (octets == nullptr) octets = nlmsg_find_attr(header, sizeof(ifaddrmsg), IFA_ADDRESS);
  if (octets == nullptr || nla_len(octets) < (message->ifa_family == AF_INET6 ? 16 : 4)) return;
  InterfaceNews news{InterfaceNews::Kind::address_added, message->ifa_index};
  news.gid = gid_of_address(message->ifa_family, nla_data(octets));
  if (header->nlmsg_type == RTM_DELADDR) {
    news.kind = InterfaceNews::Kind::address_removed;
  } else if ((message->ifa_flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) != 0) {
    return;  // if the address becomes usable, a message without these flags follows
  }
  tell(news);
}

// Handles a netlink message, as a callback of libnl. An exception must not pass through libnl: if an observer runs out
// of memory, this function sets the bool to which `no_memory` points.
int note(nl_msg* message, void* no_memory) noexcept {
  nlmsghdr* header = nlmsg_hdr(message);
  try {
    switch (header->nlmsg_type) {
      case RTM_NEWLINK:
      case RTM_DELLINK: note_link(header); break;
      case RTM_NEWADDR:
      case RTM_DELADDR: note_address(header); break;
      default: break;
    }
  } catch (const std::exception&) {
    *static_cast<bool*>(no_memory) = true;
  }
  return NL_OK;
}

class LinkWatch final : public CmLoop::Handler {
 public:
  explicit LinkWatch(nl_sock* socket) : socket_(socket) {}
  ~LinkWatch() override { free_netlink_socket(socket_); }
  bool open() {
    const int fd = DescriptorChange().take(make_netlink_socket(), "news of network interfaces");
    if (!use_netlink_socket(socket_, fd)) return false;
    fd_ = fd;
    return nl_socket_set_nonblocking(socket_) == 0;
  }
  int fd() const { return fd_; }
  // The flag that note() sets if an observer has run out of memory.
  bool& no_memory() { return no_memory_; }
  void ready(std::uint32_t) override {
    const int result = nl_recvmsgs_default(socket_);
    // After any error except NLE_AGAIN messages may be lost, usually because the receive buffer of the socket was full.
    const bool full = result < 0 && result != -NLE_AGAIN;
    if (std::exchange(no_memory_, false) || full) tell({InterfaceNews::Kind::missed});
  }

 private:
  nl_sock* const socket_;
  int fd_ = -1;
  bool no_memory_ = false;
};

}  // namespace

void observe_interfaces(InterfaceObserver observer) {
  for (auto& slot : observers) {
    InterfaceObserver nobody = nullptr;
    if (slot.compare_exchange_strong(nobody, observer) || nobody == observer) return;
  }
}

void look_at_interfaces() { tell({InterfaceNews::Kind::missed}); }

std::shared_ptr<CmLoop::Handler> make_link_watch(int& fd) {
  const LockGuard lock(libnl_mutex());
  nl_sock* socket = nl_socket_alloc();
  if (socket == nullptr) return nullptr;
  auto watch = std::make_shared<LinkWatch>(socket);
  nl_socket_disable_seq_check(socket);
  if (nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, note, &watch->no_memory()) < 0 || !watch->open() ||
      nl_socket_add_memberships(socket, RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, 0) < 0) {
    return nullptr;
  }
  fd = watch->fd();
  return watch;
}

}  // namespace uiw::provider
