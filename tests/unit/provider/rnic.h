// SPDX-License-Identifier: MIT
// Queue pairs on the loopback device, and waiting for what they do.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/stream/tcp_stream.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq/cq.h"
#include "provider/verbs/qp/qp.h"
#include "tests/unit/octets.h"

namespace uiw::test {

using provider::Context;
using provider::Cq;
using provider::Mr;
using provider::Pd;
using provider::Qp;

constexpr std::chrono::seconds kPatience{
    30};  // a limit for what is waited for; no test waits that long when all is well

template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

inline std::shared_ptr<Context> open_loopback() {
  auto context = Context::open("uiw_lo");
  REQUIRE(context);
  return context;
}

// The next completion, or a failed test.
inline ibv_wc next(Cq& cq) {
  ibv_wc completion{};
  REQUIRE(eventually([&] { return cq.poll(1, &completion) == 1; }));
  return completion;
}
inline bool none(Cq& cq) {
  ibv_wc completion{};
  return cq.poll(1, &completion) == 0;
}

inline std::optional<ib_uverbs_async_event_desc> next_event(Context& context, int timeout_ms = 30'000) {
  pollfd ready{context.async_fd(), POLLIN, 0};
  ib_uverbs_async_event_desc event{};
  if (::poll(&ready, 1, timeout_ms) != 1) return std::nullopt;
  if (::read(context.async_fd(), &event, sizeof event) != sizeof event) return std::nullopt;
  return event;
}

struct Side {
  explicit Side(Context& in, std::uint32_t depth = 16, std::uint32_t sges = 4, std::uint32_t most_inline = 64,
                bool signal_all = true, provider::Srq* srq = nullptr)
      : context(in), pd(in.shared_from_this()) {
    send_cq = Cq::create(in, 256, -1, nullptr);
    receive_cq = Cq::create(in, 256, -1, nullptr);
    REQUIRE((send_cq && receive_cq));
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = signal_all ? 1 : 0;
    attributes.cap = {depth, depth, sges, sges, most_inline};
    qp = Qp::create(in, pd, send_cq.get(), receive_cq.get(), attributes, handle(), srq);
    REQUIRE(qp);
  }
  // What events carry: an address of our own, not looked into.
  ibv_qp* handle() { return reinterpret_cast<ibv_qp*>(this); }

  int to(ibv_qp_state state, int more = 0) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    return qp->modify(attributes, IBV_QP_STATE | more);
  }
  // In RTS without a stream, which a program reaches in the RoCE view alone.
  void to_rts() {
    REQUIRE(to(IBV_QPS_INIT) == 0);
    qp->identity().state = IBV_QPS_RTS;
  }
  std::unique_ptr<Mr> expose(Bytes& memory, unsigned access) {
    auto mr = Mr::create(pd, memory.data(), memory.size(), reinterpret_cast<std::uintptr_t>(memory.data()), access);
    REQUIRE(mr);
    return mr;
  }
  int post_receive(std::uint64_t id, std::vector<ibv_sge> sges) {
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = sges.data();
    request.num_sge = static_cast<int>(sges.size());
    ibv_recv_wr* bad = nullptr;
    return qp->post_receive(&request, &bad);
  }
  int post(ibv_wr_opcode opcode, std::uint64_t id, std::vector<ibv_sge> sges, unsigned flags = 0,
           std::uint32_t rkey = 0, std::uint64_t remote = 0) {
    ibv_send_wr request{};
    request.wr_id = id;
    request.opcode = opcode;
    request.sg_list = sges.data();
    request.num_sge = static_cast<int>(sges.size());
    request.send_flags = flags;
    if (opcode == IBV_WR_SEND_WITH_INV) {
      request.invalidate_rkey = rkey;
    } else {
      request.wr.rdma.rkey = rkey;
      request.wr.rdma.remote_addr = remote;
    }
    ibv_send_wr* bad = nullptr;
    const int error = qp->post_send(&request, &bad);
    if (error != 0) REQUIRE(bad == &request);
    return error;
  }

