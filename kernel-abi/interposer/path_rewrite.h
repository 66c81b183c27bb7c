// SPDX-License-Identifier: MIT
// Which paths are RDMA's, and what are they called inside our own directory tree?
//
// Part of the interposer: no allocation, no C++ runtime, no errno.
#pragma once

#include <stddef.h>

namespace uiw::kernel_abi {

enum class RdmaArea {
  none,
  infiniband_class,  // /sys/class/infiniband
  verbs_class,       // /sys/class/infiniband_verbs
  cm_class,          // /sys/class/misc/rdma_cm
  device_nodes,      // /dev/infiniband
};

struct RdmaPath {
  RdmaArea area = RdmaArea::none;
  const char* prefix = nullptr;  // where the area lies below the tree: "class/infiniband"
  const char* rest = nullptr;    // points into the path, behind the area's name: "", "/", "/uiw_eth0/node_type"
};

// Recognises absolute paths into one of the areas, with doubled slashes and "." components. A path that
// leaves the area again by ".." and goes on is not recognised. A null path is not either.
RdmaPath parse_rdma_path(const char* path);

// Writes root + "/" + prefix + rest. False where it does not fit.
bool join_rdma_path(const char* root, const RdmaPath& path, char* buffer, size_t size);

// For a path straight to a device node ("/dev/infiniband//uverbs0"): copies the node's name. False for the
// directory itself, for anything deeper, and for other areas.
bool device_node_name(const RdmaPath& path, char* name, size_t size);

}  // namespace uiw::kernel_abi
