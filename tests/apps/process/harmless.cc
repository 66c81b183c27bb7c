// SPDX-License-Identifier: MIT
// What a program may do to itself and its RDMA objects, and comes to no harm by uiw.
//
//   uiw_harmless HOST PORT CASE
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include "tests/apps/support/manual_pair.h"
#include "tests/apps/support/process.h"

namespace {

using apps::die;
using apps::expect_error;
using apps::made;
using apps::ManualPair;

constexpr std::chrono::seconds kLong{60};  // a child that hangs ends earlier, by SIGALRM

// A completion queue that says so on a channel, and a queue pair whose receives fail.
struct Teller {
  apps::Rnic rnic{apps::g_host};
  apps::Cq cq{rnic, 64, true};
  apps::ManualQp qp{rnic, cq, {}};
  char octets[8] = {};
  ibv_mr* mr = apps::reg(rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  ~Teller() { expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0); }

  int channel() const { return cq.get()->channel->fd; }
  // An event that nobody reads.
  void tell() {
    expect_error("ibv_req_notify_cq", ibv_req_notify_cq(cq.get(), 0), 0);
    qp.to_reset();
    qp.to_init();
    qp.receive(octets, sizeof octets, mr, 1);
    apps::to_state(qp.get(), IBV_QPS_ERR);
    ibv_wc wc{};
    if (ibv_poll_cq(cq.get(), 1, &wc) != 1) die("the receive was not flushed");
  }
};

// An id that can listen, and one that can call, with its queue pair.
struct Ids {
  rdma_event_channel* events = rdma_create_event_channel();
  rdma_cm_id *listener = nullptr, *caller = nullptr;
  ibv_cq* cq = nullptr;

