// SPDX-License-Identifier: MIT
// One end of a connection without rdma_cm: two processes tell each other queue pair number and GID over a TCP
// connection of their own (a Line), and ibv_modify_qp does the rest. Errors end the program with a message:
// it is a test.
#pragma once

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <initializer_list>
#include <random>
#include <type_traits>
#include <vector>

#include "tests/apps/support/manual.h"

namespace apps::manual {

// Octets between the two programs, beside RDMA.
class Line {
 public:
  static Line listen(const std::string& host, const std::string& port);
  static Line call(const std::string& host, const std::string& port) {
    const sockaddr_in address = address_of(host, port);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      die("connect to %s %s: %s", host.c_str(), port.c_str(), std::strerror(errno));
    return Line(fd);
  }
  Line(Line&& other) noexcept : fd_(std::exchange(other.fd_, -1)), patience_(other.patience_) {}
  Line& operator=(Line&&) = delete;
  ~Line() {
    if (fd_ >= 0) ::close(fd_);
  }

  template <typename T>
  void say(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (::send(fd_, &value, sizeof value, MSG_NOSIGNAL) != ssize_t{sizeof value}) die("the other program is gone");
  }
  template <typename T>
  T hear() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!ready(patience_)) die("the other program says nothing");
    if (::recv(fd_, &value, sizeof value, MSG_WAITALL) != ssize_t{sizeof value}) die("the other program has ended");
    return value;
  }
  // How long the other program may say nothing.
  void set_patience(std::chrono::seconds patience) { patience_ = patience; }
  // Both programs have come here.
  void meet(char where) {
    say(where);
    if (const char there = hear<char>(); there != where)
      die("the other program is at %c, this one at %c", there, where);
  }
  // Until the other program has died.
  void await_end() {
    char octet;
    if (!ready(kPatience) || ::recv(fd_, &octet, 1, 0) > 0) die("the other program lives");
  }

 private:
  friend class Door;
  explicit Line(int fd) : fd_(fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  static sockaddr_in address_of(const std::string& host, const std::string& port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) die("no address: %s", host.c_str());
    return address;
  }
  bool ready(std::chrono::seconds patience) const {
    pollfd descriptor{fd_, POLLIN, 0};
    return ::poll(&descriptor, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) == 1;
  }

  int fd_;
  std::chrono::seconds patience_ = kPatience;
};

// Where programs call.
class Door {
 public:
  Door(const std::string& host, const std::string& port, int calls)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = Line::address_of(host, port);
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd_, calls) != 0)
      die("listen on %s %s: %s", host.c_str(), port.c_str(), std::strerror(errno));
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door() { ::close(fd_); }

  Line accept() const {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) die("accept: %s", std::strerror(errno));
    return Line(fd);
  }

 private:
  const int fd_;
};

inline Line Line::listen(const std::string& host, const std::string& port) { return Door(host, port, 1).accept(); }

struct Wanted : Manners {
  Wanted() { rnr_timer = 1; }
  Capacity capacity{};
  bool shared = false;  // the receives of a shared queue
};

