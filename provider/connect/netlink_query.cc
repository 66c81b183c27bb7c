// SPDX-License-Identifier: MIT
#include "provider/connect/netlink_query.h"

#include <sys/socket.h>

#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "provider/process/device.h"
#include "provider/process/netlink/netlink_socket.h"

namespace uiw::provider {

namespace {

// The kernel's cookie of a socket (SO_COOKIE): no two sockets have the same one until the system restarts. 0 if `fd` is
// no socket.
std::uint64_t cookie_of(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

}  // namespace

NetlinkAnswer NetlinkAsker::ask(nl_msg* request) {
  const LockGuard lock(mutex_);
  // The child of a fork opens a socket of its own: on a shared socket, parent and child would take each other's
  // answers.
  if (!is_usable() && !open()) return nullptr;
  sockaddr_nl from{};
  unsigned char* octets = nullptr;
  const int length = nl_send_auto(socket_.get(), request) >= 0 ? nl_recv(socket_.get(), &from, &octets, nullptr) : -1;
  NetlinkAnswer answer(octets);
  const auto* header = reinterpret_cast<const nlmsghdr*>(octets);
  if (length > 0 && from.nl_pid == 0 && nlmsg_ok(header, length) != 0 &&
      header->nlmsg_seq == nlmsg_hdr(request)->nlmsg_seq) {
    return answer;
  }
  close();  // the answer may still arrive, and would be read in place of the next one
  return nullptr;
}

// Checks the cookie, since the program may have closed the descriptor unnoticed, and its number may belong to another
// file.
bool NetlinkAsker::is_there() const { return socket_ != nullptr && cookie_of(fd_) == cookie_; }

bool NetlinkAsker::open() {
  close();
  const LockGuard libnl(libnl_mutex());
  std::unique_ptr<nl_sock, FreeNetlink> made(nl_socket_alloc());
  if (made == nullptr) return false;
  const int fd = DescriptorChange().take(make_netlink_socket(protocol_), "questions about connections and routes");
  if (!use_netlink_socket(made.get(), fd, protocol_)) return false;
  nl_socket_disable_auto_ack(made.get());
  nl_socket_disable_msg_peek(made.get());
  nl_socket_set_nonblocking(made.get());  // the answer is available as soon as the request is sent
  socket_ = std::move(made);
  fd_ = fd;
  cookie_ = cookie_of(fd);
  forks_ = fork_generation();
  return true;
}

void NetlinkAsker::close() {
  if (socket_ == nullptr) return;
  if (is_there()) {
    const LockGuard libnl(libnl_mutex());
    socket_.reset();
  } else {
    static_cast<void>(socket_.release());  // libnl would close a number that may be that of another file now
  }
}

}  // namespace uiw::provider
