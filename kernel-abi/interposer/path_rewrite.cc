// SPDX-License-Identifier: MIT
// The areas are fixed, so paths are compared component by component.
#include "kernel-abi/interposer/path_rewrite.h"

#include <string.h>

namespace uiw::kernel_abi {
namespace {

struct Component {
  const char* text;
  size_t length;

  bool is(const char* name) const { return strlen(name) == length && memcmp(text, name, length) == 0; }
};

// The next component that is neither empty nor "."; moves `cursor` behind it. Length 0 at the end.
Component next_component(const char*& cursor) {
  for (;;) {
    while (*cursor == '/') ++cursor;
    const char* start = cursor;
    while (*cursor != '\0' && *cursor != '/') ++cursor;
    const size_t length = static_cast<size_t>(cursor - start);
    if (length != 1 || *start != '.') return {start, length};
  }
}

// True if no prefix of `rest` leaves its start by "..". One exception: the parent itself, as the ".." of a listing, is
// a directory of the tree, too.
bool stays_inside(const char* rest) {
  int depth = 0;
  for (;;) {
    const Component component = next_component(rest);
    if (component.length == 0) return true;
    if (depth < 0) return false;
    depth += component.is("..") ? -1 : 1;
  }
}

}  // namespace

RdmaPath parse_rdma_path(const char* path) {
  RdmaPath result;
  if (path == nullptr || path[0] != '/') return result;
  const char* cursor = path;
  const Component first = next_component(cursor);
  const bool sys = first.is("sys");
  if (!sys && !first.is("dev")) return result;

  Component component = next_component(cursor);
  if (sys) {
    if (!component.is("class")) return result;
    component = next_component(cursor);
    if (component.is("infiniband")) {
      result.area = RdmaArea::infiniband_class;
      result.prefix = "class/infiniband";
    } else if (component.is("infiniband_verbs")) {
      result.area = RdmaArea::verbs_class;
      result.prefix = "class/infiniband_verbs";
    } else if (component.is("misc") && next_component(cursor).is("rdma_cm")) {
      result.area = RdmaArea::cm_class;
      result.prefix = "class/misc/rdma_cm";
    }
  } else if (component.is("infiniband")) {
    result.area = RdmaArea::device_nodes;
    result.prefix = "dev/infiniband";
  }
  if (result.area == RdmaArea::none) return result;
  if (!stays_inside(cursor)) return RdmaPath();
  result.rest = cursor;
  return result;
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
