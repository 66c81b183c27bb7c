// SPDX-License-Identifier: MIT
// Compares paths with the fixed paths of the folders of RdmaArea, component by component.
#include "kernel-abi/interposer/path_rewrite.h"

#include <string.h>

namespace uiw::kernel_abi {
namespace {

struct Component {
  const char* text;
  size_t length;

  bool is(const char* name) const { return strlen(name) == length && memcmp(text, name, length) == 0; }
};

// Returns the next component that is neither empty nor ".", and moves `cursor` to the octet after the component. A
// component of length 0 is the end of the path.
Component next_component(const char*& cursor) {
  for (;;) {
    while (*cursor == '/') ++cursor;
    const char* start = cursor;
    while (*cursor != '\0' && *cursor != '/') ++cursor;
    const size_t length = static_cast<size_t>(cursor - start);
    if (length != 1 || *start != '.') return {start, length};
  }
}

// True if `rest` never leads above its start by "..". One exception: `rest` may end at the parent of its start, as the
// ".." of a directory listing does, since the parent is a directory of the tree, too.
bool stays_inside(const char* rest) {
  int depth = 0;
  for (;;) {
    const Component component = next_component(rest);
    if (component.length == 0) return true;
    if (depth < 0) return false;
    depth += component.is("..") ? -1 : 1;
  }
}

struct Area {
  RdmaArea area;
  const char* prefix;
  const char* components[5];  // of the area's path; ends with null
  const char* folders[4];     // folders[i] contains components[i]
};
constexpr Area kAreas[] = {
    {RdmaArea::infiniband_class, "class/infiniband", {"sys", "class", "infiniband"}, {"/", "/sys", "/sys/class"}},
    {RdmaArea::verbs_class,
     "class/infiniband_verbs",
     {"sys", "class", "infiniband_verbs"},
     {"/", "/sys", "/sys/class"}},
    {RdmaArea::cm_class,
     "class/misc/rdma_cm",
     {"sys", "class", "misc", "rdma_cm"},
     {"/", "/sys", "/sys/class", "/sys/class/misc"}},
    {RdmaArea::device_nodes, "dev/infiniband", {"dev", "infiniband"}, {"/", "/dev"}},
};

// Recognises a path that begins with the components of the area from index `first` on. For any other path, returns an
// RdmaPath of area `none`.
RdmaPath behind(const Area& area, size_t first, const char* path) {
  for (; area.components[first] != nullptr; ++first) {
    if (!next_component(path).is(area.components[first])) return RdmaPath();
  }
  if (!stays_inside(path)) return RdmaPath();
  return {area.area, area.prefix, path};
}

}  // namespace

RdmaPath parse_rdma_path(const char* path) {
  if (path == nullptr || path[0] != '/') return RdmaPath();
  for (const Area& area : kAreas) {
    const RdmaPath found = behind(area, 0, path);
    if (found.area != RdmaArea::none) return found;
  }
  return RdmaPath();
}

RdmaPath parse_relative_rdma_path(const char* path, int folder, bool (*is_folder)(int folder, const char* absolute)) {
  if (path == nullptr || path[0] == '/') return RdmaPath();
  for (const Area& area : kAreas) {
    for (size_t first = 0; area.components[first] != nullptr; ++first) {
      const RdmaPath found = behind(area, first, path);
      if (found.area != RdmaArea::none && is_folder(folder, area.folders[first])) return found;
    }
  }
  return RdmaPath();
}

bool join_rdma_path(const char* root, const RdmaPath& path, char* buffer, size_t size) {
  const char* const parts[] = {root, "/", path.prefix, path.rest};
  size_t used = 0;
  for (const char* part : parts) {
    const size_t length = strlen(part);
    if (length >= size - used) return false;
    memcpy(buffer + used, part, length);
    used += length;
  }
  buffer[used] = '\0';
  return true;
}

bool device_node_name(const RdmaPath& path, char* name, size_t size) {
  if (path.area != RdmaArea::device_nodes) return false;
  const char* cursor = path.rest;
  const Component node = next_component(cursor);
  if (node.length == 0 || node.length >= size || node.is("..")) return false;
  if (*cursor != '\0') return false;
  memcpy(name, node.text, node.length);
  name[node.length] = '\0';
  return true;
}

}  // namespace uiw::kernel_abi
