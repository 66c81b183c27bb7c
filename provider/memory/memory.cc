// SPDX-License-Identifier: MIT
#include "provider/memory/memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "base/grace_period.h"
#include "base/guarded_copy.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/random.h"
#include "provider/memory/accessible.h"
#include "provider/memory/rights.h"
#include "provider/process/limits.h"

namespace uiw::provider {

namespace {

constexpr unsigned kRemoteChange = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | kRemoteChange;
constexpr unsigned kKnownAccess = kRights | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |
                                  IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE | kFlushAccess;

// Returns 0, or EINVAL for unknown flags, and for remote write or remote atomic without local write (manual page of
// ibv_reg_mr). All flags of IBV_ACCESS_OPTIONAL_RANGE are accepted, since they are requests that a device may ignore.
int check_flags(unsigned access, unsigned known) {
  if ((access & ~known) != 0) return EINVAL;
  return (access & kRemoteChange) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

std::uint32_t rights_of(unsigned access) {
  std::uint32_t rights = ddp::kLocalRead | remote_rights(access);
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) rights |= ddp::kLocalWrite;
  if ((access & IBV_ACCESS_MW_BIND) != 0) rights |= ddp::kBindWindows;
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) rights |= ddp::kZeroBased;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) rights |= ddp::kOnDemand;
  return rights;
}

std::uintptr_t page_size() { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }

bool whole_address_space(const void* address, std::size_t length, unsigned access) {
  return (access & IBV_ACCESS_ON_DEMAND) != 0 && address == nullptr && length == SIZE_MAX;
}

// Checks what a region is to be registered with. Returns 0, EINVAL, EOPNOTSUPP or EFAULT.
int check_memory(const void* address, std::size_t length, unsigned access) {
  if (const int error = check_flags(access, kKnownAccess); error != 0) return error;
  const bool to_medium = (access & kAccessFlushPersistent) != 0;
  if (whole_address_space(address, length, access)) {
    if ((access & IBV_ACCESS_HUGETLB) != 0) return EINVAL;
    return to_medium ? EOPNOTSUPP : 0;
  }
  if (length > kMaxMrSize || reinterpret_cast<std::uintptr_t>(address) + length < length) return EINVAL;
  const auto* const octets = static_cast<const std::byte*>(address);
  if ((access & IBV_ACCESS_ON_DEMAND) == 0 && !accessible(octets, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0))
    return EFAULT;
  return to_medium && !persistent(octets, length) ? EOPNOTSUPP : 0;
}

ddp::Region region_of(const Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  ddp::Region region;
  region.memory = static_cast<std::byte*>(address);
  region.length = length;
  region.base = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  region.domain = &pd;
  region.rights = rights_of(access);
  return region;
}

// The memory that null regions read. Nothing writes to it, so the kernel backs all of it with its single page of zeros.
std::byte* zeros() {
  static std::atomic<void*> known{nullptr};
  void* mapping = known.load();
  if (mapping != nullptr) return static_cast<std::byte*>(mapping);
  void* const mine = ::mmap(nullptr, kMaxMessage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mine == MAP_FAILED) return nullptr;
  if (known.compare_exchange_strong(mapping, mine)) return static_cast<std::byte*>(mine);
  ::munmap(mine, kMaxMessage);  // another thread has stored its mapping first
  return static_cast<std::byte*>(mapping);
}

std::atomic<std::uint64_t> dm_used{0};

}  // namespace

ddp::StagTable& stag_table() {
  static Immortal<ddp::StagTable> instance(secret_number());
  return *instance;
}

// ---- Protection domains ----------------------------------------------------------------------------------------

Pd::Pd(std::shared_ptr<class Context> context) : context_(std::move(context)) {}
Pd::~Pd() { listed_.leave(); }

std::shared_ptr<Pd> Pd::create(std::shared_ptr<class Context> context) {
  return {new Pd(std::move(context)), [](Pd* pd) {
            if (!pd->in_use()) delete pd;
          }};
}

// ---- Memory regions --------------------------------------------------------------------------------------------

std::unique_ptr<Mr> Mr::add(Pd& pd, Kind kind, unsigned access, const ddp::Region& region) {
  const auto stag = stag_table().add(region);
  if (!stag) {
    errno = region.base + region.length < region.base ? EINVAL : ENOMEM;
    return nullptr;
  }
  std::unique_ptr<Mr> mr(new (std::nothrow) Mr(pd, kind, access, region, *stag));
  if (!mr) {
    stag_table().retire(*stag);
    wait_for_readers();
    stag_table().recycle(*stag);
    errno = ENOMEM;
    return nullptr;
  }
  pd.add_user();
  return mr;
}

std::unique_ptr<Mr> Mr::create(Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  if (const int error = check_memory(address, length, access); error != 0) {
    errno = error;
    return nullptr;
  }
  return add(pd, Kind::memory, access, region_of(pd, address, length, iova, access));
}

