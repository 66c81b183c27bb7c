// SPDX-License-Identifier: MIT
// Which sizes, alignments and lists are tried.
#include "tests/apps/memory/patterns_cases.h"

#include <algorithm>
#include <cstddef>

namespace apps::patterns {

std::vector<Case> make_cases(const Options& options) {
  std::vector<Case> cases;
  unsigned turn = 0;
  auto add = [&](Kind kind, std::size_t length, unsigned near_align, unsigned far_align, unsigned sges) {
    ++turn;
    const bool inlined = kind != Kind::read && length <= 256 && turn % 3 == 0;
    cases.push_back({kind, length, near_align % 64, far_align % 64, length == 0 ? std::min(sges, 1u) : sges, inlined,
                     turn % 4 != 0});
  };
  const Kind kinds[] = {Kind::write, Kind::read, Kind::send};
  // Every size, with changing alignments and numbers of SGEs.
  const std::size_t step = options.few ? 409 : options.brief ? 37 : 1;
  for (std::size_t length = 0; length <= 4096; length += step)
    for (Kind kind : kinds)
      for (unsigned sges = 1; sges <= 4; sges += options.brief || options.few ? 1 : 3)
        add(kind, length, static_cast<unsigned>(length * 7 + sges), static_cast<unsigned>(length * 13 + 5 * sges),
            sges);
  // Every pair of alignments.
  const unsigned stride = options.few ? 31 : options.brief ? 9 : 1;
  for (unsigned near_align = 0; near_align < 64; near_align += stride)
    for (unsigned far_align = 0; far_align < 64; far_align += stride)
      for (Kind kind : kinds) add(kind, near_align % 2 == 0 ? 200 : 1531, near_align, far_align, 1);
  // Powers of two and their neighbours.
  const std::size_t largest = options.few ? std::size_t{1} << 17 : options.brief ? std::size_t{1} << 20 : kLargest;
  for (std::size_t power = 8192; power <= largest; power *= 2)
    for (int delta = -1; delta <= 1; ++delta) {
      const std::size_t length = power + static_cast<std::size_t>(static_cast<std::ptrdiff_t>(delta));
      if (length > kLargest) continue;
      for (Kind kind : kinds)
        for (unsigned sges : {1u, 3u})
          add(kind, length, static_cast<unsigned>(3 * delta + 3 + sges), static_cast<unsigned>(power / 8192 + sges),
              sges);
    }
  const unsigned rounds = options.few ? 3 : options.brief ? 20 : 300;
  for (unsigned round = 0; round < rounds; ++round) add(Kind::order, 1 + round * 37 % 1900, round, round * 3, 1);
  return cases;
}

}  // namespace apps::patterns
