// SPDX-License-Identifier: MIT
// The fixture of the tests of the provider: two queue pairs on the loopback device, connected over TCP, and waiting for
// what they do.
//
//   TEST_CASE_METHOD(ConnectedPair, "title", "[tag]") {
//     Registered source(a, pattern(100)), sink(b, Bytes(100), kLocal);
//     REQUIRE(b.post_receive(1, {sink.sge()}) == 0);
//     REQUIRE(a.post(IBV_WR_SEND, 2, {source.sge()}) == 0);
//     check_next(*b.receive_cq, 1);
//   }
//
// Loopback has a context alone; Single a queue pair `a`; Pair two of them, to be connected by connect(); ConnectedPair
// the same, connected; PairApart gives each a context of its own, so that who polls one does not drive the other;
// RawPair has one queue pair, whose peer is the test: it reads and writes the octets of a socket. Those that are
// connected without rdma_cm are in connect/manual/manual_pair.h, those that a call connects in connect/called_pair.h.
#pragma once

#include <infiniband/verbs.h>
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

#include "provider/verbs/context.h"
#include "provider/verbs/cq/cq.h"
#include "provider/verbs/qp/qp.h"
#include "tests/unit/base/stream/tcp_pair.h"
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

inline constexpr unsigned kLocal = IBV_ACCESS_LOCAL_WRITE;
inline constexpr unsigned kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
inline constexpr unsigned kAll = kLocal | kRemote | IBV_ACCESS_REMOTE_ATOMIC;

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
// The next completion must be that of this request.
inline ibv_wc check_next(Cq& cq, std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS) {
  const ibv_wc completion = next(cq);
  CHECK(completion.wr_id == id);
  CHECK(completion.status == status);
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

struct QueueSizes {
  std::uint32_t depth = 16, sges = 4, most_inline = 64;
  bool signal_all = true;
  provider::Srq* srq = nullptr;
};

class Registered;

inline ibv_qp_init_attr attributes_of(ibv_qp_type type, const QueueSizes& sizes = {}) {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = type;
  attributes.sq_sig_all = sizes.signal_all ? 1 : 0;
  attributes.cap = {sizes.depth, sizes.depth, sizes.sges, sizes.sges, sizes.most_inline};
  return attributes;
}

// What a queue pair of any type needs.
struct Surroundings {
  explicit Surroundings(Context& in) : context(in), pd(in.shared_from_this()) { REQUIRE((send_cq && receive_cq)); }
  Context& context;
  Pd pd;
  std::unique_ptr<Cq> send_cq = Cq::create(context, 256, -1, nullptr);
  std::unique_ptr<Cq> receive_cq = Cq::create(context, 256, -1, nullptr);
};

// One end: a reliable queue pair with completion queues and a protection domain of its own.
struct Side : Surroundings {
  explicit Side(Context& in, const QueueSizes& sizes = {}) : Surroundings(in) { make_qp(pd, *receive_cq, sizes); }
  // Another queue pair in place of this one.
  void make_qp(Pd& domain, Cq& for_receives, const QueueSizes& sizes) {
    qp.reset();
    ibv_qp_init_attr attributes = attributes_of(IBV_QPT_RC, sizes);
    qp = Qp::create(context, domain, send_cq.get(), &for_receives, attributes, handle(), sizes.srq);
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
  ibv_qp_attr query() const {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    qp->query(attributes, init);
    return attributes;
  }
  bool enters_error() const {
    return eventually([&] { return qp->state() == IBV_QPS_ERR; });
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
    bool first_is_bad = false;
    const int error = try_post(opcode, id, std::move(sges), flags, rkey, remote, &first_is_bad);
    if (error != 0) REQUIRE(first_is_bad);
    return error;
  }
  // Without a check: for threads.
  int try_post(ibv_wr_opcode opcode, std::uint64_t id, std::vector<ibv_sge> sges, unsigned flags = 0,
               std::uint32_t rkey = 0, std::uint64_t remote = 0, bool* first_is_bad = nullptr) {
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
    if (first_is_bad != nullptr) *first_is_bad = bad == &request;
    return error;
  }
  // A Read or Write of memory that the other end has registered.
  int post(ibv_wr_opcode opcode, std::uint64_t id, std::vector<ibv_sge> sges, const Registered& remote,
           unsigned flags = 0);

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

  std::unique_ptr<Qp> qp;
};

inline ibv_sge sge_of(const Bytes& memory, const Mr& mr) {
  return {reinterpret_cast<std::uintptr_t>(memory.data()), static_cast<std::uint32_t>(memory.size()), mr.key()};
}
inline std::uint64_t address_of(const Bytes& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); }

// Octets that one end has registered.
class Registered : public Bytes {
 public:
  Registered(Side& by, Bytes octets, unsigned access = 0) : Bytes(std::move(octets)), mr(by.expose(*this, access)) {}
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  std::uint32_t key() const { return mr->key(); }
  std::uint64_t address() const { return address_of(*this); }
  ibv_sge sge() const { return sge_of(*this, *mr); }
  ibv_sge sge(std::size_t offset, std::uint32_t length) const { return {address() + offset, length, mr->key()}; }

  std::unique_ptr<Mr> mr;
};

inline int Side::post(ibv_wr_opcode opcode, std::uint64_t id, std::vector<ibv_sge> sges, const Registered& remote,
                      unsigned flags) {
  return post(opcode, id, std::move(sges), flags, remote.key(), remote.address());
}

// What two ends have agreed on in their start-up.
struct Agreed {
  bool crc = false;
  unsigned depth = 4;  // IRD and ORD
  std::size_t mulpdu = 0;
  mpa::PeerKind peer = mpa::PeerKind::other;
  bool remote = false;  // the completion rule
  mpa::ReadyToReceive rtr = mpa::ReadyToReceive::write;
};
inline provider::Attachment attachment_of(const Agreed& agreed, bool initiator) {
  provider::Attachment attachment;
  attachment.agreement.crc = agreed.crc;
  attachment.agreement.ird = attachment.agreement.ord = agreed.depth;
  attachment.agreement.rtr = agreed.rtr;
  attachment.agreement.peer = agreed.peer;
  attachment.mulpdu = agreed.mulpdu;
  if (agreed.remote) attachment.completion = rdmap::Completion::remote;
  attachment.initiator = initiator;
  return attachment;
}

// Connects two queue pairs without the connection manager.
inline void attach(Side& a, Side& b, const Agreed& agreed = {}) {
  auto [one, two] = tcp_pair();
  REQUIRE(a.qp->attach(one, attachment_of(agreed, true)) == 0);
  REQUIRE(b.qp->attach(two, attachment_of(agreed, false)) == 0);
  CHECK(a.qp->state() == IBV_QPS_RTS);
  CHECK(b.qp->state() == IBV_QPS_RTS);
}

// What a peer that the test plays has agreed on.
inline constexpr Agreed kRaw{.depth = 1, .rtr = mpa::ReadyToReceive::none};

// The peer of a queue pair: the test itself reads and writes the octets of its socket.
inline TcpStream attach_raw(Side& side, const Agreed& agreed = kRaw, bool initiator = false) {
  auto [one, two] = tcp_pair();
  REQUIRE(side.to(IBV_QPS_INIT) == 0);
  REQUIRE(side.qp->attach(two, attachment_of(agreed, initiator)) == 0);
  return std::move(one);
}

// A message from one to the other, and both completions.
inline bool talk(Side& from, Side& to) {
  const Registered out(from, pattern(100)), in(to, Bytes(100), kLocal);
  if (to.post_receive(1, {in.sge()}) != 0) return false;
  if (from.post(IBV_WR_SEND, 2, {out.sge()}, IBV_SEND_SIGNALED) != 0) return false;
  return next(*to.receive_cq).status == IBV_WC_SUCCESS && next(*from.send_cq).status == IBV_WC_SUCCESS && in == out;
}

// A segment of a Send (RFC 5041 section 4.2, RFC 5040 section 4.2), in an FPDU.
inline Bytes send_segment(std::uint32_t msn, std::uint32_t offset, std::size_t size, bool last) {
  return fpdu(Wire().u8(last ? 0x41 : 0x01).u8(0x43).u32(0).u32(0).u32(msn).u32(offset).add(pattern(size)), false);
}
// An RDMA Write of no octets, the first message of an initiator, and the answer to a Read of none.
inline Bytes empty_write() { return fpdu(Wire().u8(0xC1).u8(0x40).u32(0).u64(0), false); }
inline Bytes empty_read_response() { return fpdu(Wire().u8(0xC1).u8(0x42).u32(0).u64(0), false); }
inline void give(TcpStream& peer, Octets octets) {
  REQUIRE(::send(peer.fd(), octets.data(), octets.size(), 0) == static_cast<ssize_t>(octets.size()));
}

// The type of the next asynchronous event.
inline ibv_event_type next_type(Context& context) {
  const auto event = next_event(context);
  REQUIRE(event);
  return static_cast<ibv_event_type>(event->event_type);
}

struct Loopback {
  explicit Loopback(std::shared_ptr<Context> in = open_loopback()) : context(std::move(in)) {}
  std::shared_ptr<Context> context;
};

struct Single : Loopback {
  explicit Single(const QueueSizes& sizes = {}, std::shared_ptr<Context> in = open_loopback())
      : Loopback(std::move(in)), a(*context, sizes) {}
  Side a;
};

struct Pair : Single {
  explicit Pair(const QueueSizes& sizes = {}) : Pair(open_loopback(), sizes, sizes) {}
  // Both in one context, where no other is given.
  Pair(std::shared_ptr<Context> in, const QueueSizes& of_a, const QueueSizes& of_b,
       std::shared_ptr<Context> in_b = nullptr)
      : Single(of_a, std::move(in)), context_b(in_b ? std::move(in_b) : context), b(*context_b, of_b) {}
  void connect(const Agreed& agreed = {}) { attach(a, b, agreed); }
  bool enter_error() const { return a.enters_error() && b.enters_error(); }

  std::shared_ptr<Context> context_b;
  Side b;
};

struct ConnectedPair : Pair {
  explicit ConnectedPair(std::shared_ptr<Context> in = open_loopback(), const Agreed& agreed = {})
      : Pair(std::move(in), {}, {}) {
    connect(agreed);
  }
};

// With room for 64 requests in each queue.
// Both in INIT.
struct InitPair : Pair {
  InitPair() {
    for (Side* side : {&a, &b}) REQUIRE(side->to(IBV_QPS_INIT) == 0);
  }
};

struct DeepPair : Pair {
  DeepPair() : Pair({.depth = 64}) {}
};

struct PairApart : Pair {
  explicit PairApart(const QueueSizes& sizes = {}) : Pair(open_loopback(), sizes, sizes, open_loopback()) {}
};

struct RawPair : Single {
  explicit RawPair(const Agreed& agreed = kRaw, bool initiator = false, const QueueSizes& sizes = {})
      : Single(sizes), peer(attach_raw(a, agreed, initiator)) {}
  // What comes: so many octets.
  Bytes take(std::size_t size) {
    Bytes octets(size);
    std::size_t at = 0;
    REQUIRE(eventually([&] {
      const ssize_t n = peer.receive({octets.data() + at, size - at});
      if (n > 0) at += static_cast<std::size_t>(n);
      return at == size;
    }));
    return octets;
  }
  // The end has come, and nothing before it.
  bool hears_end() {
    std::byte octet;
    return eventually([&] { return peer.receive({&octet, 1}) == 0; });
  }

  TcpStream peer;
};

}  // namespace uiw::test