std::unique_ptr<Mr> Mr::create_null(Pd& pd) {
  std::byte* memory = zeros();
  if (memory == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  ddp::Region region = region_of(pd, memory, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE);
  region.rights |= ddp::kNull;
  return add(pd, Kind::null, IBV_ACCESS_LOCAL_WRITE, region);
}

std::unique_ptr<Mr> Mr::create_dmabuf(Pd& pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                                      unsigned access) {
  const std::uint64_t page = page_size();
  const std::uint64_t before = offset % page;
  std::uint64_t end;
  struct stat status;
  const auto refuse = [](int error) {
    errno = error;
    return nullptr;
  };
  if ((access & kAccessFlushPersistent) != 0) return refuse(EOPNOTSUPP);
  constexpr unsigned kKnown = kRights | kAccessFlushGlobal | IBV_ACCESS_OPTIONAL_RANGE;
  if (const int error = check_flags(access, kKnown); error != 0) return refuse(error);
  if (::fstat(fd, &status) != 0) return refuse(EBADF);
  if (length == 0 || length > kMaxMrSize || iova % page != before || __builtin_add_overflow(offset, length, &end) ||
      end > std::uint64_t{INT64_MAX}) {
    return refuse(EINVAL);
  }
  if (status.st_size > 0 && end > static_cast<std::uint64_t>(status.st_size)) return refuse(EINVAL);
  const int protection = PROT_READ | ((access & IBV_ACCESS_LOCAL_WRITE) != 0 ? PROT_WRITE : 0);
  const std::size_t size = length + before;
  void* mapping = ::mmap(nullptr, size, protection, MAP_SHARED, fd, static_cast<off_t>(offset - before));
  if (mapping == MAP_FAILED) {
    // ENODEV: the descriptor has no memory. EINVAL: the exporter does not support mmap.
    return refuse(errno == ENODEV ? EINVAL : errno == EINVAL ? EOPNOTSUPP : errno);
  }
  ::madvise(mapping, size, MADV_DONTFORK);
  auto mr =
      add(pd, Kind::dmabuf, access, region_of(pd, static_cast<std::byte*>(mapping) + before, length, iova, access));
  if (!mr) {
    const int error = errno;
    ::munmap(mapping, size);
    return refuse(error);
  }
  mr->mapping_ = mapping;
  mr->mapping_size_ = size;
  return mr;
}

std::unique_ptr<Mr> Mr::create_dm(Pd& pd, Dm& dm, std::uint64_t offset, std::size_t length, unsigned access) {
  constexpr unsigned kKnown = kRights | kAccessFlushGlobal | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
  int error = check_flags(access, kKnown);
  if (error == 0 && ((access & IBV_ACCESS_ZERO_BASED) == 0 || !dm.contains(offset, length))) error = EINVAL;
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  auto mr = add(pd, Kind::dm, access, region_of(pd, dm.memory_ + offset, length, 0, access));
  if (!mr) return nullptr;
  mr->dm_ = &dm;
  dm.users_.fetch_add(1, std::memory_order_relaxed);
  return mr;
}

int Mr::prepare_destroy() {
  if (retired_) return 0;
  if (!stag_table().retire(stag_)) return EBUSY;
  retired_ = true;
  wait_for_readers();
  return 0;
}

int Mr::end() {
  if (prepare_destroy() != 0) return EBUSY;
  let_go();
  return 0;
}

// Removes the region from the list of all regions and from its domain. From then on the region does not use the domain,
// which may be destroyed.
void Mr::let_go() {
  if (ended_) return;
  ended_ = true;
  listed_.leave();
  if (dm_ != nullptr) dm_->users_.fetch_sub(1, std::memory_order_relaxed);
  pd_->remove_user();
}

Mr::~Mr() {
  if (prepare_destroy() == 0) stag_table().recycle(stag_);
  // In the child of a fork the mapping does not exist (MADV_DONTFORK), and other memory may be at its address.
  if (mapping_ != nullptr && generation_ == fork_generation()) ::munmap(mapping_, mapping_size_);
  let_go();
}

int Mr::reregister(int flags, Pd* pd, void* address, std::size_t length, unsigned access) {
  const bool translation = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool domain = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const bool rights = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || kind_ != Kind::memory ||
      (domain && (pd == nullptr || &pd->context() != &pd_->context()))) {
    return EINVAL;
  }
  if (retired_) return EINVAL;  // an earlier call has failed, or end() was called
  const unsigned wanted = rights ? access : access_;
  void* const at = translation ? address : region_.memory;
  const std::size_t size = translation ? length : region_.length;
  int error = check_memory(at, size, wanted);

  Pd& home = domain ? *pd : *pd_;
  // With a new translation, or if the region was zero-based, its tagged offset is its address. Otherwise the tagged
  // offset does not change. region_of() replaces it by 0 if the region is to be zero-based.
  const std::uint64_t iova =
      translation || (access_ & IBV_ACCESS_ZERO_BASED) != 0 ? reinterpret_cast<std::uintptr_t>(at) : region_.base;
  const ddp::Region region = region_of(home, at, size, iova, wanted);
  if (error == 0 && region.base + region.length < region.base) error = EINVAL;
  if (error != 0) {
    const int busy = prepare_destroy();
    return busy != 0 ? busy : error;
  }
  // Posted work names memory by its tagged offset. So a new tagged offset of the region counts as a new translation.
  if (!stag_table().replace(stag_, region, translation || region.base != region_.base)) return EBUSY;
  wait_for_readers();
  const LockGuard shown(Listed<Mr>::mutex());
  home.add_user();
  pd_->remove_user();
  pd_ = &home;
  access_ = wanted;
  region_ = region;
  return 0;
}