  Ids(const std::string& host, const std::string& port) {
    rdma_addrinfo* address = apps::resolve(host, port, RAI_PASSIVE);
    if (events == nullptr || rdma_create_id(events, &listener, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_create_id(events, &caller, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(listener, address->ai_src_addr) != 0 ||
        rdma_resolve_addr(caller, nullptr, address->ai_src_addr, 2000) != 0)
      die("no ids: %s", std::strerror(errno));
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(caller, 2000) != 0) die("rdma_resolve_route: %s", std::strerror(errno));
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    rdma_freeaddrinfo(address);
    cq = ibv_create_cq(caller->verbs, 4, nullptr, nullptr, 0);
    ibv_qp_init_attr attributes = apps::qp_attributes({});
    attributes.send_cq = attributes.recv_cq = cq;
    if (cq == nullptr || rdma_create_qp(caller, nullptr, &attributes) != 0)
      die("no queue pair: %s", std::strerror(errno));
  }
  ~Ids() {
    rdma_destroy_qp(caller);
    expect_error("ibv_destroy_cq", ibv_destroy_cq(cq), 0);
    rdma_destroy_id(caller);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(events);
  }
  Ids(const Ids&) = delete;
  Ids& operator=(const Ids&) = delete;
  void expect(rdma_cm_event_type wanted) const {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(events, &event) != 0 || event->event != wanted) die("another event than %d", wanted);
    rdma_ack_cm_event(event);
  }
};

void set_limit(int which, rlim_t most) {
  rlimit limit{};
  getrlimit(which, &limit);
  limit.rlim_cur = most;
  if (setrlimit(which, &limit) != 0) die("setrlimit: %s", std::strerror(errno));
}

// All that a child may do with what its parent has, and a connection of its own. One that hangs ends by SIGALRM.
[[noreturn]] void live_as_child(ManualPair& inherited, Teller& teller, ibv_mr* mr) {
  alarm(30);
  ibv_wc wc{};
  ibv_poll_cq(teller.cq.get(), 1, &wc);
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  char octets[64];
  mr = apps::reg(teller.rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  // A child may tidy up in its own way.
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (ibv_modify_qp(inherited.near.get(), &attributes, IBV_QP_STATE) == 0)
    die("a queue pair of the parent was modified");
  inherited.near.destroy();
  inherited.far.destroy();
  teller.qp.destroy();
  expect_error("ibv_destroy_cq", ibv_destroy_cq(inherited.cq.get()), 0);
  expect_error("ibv_destroy_cq", ibv_destroy_cq(teller.cq.get()), 0);
  ManualPair own;
  own.talk();
  Teller another;
  another.tell();
  std::_Exit(0);
}

void channel_closed_by_its_number() {
  auto* teller = new Teller;
  close(teller->channel());
  for (int i = 0; i < 3; ++i) teller->tell();
  teller->qp.destroy();
  expect_error("ibv_destroy_cq", ibv_destroy_cq(teller->cq.get()), 0);
}

void unread_events_and_no_descriptor() {
  alarm(30);
  Teller teller;
  for (int i = 0; i < 700; ++i) teller.tell();
  set_limit(RLIMIT_NOFILE, 0);
}

void unread_events_and_no_proc() {
  alarm(30);
  Teller teller;
  teller.tell();
  const bool hidden = unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                      mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
  if (!hidden) std::puts("/proc cannot be hidden here");
}

// The limit of threads does not bind root, nor who may exceed limits; files stay those of the effective user.
void bear_limits() {
  if (geteuid() != 0) return;
  if (setresuid(65534, 0, 0) != 0) die("setresuid: %s", std::strerror(errno));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0) die("capset: %s", std::strerror(errno));
}

// A device opens without the thread that others need: a queue, a queue pair that is to be connected, who listens and
// who calls are told so; nobody waits for ever.
void no_thread_to_be_had() {
  alarm(30);
  bear_limits();
  set_limit(RLIMIT_NPROC, 0);
  apps::Rnic rnic(apps::g_host);
  apps::Cq cq(rnic, 4);
  apps::ManualQp qp(rnic, cq, {});
  ibv_comp_channel* channel = made("ibv_create_comp_channel", ibv_create_comp_channel(rnic.context()));
  qp.to_init();
  const Ids ids(apps::g_host, apps::g_port);
  if (ibv_create_cq(rnic.context(), 4, nullptr, channel, 0) != nullptr) die("a completion queue without a thread");
  expect_error("ibv_create_cq", errno, EAGAIN);
  expect_error("ibv_modify_qp to RTR", apps::try_rtr(qp.get(), rnic, qp.place(), {}), EAGAIN);
  expect_error("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel), 0);
  if (rdma_listen(ids.listener, 1) == 0) die("listens without a thread");
  expect_error("rdma_listen", errno, EAGAIN);
  rdma_conn_param parameters = apps::connection_parameters();
  if (rdma_connect(ids.caller, &parameters) == 0) die("calls without a thread");
  expect_error("rdma_connect", errno, EAGAIN);
}

// Threads are at all kinds of calls while the process forks.
void children_of_a_busy_program() {
  ManualPair pair;
  pair.talk();
  Teller teller;
  teller.tell();
  char octets[64];
  ibv_mr* mr = apps::reg(teller.rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  const auto keep_at = [&](std::function<void()> work) {
    threads.emplace_back([&stop, work = std::move(work)] {
      while (!stop) work();
    });
  };
  apps::Rnic rnic(apps::g_host);
  keep_at([&] {
    char some[64];
    expect_error("ibv_dereg_mr", ibv_dereg_mr(apps::reg(rnic.pd(), some, sizeof some, IBV_ACCESS_LOCAL_WRITE)), 0);
  });
  keep_at([&] { const apps::Cq cq(rnic, 8, true); });
  keep_at([&] {
    const apps::Cq cq(rnic, 8);
    const apps::ManualQp qp(rnic, cq, {});
    qp.to_init();
  });
  keep_at([&] {
    ibv_wc wc{};
    ibv_poll_cq(teller.cq.get(), 1, &wc);
    ibv_req_notify_cq(teller.cq.get(), 0);
  });
  keep_at([&] {
    const apps::Cq cq(rnic, 8);
    apps::ManualQp a(rnic, cq, {}), b(rnic, cq, {});
    apps::connect(a, b);
  });
  for (int i = 0; i < 40; ++i) {
    apps::join(apps::in_child([&] { live_as_child(pair, teller, mr); }), kLong);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  pair.talk();
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

// What a child makes on a device that its parent has opened: a channel, a queue with it and a connection that sleeps
// for events; and with rdma_cm a queue pair for which librdmacm makes channels and queues on a device of its own.
void children_on_a_device_of_their_parent() {
  const apps::Rnic rnic(apps::g_host);
  const Ids ids(apps::g_host, apps::g_port);
  for (int turn = 0; turn < 2; ++turn) {
    const pid_t child = apps::in_child([&] {
      alarm(30);
      {
        const apps::Cq cq(rnic, 8, true);
        const apps::ManualQp a(rnic, cq, {}), b(rnic, cq, {});
        apps::connect(a, b);
        char octets[8];
        ibv_mr* mr = apps::reg(rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
        b.receive(octets, sizeof octets, mr, 1);
        expect_error("ibv_post_send", a.send("hi", 3, 2), 0);
        for (int i = 0; i < 2; ++i) {
          ibv_wc wc{};
          if (!cq.next(wc) || wc.status != IBV_WC_SUCCESS) die("no completion in a child");
        }
        expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
      }
      rdma_event_channel* events = rdma_create_event_channel();
      rdma_addrinfo* address = apps::resolve(apps::g_host, apps::g_port, RAI_PASSIVE);
      rdma_cm_id* id = nullptr;
      rdma_cm_event* event = nullptr;
      if (events == nullptr || rdma_create_id(events, &id, nullptr, RDMA_PS_TCP) != 0 ||
          rdma_resolve_addr(id, nullptr, address->ai_src_addr, 2000) != 0 || rdma_get_cm_event(events, &event) != 0)
        die("no id in a child: %s", std::strerror(errno));
      rdma_ack_cm_event(event);
      ibv_qp_init_attr attributes = apps::qp_attributes({});
      if (rdma_create_qp(id, nullptr, &attributes) != 0) die("rdma_create_qp in a child: %s", std::strerror(errno));
      rdma_destroy_qp(id);
      expect_error("rdma_destroy_id", rdma_destroy_id(id), 0);
    });
    apps::join(child, kLong);
  }
}

// With queue pairs, a completion queue with moderation, a shared receive queue and a region left over.
void device_closed_first() {
  auto* pair = new ManualPair;
  pair->talk();
  ibv_modify_cq_attr moderation{};
  moderation.attr_mask = IBV_CQ_ATTR_MODERATE;
  moderation.moderate = {100, 50'000};
  expect_error("ibv_modify_cq", ibv_modify_cq(pair->cq.get(), &moderation), 0);
  expect_error("ibv_req_notify_cq", ibv_req_notify_cq(pair->cq.get(), 0), 0);
  char octets[8] = {};
  ibv_mr* mr = apps::reg(pair->rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  pair->far.receive(octets, sizeof octets, mr, 1);
  expect_error("ibv_post_send", pair->near.send("bye", 4, 2), 0);
  expect_error("ibv_close_device", ibv_close_device(pair->rnic.context()), 0);
  usleep(100'000);  // what has been started may end
}

const apps::Cases kCases = {
    {"channel_closed_by_its_number", channel_closed_by_its_number},
    {"unread_events_and_no_descriptor", unread_events_and_no_descriptor},
    {"unread_events_and_no_proc", unread_events_and_no_proc},
    {"no_thread_to_be_had", no_thread_to_be_had},
    {"children_of_a_busy_program", children_of_a_busy_program},
    {"children_on_a_device_of_their_parent", children_on_a_device_of_their_parent},
    {"device_closed_first", device_closed_first},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
