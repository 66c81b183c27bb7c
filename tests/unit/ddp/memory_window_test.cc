// SPDX-License-Identifier: MIT
// Memory windows in the STag table: the rows of the Verbs draft's sections 7.8 and 7.10.6, and the end of a binding
// while others use it.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "ddp/stag_table.h"
#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;
using ddp::AccessError;
using ddp::Binding;
using ddp::Stag;
using ddp::WindowError;
using ddp::WindowType;

namespace {

constexpr std::uint64_t kBase = 0x10000;
constexpr std::uint32_t kRemote = ddp::kRemoteRead | ddp::kRemoteWrite;
int domain, other_domain, stream, other_stream;

std::uint32_t number(Stag stag) { return static_cast<std::uint32_t>(stag); }
Stag next_key(Stag stag) { return static_cast<Stag>((number(stag) & ~0xFFU) | ((number(stag) + 1) & 0xFFU)); }

struct Fixture {
  ddp::StagTable table{7};
  Bytes memory = Bytes(1000);
  Stag region = add(ddp::kLocalWrite | ddp::kBindWindows);
  WindowType type = WindowType::type2;
  Stag window = table.add_window(&domain, type).value();

  Stag add(std::uint32_t rights, std::uint64_t base = kBase, const void* whose = &domain) {
    return table.add({memory.data(), base, memory.size(), rights, whose}).value();
  }
  Binding binding(std::uint32_t rights = kRemote, std::uint64_t offset = kBase, std::uint64_t length = 1000) const {
    return {window, region, offset, length, rights, type, false};
  }
  WindowError bind(const Binding& with) { return table.bind(with, &domain, &stream); }
  AccessError access(std::uint64_t offset, std::uint64_t length, std::uint32_t rights, const void* by = &stream,
                     Stag stag = Stag{0}) {
    return table.find(stag == Stag{0} ? window : stag, &domain, offset, length, rights, by).error;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "memory_window: allocated in the Invalid state (Verbs draft 7.10.1)", "[memory_window]") {
  CHECK(access(kBase, 1, ddp::kRemoteRead) == AccessError::invalid_stag);
  CHECK_FALSE(table.region(window));
  CHECK(window != region);
  table.remove_window(window);
  CHECK(bind(binding()) == WindowError::deallocated);
}

TEST_CASE_METHOD(Fixture, "memory_window: bound, used, invalidated, bound again (Verbs draft 7.10.5)",
                 "[memory_window]") {
  REQUIRE(bind(binding(kRemote, kBase + 100, 50)) == WindowError::none);
  CHECK(access(kBase + 100, 50, ddp::kRemoteRead) == AccessError::none);
  CHECK(table.hold(window, &domain, kBase + 110, 1, ddp::kRemoteWrite, &stream).memory() == memory.data() + 110);
  CHECK(table.invalidate(window, &domain, &stream) == WindowError::none);
  CHECK(access(kBase + 100, 50, ddp::kRemoteRead) == AccessError::invalid_stag);
  // "An STag is allowed to already be in the Invalid state", where its key means nothing.
  CHECK(table.invalidate(window, &domain, &stream) == WindowError::none);
  CHECK(table.invalidate(next_key(window), &domain, &stream) == WindowError::none);
  const Stag old = window;
  window = next_key(window);
  REQUIRE(bind(binding()) == WindowError::none);
  CHECK(access(kBase, 1000, kRemote) == AccessError::none);
  CHECK(access(kBase, 1, kRemote, &stream, old) == AccessError::invalid_stag);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.1, the STag is a window's and in the Invalid state",
                 "[memory_window]") {
  Binding wrong = binding();
  wrong.window = region;
  CHECK(bind(wrong) == WindowError::no_window);
  wrong.window = static_cast<Stag>(number(window) ^ 0x5A5A5A00);
  CHECK(bind(wrong) == WindowError::deallocated);
  wrong.window = Stag{0};
  CHECK(bind(wrong) != WindowError::none);
  wrong = binding();
  wrong.type = WindowType::type1;
  CHECK(bind(wrong) == WindowError::no_window);
  REQUIRE(bind(binding()) == WindowError::none);
  CHECK(bind(binding()) == WindowError::not_invalid);
  Binding again = binding();
  again.window = next_key(window);
  CHECK(bind(again) == WindowError::not_invalid);
  CHECK(access(kBase, 1, ddp::kRemoteRead) == AccessError::none);  // as it was
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.1, the region is one, and in the Valid state", "[memory_window]") {
  Binding wrong = binding();
  wrong.region = Stag{0};
  CHECK(bind(wrong) == WindowError::no_region);
  wrong.region = next_key(region);
  CHECK(bind(wrong) == WindowError::no_region);
  wrong.region = table.add_window(&domain, WindowType::type2).value();
  CHECK(bind(wrong) == WindowError::no_region);
  REQUIRE(table.bind({wrong.region, region, kBase, 10, kRemote, type, false}, &domain, &stream) == WindowError::none);
  CHECK(bind(wrong) == WindowError::no_region);  // a bound window is no region either
  wrong.region = add(ddp::kLocalWrite | ddp::kBindWindows);
  REQUIRE(table.retire(wrong.region));
  CHECK(bind(wrong) == WindowError::no_region);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.1, one protection domain for all three", "[memory_window]") {
  CHECK(table.bind(binding(), &other_domain, &stream) == WindowError::not_associated);
  Binding wrong = binding();
  wrong.region = add(ddp::kLocalWrite | ddp::kBindWindows, kBase, &other_domain);
  CHECK(bind(wrong) == WindowError::not_associated);
  wrong = binding();
  wrong.window = table.add_window(&other_domain, type).value();
  CHECK(bind(wrong) == WindowError::not_associated);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.1, the region allows windows", "[memory_window]") {
  Binding wrong = binding();
  wrong.region = add(ddp::kLocalWrite | kRemote);
  CHECK(bind(wrong) == WindowError::not_bindable);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.1, access rights (figure 20)", "[memory_window]") {
  const Stag read_only = add(ddp::kBindWindows);
  for (std::uint32_t rights = 0; rights < 32; rights += 4) {
    Binding with = binding(rights);
    const bool changes = (rights & (ddp::kRemoteWrite | ddp::kRemoteAtomic)) != 0;
    CHECK(bind(with) == WindowError::none);  // without rights, too
    CHECK((access(kBase, 8, ddp::kRemoteRead) == AccessError::none) == ((rights & ddp::kRemoteRead) != 0));
    table.invalidate(window, &domain, &stream);
    with.region = read_only;
    CHECK(bind(with) == (changes ? WindowError::rights : WindowError::none));
    table.invalidate(window, &domain, &stream);
  }
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.1, not to a zero-based region (figure 19)", "[memory_window]") {
  Binding with = binding(kRemote, 0, 10);
  with.region = add(ddp::kLocalWrite | ddp::kBindWindows | ddp::kZeroBased, 0);
  CHECK(bind(with) == WindowError::zero_based);
  with.zero_based = true;
  CHECK(bind(with) == WindowError::zero_based);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.1, within the region, to the octet", "[memory_window]") {
  const auto error = [&](std::uint64_t offset, std::uint64_t length) {
    const WindowError result = bind(binding(kRemote, offset, length));
    table.invalidate(window, &domain, &stream);
    return result;
  };
  CHECK(error(kBase, 1000) == WindowError::none);
  CHECK(error(kBase + 999, 1) == WindowError::none);
  CHECK(error(kBase, 1001) == WindowError::bounds);
  CHECK(error(kBase + 1, 1000) == WindowError::bounds);
  CHECK(error(kBase - 1, 1) == WindowError::bounds);
  CHECK(error(kBase - 1, 1001) == WindowError::bounds);
  CHECK(error(kBase + 1000, 1) == WindowError::bounds);
  CHECK(error(kBase + 10, ~std::uint64_t{0}) == WindowError::bounds);
  CHECK(error(~std::uint64_t{0}, 2) == WindowError::bounds);
  CHECK(error(kBase, 0) == WindowError::bounds);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.6.2, checks at access time", "[memory_window]") {
  REQUIRE(bind(binding(ddp::kRemoteRead, kBase + 100, 50)) == WindowError::none);
  CHECK(access(kBase + 100, 50, ddp::kRemoteRead) == AccessError::none);
  // Another stream, of the same domain.
  CHECK(access(kBase + 100, 50, ddp::kRemoteRead, &other_stream) == AccessError::not_associated);
  CHECK(access(kBase + 100, 50, ddp::kRemoteRead, nullptr) == AccessError::not_associated);
  // Base and bounds.
  CHECK(access(kBase + 99, 1, ddp::kRemoteRead) == AccessError::bounds);
  CHECK(access(kBase + 100, 51, ddp::kRemoteRead) == AccessError::bounds);
  CHECK(access(~std::uint64_t{0}, 2, ddp::kRemoteRead) == AccessError::wrap);
  // The window's rights, and not the region's.
  CHECK(access(kBase + 100, 50, ddp::kRemoteWrite) == AccessError::rights);
  CHECK(access(kBase + 100, 8, ddp::kRemoteAtomic) == AccessError::rights);
  // Section 8.2.1: no window in an SGE.
  CHECK(access(kBase + 100, 50, ddp::kLocalRead) == AccessError::rights);
  CHECK(access(kBase + 100, 50, ddp::kLocalWrite) == AccessError::rights);
}

TEST_CASE_METHOD(Fixture, "memory_window: zero-based windows count from 0", "[memory_window]") {
  Binding with = binding(kRemote, kBase + 100, 50);
  with.zero_based = true;
  REQUIRE(bind(with) == WindowError::none);
  CHECK(table.hold(window, &domain, 0, 50, kRemote, &stream).memory() == memory.data() + 100);
  CHECK(access(0, 51, kRemote) == AccessError::bounds);
  CHECK(access(kBase + 100, 1, kRemote) == AccessError::bounds);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.8 and 7.10.6.3, checks at invalidation", "[memory_window]") {
  CHECK(table.invalidate(Stag{0}, &domain, &stream) != WindowError::none);
  CHECK(table.invalidate(static_cast<Stag>(number(window) ^ 0x5A5A5A00), &domain, &stream) == WindowError::deallocated);
  // Invalid: the domain.
  CHECK(table.invalidate(window, &other_domain, &stream) == WindowError::not_associated);
  // Valid: the stream, and the key.
  REQUIRE(bind(binding()) == WindowError::none);
  CHECK(table.invalidate(window, &domain, &other_stream) == WindowError::not_associated);
  CHECK(table.invalidate(next_key(window), &domain, &stream) == WindowError::deallocated);
  CHECK(access(kBase, 1, kRemote) == AccessError::none);
  // Regions.
  CHECK(table.invalidate(region, &domain, &stream) == WindowError::windows_bound);
  CHECK(table.invalidate(region, &other_domain, &stream) == WindowError::not_associated);
  CHECK(table.invalidate(next_key(region), &domain, &stream) == WindowError::deallocated);
  CHECK(table.invalidate(window, &domain, &stream) == WindowError::none);
  CHECK(table.invalidate(region, &domain, &stream) == WindowError::no_window);
  // A window of type 1 is bound again, not invalidated.
  const Stag first = table.add_window(&domain, WindowType::type1).value();
  CHECK(table.invalidate(first, &domain, &stream) == WindowError::no_window);
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.9, a region with windows bound to it stays", "[memory_window]") {
  const Stag second = table.add_window(&domain, type).value();
  REQUIRE(bind(binding()) == WindowError::none);
  REQUIRE(table.bind({second, region, kBase, 10, kRemote, type, false}, &domain, &other_stream) == WindowError::none);
  CHECK_FALSE(table.retire(region));
  REQUIRE(table.invalidate(window, &domain, &stream) == WindowError::none);
  CHECK_FALSE(table.retire(region));
  table.release_stream(&domain, &other_stream);
  CHECK(access(kBase, 1, kRemote, &other_stream, second) == AccessError::invalid_stag);
  CHECK(table.retire(region));
  CHECK(table.invalidate(second, &domain, &stream) == WindowError::none);  // back with its domain
  table.recycle(region);
}

TEST_CASE_METHOD(Fixture, "memory_window: type 1 is for all streams of its domain, and bound anew", "[memory_window]") {
  type = WindowType::type1;
  window = table.add_window(&domain, type).value();
  REQUIRE(bind(binding(ddp::kRemoteRead, kBase, 10)) == WindowError::none);
  CHECK(access(kBase, 10, ddp::kRemoteRead, &other_stream) == AccessError::none);
  CHECK(table.find(window, &other_domain, kBase, 10, ddp::kRemoteRead, &stream).error == AccessError::not_associated);
  const Stag old = window;
  window = table.next_key(window);
  CHECK(window != old);
  CHECK(number(window) >> 8 == number(old) >> 8);
  // A bind that fails leaves the one before.
  CHECK(bind(binding(ddp::kRemoteRead, kBase, 1001)) == WindowError::bounds);
  CHECK(access(kBase, 10, ddp::kRemoteRead, &stream, old) == AccessError::none);
  REQUIRE(bind(binding(kRemote, kBase + 10, 10)) == WindowError::none);
  CHECK(access(kBase, 10, ddp::kRemoteRead, &stream, old) == AccessError::invalid_stag);
  CHECK(access(kBase + 10, 10, kRemote) == AccessError::none);
  CHECK_FALSE(table.retire(region));
  // No rights is allowed here, no length ends the binding.
  window = table.next_key(window);
  CHECK(bind(binding(0, kBase, 10)) == WindowError::none);
  CHECK(access(kBase, 10, ddp::kRemoteRead) == AccessError::rights);
  Binding end = binding(0, 0, 0);
  end.region = Stag{0};
  CHECK(bind(end) == WindowError::none);
  CHECK(access(kBase, 10, 0) == AccessError::invalid_stag);
  CHECK(table.retire(region));
  table.remove_window(window);
}

TEST_CASE_METHOD(Fixture, "memory_window: removed while bound; the slot serves a region next", "[memory_window]") {
  REQUIRE(bind(binding()) == WindowError::none);
  table.remove_window(window);
  CHECK(access(kBase, 1, kRemote) == AccessError::invalid_stag);
  const Stag next = add(ddp::kLocalWrite);
  CHECK(number(next) >> 8 == number(window) >> 8);
  CHECK(next != window);
  CHECK(table.find(next, &domain, kBase, 1000, ddp::kLocalWrite).error == AccessError::none);
  CHECK(table.retire(region));
}

TEST_CASE_METHOD(Fixture, "memory_window: 7.10.4.1, nothing is accessed once the invalidation is over",
                 "[memory_window]") {
  // Writers look up and store while the binding comes and goes; between two bindings the octets must stand still.
  std::atomic<bool> stop{false};
  std::atomic<unsigned> stores{0};
  std::atomic<std::uint32_t> current{number(window)};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      while (!stop) {
        const ddp::Hold hold =
            table.hold(static_cast<Stag>(current.load()), &domain, kBase, 100, ddp::kRemoteWrite, &stream);
        if (hold.error() != AccessError::none) continue;
        for (int octet = 0; octet < 100; ++octet) {
          std::atomic_ref(reinterpret_cast<unsigned char&>(hold.memory()[octet]))
              .fetch_add(1, std::memory_order_relaxed);
        }
        ++stores;
      }
    });
  }
  int moved = 0;
  for (int round = 0; round < 300; ++round) {
    window = next_key(window);
    const unsigned before = stores;
    if (bind(binding(ddp::kRemoteWrite, kBase, 100)) != WindowError::none) ++moved;
    current = number(window);
    while (stores == before) std::this_thread::yield();
    if (table.invalidate(window, &domain, &stream) != WindowError::none) ++moved;
    const Bytes then = memory;
    for (int i = 0; i < 50; ++i) std::this_thread::yield();
    if (then != memory) ++moved;
  }
  stop = true;
  for (auto& writer : writers) writer.join();
  CHECK(moved == 0);
}