  // Fetch-and-add.
  int post_atomic(std::uint64_t id, ibv_sge result, std::uint32_t rkey, std::uint64_t remote, std::uint64_t add) {
    ibv_send_wr request{};
    request.wr_id = id;
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.sg_list = &result;
    request.num_sge = 1;
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.remote_addr = remote;
    request.wr.atomic.compare_add = add;
    ibv_send_wr* bad = nullptr;
    return qp->post_send(&request, &bad);
  }

  Context& context;
  Pd pd;
  std::unique_ptr<Cq> send_cq, receive_cq;
  std::unique_ptr<Qp> qp;
};

inline ibv_sge sge_of(const Bytes& memory, const Mr& mr) {
  return {reinterpret_cast<std::uintptr_t>(memory.data()), static_cast<std::uint32_t>(memory.size()), mr.key()};
}
inline std::uint64_t address_of(const Bytes& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); }

// A TCP connection over loopback.
inline std::pair<TcpStream, TcpStream> tcp_pair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  TcpStream a(TcpStream::open(AF_INET));
  ::connect(a.fd(), reinterpret_cast<sockaddr*>(&address), size);
  TcpStream b(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  ::close(listener);
  REQUIRE(b.is_open());
  TcpStream::set_options(b.fd());
  pollfd ready{a.fd(), POLLOUT, 0};
  REQUIRE(::poll(&ready, 1, 10'000) == 1);
  return {std::move(a), std::move(b)};
}

// Connects two queue pairs without the connection manager.
inline void attach(Side& a, Side& b, bool crc = false, unsigned depth = 4, std::size_t mulpdu = 0,
                   mpa::PeerKind peer = mpa::PeerKind::other, bool remote = false) {
  auto [one, two] = tcp_pair();
  Qp::Attachment attachment;
  attachment.agreement.crc = crc;
  attachment.agreement.ird = attachment.agreement.ord = depth;
  attachment.agreement.rtr = mpa::ReadyToReceive::write;
  attachment.agreement.peer = peer;
  attachment.mulpdu = mulpdu;
  if (remote) attachment.completion = rdmap::Completion::remote;
  attachment.initiator = true;
  REQUIRE(a.qp->attach(one, attachment) == 0);
  attachment.initiator = false;
  REQUIRE(b.qp->attach(two, attachment) == 0);
  CHECK(a.qp->state() == IBV_QPS_RTS);
  CHECK(b.qp->state() == IBV_QPS_RTS);
}

// The peer of a queue pair: the test itself reads and writes the octets of its socket.
inline TcpStream attach_raw(Side& side, bool remote = false) {
  auto [one, two] = tcp_pair();
  Qp::Attachment attachment;
  attachment.agreement.crc = false;
  attachment.agreement.ird = attachment.agreement.ord = 1;
  if (remote) attachment.completion = rdmap::Completion::remote;
  REQUIRE(side.to(IBV_QPS_INIT) == 0);
  REQUIRE(side.qp->attach(two, attachment) == 0);
  return std::move(one);
}

// A segment of a Send (RFC 5041 section 4.2, RFC 5040 section 4.2), in an FPDU.
inline Bytes send_segment(std::uint32_t msn, std::uint32_t offset, std::size_t size, bool last) {
  return fpdu(Wire().u8(last ? 0x41 : 0x01).u8(0x43).u32(0).u32(0).u32(msn).u32(offset).add(pattern(size)), false);
}
inline void give(TcpStream& peer, Octets octets) {
  REQUIRE(::send(peer.fd(), octets.data(), octets.size(), 0) == static_cast<ssize_t>(octets.size()));
}

// The type of the next asynchronous event.
inline ibv_event_type next_type(Context& context) {
  const auto event = next_event(context);
  REQUIRE(event);
  return static_cast<ibv_event_type>(event->event_type);
}

}  // namespace uiw::test
