// SPDX-License-Identifier: MIT
// The kernel's side of libuiw.so.1 without the interposer: descriptors of /dev/infiniband, and commands written to
// them. Needs libuiw.so.1 (uiw_kernel_abi_v8) and an interface `lo` that is up; no other sources.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "kernel-abi/interposer/entry.h"

extern "C" const UiwKernelAbi* uiw_kernel_abi_v8(const UiwHost* host);

namespace uiw::test {

// What the interposer would keep.
inline std::mutex attached_mutex;
inline std::map<int, uint64_t> attached_objects;

inline uint64_t lookup(int fd) {
  const std::lock_guard lock(attached_mutex);
  const auto found = attached_objects.find(fd);
  return found != attached_objects.end() ? found->second : 0;
}

inline int attach(int fd, uint64_t object) {
  const std::lock_guard lock(attached_mutex);
  attached_objects[fd] = object;
  return 0;
}

inline const UiwKernelAbi* table() {
  static const UiwHost host = {lookup, attach,  [](int) {}, [](int) {}, [] {},
                               [] {},  nullptr, nullptr,    nullptr,    nullptr};
  static const UiwKernelAbi* const made = uiw_kernel_abi_v8(&host);
  return made;
}

// On any thread, hence no check by Catch2; the first test case has one.
inline const UiwKernelAbi& abi() { return *table(); }

// An open descriptor of /dev/infiniband, closed with the object.
class Node {
 public:
  explicit Node(const char* name, int flags = O_RDWR | O_CLOEXEC) {
    REQUIRE(abi().root(0) != nullptr);
    fd_ = abi().open(name, flags, &object_);
    REQUIRE(fd_ >= 0);
    attach(fd_, object_);
  }
  ~Node() {
    if (fd_ < 0) return;
    {
      const std::lock_guard lock(attached_mutex);
      attached_objects.erase(fd_);
    }
    abi().release(object_, fd_);
    ::close(fd_);
  }
  int fd() const { return fd_; }
  uint64_t object() const { return object_; }
  long write(const void* data, std::size_t size) { return abi().write(object_, fd_, data, size); }
  bool readable() const {
    pollfd ready = {fd_, POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  }

 private:
  int fd_ = -1;
  uint64_t object_ = 0;
};

template <typename Command>
std::vector<std::uint8_t> encode(unsigned number, const Command& command, std::size_t out, std::size_t in) {
  const rdma_ucm_cmd_hdr header = {number, static_cast<__u16>(in), static_cast<__u16>(out)};
  std::vector<std::uint8_t> octets(sizeof header + sizeof command);
  std::memcpy(octets.data(), &header, sizeof header);
  std::memcpy(octets.data() + sizeof header, &command, sizeof command);
  return octets;
}

// 0 or a negative errno.
template <typename Command>
long run(Node& node, unsigned number, const Command& command, std::size_t out = 0) {
  const auto octets = encode(number, command, out, sizeof command);
  const long result = node.write(octets.data(), octets.size());
  return result == static_cast<long>(octets.size()) ? 0 : result;
}

template <typename Response>
std::uint64_t address_of(Response& response) {
  return reinterpret_cast<std::uintptr_t>(&response);
}

inline std::uint32_t create_id(Node& node, std::uint16_t space = RDMA_PS_TCP, std::uint64_t uid = 0x1234) {
  rdma_ucm_create_id_resp response = {};
  rdma_ucm_create_id command = {};
  command.uid = uid;
  command.ps = space;
  command.qp_type = IBV_QPT_RC;
  command.response = address_of(response);
  REQUIRE(run(node, RDMA_USER_CM_CMD_CREATE_ID, command, sizeof response) == 0);
  return response.id;
}

// A descriptor of rdma_cm, and with an id that it has made.
struct CmNode {
  Node node{"rdma_cm"};
};
struct CmNodeWithId : CmNode {
  std::uint32_t id = create_id(node);
};

inline long destroy_id(Node& node, std::uint32_t id, std::uint32_t* reported = nullptr) {
  rdma_ucm_destroy_id_resp response = {};
  rdma_ucm_destroy_id command = {};
  command.id = id;
  command.response = address_of(response);
  const long result = run(node, RDMA_USER_CM_CMD_DESTROY_ID, command, sizeof response);
  if (reported != nullptr) *reported = response.events_reported;
  return result;
}

inline sockaddr_in ipv4(const char* host, std::uint16_t port = 0) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

// A free TCP port of 127.0.0.1.
inline sockaddr_in free_loopback() {
  sockaddr_in address = ipv4("127.0.0.1");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(fd);
  return address;
}

template <typename Address>
long bind(Node& node, std::uint32_t id, const Address& address, std::size_t size = sizeof(Address)) {
  rdma_ucm_bind command = {};
  command.id = id;
  command.addr_size = static_cast<__u16>(size);
  std::memcpy(&command.addr, &address, sizeof address);
  return run(node, RDMA_USER_CM_CMD_BIND, command);
}

inline long resolve(Node& node, std::uint32_t id, const sockaddr_in& destination) {
  rdma_ucm_resolve_addr command = {};
  command.id = id;
  command.timeout_ms = 1000;
  command.dst_size = sizeof destination;
  std::memcpy(&command.dst_addr, &destination, sizeof destination);
  return run(node, RDMA_USER_CM_CMD_RESOLVE_ADDR, command);
}

inline long get_event(Node& node, rdma_ucm_event_resp& response, std::size_t out = sizeof(rdma_ucm_event_resp)) {
  const rdma_ucm_get_event command = {address_of(response)};
  return run(node, RDMA_USER_CM_CMD_GET_EVENT, command, out);
}

inline rdma_ucm_query_addr_resp query(Node& node, std::uint32_t id, std::uint32_t option) {
  rdma_ucm_query_addr_resp response = {};
  rdma_ucm_query command = {};
  command.response = address_of(response);
  command.id = id;
  command.option = option;
  REQUIRE(run(node, RDMA_USER_CM_CMD_QUERY, command, sizeof response) == 0);
  return response;
}

inline constexpr std::uint32_t kAddrResolved = 0;
inline constexpr std::uint32_t kRouteResolved = 2;
inline constexpr std::uint32_t kUser = 18;

}  // namespace uiw::test
