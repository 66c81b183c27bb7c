// SPDX-License-Identifier: MIT
// What `uiw run --check` finds: for each fault a case that has it, in the line that is marked "AT" and, where there is
// one, in conflict with the line marked "OTHER"; and a case that is nearly the same and right.
//
//   uiw_misuse HOST PORT CASE
#include <sys/wait.h>

#include <atomic>

#include "tests/apps/check/misuse.h"
#include "tests/apps/support/extended.h"

namespace apps {
namespace {

void source_changed_of(bool wrong) {
  Talk talk;
  Request request(IBV_WR_RDMA_WRITE, talk.own, 64, talk.own_mr, IBV_SEND_SIGNALED);
  request.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // OTHER source-changed
  if (wrong) talk.own[10] = 'x';
  ibv_wc wc{};
  while (ibv_poll_cq(talk.cq.get(), 1, &wc) == 0) {  // AT source-changed
  }
  expect_own(wc);
  talk.own[10] = 'y';
}

// Work without a completion of its own: its memory may change once later work has completed.
void unsignaled_source_of(bool wrong) {
  Talk talk;
  Request first(IBV_WR_RDMA_WRITE, talk.own, 64, talk.own_mr, 0),
      second(IBV_WR_RDMA_WRITE, talk.own + 128, 64, talk.own_mr, IBV_SEND_SIGNALED);
  first.to(talk.peers, talk.peers_mr);
  second.to(talk.peers + 128, talk.peers_mr);
  ibv_post_send(talk.near.get(), &first, &bad_send);  // OTHER unsignaled
  ibv_post_send(talk.near.get(), &second, &bad_send);
  if (wrong) talk.own[0] = 'x';
  ibv_wc wc{};
  while (ibv_poll_cq(talk.cq.get(), 1, &wc) == 0) {  // AT unsignaled
  }
  expect_own(wc);
  talk.own[0] = 'y';
}

// A program that only counts on depth: the next message is written into the buffer while the last is under way.
void posted_again_of(bool wrong) {
  Talk talk;
  for (int i = 0; i < 4; ++i) {
    char* const octets = wrong ? talk.own : talk.own + 32 * i;
    octets[0] = static_cast<char>('a' + i);
    Request request(IBV_WR_RDMA_WRITE, octets, 32, talk.own_mr, IBV_SEND_SIGNALED);
    request.to(talk.peers, talk.peers_mr);
    ibv_post_send(talk.near.get(), &request, &bad_send);  // AT posted-again OTHER posted-again
  }
  for (int i = 0; i < 4; ++i) expect_own(talk.complete());
}

// A queue pair to which RDMA Writes are posted by ibv_wr_*().
ibv_qp* make_batching_qp(const Side& side) {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = side.cq.get();
  attributes.cap = qp_attributes({}).cap;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = side.rnic.pd();
  attributes.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  return made("ibv_create_qp_ex", ibv_create_qp_ex(side.rnic.context(), &attributes));
}

struct Batches : Side {
  ManualQp near{rnic, make_batching_qp(*this)}, far{rnic, cq, {}};
  char own[64] = {}, peers[64] = {};
  ibv_mr* const own_mr = reg(rnic.pd(), own, sizeof own, kAll);
  ibv_mr* const peers_mr = reg(rnic.pd(), peers, sizeof peers, kAll);
  Batches() { connect(near, far); }
  ~Batches() {
    near.destroy();
    far.destroy();
    for (ibv_mr* mr : {own_mr, peers_mr}) expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }
  void add_write(ibv_qp_ex* qp) const {
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, peers_mr->rkey, number(peers));
    ibv_wr_set_sge(qp, own_mr->lkey, number(own), sizeof own);
  }
};

void batched_source_of(bool wrong) {
  Batches batches;
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(batches.near.get());
  ibv_wr_start(qp);  // OTHER batched
  qp->wr_id = 77;
  batches.add_write(qp);
  expect_error("ibv_wr_complete", ibv_wr_complete(qp), 0);
  if (wrong) batches.own[3] = 'x';
  ibv_wc wc{};
  while (ibv_poll_cq(batches.cq.get(), 1, &wc) == 0) {  // AT batched
  }
  expect_own(wc);
}

void receives_overlap_of(bool wrong) {
  Talk talk;
  Receive first(talk.peers, 64, talk.peers_mr), second(talk.peers + (wrong ? 63 : 64), 64, talk.peers_mr);
  ibv_post_recv(talk.far.get(), &first, &bad_receive);   // OTHER receives-overlap
  ibv_post_recv(talk.far.get(), &second, &bad_receive);  // AT receives-overlap
}

// A receive may have the memory of a Send once that has completed.
void receive_over_source_of(bool wrong) {
  Talk talk;
  talk.far.receive(talk.peers, 64, talk.peers_mr, 78);
  Request request(IBV_WR_SEND, talk.own, 64, talk.own_mr, IBV_SEND_SIGNALED);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // OTHER receive-over-source
  if (!wrong) {
    for (int i = 0; i < 2; ++i) expect_own(talk.complete());
  }
  Receive receive(talk.own, 64, talk.own_mr);
  ibv_post_recv(talk.near.get(), &receive, &bad_receive);  // AT receive-over-source
  if (wrong) {
    for (int i = 0; i < 2; ++i) talk.complete();
  }
}

void reads_overlap_of(bool wrong) {
  Talk talk;
  Request first(IBV_WR_RDMA_READ, talk.own, 64, talk.own_mr, IBV_SEND_SIGNALED);
  first.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &first, &bad_send);  // OTHER reads-overlap
  if (!wrong) expect_own(talk.complete());
  Request second(IBV_WR_RDMA_READ, talk.own + 32, 64, talk.own_mr, IBV_SEND_SIGNALED);
  second.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &second, &bad_send);  // AT reads-overlap
  for (int i = wrong ? 0 : 1; i < 2; ++i) expect_own(talk.complete());
}

