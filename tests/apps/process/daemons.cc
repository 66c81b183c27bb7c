// SPDX-License-Identifier: MIT
// Servers that fork between rdma_listen and their first event, as daemon(3) does.
//
//   uiw_daemons HOST PORT CASE
//
// The process that runs a case is the client; the server is a child of it, which makes children of its own.
#include <sys/epoll.h>
#include <sys/select.h>

#include <functional>

#include "tests/apps/support/pair.h"
#include "tests/apps/support/process.h"

namespace {

using apps::die;
using apps::expect_error;
using apps::good;

// One end tells the other, by octets. Only the ends that are used are open in a process that fork_off() has made.
struct Signal {
  int ends[2];
  Signal() {
    if (pipe(ends) != 0) die("pipe: %s", std::strerror(errno));
  }
  ~Signal() {
    close(ends[0]);
    close(ends[1]);
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  void give() const {
    if (write(ends[1], "", 1) != 1) die("a pipe takes nothing");
  }
  // False if nobody tells in time.
  bool await() const {
    pollfd readable{ends[0], POLLIN, 0};
    char octet;
    return poll(&readable, 1, 20'000) == 1 && read(ends[0], &octet, 1) == 1;
  }
};

// One that hangs ends by SIGALRM.
pid_t fork_off(const std::function<void()>& life) {
  return apps::in_child([&] {
    alarm(30);
    life();
  });
}

void await_end(pid_t child) { apps::join(child, std::chrono::seconds(60)); }

enum class Wait { get_event, poll, epoll, select };

// An id that listens or is bound, and all that a connection needs, made before the server forks.
struct Server {
  rdma_event_channel* events = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  int set = epoll_create1(0);

  explicit Server(bool listens = true) {
    bind();
    pd = apps::made("ibv_alloc_pd", ibv_alloc_pd(id->verbs));
    channel = apps::made("ibv_create_comp_channel", ibv_create_comp_channel(id->verbs));
    cq = apps::made("ibv_create_cq", ibv_create_cq(id->verbs, 16, nullptr, channel, 0));
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (epoll_ctl(set, EPOLL_CTL_ADD, events->fd, &wanted) != 0) die("epoll_ctl: %s", std::strerror(errno));
    if (listens) listen();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void bind() {
    rdma_addrinfo* address = apps::resolve(apps::g_host, apps::g_port, RAI_PASSIVE);
    if (rdma_create_id(events, &id, nullptr, RDMA_PS_TCP) != 0 || rdma_bind_addr(id, address->ai_src_addr) != 0)
      die("rdma_bind_addr: %s", std::strerror(errno));
    rdma_freeaddrinfo(address);
  }
  void listen() const { good("rdma_listen", rdma_listen(id, 4)); }

  // Returns when the channel is readable.
  void wait(Wait how) const {
    int ready = 1;
    if (how == Wait::poll) {
      pollfd readable{events->fd, POLLIN, 0};
      ready = ::poll(&readable, 1, 20'000);
    } else if (how == Wait::epoll) {
      epoll_event event{};
      ready = epoll_wait(set, &event, 1, 20'000);
    } else if (how == Wait::select) {
      fd_set in;
      FD_ZERO(&in);
      FD_SET(events->fd, &in);
      timeval patience{20, 0};
      ready = ::select(events->fd + 1, &in, nullptr, nullptr, &patience);
    }
    if (ready != 1) die("the channel does not become readable: %d", ready);
  }
  rdma_cm_id* next(rdma_cm_event_type wanted) const {
    rdma_cm_event* event = nullptr;
    good("rdma_get_cm_event", rdma_get_cm_event(events, &event));
    if (event->event != wanted) die("%s, not %s", rdma_event_str(event->event), rdma_event_str(wanted));
    rdma_cm_id* const of = event->id;
    rdma_ack_cm_event(event);
    return of;
  }

  // Takes one call and a message, of which an event tells, and the end of the connection.
  void serve(Wait how) const {
    wait(how);
    rdma_cm_id* const called = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    ibv_qp_init_attr attributes = apps::qp_attributes({});
    attributes.send_cq = attributes.recv_cq = cq;
    good("rdma_create_qp", rdma_create_qp(called, pd, &attributes));
    char octets[8] = {};
    ibv_mr* const mr = apps::reg(pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
    if (rdma_post_recv(called, nullptr, octets, sizeof octets, mr) != 0) die("no receive: %s", std::strerror(errno));
    rdma_conn_param parameters = apps::connection_parameters();
    good("rdma_accept", rdma_accept(called, &parameters));
    next(RDMA_CM_EVENT_ESTABLISHED);
    ibv_wc wc{};
    if (!apps::Endpoint::completion(cq, channel, true, wc, std::chrono::seconds(20))) die("no event of the message");
    apps::expect_status("the receive", wc, IBV_WC_SUCCESS);
    if (std::strcmp(octets, "hello") != 0) die("another message");
    next(RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(called);
    rdma_destroy_id(called);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }
};

void call() {
  apps::Endpoint end = apps::create(apps::g_host, apps::g_port, {});
  apps::connect(end);
  char octets[8] = "hello";
  good("rdma_post_send",
       rdma_post_send(end.id(), nullptr, octets, sizeof octets, nullptr, IBV_SEND_INLINE | IBV_SEND_SIGNALED));
  ibv_wc wc{};
  if (!end.send_completion(wc)) die("the message is not sent");
  apps::expect_status("the send", wc, IBV_WC_SUCCESS);
}

// The server's parent ends at once, and the child takes a call, of which `how` tells it.
void daemon_waits(Wait how) {
  const Signal served;
  await_end(fork_off([&] {
    const Server server;
    fork_off([&] {
      setsid();
      server.serve(how);
      served.give();
    });
  }));
  call();
  if (!served.await()) die("the daemon has not served the call");
}

void forked_twice() {
  const Signal first_served, served;
  await_end(fork_off([&] {
    const Server server;
    fork_off([&] {
      setsid();
      fork_off([&] {
        server.serve(Wait::poll);
        first_served.give();
        server.serve(Wait::get_event);
        served.give();
      });
    });
  }));
  call();
  // Events of different connections come in any order, so the second call waits for the end of the first.
  if (!first_served.await()) die("the daemon has not served the first call");
  call();
  if (!served.await()) die("the daemon has not served the calls");
}

void bound_before() {
  const Signal listens, served;
  await_end(fork_off([&] {
    const Server server(false);
    fork_off([&] {
      server.listen();
      listens.give();
      server.serve(Wait::poll);
      served.give();
    });
  }));
  if (!listens.await()) die("the daemon does not listen");
  call();
  if (!served.await()) die("the daemon has not served the call");
}

// Children that wait, end or execute a program do no harm to a parent that goes on, and listens again on its port.
void parent_goes_on() {
  const Signal listens, released;
  const pid_t server_process = fork_off([&] {
    Server server;
    const pid_t waiting = fork_off([&] {
      if (!released.await()) die("not released");
    });
    await_end(fork_off([] {}));
    await_end(fork_off([] {
      execlp("true", "true", nullptr);
      _exit(1);
    }));
    await_end(fork_off([&] {
      rdma_destroy_id(server.id);
      rdma_destroy_event_channel(server.events);
    }));
    listens.give();
    server.serve(Wait::poll);
    expect_error("rdma_destroy_id", rdma_destroy_id(server.id), 0);
    server.bind();
    server.listen();
    listens.give();
    server.serve(Wait::get_event);
    released.give();
    await_end(waiting);
  });
  for (int turn = 0; turn < 2; ++turn) {
    if (!listens.await()) die("the server does not listen");
    call();
  }
  await_end(server_process);
}

// Of two children that their parent leaves the channel to, the first that uses it has it; the other is told so.
void one_heir() {
  const Signal first_served, second_told;
  await_end(fork_off([&] {
    const Server server;
    fork_off([&] {
      server.serve(Wait::get_event);
      first_served.give();
    });
    fork_off([&] {
      if (!first_served.await()) die("the first child has not served the call");
      rdma_cm_event* event = nullptr;
      if (rdma_get_cm_event(server.events, &event) == 0) die("an event of another process");
      expect_error("rdma_get_cm_event", errno, EIO);
      expect_error("rdma_listen", rdma_listen(server.id, 1) == 0 ? 0 : errno, EIO);
      second_told.give();
    });
  }));
  call();
  if (!second_told.await()) die("the second child was not told");
}

// A call that the parent has not looked at ends with it, and its caller hears so at once; the next one is served.
void unread_call() {
  const Signal listens, served;
  const pid_t server_process = fork_off([&] {
    const Server server;
    listens.give();
    server.wait(Wait::poll);
    fork_off([&] {
      server.serve(Wait::poll);
      served.give();
    });
  });
  if (!listens.await()) die("the server does not listen");
  const auto begun = apps::Clock::now();
  rdma_cm_id* const id = apps::create_ep(apps::g_host, apps::g_port, 0, apps::Capacity{});
  rdma_conn_param parameters = apps::connection_parameters();
  if (rdma_connect(id, &parameters) == 0) die("a call of a process that has ended was taken");
  rdma_destroy_ep(id);
  if (apps::Clock::now() - begun > std::chrono::seconds(5)) die("the caller was told late");
  await_end(server_process);
  call();
  if (!served.await()) die("the daemon has not served the call");
}

// A child that has waited for nothing so far completes work of its own on a queue that its parent has armed. The event
// is the parent's, who has not ended.
void queue_of_the_parent() {
  const Server server;
  expect_error("ibv_req_notify_cq", ibv_req_notify_cq(server.cq, 0), 0);
  await_end(fork_off([&] {
    ibv_qp_init_attr attributes = apps::qp_attributes({});
    attributes.send_cq = attributes.recv_cq = server.cq;
    ibv_qp* qp = apps::made("ibv_create_qp", ibv_create_qp(server.pd, &attributes));
    ibv_qp_attr step{};
    step.qp_state = IBV_QPS_INIT;
    step.port_num = 1;
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    expect_error("ibv_modify_qp to INIT", ibv_modify_qp(qp, &step, mask), 0);
    apps::post_receive(qp);
    step.qp_state = IBV_QPS_ERR;
    expect_error("ibv_modify_qp to ERR", ibv_modify_qp(qp, &step, IBV_QP_STATE), 0);
    ibv_wc completion{};
    if (ibv_poll_cq(server.cq, 1, &completion) != 1 || completion.status != IBV_WC_WR_FLUSH_ERR)
      die("the receive is not flushed");
    expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
    expect_error("ibv_destroy_cq", ibv_destroy_cq(server.cq), 0);
  }));
}

const apps::Cases kCases = {
    {"daemon_waits_in_get_event", [] { daemon_waits(Wait::get_event); }},
    {"daemon_waits_in_poll", [] { daemon_waits(Wait::poll); }},
    {"daemon_waits_in_epoll", [] { daemon_waits(Wait::epoll); }},
    {"daemon_waits_in_select", [] { daemon_waits(Wait::select); }},
    {"forked_twice", forked_twice},
    {"bound_before", bound_before},
    {"parent_goes_on", parent_goes_on},
    {"one_heir", one_heir},
    {"unread_call", unread_call},
    {"queue_of_the_parent", queue_of_the_parent},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
