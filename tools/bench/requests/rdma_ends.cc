// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tools/bench/requests/ends.h"

namespace uiw::requests {
namespace {

// Every kSignalEvery-th Send is signaled. Its completion frees its entry of the send queue and all entries before it.
constexpr unsigned kSignalEvery = 16;
constexpr std::uint64_t kSendId = ~std::uint64_t{0};
constexpr unsigned kSlotBits = 8;
constexpr int kAddressMilliseconds = 2000;

// The number of outstanding requests on a connection, and the sizes of its messages.
struct Shape {
  unsigned window;
  std::size_t request;
  std::size_t answer;
  std::size_t write;  // octets of the RDMA Write before the answer; 0 if there is none
};

Shape shape_of(const Job& job, Style style) {
  if (style == Style::writes) return {32, 64, 16, job.size};
  return {1, job.size, job.size, 0};
}

// The memory of a client that the server writes to. The address and the rkey are in the private data of rdma_connect();
// rdma_accept() sends zeros.
struct Target {
  std::uint64_t address;
  std::uint32_t rkey;
};

template <typename T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(what, errno);
  return object;
}

void check(int result, const char* what) {
  if (result != 0) fail(what, result > 0 ? result : errno);
}

// One end of a connection: a queue pair and its registered memory. The memory has `window` slots. Requests use them in
// turn, and receives are posted in the same order. Since Sends arrive in order, a request and its answer arrive in
// receives of the same slot.
class End {
 public:
  // `id` has a device. `index` is in the upper bits of the wr_id of receives. Nothing is freed, since the process ends
  // afterwards.
  End(rdma_cm_id* id, ibv_cq* cq, std::uint64_t index, unsigned window, std::size_t received, std::size_t sent,
      std::size_t written)
      : id_(id), index_(index), received_(received), sent_(sent), memory_(window * (received + sent + written)) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = 2 * (window + kSignalEvery);
    attributes.cap.max_recv_wr = window;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    check(rdma_create_qp(id, nullptr, &attributes), "rdma_create_qp");
    region_ = made(ibv_reg_mr(id->pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                   "ibv_reg_mr");
    sends_ = window * received;
    writes_ = sends_ + window * sent;
    for (unsigned slot = 0; slot < window; ++slot) post_receive(slot);
  }

  void post_receive(unsigned slot) {
    ibv_sge sge = piece(slot * received_, received_);
    ibv_recv_wr request{};
    request.wr_id = index_ << kSlotBits | slot;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    check(ibv_post_recv(id_->qp, &request, &bad), "ibv_post_recv");
  }

  // Posts a Send and, if `size` is not 0, before it an RDMA Write of `size` octets to this slot of the peer's memory.
  void post_send(unsigned slot, std::size_t size = 0) {
    ibv_sge written = piece(writes_ + slot * size, size), sent = piece(sends_ + slot * sent_, sent_);
    ibv_send_wr send{}, write{};
    send.wr_id = write.wr_id = kSendId;
    send.sg_list = &sent;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    if (++count_ % kSignalEvery == 0) send.send_flags = IBV_SEND_SIGNALED;
    write.next = &send;
    write.sg_list = &written;
    write.num_sge = 1;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.wr.rdma.remote_addr = peer_.address + slot * size;
    write.wr.rdma.rkey = peer_.rkey;
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(id_->qp, size != 0 ? &write : &send, &bad), "ibv_post_send");
  }

  Target target() const { return {reinterpret_cast<std::uintptr_t>(memory_.data() + writes_), region_->rkey}; }
  void set_peer(const Target& peer) { peer_ = peer; }
  // Whether a receive has got a message of the right length.
  bool is_whole(const ibv_wc& completion) const { return completion.byte_len == received_; }

 private:
  ibv_sge piece(std::size_t offset, std::size_t length) {
    return {reinterpret_cast<std::uintptr_t>(memory_.data() + offset), static_cast<std::uint32_t>(length),
            region_->lkey};
  }

