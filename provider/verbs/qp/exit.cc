// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/exit.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "provider/process/cm_loop.h"
#include "provider/verbs/qp/qp.h"

namespace uiw::provider {

namespace {

constexpr std::chrono::seconds kMostWaited{2};
constexpr std::chrono::milliseconds kPause{1};

bool delivering() {
  bool any = CmLoop::instance().keeps_process();
  for_each_qp([&any](Qp& qp) { any = any || qp.delivers_last(); });
  return any;
}

void leave() {
  for_each_qp([](Qp& qp) { qp.leave_at_exit(); });
  const auto until = std::chrono::steady_clock::now() + kMostWaited;
  while (delivering() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kPause);
}

}  // namespace

void act_at_exit() {
  static std::atomic<bool> registered{false};
  if (!registered.exchange(true)) std::atexit(leave);
}

}  // namespace uiw::provider
