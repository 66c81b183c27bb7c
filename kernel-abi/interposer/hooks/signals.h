// SPDX-License-Identifier: MIT
// The signal functions that lie behind the interposer's hooks, as libuiw.so.1 calls them (UiwHost). Part of the
// interposer.
#pragma once

#include <signal.h>

namespace uiw::kernel_abi {

// sigaction() and pthread_sigmask() of the next library, usually libc.
int call_sigaction(int signal, const struct sigaction* action, struct sigaction* before);
int call_sigmask(int how, const sigset_t* set, sigset_t* before);

}  // namespace uiw::kernel_abi
