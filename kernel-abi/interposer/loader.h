// SPDX-License-Identifier: MIT
// When is libuiw.so.1 brought in, and how does stock libibverbs come to know our plugin?
//
// On the first touch of an RDMA path, and not before. Part of the interposer: no lock is held across dlopen
// (two threads that touch at once both load; dlopen makes that one), so a constructor that touches an RDMA
// path under the loader's lock cannot deadlock.
#pragma once

#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/interposer/path_rewrite.h"

namespace uiw::kernel_abi {

// The library's table once it is loaded, else null; never loads.
const UiwKernelAbi* loaded_library();

// The tree for this area, or null where RDMA paths are to be taken as they are: no device offered, the
// library or a fitting plugin missing, a set-uid program, or this thread already inside our own code. Loads
// what is missing. Keeps errno.
const char* tree_root(RdmaArea area, bool rescan);

}  // namespace uiw::kernel_abi
