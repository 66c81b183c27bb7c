// SPDX-License-Identifier: MIT
#include "provider/verbs/context.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/grace_period.h"
#include "provider/process/limits.h"
#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {
constexpr std::size_t kPage = 4096;
std::byte* map(std::size_t pages, int protection) {
  void* memory = ::mmap(nullptr, pages * kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return static_cast<std::byte*>(memory);
}
ddp::Region region(const Mr& mr) {
  const auto found = provider::stag_table().region(static_cast<ddp::Stag>(mr.key()));
  REQUIRE(found);
  return *found;
}
}  // namespace

TEST_CASE("context: a device that is not there", "[context]") {
  errno = 0;
  CHECK(Context::open("uiw_none") == nullptr);
  CHECK(errno == ENODEV);
  CHECK(Context::open("lo") == nullptr);
  CHECK(Context::open("") == nullptr);
}

TEST_CASE_METHOD(Loopback, "context: what device and port say", "[context]") {
  CHECK(context->device().interface == "lo");
  ibv_device_attr_ex device{};
  context->query_device(device);
  CHECK(device.orig_attr.node_guid == htobe64(context->device().guid));
  CHECK(device.orig_attr.phys_port_cnt == 1);
  CHECK(device.orig_attr.max_qp == provider::kMaxQp);
  CHECK(device.orig_attr.max_sge == provider::kMaxSge);
  CHECK(device.orig_attr.max_qp_rd_atom == provider::kMaxReadDepth);
  ibv_port_attr port{};
  CHECK(context->query_port(1, port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(port.gid_tbl_len == static_cast<int>(context->device().gids.size()));
  CHECK(port.max_msg_sz >= 1U << 30);
  CHECK(context->query_port(0, port) == EINVAL);
  CHECK(context->query_port(2, port) == EINVAL);
}

TEST_CASE_METHOD(Loopback, "context: async events are read in order and purged by object", "[context]") {
  int objects[2] = {};
  ibv_async_event event{};
  for (int i = 0; i < 6; ++i) {
    event.event_type = i % 2 == 0 ? IBV_EVENT_QP_FATAL : IBV_EVENT_QP_REQ_ERR;
    event.element.qp = reinterpret_cast<ibv_qp*>(&objects[i % 2]);
    context->report(event);
  }
  const auto first = next_event(*context, 0);
  REQUIRE(first);
  CHECK(first->event_type == IBV_EVENT_QP_FATAL);
  CHECK(first->element == reinterpret_cast<std::uintptr_t>(&objects[0]));
  CHECK(context->withdraw_events(&objects[0], 3) == 1);
  for (int i = 0; i < 3; ++i) {
    const auto event_read = next_event(*context, 0);
    REQUIRE(event_read);
    CHECK(event_read->event_type == IBV_EVENT_QP_REQ_ERR);
  }
  CHECK_FALSE(next_event(*context, 0));
  CHECK(context->withdraw_events(&objects[0], 1) == 1);
}

TEST_CASE_METHOD(Loopback, "mr: rights and tagged offsets", "[context]") {
  Pd pd(context);
  Bytes memory(100);
  const auto base = address_of(memory);
  CHECK_FALSE(pd.in_use());
  {
    const auto mr = Mr::create(pd, memory.data(), 100, base, 0);
    REQUIRE(mr);
    CHECK(pd.in_use());
    CHECK(mr->key() != 0);
    CHECK(region(*mr).rights == ddp::kLocalRead);
    CHECK(region(*mr).base == base);
    CHECK(region(*mr).length == 100);
    CHECK(region(*mr).domain == &pd);
  }
  CHECK_FALSE(pd.in_use());
  const auto all =
      Mr::create(pd, memory.data(), 100, base,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  REQUIRE(all);
  CHECK(region(*all).rights == 31);
  const auto read = Mr::create(pd, memory.data(), 100, base, IBV_ACCESS_REMOTE_READ);
  REQUIRE(read);
  CHECK(region(*read).rights == (ddp::kLocalRead | ddp::kRemoteRead));
  const auto zero_based = Mr::create(pd, memory.data(), 100, base, IBV_ACCESS_ZERO_BASED);
  REQUIRE(zero_based);
  CHECK(region(*zero_based).base == 0);
  const auto moved = Mr::create(pd, memory.data(), 100, 0x1234, 0);
  REQUIRE(moved);
  CHECK(region(*moved).base == 0x1234);
  CHECK(region(*moved).memory == memory.data());
  const auto relaxed = Mr::create(pd, memory.data(), 100, base, IBV_ACCESS_RELAXED_ORDERING);
  CHECK(relaxed);
  const auto empty = Mr::create(pd, memory.data(), 0, base, 0);
  CHECK(empty);
}

TEST_CASE_METHOD(Loopback, "mr: what cannot be registered", "[context]") {
  Pd pd(context);
  Bytes memory(100);
  const auto error = [&](void* address, std::size_t length, std::uint64_t iova, unsigned access) {
    errno = 0;
    const auto mr = Mr::create(pd, address, length, iova, access);
    return mr ? 0 : errno;
  };
  const auto base = address_of(memory);
  // Manual page of ibv_reg_mr: remote write and atomic need local write.
  CHECK(error(memory.data(), 100, base, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(error(memory.data(), 100, base, IBV_ACCESS_REMOTE_ATOMIC) == EINVAL);
  for (unsigned bit = 10; bit < 20; ++bit) CHECK(error(memory.data(), 100, base, 1U << bit) == EINVAL);
  CHECK(error(memory.data(), 100, base, 1U << 30) == EINVAL);
  // IBV_ACCESS_OPTIONAL_RANGE: a device may ignore these.
  for (unsigned bit = 20; bit < 30; ++bit) CHECK(error(memory.data(), 100, base, 1U << bit) == 0);
  // IBV_ACCESS_FLUSH_GLOBAL, and IBV_ACCESS_FLUSH_PERSISTENT, for which this is no memory.
  CHECK(error(memory.data(), 100, base, 1U << 8) == 0);
  CHECK(error(memory.data(), 100, base, 1U << 9) == EOPNOTSUPP);
  CHECK(error(memory.data(), ~std::size_t{0}, base, 0) == EINVAL);
  CHECK(error(memory.data(), 100, ~std::uint64_t{0} - 50, 0) == EINVAL);

  std::byte* pages = map(4, PROT_READ | PROT_WRITE);
  CHECK(error(pages, 4 * kPage, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
  REQUIRE(::mprotect(pages + kPage, kPage, PROT_READ) == 0);
  CHECK(error(pages, 4 * kPage, 0, 0) == 0);
  CHECK(error(pages, 4 * kPage, 0, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  CHECK(error(pages, kPage, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
  CHECK(error(pages, kPage + 1, 0, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  REQUIRE(::mprotect(pages + kPage, kPage, PROT_NONE) == 0);
  CHECK(error(pages, 4 * kPage, 0, 0) == EFAULT);
  CHECK(error(pages + 2 * kPage - 1, 1, 0, 0) == EFAULT);
  CHECK(error(pages + 2 * kPage, 2 * kPage, 0, 0) == 0);
  REQUIRE(::munmap(pages + kPage, kPage) == 0);
  CHECK(error(pages, 4 * kPage, 0, 0) == EFAULT);
  ::munmap(pages, 4 * kPage);
  CHECK(error(pages, 1, 0, 0) == EFAULT);
  CHECK(error(nullptr, 100, 0, 0) == EFAULT);
  CHECK_FALSE(pd.in_use());
}

TEST_CASE_METHOD(Loopback, "mr: deregistration waits for the end of placements under way (RFC 5040 section 8.1.1)",
                 "[context]") {
  Pd pd(context);
  Bytes memory(64);
  auto mr = Mr::create(pd, memory.data(), 64, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(mr);
  const auto stag = static_cast<ddp::Stag>(mr->key());
  std::atomic<bool> inside{false}, over{false};
  std::thread placement([&] {
    const ReadSection section;
    inside = true;
    // Until the owner has begun to take the region away; whoever found it before may still be writing.
    while (provider::stag_table().find(stag, &pd, 0, 64, ddp::kRemoteWrite).error == ddp::AccessError::none) {
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    over = true;
  });
  while (!inside) std::this_thread::yield();
  mr.reset();
  CHECK(over);
  placement.join();
}

TEST_CASE_METHOD(Loopback, "mr: registered and gone while others look", "[context]") {
  Pd pd(context);
  Bytes memory(64);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        const auto mr = Mr::create(pd, memory.data(), 64, 0, IBV_ACCESS_LOCAL_WRITE);
        if (!mr || provider::stag_table().find(static_cast<ddp::Stag>(mr->key()), &pd, 0, 64, ddp::kLocalWrite).error !=
                       ddp::AccessError::none) {
          ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK_FALSE(pd.in_use());
}
