// SPDX-License-Identifier: MIT
// The real signal functions, which the interposer's hooks hide. libuiw.so.1 calls them by way of UiwHost (entry.h).
// Part of the interposer.
#pragma once

#include <signal.h>

namespace uiw::kernel_abi {

// Call the real sigaction() and pthread_sigmask(): those of the library that follows the interposer in the dynamic
// loader's search order, usually libc.
int call_sigaction(int signal, const struct sigaction* action, struct sigaction* before);
int call_sigmask(int how, const sigset_t* set, sigset_t* before);

}  // namespace uiw::kernel_abi