TEST_CASE_METHOD(Fixture, "stag_table: a null region reads its zeros, and drops what is written", "[stag_table]") {
  const Stag null = table.add({memory.data(), 0, ~std::uint64_t{0}, ddp::kLocalWrite | ddp::kNull, &domain}).value();
  CHECK(table.find(null, &domain, 0x123456789, 1000, ddp::kLocalRead).memory == memory.data());
  CHECK(table.find(null, &domain, 0x123456789, 1000, ddp::kLocalWrite).memory == ddp::discarded);
  CHECK(table.find(null, &domain, 0, 8, ddp::kRemoteRead).error == AccessError::rights);
}

TEST_CASE_METHOD(Fixture, "stag_table: a region of the whole address space", "[stag_table]") {
  const Stag all = table.add({nullptr, 0, ~std::uint64_t{0}, ddp::kLocalWrite, &domain}).value();
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  CHECK(table.find(all, &domain, at, 1000, ddp::kLocalWrite).memory == memory.data());
  CHECK(table.find(all, &domain, ~std::uint64_t{0} - 8, 8, ddp::kLocalWrite).error == AccessError::none);
  CHECK(table.find(all, &domain, ~std::uint64_t{0} - 8, 10, ddp::kLocalWrite).error == AccessError::wrap);
}
