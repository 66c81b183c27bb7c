// SPDX-License-Identifier: MIT
// Protection domains, memory regions of all kinds, memory windows and device memory (Verbs draft section 7; the manual
// pages of ibv_reg_mr, ibv_rereg_mr, ibv_advise_mr, ibv_alloc_mw, ibv_alloc_null_mr and ibv_alloc_dm).
//
// Functions that create an object return it to the caller, who owns it, or null with errno; Pd::create() throws
// std::bad_alloc instead. Threads: different objects may be used at the same time; calls on one object must not
// overlap. A Pd must remain live as long as the objects in it, a Dm as long as its regions; in_use() is true while
// there are such objects or regions.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "ddp/stag_table.h"
#include "provider/export.h"
#include "provider/process/shown/listed.h"

namespace uiw::provider {

class Context;

// An open file of a device; contexts on one file share their objects (provider/verbs/device_file.h).
using DeviceFile = std::uint64_t;
inline constexpr DeviceFile kNoDeviceFile = 0;

// A protection domain: it says which queue pairs may use which memory. It shares ownership of its context. The plugin
// refuses to destroy a domain that is in_use() (EBUSY).
class Pd : public std::enable_shared_from_this<Pd> {
 public:
  // Creates a domain that several contexts can own. If the last owner releases a domain that is in_use(), it is never
  // deleted.
  UIW_API static std::shared_ptr<Pd> create(std::shared_ptr<class Context> context);
  UIW_API explicit Pd(std::shared_ptr<class Context> context);
  UIW_API ~Pd();
  class Context& context() {
    return *context_;
  }
  const class Context* shown_context() const { return context_.get(); }  // null in tests
  void add_user() { users_.fetch_add(1, std::memory_order_relaxed); }
  void remove_user() { users_.fetch_sub(1, std::memory_order_relaxed); }
  bool in_use() const { return users() != 0; }
  int users() const { return users_.load(std::memory_order_relaxed); }
  std::uint32_t listed_number() const { return listed_.number(); }

 protected:
  void hide() { listed_.leave(); }  // from what other processes are shown

 private:
  const std::shared_ptr<class Context> context_;
  std::atomic<int> users_{0};
  Listed<Pd> listed_{*this};
};

// Device memory: memory of the library, filled with zeros at first.
class Dm : public std::enable_shared_from_this<Dm> {
 public:
  // EINVAL for length 0 or an alignment above 2 MiB; ENOMEM if there is no memory, or if the process would exceed
  // kMaxDmSize.
  UIW_API static std::unique_ptr<Dm> create(std::size_t length, std::uint32_t log_alignment,
                                            DeviceFile file = kNoDeviceFile);
  UIW_API ~Dm();
  DeviceFile file() const { return file_; }
  std::uint32_t listed_number() const { return listed_.number(); }
  bool in_use() const { return users_.load(std::memory_order_relaxed) != 0; }
  // Returns 0; EFAULT for a range outside of the device memory, or for program memory that is not accessible; EINVAL
  // for an offset or a length that is no multiple of four octets, since adapters copy whole words.
  UIW_API int copy_in(std::uint64_t offset, const void* from, std::size_t length);
  UIW_API int copy_out(void* to, std::uint64_t offset, std::size_t length) const;

