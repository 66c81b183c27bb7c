// SPDX-License-Identifier: MIT
// Threads that meet in the Checker: what ThreadSanitizer has to see of it. Each fault has a test in tests/apps/check.
#include "provider/check/checker.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <thread>
#include <vector>

#include "rdmap/terminate.h"

namespace uiw::provider::check {
namespace {

constexpr Questions kAnswers{
    [](const ibv_qp&) { return IBV_QPS_RTS; },
    [](const ibv_cq&) {
      return Questions::Completions{1, 0, true, false, false};
    },
    [](std::uint32_t, std::uint64_t) { return std::string(); },
};

Checker& checker() {
  Checker* const made = Checker::begin(kAnswers);
  REQUIRE(made != nullptr);  // the test sets UIW_CHECK
  return *made;
}

// A queue pair with a completion queue and memory, as a thread of a program has them.
struct Side {
  Checker& check;
  ibv_context context{};
  ibv_comp_channel channel{};
  ibv_cq cq{};
  ibv_qp qp{};
  std::array<char, 64> memory{};
  std::vector<ibv_send_wr> sends{};
  std::vector<ibv_recv_wr> receives{};

  Side(Checker& checker, std::uint32_t number) : check(checker) {
    cq.context = qp.context = &context;
    cq.cqe = 64;
    qp.qp_num = number;
    qp.send_cq = qp.recv_cq = &cq;
    check.created(cq, static_cast<int>(number), false);
    ibv_qp_init_attr attributes{};
    attributes.cap.max_send_wr = 16;
    check.created(qp, attributes);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() {
    for (const void* handle : {static_cast<const void*>(&qp), static_cast<const void*>(&cq)}) {
      if (!check.begin_destroy(handle, "destroy")) continue;
      check.await_calls(handle);
      check.end_destroy(handle, true);
    }
  }
  static Place caller() { return Place::of_call(__builtin_return_address(0)); }

  // A receive and a Send, whose completions are polled. True if each has the program's number.
  bool talk(std::uint32_t lkey) {
    ibv_mr mr{};
    mr.context = &context;
    mr.lkey = lkey;
    check.created(mr, memory.data(), memory.size(), reinterpret_cast<std::uintptr_t>(memory.data()),
                  IBV_ACCESS_LOCAL_WRITE);
    std::array<ibv_sge, 2> pieces{{{reinterpret_cast<std::uintptr_t>(memory.data()), 32, lkey},
                                   {reinterpret_cast<std::uintptr_t>(memory.data() + 32), 32, lkey}}};
    ibv_recv_wr receive{};
    receive.wr_id = 7;
    receive.sg_list = pieces.data();
    receive.num_sge = 1;
    receives.clear();
    check.begin_post(&qp, &receive, caller(), receives);
    check.posted(&qp, false, receives[0].wr_id, 1, 1, 0);
    ibv_send_wr send{};
    send.wr_id = 8;
    send.sg_list = &pieces[1];
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    sends.clear();
    check.begin_post(qp, &send, caller(), sends);
    check.posted(&qp, true, sends[0].wr_id, 1, 1, 0);
    check.sink_begins(receives[0].wr_id);
    memory[0] = 'x';
    check.sink_filled(receives[0].wr_id, 1);
    std::array<ibv_wc, 2> done{};
    done[0].wr_id = receives[0].wr_id;
    done[1].wr_id = sends[0].wr_id;
    check.polled(cq, done.data(), 2, __builtin_return_address(0), __builtin_frame_address(0));
    const bool allowed = check.begin_destroy(&mr, "ibv_dereg_mr");
    check.deregisters(mr);
    check.end_destroy(&mr, true);
    return allowed && done[0].wr_id == 7 && done[1].wr_id == 8;
  }
};

}  // namespace

TEST_CASE("threads that post, receive, poll, wait and destroy meet in the Checker", "[check]") {
  constexpr int kRounds = 300;
  std::atomic<int> wrong{0};
  std::atomic<bool> ended{false};
  Checker& check = checker();
  Side shared(check, 0x999);
  const auto talks = [&](std::uint32_t number) {
    for (int round = 0; round < kRounds; ++round) {
      Side side(check, number);
      const std::uint32_t lkey = number * 0x10000 + static_cast<std::uint32_t>(round);
      if (!side.talk(lkey)) ++wrong;
      const bool allowed = side.check.enter(&shared.cq, "ibv_poll_cq", __builtin_return_address(0), true);
      if (!allowed) ++wrong;
      side.check.polled(shared.cq, nullptr, 0, __builtin_return_address(0), __builtin_frame_address(0));
      side.check.leave(&shared.cq);
    }
  };
  const auto waits = [&] {
    while (!ended) {
      check.requests_event(shared.cq, __builtin_return_address(0));
      Checker::Sleep sleep = check.begin_sleep(0x999, true);
      check.sleeps(sleep);
      check.message_waits(shared.qp, std::chrono::microseconds(0));
      check.message_goes_on(shared.qp, true);
      check.refuses(shared.qp, rdmap::terminate_for({rdmap::ErrorType::remote_protection, rdmap::ErrorCode{0}}));
      static_cast<void>(check.refusals());
    }
  };
  std::thread waiter(waits);
  std::thread one(talks, 1), two(talks, 2);
  one.join();
  two.join();
  ended = true;
  waiter.join();
  CHECK(wrong == 0);
}

TEST_CASE("a call that comes while its object is destroyed waits for that, and is refused", "[check]") {
  Checker& check = checker();
  ibv_cq cq{};
  cq.cqe = 8;
  check.created(cq, -1, false);
  REQUIRE(check.begin_destroy(&cq, "ibv_destroy_cq"));
  std::atomic<bool> allowed{true}, came{false};
  std::thread other([&] {
    came = true;
    allowed = check.enter(&cq, "ibv_poll_cq", __builtin_return_address(0), true);
  });
  while (!came) std::this_thread::yield();
  check.await_calls(&cq);
  check.end_destroy(&cq, true);
  other.join();
  CHECK_FALSE(allowed);
  CHECK_FALSE(check.begin_destroy(&cq, "ibv_destroy_cq"));
}

TEST_CASE("a destruction waits a moment for the calls of other threads", "[check]") {
  Checker& check = checker();
  ibv_cq cq{};
  cq.cqe = 8;
  check.created(cq, -1, false);
  REQUIRE(check.enter(&cq, "ibv_poll_cq", __builtin_return_address(0), true));
  std::atomic<bool> left{false};
  std::atomic<bool> destroys{false};
  std::thread destroyer([&] {
    const bool goes_on = check.begin_destroy(&cq, "ibv_destroy_cq");
    destroys = true;
    check.await_calls(&cq);
    if (goes_on && left) check.end_destroy(&cq, true);  // else the queue is not destroyed, which shows below
  });
  while (!destroys) std::this_thread::yield();
  left = true;
  check.leave(&cq);
  destroyer.join();
  CHECK_FALSE(check.begin_destroy(&cq, "ibv_destroy_cq"));
}

}  // namespace uiw::provider::check