// ---- Memory windows --------------------------------------------------------------------------------------------

std::unique_ptr<Mw> Mw::create(Pd& pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
    errno = EINVAL;
    return nullptr;
  }
  const auto stag =
      stag_table().add_window(&pd, type == IBV_MW_TYPE_1 ? ddp::WindowType::type1 : ddp::WindowType::type2);
  if (!stag) {
    errno = ENOMEM;
    return nullptr;
  }
  std::unique_ptr<Mw> mw(new (std::nothrow) Mw(pd, *stag));
  if (!mw) {
    stag_table().remove_window(*stag);
    errno = ENOMEM;
    return nullptr;
  }
  pd.add_user();
  return mw;
}

Mw::~Mw() {
  stag_table().remove_window(stag_);
  pd_.remove_user();
}

// ---- Device memory ---------------------------------------------------------------------------------------------

std::unique_ptr<Dm> Dm::create(std::size_t length, std::uint32_t log_alignment, DeviceFile file) {
  constexpr std::uint32_t kMostAligned = 21;
  if (length == 0 || log_alignment > kMostAligned) {
    errno = EINVAL;
    return nullptr;
  }
  const auto refuse = [] {
    errno = ENOMEM;
    return nullptr;
  };
  if (length > kMaxDmSize) return refuse();
  if (dm_used.fetch_add(length) + length > kMaxDmSize) {
    dm_used.fetch_sub(length);
    return refuse();
  }
  // Device memory has pages of its own, so that an access after ibv_free_dm() hits unmapped memory and not a new heap
  // block.
  const std::uintptr_t alignment = std::uintptr_t{1} << log_alignment;
  const std::size_t size = length + (alignment > page_size() ? alignment : 0);
  void* const mapping = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    dm_used.fetch_sub(length);
    return refuse();
  }
  const std::uintptr_t start = (reinterpret_cast<std::uintptr_t>(mapping) + alignment - 1) & ~(alignment - 1);
  std::unique_ptr<Dm> dm(new (std::nothrow) Dm(reinterpret_cast<std::byte*>(start), length, mapping, size, file));
  if (!dm) {
    ::munmap(mapping, size);
    dm_used.fetch_sub(length);
    return refuse();
  }
  return dm;
}

Dm::~Dm() {
  listed_.leave();
  dm_used.fetch_sub(length_);
  ::munmap(mapping_, mapping_size_);
}

int Dm::copy_in(std::uint64_t offset, const void* from, std::size_t length) {
  if (!contains(offset, length)) return EFAULT;
  if (!in_words(offset, length)) return EINVAL;
  return guarded_copy(memory_ + offset, from, length) ? 0 : EFAULT;
}

int Dm::copy_out(void* to, std::uint64_t offset, std::size_t length) const {
  if (!contains(offset, length)) return EFAULT;
  if (!in_words(offset, length)) return EINVAL;
  return guarded_copy(to, memory_ + offset, length) ? 0 : EFAULT;
}

// ---- Advice ----------------------------------------------------------------------------------------------------

int advise_mr(Pd& pd, ibv_advise_mr_advice advice, std::uint32_t flags, const ibv_sge* list, std::uint32_t count) {
  const bool writable = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && !writable && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
    return ENOTSUP;
  }
  if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0 || count == 0 || list == nullptr) {
    return EINVAL;
  }
  // All entries are checked before the first one is fetched.
  for (const bool fetching : {false, true}) {
    if (fetching && advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) break;  // no page is to be faulted in
    for (std::uint32_t i = 0; i < count; ++i) {
      const ibv_sge& sge = list[i];
      const auto stag = static_cast<ddp::Stag>(sge.lkey);
      const auto region = stag_table().region(stag);
      if (!region) return EFAULT;
      if ((region->rights & ddp::kLocalRead) == 0) return EINVAL;  // the lkey is that of a window
      if (region->domain != &pd) return EPERM;
      if ((region->rights & ddp::kOnDemand) == 0) return EINVAL;
      if (writable && (region->rights & ddp::kLocalWrite) == 0) return EPERM;
      ddp::Access access{};
      {
        const ReadSection section;
        access = stag_table().find(stag, &pd, sge.addr, sge.length, ddp::kLocalRead);
      }
      if (access.error != ddp::AccessError::none) return EFAULT;
      if (!fetching) continue;
      if (const int error = fetch_pages(access.memory, sge.length, writable); error != 0) return error;
    }
  }
  return 0;
}

}  // namespace uiw::provider
