// SPDX-License-Identifier: MIT
// Work that the peer has placed completes, whatever the program does meanwhile: a completion does not wait for polls.
#include <random>
#include <thread>

#include "tests/unit/provider/connect/manual/manual_pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

// What a program does before and between its posts.
enum class Manner { posts, polls_before, polls_between, polls_another_queue };

}  // namespace

TEST_CASE("idle program: Sends that were received complete while their program sleeps", "[completion]") {
  const Manner manner =
      GENERATE(Manner::posts, Manner::polls_before, Manner::polls_between, Manner::polls_another_queue);
  const unsigned pause_us = GENERATE(0U, 1U, 20U, 100U, 500U);
  constexpr unsigned kSends = 96;
  const auto context = open_loopback(), elsewhere = open_loopback();
  Side a(*context, {.depth = 128}), b(*elsewhere, {.depth = 128});
  connect_manually(a, b);
  Registered out(a, Bytes(10)), in(b, Bytes(10), kLocal);
  for (int turn = 0; turn < 3; ++turn) {
    for (unsigned i = 0; i < kSends; ++i) REQUIRE(b.post_receive(i, {in.sge()}) == 0);
    if (manner == Manner::polls_before) {
      for (int i = 0; i < 2000; ++i) CHECK(none(*a.send_cq));
    }
    unsigned taken = 0;
    for (unsigned i = 0; i < kSends; ++i) {
      REQUIRE(a.post(IBV_WR_SEND, i, {out.sge()}) == 0);
      ibv_wc completion{};
      if (manner == Manner::polls_between && i % 4 == 0 && a.send_cq->poll(1, &completion) == 1) ++taken;
      if (manner == Manner::polls_another_queue) CHECK(none(*a.receive_cq));
      if (pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    }
    // The receiver polls, the sender does nothing.
    for (unsigned i = 0; i < kSends; ++i) CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    INFO("manner " << static_cast<int>(manner) << ", pause " << pause_us << ", left " << a.qp->sends_outstanding());
    REQUIRE(eventually([&] { return a.qp->sends_outstanding() == 0; }));
    // One poll returns them all.
    ibv_wc all[kSends];
    CHECK(a.send_cq->poll(kSends, all) == static_cast<int>(kSends - taken));
  }
}
