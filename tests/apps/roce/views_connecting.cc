// SPDX-License-Identifier: MIT
// How connections come and go by rdma_cm where the device is an adapter for RoCE: what stock librdmacm and programs
// that step through the states by themselves go through.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>

#include "tests/apps/roce/views.h"

namespace apps::views {

namespace {

constexpr std::uint32_t kManaged = 1;             // the number that stands for the peer's queue pair
constexpr std::uint32_t kNoQueuePair = 0x7fffff;  // no queue pair of the test gets it

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts =
    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

void check_path(rdma_cm_id* id) {
  expect(id->route.num_paths == 1, "not one path");
  const ibv_sa_path_rec& path = id->route.path_rec[0];
  const rdma_ib_addr& ib = id->route.addr.addr.ibaddr;
  expect(std::memcmp(&path.sgid, &ib.sgid, sizeof path.sgid) == 0, "the path's source");
  expect(std::memcmp(&path.dgid, &ib.dgid, sizeof path.dgid) == 0, "the path's destination");
  expect(path.pkey == 0xffff && path.hop_limit > 0 && path.reversible == 1 && path.dlid == 0, "the path's fields");
  ibv_port_attr port{};
  expect_error("ibv_query_port", ibv_query_port(id->verbs, 1, &port), 0);
  expect(path.mtu == port.active_mtu, "the path's MTU");
}

// The event of a REQ with these retries of the local timeout, or of a REP, which has no field for them.
void check_message(const Event& event, std::size_t room, const std::vector<std::uint8_t>& data, std::uint8_t depth,
                   std::uint8_t retries = 0, std::uint8_t rnr_retries = 7) {
  expect(event.data.size() == room, "room for private data");
  std::vector<std::uint8_t> wanted = data;
  wanted.resize(room);
  expect(event.data == wanted, "private data");
  expect(event.parameters.qp_num == kManaged, "the peer's number");
  expect(event.parameters.retry_count == retries, "retries");
  expect(event.parameters.rnr_retry_count == rnr_retries, "RNR retries");
  expect(event.parameters.responder_resources == depth && event.parameters.initiator_depth == depth, "depths");
}

void check_rtr(const Queues& end, const ibv_qp_attr& attributes) {
  expect(attributes.dest_qp_num == kManaged, "dest_qp_num");
  expect(attributes.ah_attr.is_global == 1 && attributes.ah_attr.port_num == 1, "the address handle");
  const rdma_ib_addr& ib = end.id->route.addr.addr.ibaddr;
  expect(std::memcmp(&attributes.ah_attr.grh.dgid, &ib.dgid, sizeof ib.dgid) == 0, "dgid");
  ibv_gid source{};
  expect(ibv_query_gid(end.id->verbs, 1, attributes.ah_attr.grh.sgid_index, &source) == 0, "ibv_query_gid");
  expect(std::memcmp(&source, &ib.sgid, sizeof source) == 0, "sgid_index");
  const ibv_qp_attr now = query(end.own, IBV_QP_AV | IBV_QP_DEST_QPN);
  expect(now.dest_qp_num == kManaged && now.ah_attr.is_global == 1, "ibv_query_qp tells of another peer");
}

void expect_private_data_limit(rdma_cm_id* id, const Queues& near) {
  const std::vector<std::uint8_t> too_long(57);
  rdma_conn_param parameters = with_data(too_long, near.own->qp_num);
  expect(rdma_connect(id, &parameters) != 0, "57 octets of private data in a REQ");
  expect_error("57 octets of private data in a REQ", errno, EINVAL);
}

void expect_no_attributes_for_rtr(rdma_cm_id* id) {
  ibv_qp_attr early{};
  early.qp_state = IBV_QPS_RTR;
  int mask = 0;
  expect(rdma_init_qp_attr(id, &early, &mask) != 0, "attributes for RTR before the peer has answered");
  expect_error("attributes for RTR before the peer has answered", errno, EINVAL);
}

// The caller's steps once the peer has accepted a depth of 4.
void step_to_rts(const Queues& near) {
  near.step(IBV_QPS_INIT, kInit);
  const ibv_qp_attr rtr = near.step(IBV_QPS_RTR, kRtr);
  check_rtr(near, rtr);
  expect(rtr.max_dest_rd_atomic == 4, "max_dest_rd_atomic");
  const ibv_qp_attr rts = near.step(IBV_QPS_RTS, kRts);
  expect(rts.max_rd_atomic == 4 && rts.retry_cnt == 5 && rts.rnr_retry == 7, "attributes for RTS");
  expect(near.own->state == IBV_QPS_RTS, "the state that libibverbs keeps");
}

// The program owns its queue pairs: librdmacm knows none of them, and shows CONNECT_RESPONSE.
void own_steps() {
  Channel server, client;
  start_listening(server);
  resolve(client);
  check_path(client.id);
  Queues near(client.id);
  near.by_program();
  near.step(IBV_QPS_INIT, kInit);
  char message[16] = {}, answer[16] = {};
  near.post_receive(answer, sizeof answer);
  const std::vector<std::uint8_t> question{1, 2, 3}, reply{9, 8};
  expect_private_data_limit(client.id, near);
  rdma_conn_param parameters = with_data(question, near.own->qp_num);
  parameters.retry_count = 5;
  good("rdma_connect", rdma_connect(client.id, &parameters));

  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  check_message(request, 56, question, 8, 5);
  expect_no_attributes_for_rtr(client.id);

  {
    check_path(request.id);
    Queues far(request.id);
    far.by_program();
    far.step(IBV_QPS_INIT, kInit);
    far.post_receive(message, sizeof message);
    check_rtr(far, far.step(IBV_QPS_RTR, kRtr));
    far.step(IBV_QPS_RTS, kRts);
    rdma_conn_param accepted = with_data(reply, far.own->qp_num);
    accepted.responder_resources = accepted.initiator_depth = 4;
    good("rdma_accept", rdma_accept(request.id, &accepted));

    const Event response = client.next(RDMA_CM_EVENT_CONNECT_RESPONSE);
    check_message(response, 196, reply, 4);
    step_to_rts(near);
    good("rdma_establish", rdma_establish(client.id));
    server.next(RDMA_CM_EVENT_ESTABLISHED);

    near.send("ping", 5);
    far.complete("the ping's receive");
    expect(std::strcmp(message, "ping") == 0, "the ping's data");
    far.send("pong", 5);
    near.complete("the ping");
    near.complete("the pong's receive");
    expect(std::strcmp(answer, "pong") == 0, "the pong's data");
    good("rdma_disconnect", rdma_disconnect(client.id));
    client.next(RDMA_CM_EVENT_DISCONNECTED);
    server.next(RDMA_CM_EVENT_DISCONNECTED);
  }
  rdma_destroy_id(request.id);
}

void expect_retries(rdma_cm_id* id, int retries, int rnr_retries) {
  const ibv_qp_attr now = query(id->qp, IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  expect(now.retry_cnt == retries && now.rnr_retry == rnr_retries, "the retries of a queue pair");
}

// Each end retries as often as the other has said, and then its work fails; 7 says for ever.
void retries() {
  Channel server;
  start_listening(server);
  const std::vector<std::uint8_t> question{1, 2, 3}, reply{9, 8};
  rdma_conn_param asked = with_data(question), accepted = with_data(reply);
  asked.retry_count = accepted.retry_count = 6;
  Pair patient(server, asked, accepted);
  SendRequest(IBV_WR_SEND).post(patient.client.id->qp);
  asked.rnr_retry_count = 3;
  accepted.rnr_retry_count = 0;
  {
    const Pair end(server, asked, accepted);
    check_message(end.request, 56, question, 8, 6, 3);
    check_message(end.response, 196, reply, 8, 0, 0);
    expect_retries(end.client.id, 6, 0);
    expect_retries(end.request.id, 6, 3);
    SendRequest(IBV_WR_SEND).post(end.client.id->qp);
    ibv_wc wc{};
    expect(Endpoint::completion(end.near->cq, nullptr, false, wc), "a Send without a receive does not end");
    expect_status("a Send without a receive", wc, IBV_WC_RNR_RETRY_EXC_ERR);
    expect(query(end.client.id->qp, IBV_QP_STATE).qp_state == IBV_QPS_ERR, "the queue pair is not in ERR");
  }
  ibv_wc wc{};
  expect(ibv_poll_cq(patient.near->cq, 1, &wc) == 0, "a Send does not wait for ever");
  post_receive(patient.request.id->qp);
  patient.far.complete("the receive of the Send that has waited");
  patient.near->complete("the Send that has waited");
}

void ack_timeout() {
  Channel server, client;
  start_listening(server);
  resolve_address(client);
  std::uint8_t timeout = 12;
  expect(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) == 0,
         "RDMA_OPTION_ID_ACK_TIMEOUT");
  resolve_route(client);
  expect(client.id->route.path_rec[0].packet_life_time == 11, "the path's lifetime");
  Queues near(client.id);
  near.managed();
  rdma_conn_param parameters = connection_parameters();
  good("rdma_connect", rdma_connect(client.id, &parameters));
  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  {
    Queues far(request.id);
    far.managed();
    // It holds from the next step on, whatever the path said; so the passive side can set it too.
    for (const auto& [id, value] : {std::pair(client.id, std::uint8_t{14}), std::pair(request.id, std::uint8_t{0})}) {
      timeout = value;
      expect(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) == 0,
             "RDMA_OPTION_ID_ACK_TIMEOUT behind the path");
    }
    good("rdma_accept", rdma_accept(request.id, &parameters));
    client.next(RDMA_CM_EVENT_ESTABLISHED);
    expect(query(client.id->qp, IBV_QP_TIMEOUT).timeout == 14, "the queue pair's timeout");
    expect(query(request.id->qp, IBV_QP_TIMEOUT).timeout == 0, "the timeout of the passive side");
  }
  rdma_destroy_id(request.id);
}

// A program may bring the path, and say what extensions it knows.
void path_and_ece() {
  Channel server, client;
  start_listening(server);
  resolve_address(client);
  ibv_path_data record{};
  record.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY;
  const auto set = [&](std::size_t size) {
    return rdma_set_option(client.id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &record, size) == 0 ? 0 : errno;
  };
  expect_error("a path that leads one way", set(sizeof record), EINVAL);
  record.flags |= IBV_PATH_FLAG_BIDIRECTIONAL;
  expect_error("part of a path", set(sizeof record - 1), EINVAL);
  expect_error("a path", set(sizeof record), 0);
  client.next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  check_path(client.id);
  ibv_ece known{7, 1, 0};
  good("rdma_set_local_ece", rdma_set_local_ece(client.id, &known));
  Queues near(client.id);
  near.by_program();
  near.step(IBV_QPS_INIT, kInit);
  rdma_conn_param parameters = with_data({}, near.own->qp_num);
  good("rdma_connect", rdma_connect(client.id, &parameters));
  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  ibv_ece of_peer{1, 1, 1};
  expect(rdma_get_remote_ece(request.id, &of_peer) == 0 && of_peer.vendor_id == 0, "rdma_get_remote_ece");
  {
    Queues far(request.id);
    far.managed();
    good("rdma_accept", rdma_accept(request.id, &parameters));
    client.next(RDMA_CM_EVENT_CONNECT_RESPONSE);
    good("rdma_establish", rdma_establish(client.id));
    server.next(RDMA_CM_EVENT_ESTABLISHED);
  }
  rdma_destroy_id(request.id);
}

void rejected() {
  Channel server, client;
  resolve(client);
  Queues queues(client.id);
  queues.managed();
  rdma_conn_param parameters = connection_parameters();
  good("rdma_connect", rdma_connect(client.id, &parameters));
  expect(client.next(RDMA_CM_EVENT_REJECTED).status == 8, "nobody listens: the reason");

  start_listening(server);
  CalledPair pair(server);
  rdma_cm_id* const called = pair.request.id;
  const std::vector<std::uint8_t> why{4, 5, 6}, too_long(149);
  expect(rdma_reject(called, too_long.data(), 149) != 0, "149 octets of private data in a REJ");
  expect_error("149 octets of private data in a REJ", errno, EINVAL);
  pair.reject(why.data(), 3);
  const Event answer = pair.client.next(RDMA_CM_EVENT_REJECTED);
  expect(answer.status == 28, "the reason");
  expect(answer.data.size() == 148 && std::memcmp(answer.data.data(), why.data(), why.size()) == 0, "private data");
}

// The peer may be gone before librdmacm takes its answer: then the connection stood, and has ended.
void ended_first() {
  Channel server;
  start_listening(server);
  CalledPair pair(server);
  Channel& client = pair.client;
  rdma_cm_id* const called = pair.request.id;
  {
    Queues far(called);
    far.managed();
    rdma_conn_param parameters = connection_parameters();
    good("rdma_accept", rdma_accept(called, &parameters));
    server.next(RDMA_CM_EVENT_ESTABLISHED);
    good("rdma_disconnect", rdma_disconnect(called));
    server.next(RDMA_CM_EVENT_DISCONNECTED);
  }
  const auto end = Clock::now() + kPatience;
  ibv_qp_attr now;
  do {
    now = query(client.id->qp, IBV_QP_STATE);
    expect(Clock::now() < end, "the stream does not end");
    sched_yield();
  } while (now.qp_state != IBV_QPS_ERR);
  expect(client.next(RDMA_CM_EVENT_ESTABLISHED).status == 0, "ESTABLISHED");
  client.next(RDMA_CM_EVENT_DISCONNECTED);
  // From here on the program's steps are its own.
  now.qp_state = IBV_QPS_INIT;
  expect_error("from ERR to INIT", ibv_modify_qp(client.id->qp, &now, IBV_QP_STATE), EINVAL);
}

// An end whose id stays hears of the end of the time wait once both ends have disconnected, and not at once.
void time_wait() {
  Channel server;
  start_listening(server);
  const auto disconnect = [&server](Pair& pair) {
    good("rdma_disconnect of the caller", rdma_disconnect(pair.client.id));
    pair.client.next(RDMA_CM_EVENT_DISCONNECTED);
    server.next(RDMA_CM_EVENT_DISCONNECTED);
    good("rdma_disconnect of the called end", rdma_disconnect(pair.request.id));
  };
  {
    Pair gone(server, connection_parameters(), connection_parameters());
    disconnect(gone);
  }
  Pair pair(server, connection_parameters(), connection_parameters());
  const auto begin = Clock::now();
  disconnect(pair);
  expect(pair.client.next(RDMA_CM_EVENT_TIMEWAIT_EXIT).id == pair.client.id, "the caller's event is another's");
  expect(server.next(RDMA_CM_EVENT_TIMEWAIT_EXIT).id == pair.request.id, "an event of an id that is gone");
  expect(Clock::now() - begin > std::chrono::seconds(1), "the time wait is over at once");
  expect(server.silent() && pair.client.silent(), "an event too many");
}

// rdma_disconnect() takes the queue pair to ERR: what had completed by then arrives all the same.
void delivered() {
  constexpr std::uint32_t kCount = 60, kSize = 65536;
  Listener listener(g_host, g_port, {});
  Endpoint near = create(g_host, g_port, {});
  std::vector<char> source(kSize, 'x'), sink(kSize);
  std::thread caller([&] {
    connect(near);
    ibv_mr* mr = reg(near.pd(), source.data(), kSize, 0);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      SendRequest(IBV_WR_SEND, {number(source.data()), kSize, mr->lkey}).post(near.qp());
    }
    for (std::uint32_t i = 0; i < kCount; ++i) expect_status("a send", sent(near), IBV_WC_SUCCESS);
    near.disconnect();
    ibv_dereg_mr(mr);
  });
  Endpoint far = listener.request();
  ibv_mr* mr = reg(far.pd(), sink.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
  for (std::uint32_t i = 0; i < kCount; ++i) post_receive(far.qp(), {{number(sink.data()), kSize, mr->lkey}});
  accept(far);
  caller.join();
  for (std::uint32_t i = 0; i < kCount; ++i) expect_status("a receive", received(far), IBV_WC_SUCCESS);
  far.disconnect();
  ibv_dereg_mr(mr);
}

// The connection manager alone: the program names a queue pair that takes no stream, or none.
void without_queue_pair(std::uint32_t near, std::uint32_t far) {
  Channel server, client;
  start_listening(server);
  resolve(client);
  const std::vector<std::uint8_t> question{1, 2, 3}, reply{9, 8};
  rdma_conn_param parameters = with_data(question, near);
  expect(rdma_connect(client.id, &parameters) == 0, "rdma_connect without a queue pair");
  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  check_message(request, 56, question, 8, 7);
  rdma_conn_param accepted = with_data(reply, far);
  accepted.responder_resources = accepted.initiator_depth = 4;
  expect(rdma_accept(request.id, &accepted) == 0, "rdma_accept without a queue pair");
  check_message(client.next(RDMA_CM_EVENT_CONNECT_RESPONSE), 196, reply, 4);
  expect(server.silent(), "the called side has an event before the caller confirms the response");
  good("rdma_establish", rdma_establish(client.id));
  server.next(RDMA_CM_EVENT_ESTABLISHED);
  rdma_cm_id* first = near == kNoQueuePair ? request.id : client.id;
  good("rdma_disconnect", rdma_disconnect(first));
  client.next(RDMA_CM_EVENT_DISCONNECTED);
  server.next(RDMA_CM_EVENT_DISCONNECTED);
  expect(rdma_disconnect(client.id) == 0 && rdma_disconnect(request.id) == 0, "rdma_disconnect once more");
  rdma_destroy_id(request.id);
}

void manager_alone() {
  Channel any;
  resolve(any);
  Queues queues(any.id);
  ibv_qp_init_attr attributes = queues.initial();
  attributes.qp_type = IBV_QPT_UD;
  queues.own = ibv_create_qp(queues.pd, &attributes);
  expect(queues.own != nullptr, "ibv_create_qp of type UD");
  without_queue_pair(queues.own->qp_num, queues.own->qp_num);
  without_queue_pair(kNoQueuePair, queues.own->qp_num);
}

// One end is gone before it confirms: the other is told.
void manager_alone_ends() {
  Channel server;
  start_listening(server);
  Event request{};
  {
    Channel client;
    resolve(client);
    rdma_conn_param parameters = with_data({}, kNoQueuePair);
    expect(rdma_connect(client.id, &parameters) == 0, "rdma_connect without a queue pair");
    request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
    expect(rdma_accept(request.id, &parameters) == 0, "rdma_accept without a queue pair");
    client.next(RDMA_CM_EVENT_CONNECT_RESPONSE);
  }
  server.next(RDMA_CM_EVENT_CONNECT_ERROR);
  rdma_destroy_id(request.id);
}

class TcpServer {
 public:
  TcpServer() {
    local_ = address(RAI_PASSIVE);
    fd_ = socket(local_->ai_src_addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect(fd_ >= 0, "socket");
  }
  ~TcpServer() {
    close(fd_);
    rdma_freeaddrinfo(local_);
  }
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;
  void reuse_address() const {
    const int on = 1;
    expect(setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0, "SO_REUSEADDR");
  }
  void bind() const { expect(::bind(fd_, local_->ai_src_addr, local_->ai_src_len) == 0, "bind to the RDMA port"); }
  void listen() const { expect(::listen(fd_, 4) == 0, "listen on the RDMA port"); }
  // A client of plain TCP finds this server, and the RDMA listener hears nothing.
  void serve() const {
    const int client = socket(local_->ai_src_addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect(connect(client, local_->ai_src_addr, local_->ai_src_len) == 0, "connect by TCP");
    const int served = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    char said = 'x', heard = 0;
    expect(write(client, &said, 1) == 1 && read(served, &heard, 1) == 1 && heard == said, "octets by TCP");
    close(client);
    close(served);
  }

 private:
  rdma_addrinfo* local_;
  int fd_;
};

void call(Channel& server) {
  CalledPair pair(server);
  pair.reject(nullptr, 0);
  pair.client.next(RDMA_CM_EVENT_REJECTED);
}

// RDMA and TCP with one number in one program, RDMA first: as UCX does.
void beside_tcp() {
  {
    Channel server;
    start_listening(server);
    const TcpServer tcp;
    tcp.bind();
    tcp.listen();
    tcp.serve();
    call(server);
    tcp.serve();
  }
  Channel server;
  server.make_id();
  rdma_addrinfo* local = address(RAI_PASSIVE);
  good("rdma_bind_addr", rdma_bind_addr(server.id, local->ai_src_addr));
  rdma_freeaddrinfo(local);
  const TcpServer tcp;
  tcp.reuse_address();
  tcp.bind();
  good("rdma_listen", rdma_listen(server.id, 4));
  tcp.listen();
  call(server);
  tcp.serve();
}

int bind_error(rdma_cm_id* id, const sockaddr* to) {
  return rdma_bind_addr(id, const_cast<sockaddr*>(to)) == 0 ? 0 : errno;
}

// Another process has bound to the number and does not listen.
void bound_elsewhere() {
  rdma_addrinfo* local = address(RAI_PASSIVE);
  sockaddr_storage any{};
  std::memcpy(&any, local->ai_src_addr, local->ai_src_len);
  if (any.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(any).sin_addr.s_addr = htonl(INADDR_ANY);
  } else {
    reinterpret_cast<sockaddr_in6&>(any).sin6_addr = in6addr_any;
  }
  const sockaddr* const wildcard = reinterpret_cast<const sockaddr*>(&any);
  const sockaddr* const concrete = local->ai_src_addr;
  struct Row {
    const sockaddr *theirs, *ours;
    int error;
  };
  for (const Row& row : {Row{wildcard, wildcard, EADDRNOTAVAIL}, Row{wildcard, concrete, EADDRNOTAVAIL},
                         Row{concrete, wildcard, EADDRNOTAVAIL}, Row{concrete, concrete, EADDRINUSE}}) {
    int bound[2], over[2];
    expect(pipe2(bound, O_CLOEXEC) == 0 && pipe2(over, O_CLOEXEC) == 0, "pipe2");
    const pid_t other = fork();
    expect(other >= 0, "fork");
    char octet = 0;
    if (other == 0) {
      close(over[1]);
      Channel theirs;
      theirs.make_id();
      const bool well = bind_error(theirs.id, row.theirs) == 0 && write(bound[1], "", 1) == 1;
      _exit(well && read(over[0], &octet, 1) == 0 ? 0 : 1);
    }
    close(bound[1]);
    close(over[0]);
    expect(read(bound[0], &octet, 1) == 1, "the other process does not bind");
    Channel ours;
    ours.make_id();
    expect_error("a bind to a port of another process", bind_error(ours.id, row.ours), {row.error});
    close(over[1]);
    int status = 0;
    expect(waitpid(other, &status, 0) == other && status == 0, "the other process");
    close(bound[0]);
    expect_error("a bind once the other process has ended", bind_error(ours.id, row.ours), {0});
  }
  rdma_freeaddrinfo(local);
}

// rdma_resolve_addr to an address that nobody has.
void resolves_to_nobody() {
  Channel client;
  client.make_id();
  rdma_addrinfo* remote = address(0);
  for (const int patience : {300, 0}) {
    const auto begun = Clock::now();
    good("rdma_resolve_addr", rdma_resolve_addr(client.id, nullptr, remote->ai_dst_addr, patience));
    // Without patience, the first one may be over already.
    expect(patience == 0 ||
               (rdma_resolve_addr(client.id, nullptr, remote->ai_dst_addr, patience) == -1 && errno == EINVAL),
           "rdma_resolve_addr while another is under way");
    expect(client.next(RDMA_CM_EVENT_ADDR_ERROR).status == -ETIMEDOUT, "the status of ADDR_ERROR");
    const auto taken = Clock::now() - begun;
    expect(taken >= std::chrono::milliseconds(patience) && taken < std::chrono::seconds(5),
           "another time than asked for");
  }
  // The id may be destroyed while the address is being resolved.
  expect(rdma_resolve_addr(client.id, nullptr, remote->ai_dst_addr, 60'000) == 0, "rdma_resolve_addr once more");
  rdma_freeaddrinfo(remote);
}

// The neighbour comes while the program waits: the test gives it the address when it reads the line.
void resolves_late() {
  Channel client;
  client.make_id();
  rdma_addrinfo* remote = address(0);
  good("rdma_resolve_addr", rdma_resolve_addr(client.id, nullptr, remote->ai_dst_addr, 30'000));
  rdma_freeaddrinfo(remote);
  expect(client.silent(), "resolved, although nobody has the address");
  std::puts("under way");
  std::fflush(stdout);
  client.next(RDMA_CM_EVENT_ADDR_RESOLVED);
  resolve_route(client);
}

void steps_to_nobody(int error, std::chrono::milliseconds least) {
  const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(open_device("uiw_v0"), ibv_close_device);
  ibv_gid wanted{};
  wanted.raw[10] = wanted.raw[11] = 0xff;
  ibv_ah_attr way{};
  way.is_global = way.port_num = 1;
  expect(inet_pton(AF_INET, "10.77.0.1", wanted.raw + 12) == 1, "inet_pton");
  for (ibv_gid own{}; std::memcmp(&own, &wanted, sizeof own) != 0; ++way.grh.sgid_index)
    expect(ibv_query_gid(context.get(), 1, way.grh.sgid_index, &own) == 0, "no GID of 10.77.0.1");
  --way.grh.sgid_index;
  way.grh.dgid = wanted;
  expect(inet_pton(AF_INET, g_host.c_str(), way.grh.dgid.raw + 12) == 1, "inet_pton");
  ibv_pd* pd = ibv_alloc_pd(context.get());
  ibv_cq* cq = ibv_create_cq(context.get(), 8, nullptr, nullptr, 0);
  ibv_qp_init_attr initial = qp_attributes({});
  initial.send_cq = initial.recv_cq = cq;
  ibv_qp* qp = ibv_create_qp(pd, &initial);
  expect(qp != nullptr, "ibv_create_qp");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  expect_error("INIT", ibv_modify_qp(qp, &attributes, kInit), 0);
  attributes.qp_state = IBV_QPS_RTR;
  attributes.ah_attr = way;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = 0x123456;
  const auto begun = Clock::now();
  std::thread other([&] {
    errno = 0;
    expect(ibv_create_ah(pd, &way) == nullptr, "an address handle of nobody");
    expect_error("ibv_create_ah", errno, error);
  });
  expect_error("RTR", ibv_modify_qp(qp, &attributes, kRtr), error);
  other.join();
  expect(Clock::now() - begun >= least, "too early");
  expect(qp->state == IBV_QPS_INIT, "the state after a step that has failed");
  expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
}

// A source port of the program's own: it is free again as soon as the program has disconnected and destroyed its id,
// whatever the other end does meanwhile.
void source_port_again() {
  Channel server;
  start_listening(server);
  rdma_addrinfo* remote = address(0);
  sockaddr_storage source{};
  std::memcpy(&source, remote->ai_dst_addr, remote->ai_dst_len);
  __be16& port = source.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(source).sin_port
                                             : reinterpret_cast<sockaddr_in6&>(source).sin6_port;
  port = 0;
  Event request{};
  std::unique_ptr<Queues> far;
  const auto destroy_far = [&] {
    far.reset();
    rdma_destroy_id(request.id);
  };
  for (int turn = 0; turn < 5; ++turn) {
    Channel client;
    client.make_id();
    expect_error("rdma_bind_addr", bind_error(client.id, reinterpret_cast<sockaddr*>(&source)), {0});
    port = rdma_get_src_port(client.id);
    good("rdma_resolve_addr", rdma_resolve_addr(client.id, nullptr, remote->ai_dst_addr, 2000));
    client.next(RDMA_CM_EVENT_ADDR_RESOLVED);
    resolve_route(client);
    Queues near(client.id);
    near.managed();
    rdma_conn_param parameters = connection_parameters();
    good("rdma_connect", rdma_connect(client.id, &parameters));
    // The end of the connection before is reported by the thread that sees it, so it may come behind the next request.
    bool ended = far == nullptr, requested = false;
    Event next{};
    while (!ended || !requested) {
      bool is_end = false;
      const Event event = server.next_of(RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED, is_end);
      expect(!(is_end ? ended : requested), "the same event twice");
      if (!is_end) next = event;
      (is_end ? ended : requested) = true;
    }
    if (far != nullptr) destroy_far();
    request = next;
    far = std::make_unique<Queues>(request.id);
    far->managed();
    good("rdma_accept", rdma_accept(request.id, &parameters));
    client.next(RDMA_CM_EVENT_ESTABLISHED);
    server.next(RDMA_CM_EVENT_ESTABLISHED);
    expect(rdma_get_src_port(client.id) == port, "another source port than the program has chosen");
    good("rdma_disconnect", rdma_disconnect(client.id));
  }
  server.next(RDMA_CM_EVENT_DISCONNECTED);
  destroy_far();
  rdma_freeaddrinfo(remote);
}

}  // namespace

void connecting_cases(Cases& cases) {
  cases.insert({
      {"ack_timeout", ack_timeout},
      {"retries", retries},
      {"beside_tcp", beside_tcp},
      {"bound_elsewhere", bound_elsewhere},
      {"delivered", delivered},
      {"ended_first", ended_first},
      {"manager_alone", manager_alone},
      {"manager_alone_ends", manager_alone_ends},
      {"own_steps", own_steps},
      {"path_and_ece", path_and_ece},
      {"rejected", rejected},
      {"resolves_late", resolves_late},
      {"resolves_to_nobody", resolves_to_nobody},
      {"source_port_again", source_port_again},
      {"steps_to_nobody", [] { steps_to_nobody(ETIMEDOUT, std::chrono::milliseconds(1000)); }},
      {"steps_without_route", [] { steps_to_nobody(ENETUNREACH, {}); }},
      {"time_wait", time_wait},
  });
}

}  // namespace apps::views
