// SPDX-License-Identifier: MIT
// Recognises RDMA paths, which lead into one of the folders of RdmaArea, and maps them into the directory tree of uiw.
//
// Part of the interposer: no allocation, no C++ runtime, does not change errno.
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
  const char* prefix = nullptr;  // the path of the area in the tree: "class/infiniband"
  const char* rest = nullptr;    // the part of the path after the area: "", "/", "/uiw_eth0/node_type"; not a copy
};

// Recognises absolute paths into one of the areas, also with doubled slashes and "." components. Paths that leave the
// area by ".." and go on, and null, are not recognised.
RdmaPath parse_rdma_path(const char* path);

// As parse_rdma_path(), for a relative path that leads from `folder`, a descriptor or AT_FDCWD, into an area.
// `is_folder` says whether a descriptor refers to the folder with this absolute path ("/", "/sys/class"). It is called
// only for folders from which the path would lead into an area, so for most paths it is not called at all.
RdmaPath parse_relative_rdma_path(const char* path, int folder, bool (*is_folder)(int folder, const char* absolute));

// Writes root + "/" + prefix + rest. False if it does not fit.
bool join_rdma_path(const char* root, const RdmaPath& path, char* buffer, size_t size);

// Copies the name of the node for a path of a device node ("/dev/infiniband//uverbs0"). False for the directory itself,
// for anything deeper, for a name that does not fit, and for other areas.
bool device_node_name(const RdmaPath& path, char* name, size_t size);

}  // namespace uiw::kernel_abi
