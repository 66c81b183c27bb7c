// SPDX-License-Identifier: MIT
// The fixture Pair: two ends of one process that rdma_cm has connected, `near` and `far`; and what must come of what is
// posted to them. manual_pair.h has the one without rdma_cm.
#pragma once

#include <initializer_list>
#include <vector>

#include "tests/apps/support/cases.h"

namespace apps {

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

struct Pair {
  Listener listener{g_host, g_port, {}};
  Endpoint near{create(g_host, g_port, {})};
  Endpoint far{connected(listener, near)};

  Pair() = default;
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() { disconnect(near, far); }
};

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
