// SPDX-License-Identifier: MIT
#include "provider/process/faults/faults.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "base/descriptor.h"
#include "base/event_counter.h"
#include "base/mixed.h"
#include "base/mutex.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

constexpr std::size_t kSignals = 65;

Mutex beginning;

// Used by the signal handler.
std::array<std::atomic<std::uint64_t>, kSignals> signals_seen{};
std::atomic<int> signal_event{-1};

void count_signal(int number) {
  const int saved_errno = errno;
  signals_seen[static_cast<std::size_t>(number)].fetch_add(1);
  add_event(signal_event.load());
  errno = saved_errno;
}

bool acts_without_operation(const FaultRule& rule) {
  return rule.time == FaultTime::signal && (rule.kind == FaultKind::disconnect || rule.kind == FaultKind::event);
}

void log_fault(const FaultRule& rule, std::uint64_t operation) {
  log_event(LogLevel::error, "fault %s: at operation %llu", rule.text.c_str(),
            static_cast<unsigned long long>(operation));
}

}  // namespace

std::atomic<Faults*> Faults::active_{nullptr};

// Carries out, on the thread "uiw-cm", the faults that a signal causes at once and not at the next operation: lost
// connections and asynchronous events.
class Faults::SignalWatch final : public CmLoop::Handler {
 public:
  SignalWatch(const FaultPlan& plan, std::function<void(const FaultRule&)> everywhere)
      : everywhere_(std::move(everywhere)),
        fd_(DescriptorChange().take(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "the signals of faults")) {
    for (const FaultRule& rule : plan.rules) {
      if (acts_without_operation(rule)) rules_.push_back({.rule = &rule, .done = 0});
    }
  }
  ~SignalWatch() override {
    if (fd_ >= 0) close_descriptor(fd_);
  }
  int fd() const { return fd_; }

  void ready(std::uint32_t) override {
    std::uint64_t count;
    [[maybe_unused]] const long size = ::syscall(SYS_read, fd_, &count, sizeof count);
    for (AtSignals& at : rules_) {
      for (const std::uint64_t seen = signals_seen[at.rule->number].load(); at.done < seen; ++at.done) {
        log_event(LogLevel::error, "fault %s: at a signal", at.rule->text.c_str());
        everywhere_(*at.rule);
      }
    }
  }

 private:
  struct AtSignals {
    const FaultRule* rule;
    std::uint64_t done;  // how many signals have caused this fault
  };
  const std::function<void(const FaultRule&)> everywhere_;
  const int fd_;
  std::vector<AtSignals> rules_;
};

Faults::Faults(const FaultPlan& plan) : plan_(plan) {
  for (const FaultRule& rule : plan.rules) rules_.push_back(std::make_unique<Counted>(rule));
}

int Faults::begin(std::function<void(const FaultRule&)> everywhere) {
  const FaultPlan& plan = settings().values.faults;
  if (plan.rules.empty()) return 0;
  const LockGuard lock(beginning);
  if (active() != nullptr) return 0;
  try {
    std::unique_ptr<Faults> made(new Faults(plan));
    if (const int error = made->watch_signals(std::move(everywhere)); error != 0) return error;
    log_event(LogLevel::info, "faults are asked for: %zu rules, seed %llu", plan.rules.size(),
              static_cast<unsigned long long>(plan.seed));
    active_.store(made.release(), std::memory_order_release);
    return 0;
  } catch (const std::exception&) {
    return ENOMEM;
  }
}

int Faults::watch_signals(std::function<void(const FaultRule&)> everywhere) {
  const auto by_signal = [](const FaultRule& rule) { return rule.time == FaultTime::signal; };
  if (std::none_of(plan_.rules.begin(), plan_.rules.end(), by_signal)) return 0;
  watch_ = std::make_shared<SignalWatch>(plan_, std::move(everywhere));
  if (watch_->fd() < 0) return EMFILE;
  signal_event.store(watch_->fd());
  if (const int error = CmLoop::instance().watch(watch_->fd(), EPOLLIN, watch_); error != 0) return error;
  for (const FaultRule& rule : plan_.rules) {
    if (!by_signal(rule)) continue;
    struct sigaction action {};
    action.sa_handler = count_signal;
    action.sa_flags = SA_RESTART;
    if (::sigaction(static_cast<int>(rule.number), &action, nullptr) != 0) return errno;
  }
  return 0;
}

bool Faults::has(FaultKind kind) const {
  return std::any_of(plan_.rules.begin(), plan_.rules.end(), [&](const FaultRule& rule) { return rule.kind == kind; });
}

bool Faults::is_due(Counted& counted, std::uint64_t& operation) const {
  const FaultRule& rule = counted.rule;
  operation = counted.operations.fetch_add(1) + 1;
  switch (rule.time) {
    case FaultTime::once: return operation == rule.number;
    case FaultTime::from: return operation >= rule.number;
    case FaultTime::every: return operation % rule.number == 0;
    case FaultTime::random: {
      const auto index = static_cast<std::uint64_t>(&rule - plan_.rules.data());
      return mixed(mixed(mixed(plan_.seed) + index) + operation) % rule.number == 0;
    }
    case FaultTime::signal: {
      std::uint64_t done = counted.signals.load();
      return done < signals_seen[rule.number].load() && counted.signals.compare_exchange_strong(done, done + 1);
    }
  }
  return false;
}

const FaultRule* Faults::due(FaultKind kind, std::string_view call) noexcept {
  const FaultRule* first = nullptr;
  for (const std::unique_ptr<Counted>& counted : rules_) {
    const FaultRule& rule = counted->rule;
    if (rule.kind != kind || rule.call != call || acts_without_operation(rule)) continue;
    std::uint64_t operation;
    if (!is_due(*counted, operation) || first != nullptr) continue;
    first = &rule;
    log_fault(rule, operation);
  }
  return first;
}

int fault_of_call(const char* call) noexcept {
  Faults* const faults = Faults::active();
  if (faults == nullptr) return 0;
  const FaultRule* const rule = faults->due(FaultKind::call, call);
  return rule == nullptr ? 0 : rule->value;
}

bool calls_may_fail() noexcept {
  const Faults* const faults = Faults::active();
  return faults != nullptr && faults->has(FaultKind::call);
}

}  // namespace uiw::provider