void key_gone_of(bool wrong) {
  Talk talk;
  char octets[32] = {};
  ibv_mr* const mr = reg(talk.rnic.pd(), octets, sizeof octets, kAll);
  const ibv_mr copy = *mr;
  if (wrong) expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);  // OTHER key-gone
  Request request(IBV_WR_RDMA_WRITE, octets, sizeof octets, &copy, IBV_SEND_SIGNALED);
  request.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // AT key-gone
  const ibv_wc wc = talk.next();
  expect_own(wc);
  expect_status("the Write", wc, wrong ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
  if (!wrong) expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

void region_in_use_of(bool wrong) {
  Talk talk;
  Receive receive(talk.peers, 64, talk.peers_mr);
  ibv_post_recv(talk.far.get(), &receive, &bad_receive);  // OTHER region-in-use
  if (!wrong) to_state(talk.far.get(), IBV_QPS_ERR);
  ibv_mr* const mr = std::exchange(talk.peers_mr, nullptr);
  ibv_dereg_mr(mr);  // AT region-in-use
}

void send_queue_stuck_of(bool wrong) {
  Talk talk;
  const std::uint32_t depth = query(talk.near.get(), IBV_QP_CAP).cap.max_send_wr;
  for (std::uint32_t i = 0; i < 4 * depth; ++i) {
    const bool signaled = !wrong && i % (depth / 2) == 0;
    Request request(IBV_WR_RDMA_WRITE, talk.own, 8, talk.own_mr, signaled ? unsigned{IBV_SEND_SIGNALED} : 0U);
    request.to(talk.peers, talk.peers_mr);
    while (ibv_post_send(talk.near.get(), &request, &bad_send) == ENOMEM) {  // AT send-queue-stuck
      ibv_wc wc{};
      ibv_poll_cq(talk.cq.get(), 1, &wc);
    }
    if (signaled) talk.complete();
  }
}

void cq_overrun_of(bool wrong) {
  Rnic rnic(g_host);
  Cq cq(rnic, 4);  // OTHER cq-overrun is below Cq
  const int places = cq.get()->cqe;
  char octets[64] = {};
  ibv_mr* const mr = reg(rnic.pd(), octets, sizeof octets, kAll);
  {
    ManualQp qp(rnic, cq, {.recv_wr = 1024});
    qp.to_init();
    std::vector<char> memory(8 * static_cast<std::size_t>(places + 1));
    ibv_mr* const all = reg(rnic.pd(), memory.data(), memory.size(), kAll);
    for (int i = 0; i < places + (wrong ? 1 : 0); ++i) {
      Receive receive(memory.data() + 8 * i, 8, all);
      ibv_post_recv(qp.get(), &receive, &bad_receive);  // AT cq-overrun
    }
    qp.destroy();
    ibv_dereg_mr(all);
  }
  ibv_dereg_mr(mr);
}

void use_after_destroy_of(bool wrong) {
  Side side;
  ibv_qp* const qp = made("ibv_create_qp", make_qp(side.rnic, side.cq, {}));
  if (wrong) ibv_destroy_qp(qp);  // OTHER use-after-destroy
  Request request(IBV_WR_SEND, nullptr, 0, nullptr, 0);
  const int error = ibv_post_send(qp, &request, &bad_send);  // AT use-after-destroy
  if (wrong) expect_error("ibv_post_send", error, EINVAL);
  if (!wrong) ibv_destroy_qp(qp);
}

void destroyed_twice_of(bool wrong) {
  Side side;
  char octets[64] = {};
  ibv_mr* const mr = reg(side.rnic.pd(), octets, sizeof octets, kAll);
  ibv_dereg_mr(mr);             // OTHER destroyed-twice
  if (wrong) ibv_dereg_mr(mr);  // AT destroyed-twice
}

void child_of_fork_of(bool wrong) {
  Side side;
  const pid_t child = fork();
  if (child == 0) {
    ibv_wc wc{};
    if (wrong) ibv_poll_cq(side.cq.get(), 1, &wc);  // AT child-of-fork
    std::exit(0);                                   // which reports
  }
  int status = 0;
  waitpid(child, &status, 0);
}

void leak_of(bool wrong) {
  Rnic rnic(g_host);
  ibv_cq* const cq = ibv_create_cq(rnic.context(), 16, nullptr, nullptr, 0);  // AT leak
  if (!wrong) ibv_destroy_cq(cq);
}

void not_acknowledged_of(bool wrong) {
  Rnic rnic(g_host);
  ibv_comp_channel* const channel = made("ibv_create_comp_channel", ibv_create_comp_channel(rnic.context()));
  ibv_cq* const cq = made("ibv_create_cq", ibv_create_cq(rnic.context(), 16, nullptr, channel, 0));
  ibv_qp_init_attr attributes = qp_attributes({});
  attributes.send_cq = attributes.recv_cq = cq;
  ibv_qp* const qp = made("ibv_create_qp", ibv_create_qp(rnic.pd(), &attributes));
  to_init(qp, {});
  expect_error("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0), 0);
  char octets[8] = {};
  ibv_mr* const mr = reg(rnic.pd(), octets, sizeof octets, kAll);
  post_receive(qp, {{number(octets), sizeof octets, mr->lkey}});
  to_state(qp, IBV_QPS_ERR);
  ibv_cq* which = nullptr;
  void* context = nullptr;
  expect_error("ibv_get_cq_event", ibv_get_cq_event(channel, &which, &context), 0);
  if (!wrong) ibv_ack_cq_events(cq, 1);
  ibv_destroy_qp(qp);
  std::thread late([&] {
    if (!wrong) return;
    // The fault is that it takes this long.
    std::this_thread::sleep_for(kLate);
    ibv_ack_cq_events(cq, 1);
  });
  ibv_destroy_cq(cq);  // AT not-acknowledged
  late.join();
  ibv_dereg_mr(mr);
  ibv_destroy_comp_channel(channel);
}

// ---- Programs that are right, and of which a check may think otherwise ----

// What is refused uses no place of a queue, and no memory.
void refused_posts() {
  Side side;
  ManualQp qp(side.rnic, side.cq, {});
  qp.to_init();
  char octets[64] = {};
  ibv_mr* const mr = reg(side.rnic.pd(), octets, sizeof octets, kAll);
  for (int i = 0; i < 3 * side.cq.get()->cqe; ++i) {
    octets[0] = static_cast<char>(i);
    Request write(IBV_WR_RDMA_WRITE, octets, 64, mr, i % 2 == 0 ? unsigned{IBV_SEND_SIGNALED} : 0U);
    Request read(IBV_WR_RDMA_READ, octets, 64, mr, IBV_SEND_SIGNALED);
    write.to(octets, mr);
    read.to(octets, mr);
    write.next = &read;
    if (ibv_post_send(qp.get(), &write, &bad_send) == 0) die("a request is accepted in INIT");
    if (bad_send != &write) die("bad_wr is not the first request");
  }
  qp.destroy();
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

// In ERR the work uses no memory any more, though its completions have not been polled.
void drained_after_deregistration() {
  Talk talk;
  char octets[64] = {};
  ibv_mr* const mr = reg(talk.rnic.pd(), octets, sizeof octets, kAll);
  Receive receive(octets, sizeof octets, mr);
  ibv_post_recv(talk.near.get(), &receive, &bad_receive);
  to_state(talk.near.get(), IBV_QPS_ERR);
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  std::memset(octets, 'x', sizeof octets);
  ibv_mr* const again = reg(talk.rnic.pd(), octets, sizeof octets, kAll);
  Receive other(octets, sizeof octets, again);
  ibv_post_recv(talk.far.get(), &other, &bad_receive);
  const ibv_wc wc = talk.next();
  expect_own(wc);
  expect_status("the receive", wc, IBV_WC_WR_FLUSH_ERR);
  talk.far.destroy();
  expect_error("ibv_dereg_mr", ibv_dereg_mr(again), 0);
}

// A child with a device of its own uses the addresses that its parent's work has.
void child_opens_anew() {
  Talk talk;
  Receive receive(talk.peers, 64, talk.peers_mr);
  ibv_post_recv(talk.far.get(), &receive, &bad_receive);
  const pid_t child = fork();
  if (child == 0) {
    {
      Rnic rnic(g_host);
      Cq cq(rnic, 16);
      ManualQp qp(rnic, cq, {});
      qp.to_init();
      ibv_mr* const mr = reg(rnic.pd(), talk.peers, 64, kAll);
      Receive own(talk.peers, 64, mr);
      ibv_post_recv(qp.get(), &own, &bad_receive);
      qp.destroy();
      ibv_dereg_mr(mr);
    }
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) die("the child has ended with %d", status);
}

// Two threads that post batches to one queue pair in turn.
void two_batches() {
  Batches batches;
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(batches.near.get());
  std::atomic<int> credits{16};
  const auto post = [&](std::uint64_t id) {
    for (int i = 0; i < 5000; ++i) {
      while (credits.fetch_sub(1) <= 0) {
        credits.fetch_add(1);
        sched_yield();
      }
      ibv_wr_start(qp);
      qp->wr_id = id;
      batches.add_write(qp);
      expect_error("ibv_wr_complete", ibv_wr_complete(qp), 0);
    }
  };
  std::thread one(post, 77), two(post, 78);
  for (int i = 0; i < 10'000; ++i) {
    ibv_wc wc{};
    if (!batches.cq.next(wc)) die("no completion in time");
    expect_own(wc);
    credits.fetch_add(1);
  }
  one.join();
  two.join();
}

void add_pairs(Cases& cases, const Misuses& misuses) {
  for (const auto& [name, run] : misuses) {
    cases[name] = [run = run] { run(true); };
    cases[name + "_right"] = [run = run] { run(false); };
  }
}

}  // namespace
}  // namespace apps

int main(int argc, char** argv) {
  const apps::Misuses own{{"source-changed", apps::source_changed_of},
                          {"unsignaled", apps::unsignaled_source_of},
                          {"posted-again", apps::posted_again_of},
                          {"batched", apps::batched_source_of},
                          {"receives-overlap", apps::receives_overlap_of},
                          {"receive-over-source", apps::receive_over_source_of},
                          {"reads-overlap", apps::reads_overlap_of},
                          {"key-gone", apps::key_gone_of},
                          {"region-in-use", apps::region_in_use_of},
                          {"send-queue-stuck", apps::send_queue_stuck_of},
                          {"cq-overrun", apps::cq_overrun_of},
                          {"use-after-destroy", apps::use_after_destroy_of},
                          {"destroyed-twice", apps::destroyed_twice_of},
                          {"child-of-fork", apps::child_of_fork_of},
                          {"leak", apps::leak_of},
                          {"not-acknowledged", apps::not_acknowledged_of}};
  apps::Cases cases;
  apps::add_pairs(cases, own);
  apps::add_pairs(cases, apps::misuses_of_peers());
  apps::add_pairs(cases, apps::misuses_in_public());
  apps::add_pairs(cases, apps::misuses_elsewhere());
  cases["refused-posts_right"] = apps::refused_posts;
  cases["drained-after-deregistration_right"] = apps::drained_after_deregistration;
  cases["child-opens-anew_right"] = apps::child_opens_anew;
  cases["two-batches_right"] = apps::two_batches;
  cases["order-posted-early"] = apps::show_posted_too_early;
  cases["order-seen-in-part"] = [] { apps::count_seen_in_part(100'000); };
  cases["order-seen-whole"] = [] { apps::count_seen_in_part(100); };
  cases["order-pointer-first"] = [] { apps::count_pointer_first(false); };
  cases["order-pointer-first_right"] = [] { apps::count_pointer_first(true); };
  return apps::run_case(argc, argv, cases);
}
