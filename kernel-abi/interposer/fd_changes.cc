// SPDX-License-Identifier: MIT
#include "kernel-abi/interposer/fd_changes.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace uiw::kernel_abi {

namespace {

// Each side announces itself before it looks for the other, in sequentially consistent order, so that one sees the
// other at least.
std::atomic<unsigned> g_changes{0};
std::atomic<unsigned> g_closings{0};
// The part of g_changes that is this thread's: a close inside of a change does not wait for it.
__thread unsigned t_changes __attribute__((tls_model("initial-exec"))) = 0;

// False if the time is up. The system call is a bare one, since nanosleep() of libc is a cancellation point.
class Patience {
 public:
  explicit Patience(int milliseconds) : left_(milliseconds * 10) {}
  bool wait() {
    if (left_-- <= 0) return false;
    const int saved_errno = errno;
    constexpr timespec kStep = {0, 50'000};  // some 100 us, with the timer's slack
    syscall(SYS_nanosleep, &kStep, nullptr);
    errno = saved_errno;
    return true;
  }

 private:
  int left_;
};

}  // namespace

void fd_begin_change() {
  if (t_changes++ > 0) {
    g_changes.fetch_add(1);
    return;
  }
  fd_table_prepare();
  for (Patience patience(100);;) {
    g_changes.fetch_add(1);
    if (g_closings.load() == 0) return;
    g_changes.fetch_sub(1);
    if (!patience.wait()) break;
  }
  g_changes.fetch_add(1);
}

void fd_end_change() {
  g_changes.fetch_sub(1);
  --t_changes;
}

bool FdClosing::begin() {
  if (fd_table_is_borrowed()) return false;
  g_closings.fetch_add(1);
  for (Patience patience(1000); g_changes.load() > t_changes && patience.wait();) {
  }
  return true;
}

void FdClosing::end() { g_closings.fetch_sub(1); }

void fd_changes_after_fork() {
  g_changes.store(t_changes);
  g_closings.store(0);
}

}  // namespace uiw::kernel_abi
