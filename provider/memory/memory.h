// SPDX-License-Identifier: MIT
// What programs register and bind: protection domains, memory regions of every kind, memory windows, device memory
// (Verbs draft section 7; the manual pages of ibv_reg_mr, ibv_rereg_mr, ibv_advise_mr, ibv_alloc_mw, ibv_alloc_null_mr
// and ibv_alloc_dm).
//
// Creation returns null with errno. All of it is thread-safe but for calls on one object at a time.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ddp/stag_table.h"
#include "provider/export.h"
#include "provider/process/mutex.h"

namespace uiw::provider {

class Context;

// A protection domain: what ties memory to queue pairs. EBUSY on destruction while something is in it. It keeps its
// context.
class UIW_API Pd {
 public:
  explicit Pd(std::shared_ptr<class Context> context) : context_(std::move(context)) {}
  class Context& context() {
    return *context_;
  }
  void add_user() { users_.fetch_add(1, std::memory_order_relaxed); }
  void remove_user() { users_.fetch_sub(1, std::memory_order_relaxed); }
  bool in_use() const { return users_.load(std::memory_order_relaxed) != 0; }

 private:
  const std::shared_ptr<class Context> context_;
  std::atomic<int> users_{0};
};

// Device memory: ours, of octets of zero at first.
class UIW_API Dm {
 public:
  // EINVAL for no length or an alignment beyond 2 MiB, ENOMEM where kMaxDmSize is used up in this process.
  static std::unique_ptr<Dm> create(std::size_t length, std::uint32_t log_alignment);
  ~Dm();
  bool in_use() const { return users_.load(std::memory_order_relaxed) != 0; }
  // 0; EFAULT for a range outside of it, or memory of the program that is not there.
  int copy_in(std::uint64_t offset, const void* from, std::size_t length);
  int copy_out(void* to, std::uint64_t offset, std::size_t length) const;

 private:
  friend class Mr;
  Dm(std::byte* memory, std::size_t length, void* mapping, std::size_t mapping_size)
      : memory_(memory), length_(length), mapping_(mapping), mapping_size_(mapping_size) {}
  bool holds(std::uint64_t offset, std::size_t length) const { return offset <= length_ && length <= length_ - offset; }
  std::byte* const memory_;
  const std::size_t length_;
  void* const mapping_;
  const std::size_t mapping_size_;
  std::atomic<int> users_{0};
};

// A memory region; lkey and rkey are its STag.
class UIW_API Mr {
 public:
  // EINVAL for access flags or a range that cannot be, EFAULT where the memory is not there or not accessible so,
  // ENOMEM. `iova` is the tagged offset of the first octet. With IBV_ACCESS_ON_DEMAND nobody looks whether the memory
  // is there before it is used; address 0 and length SIZE_MAX stand for the whole address space then.
  static std::unique_ptr<Mr> create(Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access);
  // Reads as octets of zero, drops what is written to it; local access only.
  static std::unique_ptr<Mr> create_null(Pd& pd);
  // Through mmap of the descriptor. EINVAL for flags and ranges that cannot be and for what is no buffer, EBADF,
  // EACCES, EOPNOTSUPP where the exporter cannot be mapped.
  static std::unique_ptr<Mr> create_dmabuf(Pd& pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                                           unsigned access);
  // Counts from 0. EINVAL for flags, the lack of IBV_ACCESS_ZERO_BASED, or a range outside of it.
  static std::unique_ptr<Mr> create_dm(Pd& pd, Dm& dm, std::uint64_t offset, std::size_t length, unsigned access);
  ~Mr();
  std::uint32_t key() const { return static_cast<std::uint32_t>(stag_); }

  // The first half of destruction: nothing finds it from here on. EBUSY while windows are bound to it.
  int prepare_destroy();

  // ibv_rereg_mr: 0 or an errno. EBUSY while windows are bound to it, and EINVAL for flags that cannot be, leave it as
  // it was; after another error it can only be destroyed (Verbs draft section 7.3.2.3). The key stays.
  int reregister(int flags, Pd* pd, void* address, std::size_t length, unsigned access);

 private:
  enum class Kind : std::uint8_t { memory, null, dmabuf, dm };
  Mr(Pd& pd, Kind kind, unsigned access, const ddp::Region& region, ddp::Stag stag)
      : pd_(&pd), kind_(kind), access_(access), region_(region), stag_(stag), generation_(fork_generation()) {}
  static std::unique_ptr<Mr> add(Pd& pd, Kind kind, unsigned access, const ddp::Region& region);

  Pd* pd_;
  const Kind kind_;
  unsigned access_;
  ddp::Region region_;
  const ddp::Stag stag_;
  bool retired_ = false;
  Dm* dm_ = nullptr;         // dm
  void* mapping_ = nullptr;  // dmabuf
  std::size_t mapping_size_ = 0;
  const unsigned generation_;  // process/mutex.h
};

// A memory window. Its binding is the business of queue pairs (work_queues.cc).
class UIW_API Mw {
 public:
  // EINVAL for an unknown type, ENOMEM.
  static std::unique_ptr<Mw> create(Pd& pd, ibv_mw_type type);
  // Bound or not.
  ~Mw();
  // What ibv_alloc_mw returns; binding changes the key.
  std::uint32_t key() const { return static_cast<std::uint32_t>(stag_); }

 private:
  Mw(Pd& pd, ddp::Stag stag) : pd_(pd), stag_(stag) {}
  Pd& pd_;
  const ddp::Stag stag_;
};

// ibv_advise_mr: 0 or an errno of its manual page.
UIW_API int advise_mr(Pd& pd, ibv_advise_mr_advice advice, std::uint32_t flags, const ibv_sge* list,
                      std::uint32_t count);

// The STags of this process.
ddp::StagTable& stag_table();

}  // namespace uiw::provider
