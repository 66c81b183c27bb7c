// SPDX-License-Identifier: MIT
// The private ABI between libibverbs and its providers, as far as this plugin uses it: rdma-core does not install it.
//
// UIW_PABI says which one: 34 (rdma-core 39 to 56), 57 (57, 58), 59 (59 to 63), 64 (64), 65 (65). Between them the
// table of operations grows, and so do two structures of the public header that are part of private ones: verbs_context
// at its beginning, ibv_qp_ex at its end; all this also within a PABI. The header that uiw is built with is that of one
// release, so the places of what stands before and behind are worked out here. Layouts are those of the ABI; what this
// plugin does not touch is declared as room.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#ifndef UIW_PABI
#error "UIW_PABI is the number in libuiw-rdmav<number>.so"
#endif

extern "C" {

struct verbs_sysfs_dev;  // the device that libibverbs found in sysfs

// How a provider says which devices are its own; a kind of 0 ends the table.
enum { VERBS_MATCH_MODALIAS = 2 };
struct verbs_match_ent {
  void* driver_data;
  union {
    const char* modalias;  // a pattern; "rdma_device:*N<name>" is matched against the device's name
    std::uint64_t driver_id;
  } u;
  std::uint16_t vendor;
  std::uint16_t device;
  std::uint8_t kind;
};

struct verbs_device;
struct verbs_device_ops {
  const char* name;
  std::uint32_t match_min_abi_version;
  std::uint32_t match_max_abi_version;
  const verbs_match_ent* match_table;
  const verbs_device_ops** static_providers;
  bool (*match_device)(verbs_sysfs_dev*);
  struct verbs_context* (*alloc_context)(ibv_device*, int cmd_fd, void* private_data);
  struct verbs_context* (*import_context)(ibv_device*, int cmd_fd);
  verbs_device* (*alloc_device)(verbs_sysfs_dev*);
  void (*uninit_device)(verbs_device*);
};

// Filled in by libibverbs; allocated and freed by the provider.
struct verbs_device {
  ibv_device device;
  const verbs_device_ops* ops;
  std::atomic<int> refcount;
  void* list_entry[2];
  verbs_sysfs_dev* sysfs;
  std::uint64_t core_support;
};

// The size of verbs_context in release 39, which began with query_port.
constexpr std::size_t kVerbsContext39 = sizeof(verbs_context) - offsetof(verbs_context, query_port);
// How many pointers a later release has before that.
constexpr std::size_t verbs_context_growth(int release) {
  return release < 59 ? 0 : release < 62 ? 3 : release < 64 ? 4 : 6;
}
constexpr std::size_t kMostGrowth = verbs_context_growth(UIW_PABI == 59 ? 62 : UIW_PABI);

// The object behind an ibv_qp; the program finds its ibv_qp_ex only if comp_mask says so. That stands behind ibv_qp_ex,
// which gained one operation in 44 and another in 45. Nothing tells these releases of PABI 34 apart, so there the mask
// is put into all three places: nobody reads the operations, which are not offered, and the domain for XRC that belong
// there otherwise.
enum { VERBS_QP_EX = 1 << 1 };
struct uiw_behind_qp_ex {
  unsigned char qp_ex[offsetof(ibv_qp_ex, wr_abort) + sizeof(void*)];  // as in release 39
  alignas(void*) std::uint32_t comp_mask_39;
  alignas(void*) std::uint32_t comp_mask_44;
  alignas(void*) std::uint32_t comp_mask_45;
  struct verbs_xrcd* xrcd;
};
struct verbs_qp {
  union {
    ibv_qp qp;
    ibv_qp_ex qp_ex;
    uiw_behind_qp_ex behind;
  };
};
inline void set_comp_mask(verbs_qp& qp, std::uint32_t mask) {
  qp.behind.comp_mask_45 = mask;
  if (UIW_PABI == 34) qp.behind.comp_mask_39 = qp.behind.comp_mask_44 = mask;
}

enum { UIW_MR_TYPE_MR = 0, UIW_MR_TYPE_NULL_MR = 1, UIW_MR_TYPE_DMABUF_MR = 3 };
struct verbs_mr {
  ibv_mr mr;
  int mr_type;
  int access;
};

// The table that verbs_set_ops() reads is a row of function pointers in the order of their names, and nothing else: so
// it is built at run time, from the list of all operations and the release that brought each. An empty one answers
// EOPNOTSUPP.
using uiw_op = void (*)();

#define UIW_JOIN_(a, b) a##b
#define UIW_JOIN(a, b) UIW_JOIN_(a, b)
void UIW_JOIN(verbs_register_driver_, UIW_PABI)(const verbs_device_ops*);

// Allocates and sets up an object that has a verbs_context at this offset.
void* _verbs_init_and_alloc_context(ibv_device*, int cmd_fd, std::size_t size, struct verbs_context* offset,
                                    std::uint32_t driver_id);
void verbs_uninit_context(struct verbs_context*);
void verbs_set_ops(struct verbs_context*, const uiw_op* table);

}  // extern "C"
