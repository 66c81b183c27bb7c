// SPDX-License-Identifier: MIT
#include "ddp/stag_table.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;
using ddp::AccessError;
using ddp::Stag;

namespace {
constexpr std::uint64_t kTop = ~std::uint64_t{0};
int domain_a, domain_b;

ddp::Region region_of(Bytes& memory, std::uint64_t base, std::uint32_t rights = ddp::kLocalWrite) {
  return {memory.data(), base, memory.size(), rights, &domain_a};
}
std::uint32_t number(Stag stag) { return static_cast<std::uint32_t>(stag); }
}  // namespace

TEST_CASE("stag_table: a place that is kept finds what the STag names now", "[stag_table]") {
  ddp::StagTable table(1);
  ddp::KnownSlot known;
  Bytes first(100), second(100);
  const auto find = [&](Stag stag) {
    return table.hold(known.of(table, stag), stag, &domain_a, 0, 100, ddp::kLocalWrite).memory();
  };
  CHECK(find(Stag{0}) == nullptr);
  const Stag a = table.add(region_of(first, 0)).value(), b = table.add(region_of(second, 0)).value();
  for (int i = 0; i < 3; ++i) {
    CHECK(find(a) == first.data());
    CHECK(find(a) == first.data());
    CHECK(find(b) == second.data());
  }
  CHECK(find(Stag{number(b) ^ 1}) == nullptr);
  REQUIRE(find(b) == second.data());
  REQUIRE(table.retire(b));
  CHECK(find(b) == nullptr);
  table.recycle(b);
  const Stag c = table.add(region_of(first, 0)).value();  // the slot of b
  CHECK(table.slot_number(c) == table.slot_number(b));
  CHECK(find(b) == nullptr);
  CHECK(find(c) == first.data());
}

TEST_CASE("stag_table: bounds (RFC 5041 section 7.1)", "[stag_table]") {
  ddp::StagTable table(1);
  Bytes memory(100);
  const std::uint64_t base = GENERATE(std::uint64_t{0}, std::uint64_t{0x1000}, std::uint64_t{1} << 63, kTop - 100);
  const Stag stag = table.add(region_of(memory, base)).value();
  const auto error = [&](std::uint64_t offset, std::uint64_t length) {
    return table.find(stag, &domain_a, offset, length, ddp::kLocalWrite).error;
  };
  CHECK(table.find(stag, &domain_a, base, 100, 0).memory == memory.data());
  CHECK(table.find(stag, &domain_a, base + 99, 1, 0).memory == memory.data() + 99);
  CHECK(error(base, 0) == AccessError::none);
  CHECK(error(base + 100, 0) == AccessError::none);
  CHECK(error(base, 101) == (base == kTop - 100 ? AccessError::wrap : AccessError::bounds));
  CHECK(error(base + 1, 100) == (base == kTop - 100 ? AccessError::wrap : AccessError::bounds));
  CHECK(error(base + 50, kTop) == AccessError::wrap);
  CHECK(error(kTop, 2) == AccessError::wrap);
  CHECK(error(1, kTop) == AccessError::wrap);
  if (base > 0) {
    CHECK(error(base - 1, 1) == AccessError::bounds);
    CHECK(error(base - 1, 101) == AccessError::bounds);
  }
  CHECK(table.find(stag, &domain_a, base, 101, 0).memory == nullptr);
}

TEST_CASE("stag_table: nothing is registered past 2^64", "[stag_table]") {
  ddp::StagTable table(1);
  Bytes memory(100);
  CHECK_FALSE(table.add(region_of(memory, kTop - 98)));
  CHECK_FALSE(table.add(region_of(memory, kTop)));
  CHECK_FALSE(table.add({memory.data(), 1, kTop, 0, &domain_a}));
  CHECK(table.add({memory.data(), 0, kTop, 0, &domain_a}));
  CHECK(table.add({memory.data(), kTop, 0, 0, &domain_a}));
}

TEST_CASE("stag_table: rights and domains (RFC 5040 section 7.2)", "[stag_table]") {
  ddp::StagTable table(2);
  Bytes memory(10);
  for (std::uint32_t given = 0; given < 32; ++given) {
    const Stag stag = table.add(region_of(memory, 0, given)).value();
    for (std::uint32_t wanted = 0; wanted < 32; ++wanted) {
      const bool allowed = (wanted & ~(given | ddp::kLocalRead)) == 0;
      REQUIRE(table.find(stag, &domain_a, 0, 10, wanted).error == (allowed ? AccessError::none : AccessError::rights));
      REQUIRE(table.find(stag, &domain_b, 0, 10, wanted).error == AccessError::not_associated);
      REQUIRE(table.find(stag, nullptr, 0, 10, wanted).error == AccessError::not_associated);
    }
    CHECK(table.region(stag)->rights == (given | ddp::kLocalRead));
  }
}

