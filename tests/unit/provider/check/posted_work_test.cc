// SPDX-License-Identifier: MIT
#include "provider/check/posted_work.h"

#include <catch2/catch.hpp>
#include <vector>

#include "provider/check/objects.h"
#include "provider/check/source_line.h"

namespace uiw::provider::check {
namespace {

struct Posted {
  PostedWork work;
  ibv_qp qp{};
  ibv_cq cq{};

  explicit Posted(std::uint32_t depth = 8) {
    Queue& queue = work.queues[&qp];
    queue.depth = depth;
    work.completion_queues[&cq].places = 16;
  }
  std::uint64_t add(bool sends, bool signaled, std::uint64_t wr_id, const std::vector<Span>& spans = {}) {
    Work one;
    one.number = work.take_number();
    one.wr_id = wr_id;
    one.queue = &qp;
    one.sends = sends;
    one.signaled = signaled;
    one.role = sends ? Role::source : Role::sink;
    one.cq = signaled ? &cq : nullptr;
    one.spans = spans;
    const std::uint64_t number = one.number;
    work.add(std::move(one));
    return number;
  }
  std::size_t owed() const { return work.completion_queues.at(&cq).owed; }
};

Span span(std::uintptr_t address, std::uint32_t length, std::uint32_t lkey = 1) {
  Span one;
  one.address = address;
  one.length = length;
  one.lkey = lkey;
  return one;
}

}  // namespace

TEST_CASE("check: a completion also completes the work without completions before it", "[check]") {
  Posted posted;
  const std::uint64_t first = posted.add(true, false, 1, {span(0x1000, 64)});
  const std::uint64_t second = posted.add(true, true, 2, {span(0x2000, 64)});
  const std::uint64_t third = posted.add(true, true, 3);
  CHECK(posted.owed() == 2);
  std::vector<Work> done;
  CHECK(posted.work.complete(second, done) == 2U);
  REQUIRE(done.size() == 2);
  CHECK(done[0].number == first);
  CHECK(done[1].number == second);
  CHECK(posted.owed() == 1);
  CHECK(posted.work.find(third) != nullptr);
  CHECK(posted.work.users_of_key.empty());
}

TEST_CASE("check: work that was taken for complete and fails gives its wr_id back", "[check]") {
  Posted posted;
  const std::uint64_t first = posted.add(true, false, 7);
  const std::uint64_t second = posted.add(true, true, 8);
  std::vector<Work> done;
  CHECK(posted.work.complete(second, done) == 8U);
  CHECK(posted.work.complete(first, done) == 7U);
  CHECK(done.size() == 2);
  CHECK_FALSE(posted.work.complete(12345, done).has_value());  // not one of ours: left as it is
}

TEST_CASE("check: receives complete in any order, and work that is withdrawn or dropped leaves nothing", "[check]") {
  Posted posted;
  const std::uint64_t one = posted.add(false, true, 1, {span(0x1000, 64)});
  const std::uint64_t two = posted.add(false, true, 2, {span(0x2000, 64)});
  const std::uint64_t three = posted.add(false, true, 3, {span(0x3000, 64)});
  std::vector<Work> done;
  CHECK(posted.work.complete(two, done) == 2U);
  CHECK(done.size() == 1);
  posted.work.withdraw(three);
  CHECK(posted.work.find(three) == nullptr);
  CHECK(posted.work.find(one) != nullptr);
  const auto all = [](const ibv_qp&) { return true; };
  REQUIRE(posted.work.user_of(1, all) != nullptr);
  CHECK(posted.work.user_of(1, all)->number == one);
  CHECK(posted.work.user_of(1, [](const ibv_qp&) { return false; }) == nullptr);
  posted.work.drop(&posted.qp);
  CHECK(posted.owed() == 0);
  CHECK(posted.work.user_of(1, all) == nullptr);
  CHECK(posted.work.complete(one, done) == 1U);  // which another thread was polling
  CHECK(posted.work.memory.user_of(span(0, 0x10000), Role::sink) == 0);
}

TEST_CASE("check: which octets posted work uses", "[check]") {
  Memory memory;
  Span sink = span(0x1000, 64);
  memory.enter(sink, Role::sink, 1);
  CHECK(memory.user_of(span(0x103F, 1), Role::sink) == 1);
  CHECK(memory.user_of(span(0x0FFF, 1), Role::sink) == 0);
  CHECK(memory.user_of(span(0x1040, 64), Role::sink) == 0);
  CHECK(memory.user_of(span(0x0FFF, 2), Role::sink) == 1);
  CHECK(memory.user_of(span(0x1000, 64), Role::source) == 0);
  Span overlapping = span(0x1020, 64);
  memory.enter(overlapping, Role::sink, 2);  // stays out, and does not end the first when it leaves
  memory.leave(overlapping, Role::sink);
  CHECK(memory.user_of(span(0x1020, 64), Role::sink) == 1);
  memory.leave(sink, Role::sink);
  CHECK(memory.user_of(span(0x1000, 64), Role::sink) == 0);
}

TEST_CASE("check: sources may be the same octets, and each of them keeps them in use", "[check]") {
  Memory memory;
  Span one = span(0x1000, 64), two = one;
  one.checksum = 5;
  two.checksum = 6;
  memory.enter(one, Role::source, 1);
  memory.enter(two, Role::source, 2);
  const Memory::Source* const same = memory.same_source(span(0x1000, 64));
  REQUIRE(same != nullptr);
  CHECK(same->latest == 2);
  CHECK(same->checksum == 6U);
  CHECK(memory.same_source(span(0x1000, 63)) == nullptr);
  memory.leave(one, Role::source);
  CHECK(memory.user_of(span(0x103F, 1), Role::source) == 2);
  memory.leave(two, Role::source);
  CHECK(memory.user_of(span(0x1000, 64), Role::source) == 0);
}

TEST_CASE("check: work that nothing ever completes is forgotten beyond what adapters have", "[check]") {
  Posted posted(4);
  for (std::uint64_t i = 0; i < 1000; ++i) posted.add(true, false, i);
  CHECK(posted.work.queues.at(&posted.qp).sends.size() <= 9);
}

TEST_CASE("check: an object that was destroyed is known until another one has its place", "[check]") {
  Objects objects;
  int place = 0;
  objects.add(&place, {.kind = Kind::queue_pair, .number = 3});
  objects.destroyed(&place, Place::here());
  REQUIRE(objects.find(&place) != nullptr);
  CHECK_FALSE(objects.find(&place)->live);
  CHECK(objects.find(&place)->destroyed.frames().size() > 1);
  objects.add(&place, {.kind = Kind::region});
  CHECK(objects.find(&place)->live);
}

TEST_CASE("check: names of functions for people", "[check]") {
  CHECK(short_name("main") == "main");
  CHECK(short_name("apps::(anonymous namespace)::send(int)") == "apps::send");
  CHECK(short_name("std::vector<int, std::allocator<int> >::push_back(int&&)") == "std::vector::push_back");
  CHECK(short_name("a::b::operator()(int) const") == "a::b::operator()");
  CHECK(text_of(SourceLine{"main", "/tmp/client.c", 42, "", 0}) == "main() at client.c:42");
  CHECK(text_of(SourceLine{"", "", 0, "/usr/bin/client", 0x12}) == "an unknown function (/usr/bin/client+0x12)");
}

}  // namespace uiw::provider::check
