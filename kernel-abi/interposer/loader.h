// SPDX-License-Identifier: MIT
// Loads libuiw.so.1, and makes our plugin known to stock libibverbs.
//
// The library is loaded when the program first uses an RDMA path or opens a socket of NETLINK_RDMA, and not before; the
// plugin only for such a socket or a path of verbs_class. Part of the interposer. No lock of the interposer is held
// during dlopen, so a constructor that uses an RDMA path under the dynamic loader's lock cannot deadlock. (If two
// threads want to load the library at the same time, both call dlopen, which loads it once.)
#pragma once

#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/interposer/path_rewrite.h"

namespace uiw::kernel_abi {

// The library's table if it is loaded, else null; loads nothing.
const UiwKernelAbi* loaded_library();

// The root of the directory tree that RDMA paths lead to (UiwKernelAbi::root); loads the library, and the plugin for
// verbs_class, if they are not loaded. Null if RDMA paths are to be used unchanged: there is no device or no tree, the
// library or a plugin for the private ABI cannot be used, the program is set-uid, or this thread is inside uiw's code.
// Keeps errno.
const char* tree_root(RdmaArea area, bool rescan);

}  // namespace uiw::kernel_abi