// The device that has the address `host`, with one queue pair on it.
class End {
 public:
  End(const std::string& host, const Wanted& wanted) : wanted_(wanted), rnic_(host) {
    const int entries = static_cast<int>(wanted.capacity.send_wr + wanted.capacity.recv_wr);
    send_cq_ = made("ibv_create_cq", ibv_create_cq(context(), entries, nullptr, nullptr, 0));
    recv_cq_ = made("ibv_create_cq", ibv_create_cq(context(), entries, nullptr, nullptr, 0));
    ibv_qp_init_attr attributes = qp_attributes(wanted.capacity);
    attributes.send_cq = send_cq_;
    attributes.recv_cq = recv_cq_;
    if (wanted.shared) {
      ibv_srq_init_attr shared{};
      shared.attr = {wanted.capacity.recv_wr, wanted.capacity.recv_sge, 0};
      attributes.srq = srq_ = made("ibv_create_srq", ibv_create_srq(pd(), &shared));
    }
    qp_ = made("ibv_create_qp", ibv_create_qp(pd(), &attributes));
    place_ = {qp_->qp_num, std::random_device()() & 0xFFFFFF, rnic_.gid()};
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // Takes down all that was made; each step has to be allowed.
  ~End() {
    good("ibv_destroy_qp", ibv_destroy_qp(qp_));
    if (srq_ != nullptr) good("ibv_destroy_srq", ibv_destroy_srq(srq_));
    for (ibv_mr* mr : regions_) good("ibv_dereg_mr", ibv_dereg_mr(mr));
    good("ibv_destroy_cq", ibv_destroy_cq(send_cq_));
    good("ibv_destroy_cq", ibv_destroy_cq(recv_cq_));
  }

  ibv_context* context() const { return rnic_.context(); }
  ibv_pd* pd() const { return rnic_.pd(); }
  ibv_qp* qp() const { return qp_; }
  ibv_cq* send_cq() const { return send_cq_; }
  ibv_cq* recv_cq() const { return recv_cq_; }
  const Place& place() const { return place_; }

  ibv_mr* reg(void* memory, std::size_t size, int access) {
    return regions_.emplace_back(apps::reg(pd(), memory, size, access));
  }

  void to_init() { apps::to_init(qp_, wanted_); }
  void to_rtr(const Place& peer) { apps::to_rtr(qp_, rnic_, peer, wanted_); }
  void to_rts() { apps::to_rts(qp_, place_.psn, wanted_); }
  void to_error() { to_state(qp_, IBV_QPS_ERR); }
  // All of the above, with the program at the other end of the line.
  void connect(Line& line) {
    to_init();
    line.say(place_);
    to_rtr(line.hear<Place>());
    to_rts();
  }

  ibv_qp_state state() const { return query(qp_, IBV_QP_STATE).qp_state; }

  void post_receive(std::uint64_t id, ibv_sge sge) {
    std::vector<ibv_sge> list;
    if (sge.length > 0) list = {sge};
    srq_ != nullptr ? apps::post_receive(srq_, list, id) : apps::post_receive(qp_, list, id);
  }

  void post_send(std::uint64_t id, ibv_sge sge, unsigned flags = IBV_SEND_SIGNALED) {
    SendRequest(IBV_WR_SEND, sge, id, flags).post(qp_);
  }

  ibv_wc sent(Clock::duration patience = kPatience) const { return next(send_cq_, "send", patience); }
  ibv_wc received(Clock::duration patience = kPatience) const { return next(recv_cq_, "receive", patience); }

  // The next async event, of which the queue pair must be the subject; false if none comes in time.
  bool event(ibv_event_type& type, std::chrono::milliseconds patience) const {
    pollfd ready{context()->async_fd, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(patience.count())) != 1) return false;
    ibv_async_event event{};
    good("ibv_get_async_event", ibv_get_async_event(context(), &event));
    type = event.event_type;
    if (event.element.qp != qp_) die("an event of something else: %s", ibv_event_type_str(type));
    ibv_ack_async_event(&event);
    return true;
  }

 private:
  static ibv_wc next(ibv_cq* cq, const char* what, Clock::duration patience) {
    ibv_wc wc{};
    if (!Endpoint::completion(cq, nullptr, false, wc, patience)) die("no %s completion in time", what);
    return wc;
  }
  const Wanted wanted_;
  const Rnic rnic_;
  ibv_cq *send_cq_ = nullptr, *recv_cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Place place_;
  std::vector<ibv_mr*> regions_;
};

inline void check_state(const End& end, ibv_qp_state wanted) {
  if (end.state() != wanted) die("the queue pair is in state %d, not %d", end.state(), wanted);
}
inline void check_no_event(const End& end, int milliseconds = 0) {
  ibv_event_type type{};
  if (end.event(type, std::chrono::milliseconds(milliseconds))) die("an event: %s", ibv_event_type_str(type));
}
inline void check_flushed(const ibv_wc& wc, std::uint64_t id) {
  if (wc.wr_id != id || wc.status != IBV_WC_WR_FLUSH_ERR)
    die("request %llu: %s, not a flush of %llu", ull(wc.wr_id), ibv_wc_status_str(wc.status), ull(id));
}
// All that is posted to a queue pair in error flushes, and nothing else comes.
inline void check_dead(End& end, ibv_sge sge) {
  check_state(end, IBV_QPS_ERR);
  end.post_send(90, sge, 0);
  check_flushed(end.sent(), 90);
  end.post_receive(91, sge);
  check_flushed(end.received(), 91);
}

}  // namespace apps::manual
