// SPDX-License-Identifier: MIT
// Queue pairs of type UD with what else a program may give them: shared receive queues, extended completion queues, and
// an end in the middle of traffic. A case for each; those of several contexts and processes are in
// datagrams_together.cc, those of datagrams posted together in datagrams_batches.cc.
//
//   uiw_datagrams HOST PORT CASE
#include "tests/apps/roce/datagrams.h"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <thread>

namespace apps::datagrams {

namespace {

struct Srq {
  Srq(const Device& device, std::uint32_t depth, std::uint32_t limit = 0) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {depth, 1, 0};
    srq = ibv_create_srq(device.pd, &attributes);
    expect(srq != nullptr, "ibv_create_srq");
    if (limit != 0) {
      ibv_srq_attr armed{0, 0, limit};
      expect_error("ibv_modify_srq", ibv_modify_srq(srq, &armed, IBV_SRQ_LIMIT), 0);
    }
  }
  ~Srq() { expect_error("ibv_destroy_srq", ibv_destroy_srq(srq), 0); }
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;
  ibv_srq* srq;
};

ibv_async_event next_event(const Device& device, ibv_event_type wanted) {
  pollfd ready{device.context->async_fd, POLLIN, 0};
  if (poll(&ready, 1, 20'000) != 1) die("no %s in time", ibv_event_type_str(wanted));
  ibv_async_event event{};
  expect_error("ibv_get_async_event", ibv_get_async_event(device.context, &event), 0);
  if (event.event_type != wanted) die("%s, not %s", ibv_event_type_str(event.event_type), ibv_event_type_str(wanted));
  ibv_ack_async_event(&event);
  return event;
}

// Many queue pairs, one after the other, take from one queue in its order.
void shared_receives() {
  const Device device;
  const Queue queue(device, 1024), sends(device);
  const Memory memory(device, 64);
  const Srq shared(device, 64);
  const Qp sender(device, sends.cq);
  std::vector<std::unique_ptr<Qp>> receivers;
  for (int i = 0; i < 8; ++i) receivers.push_back(std::make_unique<Qp>(device, queue.cq, shared.srq));
  for (std::uint64_t turn = 0; turn < 50; ++turn) {
    for (std::uint64_t slot = 0; slot < 32; ++slot) receive(shared.srq, memory, slot);
    for (std::uint64_t slot = 0; slot < 32; ++slot) {
      const std::uint32_t to = receivers[(slot + turn) % 8]->qp->qp_num;
      expect_error("ibv_post_send", sender.send(to, turn << 32 | slot, 1), 0);
      sends.next();
    }
    for (std::uint64_t slot = 0; slot < 32; ++slot) {
      const ibv_wc wc = queue.next();
      expect(wc.wr_id == slot && wc.qp_num == receivers[(slot + turn) % 8]->qp->qp_num, "another receive");
      expect(memory.message(slot) == (turn << 32 | slot), "another message");
    }
  }
}

// Without receives in the shared queue datagrams are lost, and what is posted later is for those that come later.
void shared_receives_empty() {
  const Device device;
  const Queue queue(device), sends(device), seen(device);
  const Memory memory(device, 4), other(device, 1);
  const Srq shared(device, 4);
  const Qp sender(device, sends.cq), first(device, queue.cq, shared.srq), second(device, queue.cq, shared.srq);
  const Qp witness(device, seen.cq);  // what it has received was sent behind what is lost
  for (std::uint64_t turn = 1; turn < 100; ++turn) {
    witness.receive(other, 0);
    for (const Qp* to : {&first, &second, &witness}) {
      expect_error("ibv_post_send", sender.send(to->qp->qp_num, 1000, 1), 0);
      sends.next();
    }
    seen.next();
    expect(queue.empty(), "a completion without a receive");
    receive(shared.srq, memory, 0);
    expect(queue.empty(), "a datagram has waited for a receive");
    expect_error("ibv_post_send", sender.send(second.qp->qp_num, turn, 1), 0);
    expect(queue.next().qp_num == second.qp->qp_num && memory.message(0) == turn, "another message");
    sends.next();
  }
}

void shared_receives_limit() {
  const Device device;
  const Queue queue(device), sends(device);
  const Memory memory(device, 4);
  const Srq shared(device, 4, 3);
  const Qp sender(device, sends.cq), receiver(device, queue.cq, shared.srq);
  for (std::uint64_t slot = 0; slot < 4; ++slot) receive(shared.srq, memory, slot);
  for (std::uint64_t slot = 0; slot < 2; ++slot) {
    expect_error("ibv_post_send", sender.send(receiver.qp->qp_num, slot), 0);
    queue.next();
  }
  expect(next_event(device, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == shared.srq, "of another queue");
}

// A queue pair in ERR tells when it takes no more receives, and leaves those that are posted to others.
void shared_receives_last() {
  const Device device;
  const Queue queue(device), sends(device);
  const Memory memory(device, 4);
  const Srq shared(device, 4);
  const Qp sender(device, sends.cq), ended(device, queue.cq, shared.srq), other(device, queue.cq, shared.srq);
  for (std::uint64_t slot = 0; slot < 4; ++slot) receive(shared.srq, memory, slot);
  expect_error("ERR", ended.step(IBV_QPS_ERR, 0), 0);
  expect(next_event(device, IBV_EVENT_QP_LAST_WQE_REACHED).element.qp == ended.qp, "of another queue pair");
  expect_error("ibv_post_send", sender.send(ended.qp->qp_num, 1), 0);
  expect_error("ibv_post_send", sender.send(other.qp->qp_num, 2), 0);
  const ibv_wc wc = queue.next();
  expect(wc.wr_id == 0 && wc.qp_num == other.qp->qp_num && memory.message(0) == 2, "another message");
}

void check_extended(ibv_cq_ex* cq, const Memory& memory, const Qp& sender, const Qp& receiver, std::uint64_t slot) {
  expect(cq->status == IBV_WC_SUCCESS && cq->wr_id == slot, "status and wr_id");
  expect(ibv_wc_read_opcode(cq) == IBV_WC_RECV, "opcode");
  expect(ibv_wc_read_byte_len(cq) == kSlot, "byte_len");
  expect(ibv_wc_read_qp_num(cq) == receiver.qp->qp_num, "qp_num");
  expect(ibv_wc_read_src_qp(cq) == sender.qp->qp_num, "src_qp");
  const unsigned flags = ibv_wc_read_wc_flags(cq);
  expect(flags == (slot % 2 == 1 ? IBV_WC_GRH | IBV_WC_WITH_IMM : IBV_WC_GRH), "wc_flags");
  if (slot % 2 == 1) expect(ntohl(ibv_wc_read_imm_data(cq)) == slot, "imm_data");
  expect(ibv_wc_read_slid(cq) == 0, "slid");
  const unsigned sl = ibv_wc_read_sl(cq);  // a RoCE v2 packet of IPv6 or of IPv4, as mlx5 says it
  expect(sl == 9 || sl == 10, "sl");
  expect(memory.message(slot) == slot, "the message");
}

void extended_queue() {
  const Device device;
  const Queue sends(device);
  const Memory memory(device, 64);
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 64;
  attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
                        IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = ibv_create_cq_ex(device.context, &attributes);
  expect(cq != nullptr, "ibv_create_cq_ex");
  {
    const Qp sender(device, sends.cq), receiver(device, ibv_cq_ex_to_cq(cq));
    for (std::uint64_t slot = 0; slot < 64; ++slot) receiver.receive(memory, slot);
    for (std::uint64_t slot = 0; slot < 64; ++slot) {
      expect_error("ibv_post_send", sender.send(receiver.qp->qp_num, slot, 1, slot % 2 == 1), 0);
      sends.next();
    }
    std::uint64_t before = 0, slot = 0;
    const auto end = Clock::now() + kPatience;
    while (slot < 64) {
      expect(Clock::now() < end, "not all completions in time");
      ibv_poll_cq_attr none{};
      int result = ibv_start_poll(cq, &none);
      if (result == ENOENT) continue;
      for (; result == 0; result = ibv_next_poll(cq)) {
        check_extended(cq, memory, sender, receiver, slot++);
        const std::uint64_t time = ibv_wc_read_completion_ts(cq);
        expect(time >= before, "timestamps run backwards");
        before = time;
      }
      expect(result == ENOENT, "ibv_next_poll");
      ibv_end_poll(cq);
    }
  }
  expect_error("ibv_destroy_cq", ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

// Threads send all the time to queue pairs that come and go. Once ibv_destroy_qp has returned, their memory and their
// numbers are the program's.
void destroyed_under_traffic() {
  const Device device, other;
  std::atomic<std::uint32_t> target{0};
  std::atomic<bool> stop{false};
  const auto flood = [&](const Device& from) {
    const Queue sends(from);
    const Qp sender(from, sends.cq);
    for (std::uint64_t count = 1; !stop; ++count) {
      if (const std::uint32_t to = target.load(); to != 0) {
        expect_error("ibv_post_send", sender.send(to, ~0ULL, count % 16 == 0 ? 1 : 0), 0);
        if (count % 16 == 0) sends.next();
      }
    }
  };
  std::thread first([&] { flood(device); }), second([&] { flood(other); });
  for (int turn = 0; turn < 80; ++turn) {
    const Queue queue(device);
    Memory memory(device, 64);
    Qp receiver(device, queue.cq);
    for (std::uint64_t slot = 0; slot < 64; ++slot) receiver.receive(memory, slot);
    target = receiver.qp->qp_num;
    // Sleeps at times, so that the thread of the context receives while the queue pair goes.
    for (int i = 0; i < turn % 20; ++i) queue.next(turn % 2 == 0);
    receiver.destroy();
    std::fill(memory.octets.begin(), memory.octets.end(), std::uint8_t{0x5A});
    for (int i = 0; i < 50; ++i) sched_yield();
    const auto changed = std::find_if(memory.octets.begin(), memory.octets.end(), [](auto one) { return one != 0x5A; });
    expect(changed == memory.octets.end(), "memory is written to after ibv_destroy_qp");
    expect(queue.empty(), "a completion of a queue pair that is gone");
  }
  stop = true;
  first.join();
  second.join();
}

// With IBV_QP_CREATE_BLOCK_SELF_MCAST_LB a queue pair gets the datagrams of others to its groups, and not its own.
void own_multicast() {
  const Device device;
  const Queue blocks_queue(device), other_queue(device);
  const Memory memory(device, 16);
  Qp blocks(device, blocks_queue.cq, nullptr, nullptr, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB),
      other(device, other_queue.cq);
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.is_global = 1;
  attributes.grh.hop_limit = 1;
  ibv_gid& group = attributes.grh.dgid;
  group.raw[10] = group.raw[11] = 0xFF;
  group.raw[12] = 239, group.raw[13] = 1, group.raw[14] = 2, group.raw[15] = 99;
  ibv_ah* const to_group = ibv_create_ah(device.pd, &attributes);
  expect(to_group != nullptr, "ibv_create_ah");
  for (Qp* const member : {&blocks, &other}) {
    expect_error("ibv_attach_mcast", ibv_attach_mcast(member->qp, &group, 0), 0);
    for (std::uint64_t slot = 0; slot < 4; ++slot) member->receive(memory, slot + (member == &other ? 8 : 0));
    member->to = to_group;
  }
  constexpr std::uint32_t kGroup = 0xFFFFFF;
  expect_error("a Send to the group", blocks.send(kGroup, 1), 0);
  expect(other_queue.next().wr_id == 8 && memory.message(8) == 1, "the other member does not hear it");
  expect_error("a Send to the group", other.send(kGroup, 2), 0);
  // In the order in which they were sent: its own would have come first.
  expect(blocks_queue.next().wr_id == 0 && memory.message(0) == 2, "it hears itself, or not the other member");
  expect(other_queue.next().wr_id == 9 && memory.message(9) == 2, "the other member does not hear itself");
  for (const Qp* const member : {&blocks, &other})
    expect_error("ibv_detach_mcast", ibv_detach_mcast(member->qp, &group, 0), 0);
  blocks.destroy();
  other.destroy();
  expect_error("ibv_destroy_ah", ibv_destroy_ah(to_group), 0);

  ibv_qp_init_attr_ex refused{};
  refused.qp_type = IBV_QPT_RC;
  refused.send_cq = refused.recv_cq = other_queue.cq;
  refused.cap = {4, 4, 1, 1, 0};
  refused.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  refused.pd = device.pd;
  refused.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  expect(ibv_create_qp_ex(device.context, &refused) == nullptr && errno == EINVAL, "a connected one takes the flag");
}

}  // namespace

}  // namespace apps::datagrams

int main(int argc, char** argv) {
  using namespace apps::datagrams;
  apps::Cases cases{{"shared_receives", shared_receives},
                    {"shared_receives_empty", shared_receives_empty},
                    {"shared_receives_limit", shared_receives_limit},
                    {"shared_receives_last", shared_receives_last},
                    {"extended_queue", extended_queue},
                    {"own_multicast", own_multicast},
                    {"destroyed_under_traffic", destroyed_under_traffic}};
  together_cases(cases);
  batch_cases(cases);
  return apps::run_case(argc, argv, cases);
}
