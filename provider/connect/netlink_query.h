// SPDX-License-Identifier: MIT
// Queries to the kernel by netlink(7) that the kernel answers at once, with one message. No function throws.
#pragma once

#include <netlink/msg.h>
#include <netlink/netlink.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/mutex.h"
#include "provider/process/netlink/netlink_socket.h"

namespace uiw::provider {

struct FreeNetlink {
  void operator()(nl_sock* socket) const { free_netlink_socket(socket); }
  void operator()(nl_msg* message) const { nlmsg_free(message); }
  void operator()(unsigned char* octets) const { std::free(octets); }
};
using NetlinkAnswer = std::unique_ptr<unsigned char, FreeNetlink>;

// A socket of one netlink protocol. It is created for the first query and kept, since creating a socket takes longer
// than a query. Thread-safe; may be used in the child of a fork.
class NetlinkAsker {
 public:
  explicit NetlinkAsker(int protocol) : protocol_(protocol) {}

  // Sends the request and returns the answer, a message with a complete header. Null if no valid answer arrives.
  NetlinkAnswer ask(nl_msg* request);

 private:
  bool is_there() const UIW_REQUIRES(mutex_);
  bool is_usable() const UIW_REQUIRES(mutex_) { return is_there() && forks_ == fork_generation(); }
  bool open() UIW_REQUIRES(mutex_);
  void close() UIW_REQUIRES(mutex_);

  const int protocol_;
  Mutex mutex_;
  std::unique_ptr<nl_sock, FreeNetlink> socket_ UIW_GUARDED_BY(mutex_);
  int fd_ UIW_GUARDED_BY(mutex_) = -1;
  std::uint64_t cookie_ UIW_GUARDED_BY(mutex_) = 0;  // SO_COOKIE of the socket
  unsigned forks_ UIW_GUARDED_BY(mutex_) = 0;
};

// One request and the answer of the kernel.
class NetlinkQuery {
 public:
  explicit NetlinkQuery(int type) : request_(nlmsg_alloc_simple(type, NLM_F_REQUEST)), possible_(request_ != nullptr) {}
  template <typename Body>
  void append(const Body& body) {
    possible_ = possible_ && nlmsg_append(request_.get(), const_cast<Body*>(&body), sizeof body, NLMSG_ALIGNTO) == 0;
  }
  void attribute(int type, const void* data, int size) {
    possible_ = possible_ && nla_put(request_.get(), type, size, data) == 0;
  }

  // Sends the query, and returns the body of the answer. Null if the kernel returns an error, if the answer is too
  // short or if the query cannot be sent, for lack of descriptors for example.
  template <typename Body>
  const Body* answer(NetlinkAsker& asker) {
    if (possible_) answer_ = asker.ask(request_.get());
    if (answer_ == nullptr) return nullptr;
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer_.get());
    if (header->nlmsg_type == NLMSG_ERROR && nlmsg_valid_hdr(header, sizeof(nlmsgerr)) != 0) {
      error_ = -static_cast<const nlmsgerr*>(nlmsg_data(header))->error;
    }
    const bool whole = header->nlmsg_type != NLMSG_ERROR && nlmsg_valid_hdr(header, sizeof(Body)) != 0;
    return whole ? static_cast<const Body*>(nlmsg_data(header)) : nullptr;
  }
  // Copies the first `size` octets of an attribute of the answer. `Body` is the type of the answer's body. False, and
  // nothing is copied, if there is no such attribute or it is shorter.
  template <typename Body>
  bool read(int type, void* to, int size) const {
    if (answer_ == nullptr) return false;
    auto* header = reinterpret_cast<nlmsghdr*>(answer_.get());
    const nlattr* found = nlmsg_find_attr(header, sizeof(Body), type);
    if (found == nullptr || nla_len(found) < size) return false;
    std::memcpy(to, nla_data(found), static_cast<std::size_t>(size));
    return true;
  }
  // The errno that the kernel has returned; 0 if none.
  int error() const { return error_; }

 private:
  std::unique_ptr<nl_msg, FreeNetlink> request_;
  NetlinkAnswer answer_;
  int error_ = 0;
  bool possible_;
};

}  // namespace uiw::provider
