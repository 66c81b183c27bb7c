// SPDX-License-Identifier: MIT
// Shared receive queues as programs use them, over stock libibverbs and librdmacm: one queue for the receives of many
// connections.
//
//   uiw_shared_receives HOST PORT CASE     runs one case; --list names them
//
// Both ends are in this process.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "tests/apps/support/pair.h"

namespace {

using apps::die;
using apps::Endpoint;
using apps::expect_error;
using apps::g_host;
using apps::g_port;
using apps::good;
using apps::made;

constexpr std::uint32_t kSlot = 64;

// Only an id that is bound to a port of its own choice has a device at once.
std::string free_port() {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&any), size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size) != 0)
    die("no free port: %s", std::strerror(errno));
  ::close(fd);
  return std::to_string(ntohs(any.sin_port));
}

// The queue belongs to an id of rdma_cm, and each connection that comes in gets a queue pair with it.
struct Service {
  Service(std::uint32_t depth, unsigned callers) : anchor(apps::create_ep(g_host, free_port(), RAI_PASSIVE)) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {depth, 1, 12345};  // the limit is irrelevant here
    good("rdma_create_srq", rdma_create_srq(anchor, nullptr, &attributes));
    if (attributes.attr.max_wr < depth || attributes.attr.max_sge < 1) die("rdma_create_srq grants too little");
    memory.resize(std::size_t{kSlot} * depth);
    mr = apps::reg(anchor->pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    channel = made("ibv_create_comp_channel", ibv_create_comp_channel(anchor->verbs));
    cq = made("ibv_create_cq", ibv_create_cq(anchor->verbs, 4096, nullptr, channel, 0));
    ibv_qp_init_attr qp = apps::qp_attributes({});
    qp.cap.max_recv_wr = 0xFFFFFFFF;  // ignored, and so is the number of its SGEs
    qp.cap.max_recv_sge = 0xFFFFFFFF;
    qp.send_cq = qp.recv_cq = cq;
    qp.srq = anchor->srq;
    listener.emplace(apps::create_ep(g_host, g_port, RAI_PASSIVE, &qp, anchor->pd), static_cast<int>(callers) + 1);
    for (unsigned i = 0; i < callers; ++i) {
      near.push_back(apps::create(g_host, g_port, {}));
      far.push_back(apps::connected(*listener, near.back()));
      if (far.back().qp()->srq != anchor->srq) die("the queue pair does not name its queue");
    }
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() {
    disconnect();
    near.clear();
    far.clear();
    listener.reset();
    good("ibv_destroy_cq", ibv_destroy_cq(cq));
    ibv_destroy_comp_channel(channel);
    good("ibv_dereg_mr", ibv_dereg_mr(mr));
    rdma_destroy_ep(anchor);  // and the queue
  }
  void disconnect() {
    std::thread other([this] {
      for (Endpoint& end : near) end.disconnect();
    });
    for (Endpoint& end : far) end.disconnect();
    other.join();
  }

  ibv_srq* srq() const { return anchor->srq; }
  int post(std::uint64_t id) { return apps::try_post_receive(srq(), {{apps::number(slot(id)), kSlot, mr->lkey}}, id); }
  std::uint8_t* slot(std::uint64_t id) { return memory.data() + id * kSlot; }
  std::uint32_t word(std::uint64_t id, std::size_t which) {
    std::uint32_t value;
    std::memcpy(&value, slot(id) + which * sizeof value, sizeof value);
    return value;
  }
  ibv_wc completion(bool sleep = false) {
    ibv_wc wc{};
    if (!Endpoint::completion(cq, channel, sleep, wc)) die("no completion");
    return wc;
  }
  // The caller and how many it has sent before.
  void send(std::uint32_t caller, std::uint32_t number) {
    const std::uint32_t words[2] = {caller, number};
    apps::SendRequest(IBV_WR_SEND, {apps::number(words), sizeof words, 0}, 0, IBV_SEND_INLINE | IBV_SEND_SIGNALED)
        .post(near[caller].qp());
    ibv_wc wc{};
    if (!near[caller].send_completion(wc) || wc.status != IBV_WC_SUCCESS) die("a Send fails");
  }
  std::uint32_t caller_of(const ibv_wc& wc) const {
    for (std::uint32_t i = 0; i < far.size(); ++i)
      if (far[i].qp()->qp_num == wc.qp_num) return i;
    die("a completion of an unknown queue pair");
  }

  rdma_cm_id* anchor;
  std::vector<std::uint8_t> memory;
  ibv_mr* mr = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  std::optional<apps::Listener> listener;
  std::vector<Endpoint> near, far;
};

ibv_async_event event(ibv_context* context, ibv_event_type wanted) {
  pollfd ready{context->async_fd, POLLIN, 0};
  if (poll(&ready, 1, 30'000) != 1) die("no event %s", ibv_event_type_str(wanted));
  ibv_async_event event{};
  good("ibv_get_async_event", ibv_get_async_event(context, &event));
  if (event.event_type != wanted)
    die("event %s, not %s", ibv_event_type_str(event.event_type), ibv_event_type_str(wanted));
  return event;
}

void no_event(ibv_context* context) {
  pollfd ready{context->async_fd, POLLIN, 0};
  if (poll(&ready, 1, 0) != 0) die("an event that nobody asked for");
}

// Everybody's messages arrive, each caller's in order; receives run out all the time.
void share(std::uint32_t depth, bool sleep) {
  constexpr std::uint32_t kCallers = 20, kEach = 50;
  Service service(depth, kCallers);
  for (std::uint32_t number = 0; number < kEach; ++number)
    for (std::uint32_t caller = 0; caller < kCallers; ++caller) service.send(caller, number);
  for (std::uint64_t id = 0; id < depth; ++id) expect_error("ibv_post_srq_recv", service.post(id), 0);
  std::vector<std::uint32_t> received(kCallers);
  for (std::uint32_t i = 0; i < kCallers * kEach; ++i) {
    const ibv_wc wc = service.completion(sleep);
    if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV || wc.byte_len != 8) die("a receive fails");
    const std::uint32_t caller = service.caller_of(wc);
    if (service.word(wc.wr_id, 0) != caller || service.word(wc.wr_id, 1) != received[caller]++)
      die("caller %u: not the message that was due", caller);
    expect_error("ibv_post_srq_recv", service.post(wc.wr_id), 0);
  }
  expect_error("one more than fits", service.post(0), ENOMEM);
}

void limit() {
  Service service(16, 1);
  ibv_context* context = service.anchor->verbs;
  for (std::uint64_t id = 0; id < 8; ++id) expect_error("ibv_post_srq_recv", service.post(id), 0);
  no_event(context);
  ibv_srq_attr attributes{};
  attributes.srq_limit = 17;
  expect_error("a limit above max_wr", ibv_modify_srq(service.srq(), &attributes, IBV_SRQ_LIMIT), EINVAL);
  attributes.srq_limit = 5;
  expect_error("ibv_modify_srq", ibv_modify_srq(service.srq(), &attributes, IBV_SRQ_LIMIT), 0);
  std::memset(&attributes, 0xFF, sizeof attributes);
  expect_error("ibv_query_srq", ibv_query_srq(service.srq(), &attributes), 0);
  if (attributes.srq_limit != 5 || attributes.max_wr != 16 || attributes.max_sge < 1)
    die("ibv_query_srq: wrong values");
  for (std::uint32_t number = 0; number < 4; ++number) {
    no_event(context);
    service.send(0, number);
    service.completion();
  }
  ibv_async_event reached = event(context, IBV_EVENT_SRQ_LIMIT_REACHED);
  if (reached.element.srq != service.srq()) die("the event names another queue");
  service.send(0, 4);
  service.completion();
  no_event(context);
  expect_error("ibv_query_srq", ibv_query_srq(service.srq(), &attributes), 0);
  if (attributes.srq_limit != 0) die("still armed");
  // Another size, and a program that posts only when it is told to.
  attributes.max_wr = 64;
  attributes.srq_limit = 2;
  expect_error("resizing", ibv_modify_srq(service.srq(), &attributes, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
  for (std::uint32_t number = 5; number < 9; ++number) service.send(0, number);
  ibv_ack_async_event(&reached);
  for (int i = 0; i < 3; ++i) service.completion();
  reached = event(context, IBV_EVENT_SRQ_LIMIT_REACHED);
  ibv_ack_async_event(&reached);
  expect_error("ibv_post_srq_recv", service.post(0), 0);
  service.completion();
  no_event(context);
}

// The peer goes: what the queue pair has not used stays for the others.
void last() {
  Service service(16, 2);
  ibv_context* context = service.anchor->verbs;
  for (std::uint64_t id = 0; id < 4; ++id) expect_error("ibv_post_srq_recv", service.post(id), 0);
  std::thread leaving([&] { service.near[0].disconnect(); });
  service.far[0].disconnect();
  leaving.join();
  ibv_async_event reached = event(context, IBV_EVENT_QP_LAST_WQE_REACHED);
  // The caller's queue pair has a receive queue of its own, and no such event.
  if (reached.element.qp != service.far[0].qp()) die("the event names another queue pair");
  ibv_ack_async_event(&reached);
  no_event(context);
  ibv_wc wc{};
  if (ibv_poll_cq(service.cq, 1, &wc) != 0) die("a receive was flushed");
  service.send(1, 0);
  if (service.completion().status != IBV_WC_SUCCESS) die("the other one's receive fails");
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  expect_error("ibv_query_qp", ibv_query_qp(service.far[1].qp(), &attributes, IBV_QP_CAP, &init), 0);
  if (init.srq != service.srq()) die("ibv_query_qp does not name the queue");
}

// Not destroyed while a queue pair has it, which waits until its events are acknowledged.
void acknowledge() {
  Service service(4, 1);
  ibv_srq_init_attr attributes{};
  attributes.attr = {4, 1, 0};
  ibv_srq* srq = made("ibv_create_srq", ibv_create_srq(service.anchor->pd, &attributes));
  ibv_qp_init_attr init = apps::qp_attributes({});
  init.send_cq = init.recv_cq = service.cq;
  init.srq = srq;
  ibv_qp* qp = made("ibv_create_qp", ibv_create_qp(service.anchor->pd, &init));
  if (init.cap.max_recv_wr != 0) die("ibv_create_qp grants a receive queue");
  expect_error("ibv_destroy_srq with a queue pair", ibv_destroy_srq(srq), EBUSY);
  expect_error("ibv_post_recv", apps::try_post_receive(qp), EINVAL);
  apps::post_receive(srq);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  expect_error("ibv_modify_qp", ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
  ibv_async_event reached = event(service.anchor->verbs, IBV_EVENT_QP_LAST_WQE_REACHED);
  std::atomic<bool> acknowledged{false};
  std::thread program([&] {
    sched_yield();
    acknowledged = true;
    ibv_ack_async_event(&reached);
  });
  expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
  if (!acknowledged) die("ibv_destroy_qp does not wait");
  program.join();
  expect_error("ibv_destroy_srq", ibv_destroy_srq(srq), 0);
}

// What there is not: XRC and tag matching.
void refused() {
  Service service(4, 1);
  ibv_context* context = service.anchor->verbs;
  ibv_srq_init_attr_ex attributes{};
  const auto error = [&](ibv_srq_type type, std::uint32_t more) {
    attributes.attr = {4, 1, 0};
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | more;
    attributes.srq_type = type;
    attributes.pd = service.anchor->pd;
    attributes.cq = service.cq;
    errno = 0;
    ibv_srq* srq = ibv_create_srq_ex(context, &attributes);
    if (srq != nullptr) expect_error("ibv_destroy_srq", ibv_destroy_srq(srq), 0);
    return srq != nullptr ? 0 : errno;
  };
  const std::uint32_t pd = IBV_SRQ_INIT_ATTR_PD, cq = IBV_SRQ_INIT_ATTR_CQ;
  expect_error("a basic one", error(IBV_SRQT_BASIC, pd), 0);
  expect_error("a basic one with a CQ", error(IBV_SRQT_BASIC, pd | cq), 0);
  expect_error("one without a protection domain", error(IBV_SRQT_BASIC, cq), EINVAL);
  expect_error("XRC", error(IBV_SRQT_XRC, pd | cq | IBV_SRQ_INIT_ATTR_XRCD), EOPNOTSUPP);
  expect_error("tag matching", error(IBV_SRQT_TM, pd | cq | IBV_SRQ_INIT_ATTR_TM), EOPNOTSUPP);
  expect_error("an attribute of the future", error(IBV_SRQT_BASIC, pd | 1u << 20), EOPNOTSUPP);
  ibv_xrcd_init_attr domain{};
  domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  domain.fd = -1;
  errno = 0;
  if (ibv_open_xrcd(context, &domain) != nullptr) die("ibv_open_xrcd succeeds");
  expect_error("ibv_open_xrcd", errno, EOPNOTSUPP);
  ibv_device_attr device{};
  expect_error("ibv_query_device", ibv_query_device(context, &device), 0);
  if ((device.device_cap_flags & IBV_DEVICE_XRC) != 0) die("the device claims to know XRC");
  ibv_srq_init_attr plain{};
  plain.attr = {static_cast<std::uint32_t>(device.max_srq_wr), static_cast<std::uint32_t>(device.max_srq_sge), 0};
  ibv_srq* largest = made("the largest that the device says it can", ibv_create_srq(service.anchor->pd, &plain));
  std::uint32_t number = 0, other = 0;
  expect_error("ibv_get_srq_num", ibv_get_srq_num(largest, &number), 0);
  expect_error("ibv_get_srq_num", ibv_get_srq_num(service.srq(), &other), 0);
  if (number == other) die("two queues of one number");
  expect_error("ibv_destroy_srq", ibv_destroy_srq(largest), 0);
  ++plain.attr.max_wr;
  errno = 0;
  if (ibv_create_srq(service.anchor->pd, &plain) != nullptr) die("a larger one than the device says it can");
  expect_error("ibv_create_srq", errno, EINVAL);
}

const apps::Cases kCases = {
    {"share", [] { share(64, false); }},
    {"share-one", [] { share(1, false); }},
    {"share-sleeping", [] { share(8, true); }},
    {"limit", limit},
    {"last", last},
    {"acknowledge", acknowledge},
    {"refused", refused},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
