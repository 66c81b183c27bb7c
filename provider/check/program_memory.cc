// SPDX-License-Identifier: MIT
#include "provider/check/program_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/guarded_copy.h"
#include "base/text_file.h"
#include "mpa/crc32c.h"

namespace uiw::provider::check {

namespace {

constexpr std::uint32_t kMostOfSink = 256 * 1024;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// Stores the octet that is there, in one step, so that what the program stores at the same time is not lost.
UIW_AS_BY_DMA void touch(void* octet) { __atomic_fetch_or(static_cast<unsigned char*>(octet), 0, __ATOMIC_RELAXED); }

}  // namespace

std::optional<std::uint32_t> checksum_of(const Work& work, const Span& span) {
  return checksum_of(span.address, work.role == Role::source ? span.length : std::min(span.length, kMostOfSink));
}

std::optional<std::uint32_t> checksum_of(std::uintptr_t address, std::size_t length) {
  std::array<std::byte, 4096> copy;
  mpa::Crc32c crc;
  for (std::size_t at = 0; at < length; at += copy.size()) {
    const std::size_t size = std::min(copy.size(), length - at);
    if (!guarded_copy_unordered(copy.data(), reinterpret_cast<const void*>(address + at), size)) return {};
    crc.add(copy.data(), size);
  }
  return crc.value();
}

void cover(Span& span) {
  constexpr std::byte kPattern{0xA5};
  std::vector<std::byte> before(span.length);
  const std::vector<std::byte> pattern(span.length, kPattern);
  auto* const memory = reinterpret_cast<void*>(span.address);
  if (!guarded_copy_unordered(before.data(), memory, before.size())) return;
  guarded_copy_unordered(memory, pattern.data(), pattern.size());
  span.before = std::move(before);
}

void uncover(Work& work, std::uint32_t filled) noexcept {
  for (Span& span : work.spans) {
    const std::uint32_t mine = std::min(filled, span.length);
    filled -= mine;
    if (span.address != 0 && mine < span.before.size()) {
      guarded_copy_unordered(reinterpret_cast<void*>(span.address + mine), span.before.data() + mine,
                             span.before.size() - mine);
    }
    span.before = {};
  }
}

bool is_writable(std::uintptr_t address, std::size_t length) {
  const std::size_t page = page_size();
  const std::uintptr_t end = address + length;
  for (std::uintptr_t at = address; at < end; at = (at / page + 1) * page) {
    auto* const octet = reinterpret_cast<void*>(at);
    if (!guarded_call(touch, octet, octet, 1)) return false;
  }
  return true;
}

bool is_shared(std::uintptr_t address) {
  const TextFile maps = open_text_file("/proc/self/maps");
  if (maps == nullptr) return true;
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), maps.get()) != nullptr) {
    std::uintptr_t from = 0, end = 0;
    std::array<char, 5> rights{};
    if (std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &end, rights.data()) != 3) continue;
    if (address >= from && address < end) return rights[3] == 's';
  }
  return true;
}

bool is_mapped(std::uintptr_t address, std::size_t length) {
  if (length == 0) return true;
  constexpr std::size_t kPages = 4096;
  std::array<unsigned char, kPages> resident;
  const std::size_t page = page_size();
  const std::uintptr_t end = address + length;
  for (std::uintptr_t at = address / page * page; at < end; at += kPages * page) {
    const std::size_t size = std::min<std::size_t>(kPages * page, end - at);
    if (::mincore(reinterpret_cast<void*>(at), size, resident.data()) != 0 && errno == ENOMEM) return false;
  }
  return true;
}

}  // namespace uiw::provider::check
