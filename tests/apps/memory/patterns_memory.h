// SPDX-License-Identifier: MIT
// The memory of an end of uiw_patterns: what each octet holds, and whether an operation changed those that it names and
// no others. An area is used by one thread.
#pragma once

#include <sys/mman.h>

#include <span>
#include <vector>

#include "tests/apps/memory/patterns_cases.h"
#include "tests/apps/support/endpoint.h"

namespace apps::patterns {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kArea = kLargest + 4 * kPage;

// What case `number` carries, and what untouched memory holds.
inline std::uint8_t pattern(std::size_t number, std::size_t index) {
  return static_cast<std::uint8_t>(((number + 1) * 0x9E3779B97F4A7C15u + index * 0xD1B54A32D192ED03u) >> 56);
}
inline std::uint8_t guard(std::size_t offset) { return static_cast<std::uint8_t>(offset * 31 + 7); }
inline constexpr std::size_t kReadable = ~std::size_t{0} - 1;  // the "case" whose pattern the readable area holds

struct Area {
  std::uint8_t* base;
  ibv_mr* mr;

  Area(ibv_pd* pd, int access) {
    void* memory = mmap(nullptr, kArea, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap: %s", std::strerror(errno));
    base = static_cast<std::uint8_t*>(memory);
    for (std::size_t i = 0; i < kArea; ++i) base[i] = guard(i);
    mr = made("ibv_reg_mr", ibv_reg_mr(pd, base, kArea, access));
  }
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  ~Area() {
    if (ibv_dereg_mr(mr) != 0) die("ibv_dereg_mr fails");
    munmap(base, kArea);
  }
};

struct Piece {
  std::size_t offset, length;
};

// Where the bytes of a case lie in an area: one piece, or several with guard bytes between.
std::vector<Piece> layout(std::size_t length, unsigned align, unsigned sges, std::size_t number);

std::vector<ibv_sge> scatter(const Area& area, std::span<const Piece> pieces);

void fill(const Area& area, std::span<const Piece> pieces, std::size_t number);

void restore(const Area& area, std::span<const Piece> pieces);

// The pieces hold the pattern (from `first` on), all between and around holds guard bytes; puts the guard
// back.
void verify(const Area& area, std::span<const Piece> pieces, std::size_t number, std::size_t first, const Case& test,
            std::size_t name);

void verify_untouched(const Area& area, const char* which);

}  // namespace apps::patterns
