// SPDX-License-Identifier: MIT
// What the calls of libibverbs and librdmacm come to, and single work requests. Errors end the program with a message:
// it is a test.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace apps {

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void die(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::fflush(nullptr);
  std::_Exit(1);
}

// What returns 0, or an errno, or a negative number and sets errno.
inline void good(const char* what, int result) {
  if (result != 0) die("%s: %s", what, std::strerror(result > 0 ? result : errno));
}
// What returns an object, or null and sets errno.
template <typename Object>
Object* made(const char* what, Object* object) {
  if (object == nullptr) die("%s: %s", what, std::strerror(errno));
  return object;
}

inline void expect(bool holds, const char* what) {
  if (!holds) die("%s", what);
}

inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
inline unsigned long long ull(std::uint64_t value) { return value; }  // for printf

inline ibv_qp_attr query(ibv_qp* qp, int mask) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  good("ibv_query_qp", ibv_query_qp(qp, &attributes, mask, &initial));
  return attributes;
}

inline ibv_mr* reg(ibv_pd* pd, void* memory, std::size_t size, int access) {
  return made("ibv_reg_mr", ibv_reg_mr(pd, memory, size, access));
}

// One work request with one piece of memory; a piece of no octets is none. It is filled in and posted in one go:
//
//   SendRequest(IBV_WR_RDMA_WRITE, {number(octets), 8, mr->lkey}).at(address, rkey).post(qp);
class SendRequest {
 public:
  explicit SendRequest(ibv_wr_opcode opcode, const ibv_sge& piece = {}, std::uint64_t id = 0,
                       unsigned flags = IBV_SEND_SIGNALED)
      : piece_(piece) {
    request_.wr_id = id;
    request_.opcode = opcode;
    request_.send_flags = flags;
  }
  SendRequest& at(std::uint64_t address, std::uint32_t rkey) {
    request_.wr.rdma = {address, rkey};
    return *this;
  }
  SendRequest& add(std::uint64_t address, std::uint32_t rkey, std::uint64_t value) {
    request_.wr.atomic = {address, value, 0, rkey};
    return *this;
  }
  SendRequest& swap(std::uint64_t address, std::uint32_t rkey, std::uint64_t compare, std::uint64_t value) {
    request_.wr.atomic = {address, compare, value, rkey};
    return *this;
  }
  SendRequest& immediate(__be32 value) {
    request_.imm_data = value;
    return *this;
  }
  SendRequest& invalidate(std::uint32_t rkey) {
    request_.invalidate_rkey = rkey;
    return *this;
  }
  SendRequest& bind(ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info& info) {
    request_.bind_mw = {window, rkey, info};
    return *this;
  }
  SendRequest& for_queue(std::uint32_t shared) {  // XRC
    request_.qp_type.xrc.remote_srqn = shared;
    return *this;
  }
  SendRequest& to(ibv_ah* address, std::uint32_t qp_number, std::uint32_t qkey) {
    request_.wr.ud = {address, qp_number, qkey};
    return *this;
  }

  // 0 or the errno.
  int try_post(ibv_qp* qp) {
    request_.sg_list = &piece_;
    request_.num_sge = piece_.length > 0 || piece_.addr != 0 ? 1 : 0;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp, &request_, &bad);
    if (error != 0 && bad != &request_) die("ibv_post_send fails and bad_wr does not tell where");
    return error;
  }
  void post(ibv_qp* qp) { good("ibv_post_send", try_post(qp)); }

 private:
  ibv_sge piece_;
  ibv_send_wr request_{};
};

// One receive, of a queue pair or of a shared queue. 0 or the errno.
template <typename Queue>
int try_post_receive(Queue* queue, std::vector<ibv_sge> list = {}, std::uint64_t id = 0) {
  ibv_recv_wr request{id, nullptr, list.data(), static_cast<int>(list.size())}, *bad = nullptr;
  int error;
  if constexpr (std::is_same_v<Queue, ibv_srq>) {
    error = ibv_post_srq_recv(queue, &request, &bad);
  } else {
    error = ibv_post_recv(queue, &request, &bad);
  }
  if (error != 0 && bad != &request) die("a receive is refused and bad_wr does not tell which");
  return error;
}
template <typename Queue>
void post_receive(Queue* queue, std::vector<ibv_sge> list = {}, std::uint64_t id = 0) {
  good("posting a receive", try_post_receive(queue, std::move(list), id));
}

}  // namespace apps
