// SPDX-License-Identifier: MIT
// The end of a stream while data arrives: what a completion has given back, or a call has taken away, is written no
// more.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/unit/provider/connect/manual/manual_pair.h"
#include "tests/unit/provider/memory/window_pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

enum class Ending { bad_lkey, modify_to_error, disconnect, peers_terminate, overrun };

void end(Side& side, Ending how, ibv_sge bad) {
  switch (how) {
    case Ending::bad_lkey: REQUIRE(side.post(IBV_WR_SEND, 2, {bad}) == 0); break;
    case Ending::modify_to_error: REQUIRE(side.to(IBV_QPS_ERR) == 0); break;
    case Ending::disconnect: REQUIRE(side.qp->disconnect(nullptr) == 0); break;
    case Ending::peers_terminate:  // no such rkey
      bad.lkey = 0;
      bad.length = 0;
      REQUIRE(side.post(IBV_WR_RDMA_READ, 2, {}, 0, 0x1234, 0) == 0);
      break;
    case Ending::overrun: side.qp->completion_lost(); break;
  }
}

}  // namespace

TEST_CASE_METHOD(Loopback, "flush: the sink of a Read is not written behind its completion", "[flush]") {
  const Ending how =
      GENERATE(Ending::bad_lkey, Ending::modify_to_error, Ending::disconnect, Ending::peers_terminate, Ending::overrun);
  const bool remote = GENERATE(false, true);
  constexpr std::size_t kSize = 4'000'000;
  Bytes source(kSize, std::byte{1}), sink(kSize);
  unsigned late = 0, flushed = 0;
  for (int turn = 0; turn < 40; ++turn) {
    ConnectedPair pair(context, {.remote = remote});
    Side &near = pair.a, &far = pair.b;
    const auto source_mr = far.expose(source, kAll), sink_mr = near.expose(sink, kLocal);
    std::fill(sink.begin(), sink.end(), std::byte{0});
    REQUIRE(near.post(IBV_WR_RDMA_READ, 1, {sge_of(sink, *sink_mr)}, 0, source_mr->key(), address_of(source)) == 0);
    // Until the answer is on its way.
    REQUIRE(eventually([&] { return *static_cast<volatile std::byte*>(&sink[1000]) != std::byte{0}; }));
    ibv_sge bad = sge_of(sink, *sink_mr);
    bad.lkey ^= 1;
    end(near, how, bad);
    const ibv_wc completion = next(*near.send_cq);
    REQUIRE(completion.wr_id == 1);
    if (completion.status == IBV_WC_SUCCESS) continue;
    ++flushed;
    // From here on it is the program's.
    std::fill(sink.begin(), sink.end(), std::byte{2});
    for (int i = 0; i < 200; ++i) std::this_thread::yield();
    if (std::any_of(sink.begin(), sink.end(), [](std::byte octet) { return octet != std::byte{2}; })) ++late;
  }
  CHECK(late == 0);
  INFO("flushed " << flushed);
}

TEST_CASE_METHOD(Loopback, "flush: a region that is deregistered while its queue pair is destroyed is written no more",
                 "[flush]") {
  constexpr std::size_t kSize = 20'000;
  Bytes source(kSize, std::byte{1}), target(kSize);
  unsigned late = 0;
  for (int turn = 0; turn < 300; ++turn) {
    Side near(*context, {.depth = 64, .signal_all = false}), far(*context);
    connect_manually(near, far);
    const auto source_mr = near.expose(source, 0);
    auto target_mr = far.expose(target, kAll);
    const ibv_sge sge = sge_of(source, *source_mr);
    std::fill(target.begin(), target.end(), std::byte{0});
    for (int i = 0; i < 60; ++i) {
      REQUIRE(near.post(IBV_WR_RDMA_WRITE, 1, {sge}, 0, target_mr->key(), address_of(target)) == 0);
    }
    while (*static_cast<volatile std::byte*>(&target[0]) == std::byte{0}) std::this_thread::yield();
    std::atomic<bool> begun{false};
    std::thread destroyer([&] {
      begun = true;
      far.qp.reset();
    });
    while (!begun) std::this_thread::yield();
    target_mr.reset();
    std::fill(target.begin(), target.end(), std::byte{2});
    destroyer.join();
    if (std::any_of(target.begin(), target.end(), [](std::byte octet) { return octet != std::byte{2}; })) ++late;
  }
  CHECK(late == 0);
}
