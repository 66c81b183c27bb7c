// SPDX-License-Identifier: MIT
// The private ABI between libibverbs and its providers, as far as this plugin uses it. rdma-core does not install a
// header of it.
//
// UIW_PABI selects the private ABI; releases.def lists all private ABIs. From release to release the table of
// operations grows, and so do two structures of the public header that are part of private structures: verbs_context at
// its beginning, ibv_qp_ex at its end. The installed header has the sizes of one release, so the offsets of the members
// before and after these structures are computed here. If a release has extended the table or verbs_context without a
// new private ABI, release() recognizes it (release.h), provided that releases.def lists it; if verbs_context has
// another size than releases.def says, open_context() (plugin.cc) fails. Members that this plugin does not use are
// declared as padding.
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

// An entry of the table by which a provider tells libibverbs which devices are its own. An entry whose `kind` is 0 ends
// the table.
enum { VERBS_MATCH_MODALIAS = 2 };
struct verbs_match_ent {
  void* driver_data;
  union {
    const char* modalias;  // a pattern; "rdma_device:*N<name>" is compared with the device's name
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

// libibverbs fills this in; the provider allocates and frees it.
struct verbs_device {
  ibv_device device;
  const verbs_device_ops* ops;
  std::atomic<int> refcount;
  void* list_entry[2];
  verbs_sysfs_dev* sysfs;
  std::uint64_t core_support;
};

// The size of verbs_context in release 39, where it began with query_port.
constexpr std::size_t kVerbsContext39 = sizeof(verbs_context) - offsetof(verbs_context, query_port);
// How many pointers a later release has in front of query_port.
constexpr std::size_t verbs_context_growth(int release) {
  std::size_t growth = 0;
#define UIW_CONTEXT_GROWTH(since, pointers) \
  if (release >= (since)) growth = pointers;
#include "provider/plugin/abi/releases.def"
#undef UIW_CONTEXT_GROWTH
  return growth;
}

constexpr int first_release(int abi) {
#define UIW_PRIVATE_ABI(number, release) \
  if (abi == (number)) return release;
#include "provider/plugin/abi/releases.def"
#undef UIW_PRIVATE_ABI
  return 0;
}
static_assert(first_release(UIW_PABI) != 0, "releases.def does not list this private ABI");
constexpr int last_release(int abi) {
  int last = first_release(abi);
#define UIW_RELEASE_WITHIN_ABI(number, release, function) \
  if (abi == (number)) last = release;
#include "provider/plugin/abi/releases.def"
#undef UIW_RELEASE_WITHIN_ABI
  return last;
}
constexpr std::size_t kMostGrowth = verbs_context_growth(last_release(UIW_PABI));

// The object that contains a program's ibv_qp as its first member. A program gets the ibv_qp_ex only if comp_mask has
// VERBS_QP_EX. comp_mask follows ibv_qp_ex, which gained one operation in release 44 and another in 45.
enum { VERBS_QP_EX = 1 << 1 };
using uiw_wr_atomic_write = void (*)(ibv_qp_ex*, std::uint32_t, std::uint64_t, const void*);
using uiw_wr_flush = void (*)(ibv_qp_ex*, std::uint32_t, std::uint64_t, std::size_t, std::uint8_t, std::uint8_t);
struct uiw_behind_qp_ex {
  unsigned char qp_ex[offsetof(ibv_qp_ex, wr_abort) + sizeof(void*)];  // as in release 39
  union Word {
    uiw_wr_atomic_write wr_atomic_write;  // words[0], from release 44 on
    uiw_wr_flush wr_flush;                // words[1], from release 45 on
    std::uint32_t comp_mask;              // then this
    struct verbs_xrcd* xrcd;              // and this
  } words[4];
};
struct verbs_qp {
  union {
    ibv_qp qp;
    ibv_qp_ex qp_ex;
    uiw_behind_qp_ex behind;
  };
};

// What the public header has from release 44 or 45 on.
enum : std::uint64_t { UIW_QP_EX_WITH_FLUSH = 1 << 11, UIW_QP_EX_WITH_ATOMIC_WRITE = 1 << 12 };
enum : std::uint64_t {  // IB_UVERBS_DEVICE_ATOMIC_WRITE, and IB_UVERBS_DEVICE_FLUSH_GLOBAL and _PERSISTENT
  UIW_DEVICE_ATOMIC_WRITE = std::uint64_t{1} << 40,
  UIW_DEVICE_FLUSH = std::uint64_t{3} << 38
};
enum { UIW_FLUSH_GLOBAL = 1 << 0, UIW_FLUSH_PERSISTENT = 1 << 1 };  // ibv_placement_type
enum { UIW_FLUSH_MR = 1 };                                          // ibv_selectivity_level, else IBV_FLUSH_RANGE

// Structures and constants that the public header has from release 59 on. They have names of their own here, since the
// installed header may be older or newer.
struct uiw_dmah {  // ibv_dmah
  ibv_context* context;
};
struct uiw_dmah_init_attr {  // ibv_dmah_init_attr
  std::uint32_t comp_mask;
  std::uint32_t cpu_id;
  std::uint8_t ph;
  std::uint8_t tph_mem_type;
};
enum { UIW_DMAH_CPU_ID = 1 << 0, UIW_DMAH_PH = 1 << 1, UIW_DMAH_TPH_MEM_TYPE = 1 << 2 };
struct uiw_mr_init_attr {  // ibv_mr_init_attr; release 64 has added a member at the end, which libibverbs evaluates
  std::size_t length;
  int access;
  std::uint64_t comp_mask;
  std::uint64_t iova;
  void* addr;
  int fd;
  std::uint64_t fd_offset;
  uiw_dmah* dmah;
};
enum {
  UIW_REG_MR_IOVA = 1 << 0,
  UIW_REG_MR_ADDR = 1 << 1,
  UIW_REG_MR_FD = 1 << 2,
  UIW_REG_MR_FD_OFFSET = 1 << 3,
  UIW_REG_MR_DMAH = 1 << 4
};

enum { UIW_MR_TYPE_MR = 0, UIW_MR_TYPE_NULL_MR = 1, UIW_MR_TYPE_IMPORTED_MR = 2, UIW_MR_TYPE_DMABUF_MR = 3 };
struct verbs_mr {
  ibv_mr mr;
  int mr_type;
  int access;
};

// verbs_set_ops() reads a table of function pointers in the order of the names of the operations, and nothing else. So
// the table is built at run time from the list of all operations and the release that added each. A call of an
// operation whose entry is null fails with EOPNOTSUPP.
using uiw_op = void (*)();

#define UIW_JOIN_(a, b) a##b
#define UIW_JOIN(a, b) UIW_JOIN_(a, b)
void UIW_JOIN(verbs_register_driver_, UIW_PABI)(const verbs_device_ops*);

// Allocates and initializes an object of `size` octets that contains a verbs_context. `offset` is no pointer, but the
// number of octets from the beginning of the object to the verbs_context.
void* _verbs_init_and_alloc_context(ibv_device*, int cmd_fd, std::size_t size, struct verbs_context* offset,
                                    std::uint32_t driver_id);
void verbs_uninit_context(struct verbs_context*);
void verbs_set_ops(struct verbs_context*, const uiw_op* table);

}  // extern "C"
