// SPDX-License-Identifier: MIT
// The macro for all hooks, and common parts of the hooks of functions with a path. Part of the interposer.
#pragma once

#include <fcntl.h>
#include <limits.h>

#include "kernel-abi/interposer/loader.h"
#include "kernel-abi/interposer/path_rewrite.h"

// Exports a hook; the interposer exports nothing else.
#define UIW_HOOK extern "C" __attribute__((visibility("default")))

namespace uiw::kernel_abi {

// Returns the path for the real function: the path in the tree of uiw, which is written to `buffer` (of PATH_MAX
// octets), or `path` itself if there is no tree or the path in the tree is too long.
inline const char* rewrite_path(const RdmaPath& rdma, const char* path, char* buffer) {
  const char* root = tree_root(rdma.area, false);
  return root != nullptr && join_rdma_path(root, rdma, buffer, PATH_MAX) ? buffer : path;
}

// Whether `folder`, a descriptor or AT_FDCWD, refers to the folder with this absolute path.
bool is_folder(int folder, const char* absolute);

// Recognises an RDMA path, which leads into one of the folders of RdmaArea (path_rewrite.h). A relative path starts at
// `folder`. The area of all other paths is RdmaArea::none.
inline RdmaPath rdma_path(int folder, const char* path) {
  if (path != nullptr && path[0] == '/') return parse_rdma_path(path);
  return parse_relative_rdma_path(path, folder, is_folder);
}

template <typename Call>
__attribute__((noinline)) auto with_rewritten_path(const RdmaPath& rdma, const char* path, Call call) {
  char buffer[PATH_MAX];
  return call(rewrite_path(rdma, path, buffer));
}

// Calls `call` with the path for the real function, which is absolute if it differs from `path`. The buffer is on the
// stack only for RDMA paths, since a signal handler on a small stack may open files, too.
template <typename Call>
inline auto with_path(int folder, const char* path, Call call) {
  const RdmaPath rdma = rdma_path(folder, path);
  if (__builtin_expect(rdma.area == RdmaArea::none, 1)) return call(path);
  return with_rewritten_path(rdma, path, call);
}

}  // namespace uiw::kernel_abi
