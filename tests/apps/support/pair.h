// SPDX-License-Identifier: MIT
// A connected pair in one process, what is posted to it, and what must come of that.
#pragma once

#include <initializer_list>
#include <thread>
#include <vector>

#include "tests/apps/support/cases.h"

namespace apps {

inline std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// ---- What must come --------------------------------------------------------------------------------------------

inline bool one_of(int value, std::initializer_list<int> good) {
  for (int each : good)
    if (value == each) return true;
  return false;
}

inline void expect_error(const char* what, int got, std::initializer_list<int> good) {
  if (one_of(got, good)) return;
  const auto name = [](int error) {
    return error == 0 ? "success" : strerrorname_np(error) ? strerrorname_np(error) : "an unknown errno";
  };
  std::string wanted;
  for (int each : good) wanted += std::string(wanted.empty() ? "" : " or ") + name(each);
  die("%s: %s, not %s", what, name(got), wanted.c_str());
}
inline void expect_error(const char* what, int got, int wanted) { expect_error(what, got, {wanted}); }

inline void expect_status(const char* what, const ibv_wc& wc, std::initializer_list<int> good) {
  if (one_of(wc.status, good)) return;
  std::string wanted;
  for (int each : good)
    wanted += std::string(wanted.empty() ? "" : " or ") + ibv_wc_status_str(static_cast<ibv_wc_status>(each));
  die("%s: %s, not %s", what, ibv_wc_status_str(wc.status), wanted.c_str());
}
inline void expect_status(const char* what, const ibv_wc& wc, int wanted) { expect_status(what, wc, {wanted}); }

// ---- The pair --------------------------------------------------------------------------------------------------

// Connecting and disconnecting take both ends at a time.
struct Pair {
  Listener listener{g_host, g_port, {}};
  Endpoint near{create(g_host, g_port, {})};
  Endpoint far{connected()};

  Pair() = default;
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    std::thread other([this] { near.disconnect(); });
    far.disconnect();
    other.join();
  }

 private:
  Endpoint connected() {
    std::thread caller([this] { connect(near); });
    Endpoint end = listener.request();
    Listener::accept(end);
    caller.join();
    return end;
  }
};

inline ibv_mr* reg(ibv_pd* pd, void* memory, std::size_t size, int access) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, size, access);
  if (mr == nullptr) die("ibv_reg_mr: %s", std::strerror(errno));
  return mr;
}

// Signaled. 0 or the errno.
inline int post(Endpoint& end, ibv_send_wr& request) {
  request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(end.qp(), &request, &bad);
  if (error != 0 && bad != &request) die("ibv_post_send fails and bad_wr does not tell where");
  return error;
}
inline int post_recv(Endpoint& end, std::vector<ibv_sge> list) {
  ibv_recv_wr request{};
  request.sg_list = list.data();
  request.num_sge = static_cast<int>(list.size());
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(end.qp(), &request, &bad);
}

inline ibv_wc sent(Endpoint& end) {
  ibv_wc wc{};
  if (!end.send_completion(wc)) die("no send completion in time");
  return wc;
}
inline ibv_wc received(Endpoint& end) {
  ibv_wc wc{};
  if (!end.recv_completion(wc)) die("no receive completion in time");
  return wc;
}

}  // namespace apps
