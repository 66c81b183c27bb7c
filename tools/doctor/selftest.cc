// SPDX-License-Identifier: MIT
// uiw-selftest ADDRESS: checks whether RDMA works from this process to itself. `uiw doctor` runs it under the preload
// library.
//
// It is an ordinary program of librdmacm and libibverbs. A server and a client thread connect over ADDRESS. The client
// writes 1 MiB into the server's memory (RDMA Write) and sends a message (Send); the server compares and answers
// (Send); the client reads the memory back (RDMA Read) and compares. One line on standard output reports the result;
// the exit status is 0 if everything was right.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kLength = std::size_t{1} << 20;
constexpr unsigned kTimeoutSeconds = 15;
constexpr int kResolveMs = 5000;

[[noreturn]] void fail(const char* who, const std::string& what) {
  std::printf("%s: %s\n", who, what.c_str());
  std::fflush(stdout);
  _exit(1);  // the other thread may be waiting in librdmacm
}

[[noreturn]] void fail_errno(const char* who, const char* call) {
  fail(who, std::string(call) + ": " + std::strerror(errno));
}

// The private data that the server sends with its reply. It needs no byte order, since both ends are this process.
struct Target {
  std::uint64_t address;
  std::uint32_t rkey;
};

// One end of the connection. Nothing is freed, since the process ends right after.
struct End {
  const char* who;
  rdma_event_channel* channel = nullptr;
  rdma_cm_id* id = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(kLength);
};

// Takes the next event, which must be the expected one; the caller acknowledges it with rdma_ack_cm_event.
rdma_cm_event* expect(End& end, rdma_cm_event_type type) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(end.channel, &event) != 0) fail_errno(end.who, "rdma_get_cm_event");
  if (event->event != type)
    fail(end.who, std::string("expected ") + rdma_event_str(type) + ", got " + rdma_event_str(event->event) +
                      " (status " + std::to_string(event->status) + ")");
  return event;
}

void open_channel(End& end) {
  end.channel = rdma_create_event_channel();
  if (end.channel == nullptr) fail_errno(end.who, "rdma_create_event_channel (is there an rdma_cm?)");
}

void make_queue_pair(End& end) {
  if (end.id->verbs == nullptr) fail(end.who, "the address belongs to no RDMA device");
  ibv_pd* pd = ibv_alloc_pd(end.id->verbs);
  if (pd == nullptr) fail_errno(end.who, "ibv_alloc_pd");
  end.cq = ibv_create_cq(end.id->verbs, 16, nullptr, nullptr, 0);
  if (end.cq == nullptr) fail_errno(end.who, "ibv_create_cq");
  end.mr = ibv_reg_mr(pd, end.memory.data(), end.memory.size(),
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (end.mr == nullptr) fail_errno(end.who, "ibv_reg_mr");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = end.cq;
  attributes.recv_cq = end.cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = 4;
  attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  if (rdma_create_qp(end.id, pd, &attributes) != 0) fail_errno(end.who, "rdma_create_qp");
  // A message of no octets needs no memory.
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(end.id->qp, &receive, &bad); error != 0) {
    errno = error;
    fail_errno(end.who, "ibv_post_recv");
  }
}

void post(End& end, ibv_wr_opcode opcode, const Target* target) {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(end.memory.data()), static_cast<std::uint32_t>(kLength), end.mr->lkey};
  ibv_send_wr request{};
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  if (target != nullptr) {
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = target->address;
    request.wr.rdma.rkey = target->rkey;
  }
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(end.id->qp, &request, &bad); error != 0) {
    errno = error;
    fail_errno(end.who, "ibv_post_send");
  }
}

// Waits for `count` completions of the send and receive queues, in any order.
void complete(End& end, int count, const char* what) {
  ibv_wc completion{};
  while (count > 0) {
    const int got = ibv_poll_cq(end.cq, 1, &completion);
    if (got < 0) fail(end.who, "ibv_poll_cq failed");
    if (got == 0) {
      sched_yield();
      continue;
    }
    if (completion.status != IBV_WC_SUCCESS)
      fail(end.who, std::string(what) + ": " + ibv_wc_status_str(completion.status));
    --count;
  }
}

std::uint8_t pattern(std::size_t i) { return static_cast<std::uint8_t>((i * 2654435761U) >> 13); }

void check_pattern(const End& end, const char* what) {
  for (std::size_t i = 0; i < kLength; ++i)
    if (end.memory[i] != pattern(i)) fail(end.who, std::string(what) + ": octet " + std::to_string(i) + " is wrong");
}