  rdma_cm_id* id_;
  std::uint64_t index_;
  std::size_t received_, sent_;  // octets of a message, in each direction
  std::vector<char> memory_;     // the slots for receives, then those for Sends, then those for RDMA Writes
  std::size_t sends_ = 0, writes_ = 0;
  ibv_mr* region_ = nullptr;
  Target peer_{};
  unsigned count_ = 0;
};

unsigned slot_of(const ibv_wc& completion) { return completion.wr_id & ((1U << kSlotBits) - 1); }

rdma_conn_param parameters(const Target& target) {
  rdma_conn_param result{};
  result.private_data = &target;
  result.private_data_len = sizeof target;
  result.responder_resources = result.initiator_depth = 1;
  result.retry_count = result.rnr_retry_count = 7;
  return result;
}

Target target_of(const rdma_conn_param& parameters) {
  Target target{};
  if (parameters.private_data_len < sizeof target) fail("the peer sent no private data");
  std::memcpy(&target, parameters.private_data, sizeof target);
  return target;
}

class Server {
 public:
  Server(const Job& job, Style style) : job_(job), style_(style), shape_(shape_of(job, style)) {}

  void accept_all(Shared& shared) {
    rdma_event_channel* events = made(rdma_create_event_channel(), "rdma_create_event_channel");
    rdma_cm_id* listener = nullptr;
    sockaddr_in local = job_.address;
    check(rdma_create_id(events, &listener, nullptr, RDMA_PS_TCP), "rdma_create_id");
    check(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&local)), "rdma_bind_addr");
    check(rdma_listen(listener, kMostClients), "rdma_listen");
    shared.port = rdma_get_src_port(listener);
    for (unsigned established = 0; established < job_.clients;) {
      rdma_cm_event* event = nullptr;
      check(rdma_get_cm_event(events, &event), "rdma_get_cm_event");
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        accept(*event);
      else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
        ++established;
      else
        fail(rdma_event_str(event->event));
      rdma_ack_cm_event(event);
    }
  }

  void serve_by_events() {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, channel_->fd, &event) != 0) fail("epoll_ctl", errno);
    for (arm(); take(); arm()) {
      while (epoll_wait(epoll, &event, 1, -1) < 0)
        if (errno != EINTR) fail("epoll_wait", errno);
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      check(ibv_get_cq_event(channel_, &cq, &context), "ibv_get_cq_event");
      ibv_ack_cq_events(cq, 1);
    }
  }

  void serve_by_polls() {
    while (take()) continue;
  }

 private:
  void accept(const rdma_cm_event& event) {
    rdma_cm_id* id = event.id;
    if (cq_ == nullptr) {
      if (style_ == Style::events) channel_ = made(ibv_create_comp_channel(id->verbs), "ibv_create_comp_channel");
      // Room for the receives and the signaled Sends of each connection.
      const int entries = static_cast<int>(job_.clients * (2 * shape_.window + 4));
      cq_ = made(ibv_create_cq(id->verbs, entries, nullptr, channel_, 0), "ibv_create_cq");
    }
    ends_.push_back(
        std::make_unique<End>(id, cq_, ends_.size(), shape_.window, shape_.request, shape_.answer, shape_.write));
    open_.push_back(true);
    ++left_;
    ends_.back()->set_peer(target_of(event.param.conn));
    const Target none{};
    rdma_conn_param answer = parameters(none);
    check(rdma_accept(id, &answer), "rdma_accept");
  }

  void arm() { check(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq"); }

  // Answers all requests that have arrived. False when all connections are closed.
  bool take() {
    std::array<ibv_wc, 32> completions{};
    int count = 0;
    while ((count = ibv_poll_cq(cq_, static_cast<int>(completions.size()), completions.data())) > 0)
      for (int i = 0; i < count; ++i) handle(completions[static_cast<std::size_t>(i)]);
    if (count < 0) fail("ibv_poll_cq");
    return left_ > 0;
  }

  void handle(const ibv_wc& completion) {
    if (completion.wr_id == kSendId) return;
    const std::size_t index = completion.wr_id >> kSlotBits;
    if (completion.status == IBV_WC_WR_FLUSH_ERR) {  // the client has closed the connection
      if (open_[index]) --left_;
      open_[index] = false;
      return;
    }
    if (completion.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(completion.status));
    End& end = *ends_[index];
    if (!end.is_whole(completion)) fail("a request has another length");
    end.post_receive(slot_of(completion));
    end.post_send(slot_of(completion), shape_.write);
  }

  const Job& job_;
  Style style_;
  Shape shape_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<bool> open_;
  unsigned left_ = 0;  // connections that are open
};

class Client {
 public:
  // Connects. The id has no event channel, so each call of rdma_cm waits for its event.
  Client(const Job& job, Style style, const sockaddr_in& server) : shape_(shape_of(job, style)) {
    sockaddr_in address = server;
    check(rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP), "rdma_create_id");
    check(rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address), kAddressMilliseconds),
          "rdma_resolve_addr");
    check(rdma_resolve_route(id_, kAddressMilliseconds), "rdma_resolve_route");
    if (style == Style::events) channel_ = made(ibv_create_comp_channel(id_->verbs), "ibv_create_comp_channel");
    const int entries = static_cast<int>(2 * shape_.window + 4);
    cq_ = made(ibv_create_cq(id_->verbs, entries, nullptr, channel_, 0), "ibv_create_cq");
    end_.emplace(id_, cq_, 0, shape_.window, shape_.answer, shape_.request, shape_.write);
    const Target target = end_->target();
    rdma_conn_param call = parameters(target);
    check(rdma_connect(id_, &call), "rdma_connect");
  }

  void ask(const std::atomic<bool>& over, std::atomic<std::uint64_t>& answers) {
    for (unsigned slot = 0; slot < shape_.window; ++slot) end_->post_send(slot);
    for (unsigned outstanding = shape_.window; outstanding > 0;) {
      ibv_wc completion{};
      next(completion);
      if (completion.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(completion.status));
      if (completion.wr_id == kSendId) continue;
      if (!end_->is_whole(completion)) fail("an answer has another length");
      answers.fetch_add(1, std::memory_order_relaxed);
      const unsigned slot = slot_of(completion);
      end_->post_receive(slot);
      if (over.load(std::memory_order_relaxed))
        --outstanding;
      else
        end_->post_send(slot);
    }
  }

  void disconnect() { check(rdma_disconnect(id_), "rdma_disconnect"); }

 private:
  void next(ibv_wc& completion) {
    int count = 0;
    while ((count = ibv_poll_cq(cq_, 1, &completion)) == 0) {
      if (channel_ == nullptr) continue;
      // A completion that arrives between ibv_poll_cq() and ibv_req_notify_cq() causes no event, so the queue is polled
      // again after ibv_req_notify_cq().
      if (!armed_) {
        check(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
        armed_ = true;
        continue;
      }
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      check(ibv_get_cq_event(channel_, &cq, &context), "ibv_get_cq_event");
      ibv_ack_cq_events(cq, 1);
      armed_ = false;
    }
    if (count < 0) fail("ibv_poll_cq");
  }

  Shape shape_;
  rdma_cm_id* id_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::optional<End> end_;
  bool armed_ = false;
};

}  // namespace

void serve_rdma(const Job& job, Style style, Shared& shared) {
  Server server(job, style);
  server.accept_all(shared);
  style == Style::events ? server.serve_by_events() : server.serve_by_polls();
}

void ask_rdma(const Job& job, Style style, Shared& shared) {
  const sockaddr_in address = server_address(job, shared);
  std::vector<std::unique_ptr<Client>> clients;
  for (unsigned i = 0; i < job.clients; ++i) clients.push_back(std::make_unique<Client>(job, style, address));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < job.clients; ++i)
    threads.emplace_back([&, i] { clients[i]->ask(shared.over, shared.clients[i].answers); });
  shared.connected = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& client : clients) client->disconnect();
}

}  // namespace uiw::requests