TEST_CASE("stag_table: an STag that is none", "[stag_table]") {
  ddp::StagTable table(3);
  Bytes memory(10);
  const Stag stag = table.add(region_of(memory, 0)).value();
  std::size_t found = 0;
  for (std::uint32_t flip = 1; flip != 0; flip <<= 1) {
    found += table.find(Stag{number(stag) ^ flip}, &domain_a, 0, 1, 0).error != AccessError::invalid_stag;
    CHECK_FALSE(table.retire(Stag{number(stag) ^ flip}));
  }
  CHECK(found == 0);
  CHECK(table.find(Stag{0}, &domain_a, 0, 1, 0).error == AccessError::invalid_stag);
  CHECK_FALSE(table.region(Stag{0}));
  CHECK(table.retire(stag));
  CHECK_FALSE(table.retire(stag));
  CHECK(table.find(stag, &domain_a, 0, 1, 0).error == AccessError::invalid_stag);
  CHECK_FALSE(table.region(stag));
}

TEST_CASE("stag_table: no STag has the index zero (Verbs draft section 7.2.1)", "[stag_table]") {
  ddp::StagTable table(88680);  // a secret whose first permutation takes one of the first hundred slots to index 0
  Bytes memory(10);
  std::set<std::uint32_t> indices;
  for (int i = 0; i < 100; ++i) {
    const bool window = i % 2 == 0;
    const Stag stag =
        window ? table.add_window(&domain_a, ddp::WindowType::type1).value() : table.add(region_of(memory, 0)).value();
    indices.insert(number(stag) >> 8);
    if (window) CHECK(number(table.next_key(stag)) >> 8 == number(stag) >> 8);
  }
  CHECK(indices.size() == 100);
  CHECK(indices.count(0) == 0);
}

TEST_CASE("stag_table: regions of the same memory come and go one by one (Verbs draft section 7.9)", "[stag_table]") {
  ddp::StagTable table(3);
  Bytes memory(100);
  const Stag one = table.add(region_of(memory, 0)).value();
  const Stag same = table.add(region_of(memory, 0)).value();
  const Stag part = table.add({memory.data() + 50, 0, 10, 0, &domain_b}).value();
  CHECK(one != same);
  CHECK(table.retire(one));
  CHECK(table.find(one, &domain_a, 0, 100, 0).error == AccessError::invalid_stag);
  CHECK(table.find(same, &domain_a, 0, 100, 0).memory == memory.data());
  CHECK(table.find(part, &domain_b, 0, 10, 0).memory == memory.data() + 50);
}

TEST_CASE("stag_table: a stale STag does not find the next region of its slot", "[stag_table]") {
  ddp::StagTable table(4);
  Bytes memory(10);
  Stag before = table.add(region_of(memory, 0)).value();
  std::set<std::uint32_t> keys;
  for (int i = 0; i < 5000; ++i) {
    REQUIRE(table.retire(before));
    table.recycle(before);
    const Stag now = table.add(region_of(memory, 0)).value();
    REQUIRE(number(now) >> 8 == number(before) >> 8);  // the slot was used again
    REQUIRE(now != before);
    REQUIRE(now != Stag{0});
    REQUIRE(table.find(before, &domain_a, 0, 1, 0).error == AccessError::invalid_stag);
    keys.insert(number(now) & 0xFF);
    before = now;
  }
  CHECK(keys.size() == 256);
}

TEST_CASE("stag_table: STags are hard to predict (RFC 5040 section 8.1.1)", "[stag_table]") {
  Bytes memory(10);
  std::vector<std::uint32_t> first;
  for (std::uint64_t secret = 0; secret < 200; ++secret) {
    ddp::StagTable table(secret * 0x9E3779B97F4A7C15ULL);
    std::vector<std::uint32_t> stags;
    for (int i = 0; i < 64; ++i) stags.push_back(number(table.add(region_of(memory, 0)).value()));
    first.push_back(stags[0]);
    std::set<std::uint32_t> indices, steps;
    for (std::size_t i = 0; i < stags.size(); ++i) {
      indices.insert(stags[i] >> 8);
      if (i > 0) steps.insert((stags[i] >> 8) - (stags[i - 1] >> 8));
    }
    CHECK(indices.size() == stags.size());
    CHECK(steps.size() > 20);  // no arithmetic progression
  }
  std::sort(first.begin(), first.end());
  CHECK(std::unique(first.begin(), first.end()) - first.begin() > 190);
}

