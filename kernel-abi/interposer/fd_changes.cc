// SPDX-License-Identifier: MIT
#include "kernel-abi/interposer/fd_changes.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace uiw::kernel_abi {

namespace {

// The counters of one side: of the library's changes, or of the program's closings. A thread increments its own side's
// `open` and then reads the other side's, both in sequentially consistent order; so if both sides begin at the same
// time, at least one sees the other.
struct Side {
  std::atomic<unsigned> open{0};   // changes or closings that have begun and not ended
  std::atomic<unsigned> ended{0};  // how many have ended so far
  std::atomic<unsigned> vain{0};   // 1 + `ended` when a wait timed out: nobody waits for this side until `ended` grows

  void begin() { open.fetch_add(1); }
  void end() {
    open.fetch_sub(1);
    ended.fetch_add(1);
  }
};
Side g_changes, g_closings;
// How many changes and closings this thread has begun and not ended. A change inside a closing, a closing inside a
// change, and a nested change do not wait, since the thread could wait for itself.
__thread unsigned t_changes __attribute__((tls_model("initial-exec"))) = 0;
__thread unsigned t_closings __attribute__((tls_model("initial-exec"))) = 0;

// Waits until no change or closing of the side `other` is open, for at most `milliseconds`. Calls `yield` before and
// `resume` after each sleep. The sleep is a bare system call, since nanosleep() of libc is a cancellation point.
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
    constexpr timespec kStep = {0, 50'000};  // about 100 us, with the kernel's timer slack
    syscall(SYS_nanosleep, &kStep, nullptr);
    resume();
  }
  errno = saved_errno;
}

}  // namespace

// While this thread sleeps, its change does not count as open, so that the two sides never wait for each other.
void fd_begin_change() {
  if (t_changes++ == 0) fd_table_prepare();
  g_changes.begin();
  if (t_changes > 1 || t_closings > 0 || g_closings.open.load() == 0) return;
  // The child of a vfork shares the parent's counters, and the child of a fork has copies of them until
  // fd_changes_after_fork(). They say nothing about the child's threads, so neither child waits.
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
