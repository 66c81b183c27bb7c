// SPDX-License-Identifier: MIT
// Three ways to ask the kernel whether memory is accessible, the cheapest one first:
//
// MADV_POPULATE_READ and MADV_POPULATE_WRITE (Linux 5.14) take a microsecond, and a third of a microsecond for each
// page. They fault pages in, so accessible() uses them for small ranges only.
//
// PROCMAP_QUERY (Linux 6.11) takes seven microseconds, and one more for each mapping of the range.
//
// /proc/self/maps takes 70 microseconds in a small program, and one more for each mapping of the process.
#include "provider/memory/accessible.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/descriptor.h"
#include "base/text_file.h"

// Since Linux 5.14; older headers do not define them.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace uiw::provider {

namespace {

constexpr const char* kMaps = "/proc/self/maps";
constexpr std::size_t kFewPages = 16;  // up to this size MADV_POPULATE_* costs less than PROCMAP_QUERY

// The pages that a range touches.
struct Pages {
  std::uintptr_t start, last;  // the addresses of the first and of the last page
  std::size_t size;
  void* memory() const { return reinterpret_cast<void*>(start); }
};

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

// The pages of a range, which must not be empty. Returns no value if the range wraps around the end of the address
// space.
std::optional<Pages> pages_of(const std::byte* address, std::size_t length) {
  const std::uintptr_t page = page_size();
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  std::uintptr_t end;
  if (__builtin_add_overflow(first, length - 1, &end)) return std::nullopt;
  const std::uintptr_t start = first & ~(page - 1), last = end & ~(page - 1);
  return Pages{start, last, last - start + page};
}

bool populate(const Pages& pages, bool writable) {
  return ::madvise(pages.memory(), pages.size, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
}

// PROCMAP_QUERY, its argument and its flags. <linux/fs.h> has them only since Linux 6.11.
struct ProcmapQuery {
  std::uint64_t size;
  std::uint64_t query_flags;
  std::uint64_t query_addr;
  std::uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  std::uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  std::uint64_t vma_name_addr, build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t kVmaReadable = 1, kVmaWritable = 2;

enum class Answer { yes, no, not_known };

// Asks by PROCMAP_QUERY. Uses bare system calls, which are no cancellation points.
Answer ask_mappings(const Pages& pages, bool writable) {
  const DescriptorChange change;  // keeps the program from closing `maps` before this function does
  const int maps = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, kMaps, O_RDONLY | O_CLOEXEC));
  if (maps < 0) return Answer::not_known;
  Answer answer = Answer::yes;
  std::uintptr_t covered = pages.start;
  while (covered <= pages.last) {
    ProcmapQuery query{};
    query.size = sizeof query;
    query.query_flags = writable ? kVmaWritable : kVmaReadable;
    query.query_addr = covered;
    if (::syscall(SYS_ioctl, maps, kProcmapQuery, &query) != 0) {
      answer = errno == ENOENT ? Answer::no : Answer::not_known;
      break;
    }
    if (query.vma_end <= covered) {  // the answer of a seccomp filter, not of the kernel
      answer = Answer::not_known;
      break;
    }
    covered = query.vma_end;
  }
  ::syscall(SYS_close, maps);
  return answer;
}

bool read_mappings(const Pages& pages, bool writable) {
  const TextFile maps = open_text_file(kMaps);
  if (maps == nullptr) return true;
  std::uintptr_t covered = pages.start;
  char line[512];
  while (covered <= pages.last && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    unsigned long from, to;
    char protection[8];
    if (std::sscanf(line, "%lx-%lx %7s", &from, &to, protection) != 3) continue;
    if (to <= covered) continue;
    if (from > covered || protection[writable ? 1 : 0] == '-') break;
    covered = to;
  }
  return covered > pages.last;
}

bool is_mapped(const Pages& pages, bool writable) {
  const Answer answer = ask_mappings(pages, writable);
  return answer == Answer::not_known ? read_mappings(pages, writable) : answer == Answer::yes;
}

}  // namespace

bool accessible(const std::byte* address, std::size_t length, bool writable) {
  if (length == 0) return true;
  const std::optional<Pages> pages = pages_of(address, length);
  if (!pages) return false;
  // Memory that cannot be populated may be mapped all the same, for example memory of a device, or a mapping beyond the
  // end of a file.
  return (pages->size <= kFewPages * page_size() && populate(*pages, writable)) || is_mapped(*pages, writable);
}

int fetch_pages(std::byte* address, std::size_t length, bool writable) {
  if (length == 0) return 0;
  const std::optional<Pages> pages = pages_of(address, length);
  if (!pages) return EFAULT;
  if (populate(*pages, writable)) return 0;
  if (errno != EINVAL) return EFAULT;
  // The kernel is older than 5.14, or this kind of memory cannot be populated.
  if (!is_mapped(*pages, writable)) return EFAULT;
  ::madvise(pages->memory(), pages->size, MADV_WILLNEED);
  return 0;
}

bool persistent(const std::byte* address, std::size_t length) {
  const TextFile file = open_text_file("/proc/self/smaps");
  return file != nullptr && persistent(file.get(), address, length);
}

bool make_persistent(const std::byte* address, std::size_t length) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address) & ~(page - 1);
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(address) + length;
  return ::syscall(SYS_msync, begin, end - begin, MS_SYNC) == 0;
}

bool persistent(std::FILE* smaps, const std::byte* address, std::size_t length) {
  std::uintptr_t next = reinterpret_cast<std::uintptr_t>(address);  // all before it is persistent
  const std::uintptr_t end = next + length;
  std::array<char, 1024> line{};
  bool within = false;  // the mapping that the lines are about has `next`
  std::uintptr_t mapping_end = 0;
  while (next < end && std::fgets(line.data(), line.size(), smaps) != nullptr) {
    std::uintptr_t from = 0, to = 0;
    // The first line of a mapping has its addresses; in VmFlags "sf" stands for synchronous page faults (MAP_SYNC).
    if (std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      if (from > next) return false;
      within = next < to;
      mapping_end = to;
    } else if (within && std::strncmp(line.data(), "VmFlags:", 8) == 0) {
      if (std::strstr(line.data(), " sf") == nullptr) return false;
      next = mapping_end;
    }
  }
  return next >= end;
}

}  // namespace uiw::provider
