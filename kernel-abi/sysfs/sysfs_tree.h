// SPDX-License-Identifier: MIT
// Where does the tree lie, and how does it come to be there?
//
// As <base>/uiw-<uid>/<hash of the content>. It is built under a private name and renamed into place, so it
// is either whole or absent; every process with the same content uses the same one. Nothing has to be cleaned
// up: a process that is killed while building leaves a directory that a later builder removes.
//
// Where the name uiw-<uid> is taken by somebody else, which in /dev/shm and /tmp anybody can do, the
// directory is called uiw-<uid>-XXXXXX with six characters that cannot be foreseen: the first of the user's
// own by name, or a new one.
#pragma once

#include <string>
#include <vector>

#include "kernel-abi/sysfs/tree_content.h"

namespace uiw::kernel_abi {

// The places to try, best first: `runtime_dir` alone where it is set, else $XDG_RUNTIME_DIR, /dev/shm, /tmp.
std::vector<std::string> tree_bases(const std::string& runtime_dir);

struct PlacedTree {
  std::string root;   // empty on failure
  std::string error;  // then: what was wrong with the last base tried, for people
};

// Finds or builds the tree in the first base that works. The directory that holds it is a real one, of this
// user, and closed to all others (no symbolic link planted in a shared /tmp is followed).
PlacedTree place_tree(const Tree& tree, const std::vector<std::string>& bases);

}  // namespace uiw::kernel_abi
