// SPDX-License-Identifier: MIT
// Decides which operations of this process get an injected fault (fault_spec.h). The code of the operation carries out
// the fault (provider/verbs/fault_effects.h, provider/plugin/).
//
// Without UIW_FAULT no object of the class Faults exists, so each check only reads one pointer. All functions are
// thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "provider/export.h"
#include "provider/process/cm_loop.h"
#include "provider/process/faults/fault_spec.h"

namespace uiw::provider {

class Faults {
 public:
  // Null until begin() has made the object, which it does only if UIW_FAULT asks for faults.
  static Faults* active() { return active_.load(std::memory_order_acquire); }

  // Makes the object if UIW_FAULT asks for faults. Called when a device is opened; calls after the first that succeeds
  // do nothing. A lost connection or an asynchronous event that a signal causes does not wait for an operation: then
  // the thread "uiw-cm" calls `everywhere` with the rule, to carry it out. Returns 0 or an errno.
  static int begin(std::function<void(const FaultRule&)> everywhere);

  // Counts an operation for the rules of this kind; for FaultKind::call, only for the rules that name `call`. Returns
  // the first rule that causes a fault at this operation, or null.
  const FaultRule* due(FaultKind kind, std::string_view call = {}) noexcept;
  bool has(FaultKind kind) const;

 private:
  struct Counted {
    explicit Counted(const FaultRule& asked) : rule(asked) {}
    const FaultRule& rule;
    std::atomic<std::uint64_t> operations{0};
    std::atomic<std::uint64_t> signals{0};  // how many signals have caused this fault
  };
  class SignalWatch;

  explicit Faults(const FaultPlan& plan);
  int watch_signals(std::function<void(const FaultRule&)> everywhere);
  bool is_due(Counted& counted, std::uint64_t& operation) const;

  static std::atomic<Faults*> active_;

  const FaultPlan& plan_;
  std::vector<std::unique_ptr<Counted>> rules_;
  std::shared_ptr<SignalWatch> watch_;
};

// Counts a call of libibverbs, and returns the errno with which the call is to fail, or 0. `call` is its name without
// "ibv_".
UIW_API int fault_of_call(const char* call) noexcept;
// Whether any call may fail by fault_of_call().
UIW_API bool calls_may_fail() noexcept;

}  // namespace uiw::provider