 private:
  friend class Mr;
  Dm(std::byte* memory, std::size_t length, void* mapping, std::size_t mapping_size, DeviceFile file)
      : memory_(memory), length_(length), mapping_(mapping), mapping_size_(mapping_size), file_(file) {}
  bool contains(std::uint64_t offset, std::size_t length) const {
    return offset <= length_ && length <= length_ - offset;
  }
  static bool in_words(std::uint64_t offset, std::size_t length) { return (offset | length) % 4 == 0; }
  std::byte* const memory_;
  const std::size_t length_;
  void* const mapping_;
  const std::size_t mapping_size_;
  const DeviceFile file_;
  std::atomic<int> users_{0};
  Listed<Dm> listed_{*this};
};

// A memory region; lkey and rkey are its STag.
class Mr : public std::enable_shared_from_this<Mr> {
 public:
  // EINVAL for impossible access flags or ranges, EOPNOTSUPP for the flags of RDMA FLUSH, EFAULT if the memory is not
  // mapped or does not allow the access, ENOMEM. `iova` is the tagged offset of the first octet, unless
  // IBV_ACCESS_ZERO_BASED makes it 0. With IBV_ACCESS_ON_DEMAND the memory is not checked before it is used; then
  // address 0 with length SIZE_MAX means the whole address space.
  UIW_API static std::unique_ptr<Mr> create(Pd& pd, void* address, std::size_t length, std::uint64_t iova,
                                            unsigned access);
  // A null region: reads give zeros, written octets are discarded; local access only.
  UIW_API static std::unique_ptr<Mr> create_null(Pd& pd);
  // A dma-buf, accessed through mmap of the descriptor. EINVAL for impossible flags and ranges and for descriptors that
  // are no buffer; EBADF; EOPNOTSUPP if the exporter does not support mmap, and for the flags of RDMA FLUSH; ENOMEM;
  // other errnos of mmap, such as EACCES.
  UIW_API static std::unique_ptr<Mr> create_dmabuf(Pd& pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                                                   int fd, unsigned access);
  // A region of device memory; its tagged offsets start at 0. EINVAL for impossible flags, flags without
  // IBV_ACCESS_ZERO_BASED, or a range outside of the device memory; EOPNOTSUPP for the flags of RDMA FLUSH; ENOMEM.
  UIW_API static std::unique_ptr<Mr> create_dm(Pd& pd, Dm& dm, std::uint64_t offset, std::size_t length,
                                               unsigned access);
  UIW_API ~Mr();
  std::uint32_t key() const { return static_cast<std::uint32_t>(stag_); }
  // Threads other than the owner's may call these two functions only inside Listed<Mr>::for_each(), which holds the
  // lock under which reregister() changes the values.
  const Pd& pd() const { return *pd_; }
  const ddp::Region& region() const { return region_; }
  std::uint32_t listed_number() const { return listed_.number(); }

  // Ends access to the memory: from here on the STag names no region, and when the call returns nothing uses the memory
  // of the region any more. The object stays. Returns 0, or EBUSY while windows are bound to the region.
  int prepare_destroy();
  // Ends access to the memory of the region (prepare_destroy()) and removes the region from its protection domain. A
  // context that has imported the region keeps this object, which then has no memory any more. Returns 0, or EBUSY
  // while windows are bound to the region.
  UIW_API int end();

  // ibv_rereg_mr: returns 0 or an errno. After EBUSY (windows are bound to the region), and after EINVAL because of
  // `flags`, `pd` or the kind of the region, the region is as before. After any other error the region can only be
  // destroyed (Verbs draft section 7.3.2.3). The key stays the same.
  UIW_API int reregister(int flags, Pd* pd, void* address, std::size_t length, unsigned access);

 private:
  enum class Kind : std::uint8_t { memory, null, dmabuf, dm };
  Mr(Pd& pd, Kind kind, unsigned access, const ddp::Region& region, ddp::Stag stag)
      : pd_(&pd), kind_(kind), access_(access), region_(region), stag_(stag), generation_(fork_generation()) {}
  void let_go();
  static std::unique_ptr<Mr> add(Pd& pd, Kind kind, unsigned access, const ddp::Region& region);

  Pd* pd_;
  const Kind kind_;
  unsigned access_;
  ddp::Region region_;
  const ddp::Stag stag_;
  bool retired_ = false;
  bool ended_ = false;
  Dm* dm_ = nullptr;         // Kind::dm
  void* mapping_ = nullptr;  // Kind::dmabuf
  std::size_t mapping_size_ = 0;
  const unsigned generation_;  // the fork generation in which this object was made (base/mutex.h)
  Listed<Mr> listed_{*this};   // Listed<Mr>::mutex() is held while pd_ and region_ change
};

// A memory window. Queue pairs bind and invalidate it (work_queues.cc).
class Mw {
 public:
  // EINVAL for an unknown type, ENOMEM.
  UIW_API static std::unique_ptr<Mw> create(Pd& pd, ibv_mw_type type);
  // A window that is still bound may be destroyed.
  UIW_API ~Mw();
  // The key that ibv_alloc_mw returns. Binding gives the window another key, which this function does not return.
  std::uint32_t key() const { return static_cast<std::uint32_t>(stag_); }

 private:
  Mw(Pd& pd, ddp::Stag stag) : pd_(pd), stag_(stag) {}
  Pd& pd_;
  const ddp::Stag stag_;
};

// ibv_advise_mr: 0 or an errno of its manual page.
UIW_API int advise_mr(Pd& pd, ibv_advise_mr_advice advice, std::uint32_t flags, const ibv_sge* list,
                      std::uint32_t count);

// The STag table of the process. It is never destroyed.
ddp::StagTable& stag_table();

}  // namespace uiw::provider