void serve(const sockaddr* address, std::promise<std::uint16_t>& port) {
  End end{"server"};
  open_channel(end);
  rdma_cm_id* listener = nullptr;
  if (rdma_create_id(end.channel, &listener, nullptr, RDMA_PS_TCP) != 0) fail_errno(end.who, "rdma_create_id");
  sockaddr_storage local{};
  std::memcpy(&local, address, address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  if (rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&local)) != 0) fail_errno(end.who, "rdma_bind_addr");
  if (rdma_listen(listener, 1) != 0) fail_errno(end.who, "rdma_listen");
  port.set_value(rdma_get_src_port(listener));

  rdma_cm_event* event = expect(end, RDMA_CM_EVENT_CONNECT_REQUEST);
  end.id = event->id;
  rdma_ack_cm_event(event);
  make_queue_pair(end);
  const Target target{reinterpret_cast<std::uint64_t>(end.memory.data()), end.mr->rkey};
  rdma_conn_param parameters{};
  parameters.private_data = &target;
  parameters.private_data_len = sizeof target;
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  if (rdma_accept(end.id, &parameters) != 0) fail_errno(end.who, "rdma_accept");
  rdma_ack_cm_event(expect(end, RDMA_CM_EVENT_ESTABLISHED));
  complete(end, 1, "receive");
  check_pattern(end, "RDMA Write");
  post(end, IBV_WR_SEND, nullptr);
  complete(end, 1, "Send");
  rdma_ack_cm_event(expect(end, RDMA_CM_EVENT_DISCONNECTED));
}

void call(sockaddr* address) {
  End end{"client"};
  open_channel(end);
  if (rdma_create_id(end.channel, &end.id, nullptr, RDMA_PS_TCP) != 0) fail_errno(end.who, "rdma_create_id");
  if (rdma_resolve_addr(end.id, nullptr, address, kResolveMs) != 0) fail_errno(end.who, "rdma_resolve_addr");
  rdma_ack_cm_event(expect(end, RDMA_CM_EVENT_ADDR_RESOLVED));
  if (rdma_resolve_route(end.id, kResolveMs) != 0) fail_errno(end.who, "rdma_resolve_route");
  rdma_ack_cm_event(expect(end, RDMA_CM_EVENT_ROUTE_RESOLVED));
  make_queue_pair(end);
  for (std::size_t i = 0; i < kLength; ++i) end.memory[i] = pattern(i);

  rdma_conn_param parameters{};
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  if (rdma_connect(end.id, &parameters) != 0) fail_errno(end.who, "rdma_connect");
  rdma_cm_event* event = expect(end, RDMA_CM_EVENT_ESTABLISHED);
  Target target{};
  if (event->param.conn.private_data_len < sizeof target) fail(end.who, "the private data of the answer is missing");
  std::memcpy(&target, event->param.conn.private_data, sizeof target);
  rdma_ack_cm_event(event);

  post(end, IBV_WR_RDMA_WRITE, &target);
  post(end, IBV_WR_SEND, nullptr);
  complete(end, 3, "RDMA Write and Send");  // two requests, and the receive of the server's answer
  std::memset(end.memory.data(), 0, kLength);
  post(end, IBV_WR_RDMA_READ, &target);
  complete(end, 1, "RDMA Read");
  check_pattern(end, "RDMA Read");
  if (rdma_disconnect(end.id) != 0) fail_errno(end.who, "rdma_disconnect");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: uiw-selftest ADDRESS; `uiw doctor` runs it\n");
    return 2;
  }
  alarm(kTimeoutSeconds);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(argv[1], nullptr, &hints, &found); error != 0) {
    std::printf("%s: %s\n", argv[1], gai_strerror(error));
    return 1;
  }
  int devices = 0;
  ibv_device** list = ibv_get_device_list(&devices);
  if (list == nullptr || devices == 0) fail("libibverbs", "it sees no RDMA device");
  std::promise<std::uint16_t> port;
  std::future<std::uint16_t> known = port.get_future();
  std::thread server([&] { serve(found->ai_addr, port); });
  const std::uint16_t number = known.get();
  if (found->ai_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_port = number;
  else
    reinterpret_cast<sockaddr_in6*>(found->ai_addr)->sin6_port = number;
  const auto start = std::chrono::steady_clock::now();
  call(found->ai_addr);
  server.join();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  std::printf("RDMA Write, Send and RDMA Read of 1 MiB over %s in %lld ms\n", argv[1],
              static_cast<long long>(took.count()));
  std::fflush(stdout);
  _exit(0);  // exit handlers must not run while RDMA objects still exist
}
