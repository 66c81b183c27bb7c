// SPDX-License-Identifier: MIT
#include "kernel-abi/interposer/fd_changes.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace uiw::kernel_abi {

namespace {

// One of the two sides. Each announces itself before it looks for the other, in sequentially consistent order, so that
// at least one sees the other.
struct Side {
  std::atomic<unsigned> open{0};   // begun and not ended
  std::atomic<unsigned> ended{0};  // ended so far
  std::atomic<unsigned> vain{0};   // 1 + `ended` at the last timeout: until one more ends, nobody waits

  void begin() { open.fetch_add(1); }
  void end() {
    open.fetch_sub(1);
    ended.fetch_add(1);
  }
};
Side g_changes, g_closings;
// This thread's own part, for which it does not wait.
__thread unsigned t_changes __attribute__((tls_model("initial-exec"))) = 0;
__thread unsigned t_closings __attribute__((tls_model("initial-exec"))) = 0;

// Waits until nothing of the other side is open, or the time is up. `yield` and `resume` are called around each part of
// the wait. The system call is a bare one, since nanosleep() of libc is a cancellation point.
template <typename Yield, typename Resume>
void wait_for(Side& other, int milliseconds, Yield yield, Resume resume) {
  const int saved_errno = errno;
  for (int left = milliseconds * 10; other.open.load() != 0; --left) {
    const unsigned ended = other.ended.load();
    if (other.vain.load() == ended + 1) break;
    if (left == 0) {
      other.vain.store(ended + 1);
      break;
    }
    yield();
    constexpr timespec kStep = {0, 50'000};  // some 100 us, with the timer's slack
    syscall(SYS_nanosleep, &kStep, nullptr);
    resume();
  }
  errno = saved_errno;
}

}  // namespace

// While this thread waits, it does not count as begun, so that the two sides never wait for each other.
void fd_begin_change() {
  if (t_changes++ == 0) fd_table_prepare();
  g_changes.begin();
  if (t_changes > 1 || t_closings > 0 || g_closings.open.load() == 0) return;
  // In the child of a vfork, or of a fork that has not reset them yet, the counters are the parent's.
  if (fd_table_is_used() && fd_table_is_borrowed()) return;
  wait_for(
      g_closings, 100, [] { g_changes.open.fetch_sub(1); }, [] { g_changes.open.fetch_add(1); });
}

void fd_end_change() {
  g_changes.end();
  --t_changes;
}

bool FdClosing::begin() {
  if (fd_table_is_borrowed()) return false;
  ++t_closings;
  g_closings.begin();
  if (t_changes == 0)
    wait_for(
        g_changes, 1000, [] {}, [] {});
  return true;
}

void FdClosing::end() {
  g_closings.end();
  --t_closings;
}

void fd_changes_after_fork() {
  g_changes.open.store(t_changes);
  g_closings.open.store(t_closings);
}

}  // namespace uiw::kernel_abi
