// SPDX-License-Identifier: MIT
// XRC as programs use it, over stock libibverbs: domains, shared receive queues and queue pairs of the two types, and
// what becomes of each kind of message and of each mistake.
//
//   uiw_xrc HOST PORT CASE     runs one case; --list names them
//
// Both ends are in this process, each with a domain of its own, whose shared receive queues are the peer's to name.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/apps/support/cases.h"
#include "tests/apps/support/manual.h"

namespace {

using apps::die;
using apps::expect;
using apps::expect_error;
using apps::good;
using apps::made;
using apps::number;
using apps::SendRequest;

constexpr std::uint32_t kSize = 4096, kNoQueue = 0xABCDEF;
constexpr int kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

ibv_wc completion_of(ibv_cq* cq) {
  ibv_wc wc{};
  if (!apps::Endpoint::completion(cq, nullptr, false, wc)) die("no completion");
  return wc;
}

template <typename Object>
int errno_of(Object* object) {
  if (object != nullptr) die("made, and should not be");
  return errno;
}

// A file without a name, which names a domain.
class File {
 public:
  File() : fd_(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) { expect(fd_ >= 0, "no file"); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

ibv_xrcd* open_domain(ibv_context* context, int fd, int flags = O_CREAT) {
  ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, fd, flags};
  errno = 0;
  return ibv_open_xrcd(context, &attributes);
}

// A shared receive queue with a domain and a completion queue of its own, and memory in that domain.
struct Queue {
  Queue(ibv_context* context, ibv_xrcd* xrcd) {
    pd = made("ibv_alloc_pd", ibv_alloc_pd(context));
    cq = made("ibv_create_cq", ibv_create_cq(context, 64, nullptr, nullptr, 0));
    mr = apps::reg(pd, memory.data(), memory.size(), kRights);
    ibv_srq_init_attr_ex attributes{};
    attributes.attr = {16, 2, 0};
    attributes.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = pd;
    attributes.xrcd = xrcd;
    attributes.cq = cq;
    srq = made("ibv_create_srq_ex", ibv_create_srq_ex(context, &attributes));
    good("ibv_get_srq_num", ibv_get_srq_num(srq, &name));
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    destroy();
    good("ibv_dereg_mr", ibv_dereg_mr(mr));
    good("ibv_destroy_cq", ibv_destroy_cq(cq));
    good("ibv_dealloc_pd", ibv_dealloc_pd(pd));
  }
  void destroy() {
    if (srq != nullptr) good("ibv_destroy_srq", ibv_destroy_srq(srq));
    srq = nullptr;
  }
  void post(std::uint64_t id, std::uint32_t length = 64) {
    apps::post_receive(srq, {{number(memory.data()) + id % 16 * 64, length, mr->lkey}}, id);
  }
  ibv_wc completion() const { return completion_of(cq); }
  bool is_empty() const {
    ibv_wc wc{};
    return ibv_poll_cq(cq, 1, &wc) == 0;
  }

  std::vector<unsigned char> memory = std::vector<unsigned char>(kSize);
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_srq* srq = nullptr;
  std::uint32_t name = 0;
};

ibv_qp* receiver(ibv_context* context, ibv_xrcd* xrcd) {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attributes.xrcd = xrcd;
  return ibv_create_qp_ex(context, &attributes);
}

// One connection: an XRC_SEND queue pair, and the XRC_RECV queue pair of a domain with two shared receive queues.
struct World {
  explicit World(std::uint8_t rnr_retries = 7, std::uint64_t batches = 0) : rnic(apps::g_host) {
    xrcd = made("ibv_open_xrcd", open_domain(rnic.context(), -1));
    for (auto& queue : queues) queue = std::make_unique<Queue>(rnic.context(), xrcd);
    cq = made("ibv_create_cq", ibv_create_cq(rnic.context(), 64, nullptr, nullptr, 0));
    mr = apps::reg(rnic.pd(), memory.data(), memory.size(), kRights);
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_SEND;
    attributes.send_cq = cq;
    attributes.cap = {16, 7, 2, 7, 64};
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | (batches != 0 ? std::uint32_t{IBV_QP_INIT_ATTR_SEND_OPS_FLAGS} : 0);
    attributes.pd = rnic.pd();
    attributes.send_ops_flags = batches;
    sender = made("an XRC_SEND queue pair", ibv_create_qp_ex(rnic.context(), &attributes));
    expect(attributes.cap.max_recv_wr == 0 && attributes.cap.max_recv_sge == 0, "an XRC_SEND has a receive queue");
    target = made("an XRC_RECV queue pair", receiver(rnic.context(), xrcd));
    connect(rnr_retries);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    good("ibv_destroy_qp", ibv_destroy_qp(sender));
    if (target != nullptr) good("ibv_destroy_qp", ibv_destroy_qp(target));
    for (auto& queue : queues) queue.reset();
    good("ibv_close_xrcd", ibv_close_xrcd(xrcd));
    good("ibv_dereg_mr", ibv_dereg_mr(mr));
    good("ibv_destroy_cq", ibv_destroy_cq(cq));
  }

