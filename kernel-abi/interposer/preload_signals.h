// SPDX-License-Identifier: MIT
// What does libuiw.so.1 need of the signal functions that the interposer hides? Part of the interposer.
#pragma once

#include <signal.h>

namespace uiw::kernel_abi {

// sigaction() and pthread_sigmask() of whoever comes after the interposer.
int call_sigaction(int signal, const struct sigaction* action, struct sigaction* before);
int call_sigmask(int how, const sigset_t* set, sigset_t* before);

}  // namespace uiw::kernel_abi
