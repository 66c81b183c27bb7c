// SPDX-License-Identifier: MIT
// What the subjects of uiw_observe have in common. Each prints lines "what was done = what came of it", which are the
// same on every provider that does the same. A subject goes on whatever a call returns.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

namespace observe {

// "0", or the errno of a call that returns it, or -1.
inline std::string result(int value) {
  const int error = value < 0 ? errno : value;
  if (error == 0) return std::to_string(value);
  const char* const name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}
// "made", or the errno of a call that returns null.
inline std::string made(const void* object) { return object != nullptr ? "made" : result(-1); }

inline void say(const std::string& done, const std::string& outcome) {
  std::printf("%s = %s\n", done.c_str(), outcome.c_str());
}

inline const char* name_of(ibv_qp_state state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state <= IBV_QPS_ERR ? kNames[state] : "?";
}

constexpr std::uint16_t kPort = 7471;  // of the process whose subject is "called"
sockaddr_in address_of(const char* text, std::uint16_t port = 0);

// The device at an address, with what most subjects need.
struct Device {
  explicit Device(const char* address);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  bool is_iwarp() const { return context->device->transport_type == IBV_TRANSPORT_IWARP; }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  sockaddr_in address{};
  ibv_gid gid{};
  std::uint8_t gid_index = 0;
  ibv_device_attr limits{};

 private:
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
};

// The address of the device itself.
inline ibv_ah_attr own_address(const Device& device) {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = device.gid;
  attributes.grh.sgid_index = device.gid_index;
  attributes.grh.hop_limit = 64;
  return attributes;
}

// The asynchronous events that come until none comes for so many milliseconds, by what `text` says of each; in the
// order of the alphabet, since events about different objects come in any order. ", " stands between them, "none" for
// none.
std::string await_events(const Device& device, int quiet,
                         const std::function<std::string(const ibv_async_event&)>& text);

inline ibv_qp_init_attr qp_attributes(const Device& device, ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = device.cq;
  attributes.qp_type = type;
  attributes.cap = {8, 8, 1, 1, 0};
  return attributes;
}

inline int to_error(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

// One request is posted. The library of siw returns -1 without an errno, so that errno is 0 before.
inline int post(ibv_qp* qp, ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  errno = 0;
  return ibv_post_send(qp, &request, &bad);
}
inline int post(ibv_qp* qp, ibv_recv_wr request) {
  ibv_recv_wr* bad = nullptr;
  errno = 0;
  return ibv_post_recv(qp, &request, &bad);
}
inline int post_receive(ibv_qp* qp, ibv_sge piece) {
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  return post(qp, request);
}
inline std::string status_of(const std::optional<ibv_wc>& wc) { return wc ? ibv_wc_status_str(wc->status) : "none"; }

// The subjects.
void observe_connections(const Device& device);  // rdma_cm
void observe_steps(const Device& device);        // ibv_modify_qp
void observe_datagrams(const Device& device);    // UD queue pairs, address handles, multicast
void observe_events(const Device& device);       // asynchronous ones
void observe_interface(const Device& device);    // what the device does when its interface changes
void observe_lifetimes(const Device& device);    // what close, fork and exit leave
void observe_windows(const Device& device);      // what a memory window allows
void observe_objects(const Device& device);      // what is created and destroyed, with good and bad arguments
void observe_posts(const Device& device);        // posts in each state, and bad requests
// Each operation between the queue pairs of two processes, with each kind of error.
void observe_calls(const Device& device, const sockaddr_in& peer);
void observe_called(const Device& device);

}  // namespace observe