  void step(ibv_qp* qp, ibv_qp_state state, ibv_qp_attr attributes, int mask) {
    attributes.qp_state = state;
    good("ibv_modify_qp", ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE));
  }
  void connect(std::uint8_t rnr_retries) {
    ibv_qp_attr attributes{};
    attributes.port_num = 1;
    attributes.qp_access_flags = kRights;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = rnic.gid();
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(rnic.gid_index());
    attributes.ah_attr.grh.hop_limit = 1;
    attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4;
    attributes.min_rnr_timer = 1;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = rnr_retries;
    const int to_init = IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
    const int to_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    step(target, IBV_QPS_INIT, attributes, to_init);
    step(sender, IBV_QPS_INIT, attributes, to_init);
    attributes.dest_qp_num = sender->qp_num;
    step(target, IBV_QPS_RTR, attributes, to_rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attributes.dest_qp_num = target->qp_num;
    step(sender, IBV_QPS_RTR, attributes, to_rtr);
    step(sender, IBV_QPS_RTS, attributes,
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  // A request for the queue, of octets that begin with `value`.
  SendRequest request(ibv_wr_opcode opcode, std::uint32_t queue, unsigned char value, std::uint32_t length = 32,
                      unsigned flags = IBV_SEND_SIGNALED) {
    std::fill_n(memory.begin(), length, value);
    return SendRequest(opcode, {number(memory.data()), length, mr->lkey}, value, flags).for_queue(queue);
  }
  ibv_wc done(ibv_wc_status status = IBV_WC_SUCCESS) const {
    const ibv_wc wc = completion_of(cq);
    if (wc.status != status) die("%s, not %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
    expect(wc.qp_num == sender->qp_num, "a completion of another queue pair");
    return wc;
  }
  // The queue has got a message of the connection.
  ibv_wc arrived(std::size_t queue, std::uint64_t id, unsigned char value, std::uint32_t length = 32) {
    const ibv_wc wc = queues[queue]->completion();
    expect(wc.status == IBV_WC_SUCCESS && wc.wr_id == id && wc.byte_len == length, "not the message that was sent");
    expect(wc.qp_num == target->qp_num, "the completion does not name the XRC_RECV queue pair");
    expect(queues[queue]->memory[id % 16 * 64] == value, "other octets than were sent");
    return wc;
  }
  std::uint32_t name(std::size_t queue) const { return queues[queue]->name; }

  apps::Rnic rnic;
  ibv_xrcd* xrcd = nullptr;
  std::array<std::unique_ptr<Queue>, 2> queues;
  std::vector<unsigned char> memory = std::vector<unsigned char>(kSize);
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp *sender = nullptr, *target = nullptr;
};

ibv_async_event event(ibv_context* context) {
  pollfd ready{context->async_fd, POLLIN, 0};
  if (poll(&ready, 1, 30'000) != 1) die("no event");
  ibv_async_event event{};
  good("ibv_get_async_event", ibv_get_async_event(context, &event));
  return event;
}

// ---- Messages ----------------------------------------------------------------------------------------------------

// Each message goes to the queue that its request names, and completes where that queue completes.
void messages() {
  World w;
  for (std::uint64_t i = 0; i < 8; ++i) w.queues[0]->post(i), w.queues[1]->post(i);
  for (unsigned char i = 0; i < 16; ++i) {
    const std::size_t queue = i / 2 % 2;  // two for one queue, two for the other
    w.request(IBV_WR_SEND, w.name(queue), i).post(w.sender);
    expect(w.done().wr_id == i, "another completion");
    w.arrived(queue, i / 4 * 2 + i % 2, i);
  }
  expect(w.queues[0]->is_empty() && w.queues[1]->is_empty(), "more completions than messages");
}

void kinds() {
  World w;
  w.queues[0]->post(0), w.queues[1]->post(0), w.queues[1]->post(1);
  w.request(IBV_WR_SEND_WITH_IMM, w.name(1), 1).immediate(htobe32(77)).post(w.sender);
  w.done();
  const ibv_wc sent = w.arrived(1, 0, 1);
  expect((sent.wc_flags & IBV_WC_WITH_IMM) != 0 && sent.imm_data == htobe32(77), "no immediate of a Send");
  // A Write with immediate uses a receive of the queue, and the memory of its domain.
  const auto at = number(w.queues[0]->memory.data()) + 2048;
  w.request(IBV_WR_RDMA_WRITE_WITH_IMM, w.name(0), 2).at(at, w.queues[0]->mr->rkey).immediate(5).post(w.sender);
  w.done();
  const ibv_wc written = w.queues[0]->completion();
  expect(written.opcode == IBV_WC_RECV_RDMA_WITH_IMM && written.imm_data == 5, "no immediate of a Write");
  expect(w.queues[0]->memory[2048] == 2, "the Write has placed nothing");
  w.request(IBV_WR_SEND, w.name(1), 3, 32, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(w.sender);
  w.done();
  w.arrived(1, 1, 3);
  w.request(IBV_WR_RDMA_READ, w.name(0), 9).at(at, w.queues[0]->mr->rkey).post(w.sender);
  w.done();
  expect(w.memory[0] == 2 && w.memory[31] == 2, "the Read has other octets");
  w.request(IBV_WR_ATOMIC_FETCH_AND_ADD, w.name(0), 0, 8).add(at, w.queues[0]->mr->rkey, 1).post(w.sender);
  w.done();
  expect(w.queues[0]->memory[2048] == 3, "the atomic operation has added nothing");
}

// The queue may be named before the data of a request or after the data.
void batches() {
  World w(7, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(w.sender);
  for (std::uint64_t i = 0; i < 4; ++i) w.queues[0]->post(i), w.queues[1]->post(i);
  w.memory[0] = 42;
  const auto send = [&](std::uint64_t id, std::size_t queue, bool before, bool inlined) {
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    if (before) ibv_wr_set_xrc_srqn(qp, w.name(queue));
    if (inlined) ibv_wr_set_inline_data(qp, w.memory.data(), 32);
    if (!inlined) ibv_wr_set_sge(qp, w.mr->lkey, number(w.memory.data()), 32);
    if (!before) ibv_wr_set_xrc_srqn(qp, w.name(queue));
  };
  ibv_wr_start(qp);
  send(0, 1, true, false);
  ibv_wr_abort(qp);  // what it has named is forgotten with it
  ibv_wr_start(qp);
  send(1, 0, false, true);
  send(2, 1, true, true);
  send(3, 1, false, false);
  send(4, 0, true, false);
  qp->wr_id = 5;
  ibv_wr_atomic_fetch_add(qp, w.queues[1]->mr->rkey, number(w.queues[1]->memory.data()) + 2048, 6);
  ibv_wr_set_sge(qp, w.mr->lkey, number(w.memory.data()) + 512, 8);
  ibv_wr_set_xrc_srqn(qp, w.name(1));
  good("ibv_wr_complete", ibv_wr_complete(qp));
  for (std::uint64_t id = 1; id <= 5; ++id) expect(w.done().wr_id == id, "completions in another order");
  w.arrived(0, 0, 42), w.arrived(1, 0, 42), w.arrived(1, 1, 42), w.arrived(0, 1, 42);
  expect(w.queues[1]->memory[2048] == 6, "the atomic operation has added nothing");
}

// The program may post as much as it was granted, whatever its requests name.
void full() {
  World w;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  good("ibv_query_qp", ibv_query_qp(w.sender, &attributes, IBV_QP_CAP, &initial));
  const std::uint32_t granted = initial.cap.max_send_wr;
  // Without receives nothing completes, so that all of them stay posted.
  for (std::uint32_t i = 0; i < granted; ++i) {
    const bool last = i + 1 == granted;
    w.request(IBV_WR_SEND, w.name(i % 2), 1, 32, last ? unsigned{IBV_SEND_SIGNALED} : 0).post(w.sender);
  }
  for (std::uint32_t i = 0; i < granted; ++i) w.queues[i % 2]->post(0), w.arrived(i % 2, 0, 1);
  w.done();
}

// A message waits for a receive of the queue that it is for.
void waits() {
  World w;
  w.queues[1]->post(0);
  for (const unsigned char id : {1, 2})  // of the same memory
    w.request(IBV_WR_SEND, w.name(id - 1), id, 32, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(w.sender);
  w.queues[0]->post(3);
  w.arrived(0, 3, 1);
  w.arrived(1, 0, 2);
  w.done(), w.done();
}

void waits_in_vain() {
  World w(0);
  w.queues[1]->post(0);
  w.request(IBV_WR_SEND, w.name(0), 1).post(w.sender);
  w.done(IBV_WC_RNR_RETRY_EXC_ERR);
}

// ---- Errors ------------------------------------------------------------------------------------------------------

// The sender's request and what follows it, and the event at each handle of the target.
void names_no_queue() {
  World w;
  w.queues[0]->post(0);
  w.request(IBV_WR_SEND, w.name(0), 1).post(w.sender);
  w.done();
  w.arrived(0, 0, 1);
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = w.target->qp_num;
  open.xrcd = w.xrcd;
  open.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* const other = made("ibv_open_qp", ibv_open_qp(w.rnic.context(), &open));
  constexpr unsigned kInline = IBV_SEND_SIGNALED | IBV_SEND_INLINE;  // since both are of the same memory
  w.request(IBV_WR_SEND, kNoQueue, 2, 32, kInline).post(w.sender);
  w.request(IBV_WR_SEND, w.name(0), 3, 32, kInline).post(w.sender);
  expect(w.done(IBV_WC_REM_INV_REQ_ERR).wr_id == 2, "another request has failed");
  expect(w.done(IBV_WC_WR_FLUSH_ERR).wr_id == 3, "the request behind it is not flushed");
  std::vector<ibv_qp*> told;
  while (told.size() < 2) {
    ibv_async_event about = event(w.rnic.context());
    expect(about.event_type == IBV_EVENT_QP_REQ_ERR, "another event");
    told.push_back(about.element.qp);
    ibv_ack_async_event(&about);
  }
  expect((told[0] == w.target && told[1] == other) || (told[0] == other && told[1] == w.target),
         "not each handle is told");
  good("ibv_destroy_qp", ibv_destroy_qp(other));
}

// A key is one of the domain of the queue that the request names.
void foreign_memory() {
  const auto look = [](ibv_wr_opcode opcode, bool there, bool right, ibv_wc_status status) {
    World w;
    const auto at = number(w.queues[0]->memory.data());
    const std::uint32_t queue = !there ? kNoQueue : w.name(right ? 0 : 1);
    SendRequest request = w.request(opcode, queue, 1, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 32);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.add(at, w.queues[0]->mr->rkey, 1);
    } else {
      request.at(at, w.queues[0]->mr->rkey);
    }
    request.post(w.sender);
    w.done(status);
    const bool changes = status == IBV_WC_SUCCESS && opcode != IBV_WR_RDMA_READ;
    expect(w.queues[0]->memory[0] == (changes ? 1 : 0), "what was refused was done, or the other way round");
  };
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    look(opcode, true, true, IBV_WC_SUCCESS);
    look(opcode, true, false, IBV_WC_REM_ACCESS_ERR);
    look(opcode, false, false, IBV_WC_REM_INV_REQ_ERR);
  }
}

// More completions than the queue of a shared receive queue has places.
void overrun() {
  World w(0);
  const auto places = static_cast<std::uint32_t>(w.queues[0]->cq->cqe);
  std::uint32_t sent = 0;
  for (; sent < places + 8; ++sent) {
    w.queues[0]->post(sent);
    w.request(IBV_WR_SEND, w.name(0), 1).post(w.sender);
    const ibv_wc wc = completion_of(w.cq);
    if (wc.status != IBV_WC_SUCCESS) break;
  }
  expect(sent >= places, "it overruns too early");
  bool told = false;
  for (pollfd ready{w.rnic.context()->async_fd, POLLIN, 0}; !told && poll(&ready, 1, 10'000) == 1;) {
    ibv_async_event about = event(w.rnic.context());
    told = about.event_type == IBV_EVENT_CQ_ERR && about.element.cq == w.queues[0]->cq;
    ibv_ack_async_event(&about);
  }
  expect(told, "nobody is told");
  for (int i = 0; i < 10'000 && apps::query(w.target, IBV_QP_STATE).qp_state != IBV_QPS_ERR; ++i) usleep(1000);
  expect(apps::query(w.target, IBV_QP_STATE).qp_state == IBV_QPS_ERR, "the queue pair goes on");
}

// A queue may be destroyed while queue pairs are connected; then it is one that nobody knows.
void queue_ends() {
  for (const bool waits : {false, true}) {
    World w;
    w.queues[0]->post(0);
    w.request(IBV_WR_SEND, w.name(0), 1).post(w.sender);
    w.done();
    w.arrived(0, 0, 1);
    if (waits) w.request(IBV_WR_SEND, w.name(0), 2).post(w.sender);
    if (waits) usleep(20'000);  // so that it waits for a receive; the outcome is the same if it has not come yet
    w.queues[0]->destroy();
    if (!waits) w.request(IBV_WR_SEND, w.name(0), 2).post(w.sender);
    w.done(IBV_WC_REM_INV_REQ_ERR);
  }
  World w;
  w.queues[1]->destroy();  // another one than the peer uses
  w.queues[0]->post(0);
  w.request(IBV_WR_SEND, w.name(0), 1).post(w.sender);
  w.done();
  w.arrived(0, 0, 1);
}

void too_long() {
  World w;
  w.queues[0]->post(0, 16);
  w.request(IBV_WR_SEND, w.name(0), 1).post(w.sender);
  w.done(IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc wc = w.queues[0]->completion();
  expect(wc.status == IBV_WC_LOC_LEN_ERR && wc.qp_num == w.target->qp_num, "no completion of what is too short");
}

// What is posted in ERR is flushed, whatever queue it names.
void flushed() {
  World w(7, IBV_QP_EX_WITH_SEND);
  w.step(w.sender, IBV_QPS_ERR, {}, 0);
  for (const unsigned char id : {1, 2, 3})
    w.request(IBV_WR_SEND, w.name(id % 2), id, 32, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(w.sender);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(w.sender);
  ibv_wr_start(qp);
  for (const unsigned char id : {4, 5}) {
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_xrc_srqn(qp, w.name(id % 2));
    ibv_wr_set_sge(qp, w.mr->lkey, number(w.memory.data()), 8);
  }
  good("ibv_wr_complete", ibv_wr_complete(qp));
  for (std::uint64_t id = 1; id <= 5; ++id) expect(w.done(IBV_WC_WR_FLUSH_ERR).wr_id == id, "another order");
}

// A queue and the queue pair that its messages come by are destroyed in either order, or at once, under traffic.
void ends() {
  for (int i = 0; i < 60; ++i) {
    World w(0);
    for (std::uint64_t id = 0; id < 12; ++id) w.queues[0]->post(id);
    for (int j = 0; j < 12; ++j) w.request(IBV_WR_SEND, w.name(0), 1, 32, 0).post(w.sender);
    const auto ends_target = [&w] { good("ibv_destroy_qp", ibv_destroy_qp(std::exchange(w.target, nullptr))); };
    if (i % 3 == 0) ends_target();
    std::thread other;
    if (i % 3 == 1) other = std::thread(ends_target);
    w.queues[0]->destroy();
    std::fill(w.queues[0]->memory.begin(), w.queues[0]->memory.end(), 7);
    if (other.joinable()) other.join();
    usleep(500);
    for (const unsigned char octet : w.queues[0]->memory)
      expect(octet == 7, "something is placed for a queue that has been destroyed");
  }
}

// A queue pair goes on by its other handle, also where the context that has created it is closed, with its handle or
// after that was destroyed.
void goes_on(bool destroyed) {
  World w;  // has the sender
  apps::Rnic near(apps::g_host);
  const File file;
  auto creator = std::make_unique<apps::Rnic>(apps::g_host);
  ibv_xrcd* const first = made("ibv_open_xrcd", open_domain(creator->context(), file.fd()));
  ibv_xrcd* const second = made("ibv_open_xrcd", open_domain(near.context(), file.fd(), 0));
  ibv_qp* const created = made("a queue pair", receiver(creator->context(), first));
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = created->qp_num;
  open.xrcd = second;
  open.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* const other = made("ibv_open_qp", ibv_open_qp(near.context(), &open));
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  init.qp_context = &w;
  good("ibv_query_qp", ibv_query_qp(other, &attributes, IBV_QP_STATE, &init));
  expect(init.qp_context == nullptr, "another handle's context");
  {
    Queue queue(near.context(), second);
    w.step(w.sender, IBV_QPS_RESET, {}, 0);
    good("ibv_destroy_qp", ibv_destroy_qp(w.target));
    w.target = other;
    w.connect(7);
    queue.post(0);
    w.request(IBV_WR_SEND, queue.name, 1).post(w.sender);
    w.done();
    expect(queue.completion().qp_num == open.qp_num, "the completion names another queue pair");
    if (destroyed) {
      good("ibv_destroy_qp", ibv_destroy_qp(created));
      good("ibv_close_xrcd", ibv_close_xrcd(first));
    }
    creator.reset();
    queue.post(1);
    w.request(IBV_WR_SEND, queue.name, 2).post(w.sender);
    w.done();
    expect(queue.completion().wr_id == 1 && queue.memory[64] == 2, "the message after the close does not come");
  }
  good("ibv_destroy_qp", ibv_destroy_qp(std::exchange(w.target, nullptr)));
  expect_error("after the last handle", errno_of(ibv_open_qp(near.context(), &open)), EINVAL);
  good("ibv_close_xrcd", ibv_close_xrcd(second));
}

void other_context() {
  for (const bool destroyed : {true, false}) goes_on(destroyed);
}

// The child of a fork has none of its parent's domains, and does no harm to them.
void child() {
  World w;
  const File file;
  ibv_xrcd* const parents = made("ibv_open_xrcd", open_domain(w.rnic.context(), file.fd()));
  const pid_t pid = ::fork();
  if (pid == 0) {
    const apps::Rnic own(apps::g_host);
    expect_error("the parent's domain", errno_of(open_domain(own.context(), file.fd(), 0)), EAGAIN);
    ibv_xrcd* const made_here = made("one of its own", open_domain(own.context(), file.fd()));
    good("ibv_close_xrcd", ibv_close_xrcd(made_here));
    good("ibv_close_xrcd of the parent's", ibv_close_xrcd(parents));
    w.queues[0]->destroy();
    good("ibv_destroy_qp", ibv_destroy_qp(w.target));
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  expect(status == 0, "the child has failed");
  w.queues[0]->post(0);
  w.request(IBV_WR_SEND, w.name(0), 1).post(w.sender);
  w.done();
  w.arrived(0, 0, 1);
  good("ibv_close_xrcd", ibv_close_xrcd(parents));
}

// What has no queue refuses posts.
void refused_posts() {
  World w;
  ibv_sge piece{number(w.memory.data()), 8, w.mr->lkey};
  expect_error("a receive to XRC_SEND", apps::try_post_receive(w.sender, {piece}), EINVAL);
  expect_error("a receive to XRC_RECV", apps::try_post_receive(w.target, {piece}), EINVAL);
  expect_error("a Send to XRC_RECV", SendRequest(IBV_WR_SEND, piece).try_post(w.target), EINVAL);
}

// After RESET the queue is named anew.
void again() {
  World w;
  for (unsigned char i = 1; i < 4; ++i) {
    w.queues[0]->post(0);
    w.request(IBV_WR_SEND, w.name(0), i).post(w.sender);
    w.done();
    w.arrived(0, 0, i);
    w.step(w.sender, IBV_QPS_RESET, {}, 0);
    w.step(w.target, IBV_QPS_RESET, {}, 0);
    w.connect(7);
  }
}

// ---- Objects -----------------------------------------------------------------------------------------------------

void domains() {
  apps::Rnic one(apps::g_host), other(apps::g_host);
  const File file, second;
  ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD, -1, O_CREAT};
  expect_error("without flags", errno_of(ibv_open_xrcd(one.context(), &attributes)), EINVAL);
  attributes.comp_mask = 7;
  expect_error("with more", errno_of(ibv_open_xrcd(one.context(), &attributes)), EOPNOTSUPP);
  expect_error("a closed file", errno_of(open_domain(one.context(), 9999)), EBADF);
  expect_error("none yet", errno_of(open_domain(one.context(), file.fd(), 0)), EAGAIN);
  ibv_xrcd* const first = made("a new one", open_domain(one.context(), file.fd(), O_CREAT | O_EXCL));
  expect_error("there is one", errno_of(open_domain(other.context(), file.fd(), O_CREAT | O_EXCL)), EINVAL);
  ibv_xrcd* const same = made("the same", open_domain(other.context(), file.fd(), 0));
  ibv_xrcd* const another = made("another", open_domain(one.context(), second.fd()));
  ibv_xrcd* const without = made("one without a file", open_domain(one.context(), -1));
  ibv_qp* const qp = made("a queue pair", receiver(one.context(), first));
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT;
  open.qp_num = qp->qp_num;
  open.qp_type = IBV_QPT_XRC_RECV;
  open.qp_context = &open;
  const auto opens = [&](ibv_xrcd* xrcd) {
    open.xrcd = xrcd;
    return ibv_open_qp(other.context(), &open);
  };
  expect_error("of another domain", errno_of(opens(another)), EINVAL);
  expect_error("of no file", errno_of(opens(without)), EINVAL);
  open.qp_type = IBV_QPT_RC;
  expect_error("of another type", errno_of(opens(same)), EINVAL);
  open.qp_type = IBV_QPT_XRC_RECV;
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;
  expect_error("without a domain", errno_of(opens(same)), EINVAL);
  open.comp_mask = 31;
  expect_error("with more", errno_of(opens(same)), EOPNOTSUPP);
  open.comp_mask = 15;
  ibv_qp* const again = made("ibv_open_qp", opens(same));
  expect(again->qp_num == qp->qp_num && again->qp_context == &open && again->state == IBV_QPS_UNKNOWN &&
             again->context == other.context() && again->pd == nullptr && again->send_cq == nullptr,
         "the handle has other values");
  expect_error("in use", ibv_close_xrcd(first), EBUSY);
  expect_error("in use", ibv_close_xrcd(same), EBUSY);
  expect_error("not used", ibv_close_xrcd(another), 0);
  expect_error("not used", ibv_close_xrcd(without), 0);
  // The queue pair lives as long as one of its handles.
  good("ibv_destroy_qp", ibv_destroy_qp(qp));
  good("ibv_close_xrcd", ibv_close_xrcd(first));
  expect(apps::query(again, IBV_QP_STATE).qp_state == IBV_QPS_RESET, "it has gone with its first handle");
  good("ibv_destroy_qp", ibv_destroy_qp(again));
  open.xrcd = same;
  expect_error("after the last", errno_of(ibv_open_qp(other.context(), &open)), EINVAL);
  good("ibv_close_xrcd", ibv_close_xrcd(same));
  expect_error("none any more", errno_of(open_domain(one.context(), file.fd(), 0)), EAGAIN);
}

void objects() {
  World w;
  Queue& queue = *w.queues[0];
  ibv_srq_init_attr_ex shared{};
  const auto made_with = [&](std::uint32_t mask, std::uint32_t max_wr) {
    shared.attr = {max_wr, 1, 0};
    shared.comp_mask = mask;
    shared.srq_type = IBV_SRQT_XRC;
    shared.pd = queue.pd;
    shared.xrcd = w.xrcd;
    shared.cq = queue.cq;
    return errno_of(ibv_create_srq_ex(w.rnic.context(), &shared));
  };
  constexpr std::uint32_t kType = IBV_SRQ_INIT_ATTR_TYPE, kPd = IBV_SRQ_INIT_ATTR_PD, kXrcd = IBV_SRQ_INIT_ATTR_XRCD;
  expect_error("without a completion queue", made_with(kType | kPd | kXrcd, 4), EINVAL);
  expect_error("without an XRC domain", made_with(kType | kPd | IBV_SRQ_INIT_ATTR_CQ, 4), EINVAL);
  expect_error("without a protection domain", made_with(kType | kXrcd | IBV_SRQ_INIT_ATTR_CQ, 4), EINVAL);
  expect_error("too large", made_with(kType | kPd | kXrcd | IBV_SRQ_INIT_ATTR_CQ, ~0U), EINVAL);
  expect_error("its completion queue is in use", ibv_destroy_cq(queue.cq), EBUSY);
  expect_error("its domain is in use", ibv_close_xrcd(w.xrcd), EBUSY);

  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  attributes.pd = w.rnic.pd();
  expect_error("XRC_RECV without a domain", errno_of(ibv_create_qp_ex(w.rnic.context(), &attributes)), EINVAL);
  attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.xrcd = w.xrcd;
  attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
  expect_error("XRC_RECV that sends", errno_of(ibv_create_qp_ex(w.rnic.context(), &attributes)), EOPNOTSUPP);
  ibv_qp_init_attr plain{};
  plain.send_cq = plain.recv_cq = w.cq;
  plain.cap = {4, 4, 1, 1, 0};
  plain.srq = queue.srq;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_XRC_SEND}) {
    plain.qp_type = type;
    expect_error("with a queue for XRC", errno_of(ibv_create_qp(w.rnic.pd(), &plain)), EINVAL);
  }
  plain.srq = nullptr;
  plain.recv_cq = nullptr;
  ibv_qp* const qp = made("XRC_SEND without a completion queue for receives", ibv_create_qp(w.rnic.pd(), &plain));
  good("ibv_destroy_qp", ibv_destroy_qp(qp));
  ibv_device_attr device{};
  good("ibv_query_device", ibv_query_device(w.rnic.context(), &device));
  expect((device.device_cap_flags & IBV_DEVICE_XRC) != 0, "the device does not say that it knows XRC");
}

const apps::Cases kCases = {
    {"again", again},
    {"batches", batches},
    {"child", child},
    {"domains", domains},
    {"ends", ends},
    {"flushed", flushed},
    {"foreign-memory", foreign_memory},
    {"full", full},
    {"kinds", kinds},
    {"messages", messages},
    {"names-no-queue", names_no_queue},
    {"objects", objects},
    {"other-context", other_context},
    {"overrun", overrun},
    {"queue-ends", queue_ends},
    {"refused-posts", refused_posts},
    {"too-long", too_long},
    {"waits", waits},
    {"waits-in-vain", waits_in_vain},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
