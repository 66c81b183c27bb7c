// SPDX-License-Identifier: MIT
// Creates on disk the sysfs tree that libibverbs reads instead of the kernel's.
//
// The tree is <base>/uiw-<uid>/<hash of the content>. It is built under a temporary name and then renamed, so it is
// complete or absent (a tree from which files were removed later is built again), and all processes with the same
// content use the same tree. Nothing has to be cleaned up: if a process is killed while building, a process that builds
// a tree more than a minute later removes the unfinished tree.
//
// If another user has taken the name uiw-<uid>, which is possible in /dev/shm and /tmp, the directory is called
// uiw-<uid>-XXXXXX with six unpredictable characters: the first existing one of this user by name, or a new one.
#pragma once

#include <string>
#include <vector>

#include "kernel-abi/sysfs/tree_content.h"

namespace uiw::kernel_abi {

// The directories to try as <base>, best first: only `runtime_dir` if it is set, else $XDG_RUNTIME_DIR (if it is an
// absolute path), /dev/shm, /tmp.
std::vector<std::string> tree_bases(const std::string& runtime_dir);

struct PlacedTree {
  std::string root;   // empty on failure
  std::string error;  // on failure: what is wrong with each base, and what to do
};

// Finds or builds the tree in the first base that can be used. The tree's directory is never a symbolic link, belongs
// to this user and is closed to all others, so that nothing that another user has put into a shared /tmp is followed.
PlacedTree place_tree(const Tree& tree, const std::vector<std::string>& bases);

// Replaces the contents of counters in a placed tree, each file in one step (rename). The first file that cannot be
// written and all files after it stay as they are.
void rewrite_counters(const std::string& root, const std::vector<TreeEntry>& counters);

}  // namespace uiw::kernel_abi