TEST_CASE("stag_table: up to its limit, each STag once", "[stag_table]") {
  ddp::StagTable table(5);
  Bytes memory(10);
  std::vector<std::uint32_t> stags;
  while (const auto stag = table.add(region_of(memory, stags.size()))) {
    stags.push_back(number(*stag));
    if (stags.size() > ddp::StagTable::kMaxRegions) break;
  }
  CHECK(stags.size() == ddp::StagTable::kMaxRegions);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < stags.size(); i += 97) {
    wrong += table.find(Stag{stags[i]}, &domain_a, i, 10, 0).error != AccessError::none;
  }
  CHECK(wrong == 0);
  const Stag some{stags[12345]};
  std::sort(stags.begin(), stags.end());
  CHECK(std::adjacent_find(stags.begin(), stags.end()) == stags.end());
  CHECK(table.retire(some));
  CHECK_FALSE(table.add(region_of(memory, 0)));  // not before the grace period is over
  table.recycle(some);
  CHECK(table.add(region_of(memory, 0)));
}

TEST_CASE("stag_table: look-ups beside add and retire", "[stag_table]") {
  ddp::StagTable table(6);
  constexpr std::size_t kReaders = 2, kRounds = 256;
  Bytes memory(64);
  const auto base_of = [](std::size_t round) { return std::uint64_t{round} * 64; };
  std::atomic<std::uint64_t> shared{0};  // round and STag
  std::atomic<bool> over{false};
  // A grace period in its plainest form: each reader counts its turns.
  std::atomic<std::uint64_t> turns[kReaders] = {};
  std::atomic<std::size_t> hits{0}, bad{0};
  std::vector<std::thread> readers;
  for (std::size_t r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      while (!over.load()) {
        const std::uint64_t now = shared.load();
        const auto access =
            table.find(Stag{static_cast<std::uint32_t>(now)}, &domain_a, base_of(now >> 32) + 7, 1, ddp::kLocalWrite);
        if (access.error == AccessError::none) {
          hits.fetch_add(1, std::memory_order_relaxed);
          if (access.memory != memory.data() + 7) bad.fetch_add(1);
        } else if (access.error != AccessError::invalid_stag) {
          bad.fetch_add(1);  // the region of another round
        }
        turns[r].fetch_add(1);
      }
    });
  }
  for (std::size_t round = 1; round <= kRounds; ++round) {
    const Stag stag = table.add(region_of(memory, base_of(round))).value();
    shared.store(std::uint64_t{round} << 32 | number(stag));
    while (round % 64 == 0 && hits.load() == 0) std::this_thread::yield();
    table.retire(stag);
    for (auto& turn : turns) {
      const auto now = turn.load();
      while (turn.load() < now + 2) std::this_thread::yield();
    }
    table.recycle(stag);
  }
  over = true;
  for (auto& reader : readers) reader.join();
  CHECK(hits.load() > 0);
  CHECK(bad.load() == 0);
}

TEST_CASE("stag table: any domain stands for that of a region, and lifts no other check", "[ddp]") {
  ddp::StagTable table(1);
  Bytes memory(100);
  const Stag stag = table.add(region_of(memory, 0)).value();  // with the right to be written to here
  const auto error = [&](const void* domain, std::uint64_t offset, std::uint32_t rights) {
    return table.find(stag, domain, offset, 50, rights).error;
  };
  CHECK(error(&table, 0, ddp::kLocalWrite) == ddp::AccessError::not_associated);
  CHECK(error(ddp::kAnyDomain, 0, ddp::kLocalWrite) == ddp::AccessError::none);
  CHECK(error(ddp::kAnyDomain, 51, ddp::kLocalWrite) == ddp::AccessError::bounds);
  REQUIRE(table.retire(stag));
  CHECK(error(ddp::kAnyDomain, 0, ddp::kLocalWrite) == ddp::AccessError::invalid_stag);
}
