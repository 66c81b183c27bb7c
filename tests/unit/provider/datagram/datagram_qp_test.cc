// SPDX-License-Identifier: MIT
#include <atomic>
#include <cstring>
#include <iterator>

#include "base/grace_period.h"
#include "provider/connect/qp_port.h"
#include "provider/connect/qp_table.h"
#include "provider/datagram/datagram_port.h"
#include "provider/datagram/datagram_target.h"
#include "provider/verbs/datagram/address_handle.h"
#include "provider/verbs/datagram/datagram_qp.h"
#include "provider/verbs/srq.h"
#include "tests/unit/provider/pair.h"

namespace uiw::test {

namespace {

using provider::AddressHandle;
using provider::DatagramDrop;
using provider::QueuePair;

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::size_t kGrh = 40;

std::uint64_t dropped(DatagramDrop why) {
  provider::PortCounts counts{};
  for (const auto* one = provider::next_port_counters(nullptr); one != nullptr; one = provider::next_port_counters(one))
    one->add_to(counts);
  return counts[index_of(counter_of(why))];
}

// A queue pair for datagrams on the loopback device, with memory of its own.
struct End : Surroundings {
  explicit End(Context& in, provider::Srq* srq = nullptr) : Surroundings(in) {
    ibv_qp_init_attr attributes = attributes_of(IBV_QPT_UD);
    qp = QueuePair::create(in, pd, send_cq.get(), receive_cq.get(), attributes, nullptr, srq);
    REQUIRE(qp);
    mr = Mr::create(pd, memory.data(), memory.size(), address_of(memory), IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(mr);
    handle.route.from = handle.route.to = in.device().gids[0];
    handle.route.scope = in.device().ifindex;
  }
  int to(ibv_qp_state state, int mask) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    attributes.qkey = kQkey;
    return qp->modify(attributes, mask | IBV_QP_STATE);
  }
  void to_rts() {
    REQUIRE(to(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    REQUIRE(to(IBV_QPS_RTR, 0) == 0);
    REQUIRE(to(IBV_QPS_RTS, IBV_QP_SQ_PSN) == 0);
  }
  ibv_sge part(std::size_t at, std::size_t size) {
    return {address_of(memory) + at, static_cast<std::uint32_t>(size), mr->key()};
  }
  int receive(std::uint64_t id, std::vector<ibv_sge> sges) {
    ibv_recv_wr request{id, nullptr, sges.data(), static_cast<int>(sges.size())};
    ibv_recv_wr* bad = nullptr;
    return qp->post_receive(&request, &bad);
  }
  int send(const End& peer, std::vector<ibv_sge> sges, ibv_wr_opcode opcode = IBV_WR_SEND, std::uint32_t qkey = kQkey,
           unsigned flags = 0) {
    ibv_send_wr request{};
    request.wr_id = 7;
    request.sg_list = sges.data();
    request.num_sge = static_cast<int>(sges.size());
    request.opcode = opcode;
    request.send_flags = flags;
    request.imm_data = htobe32(0xA1B2C3D4);
    request.wr.ud = {&handle.base, peer.qp->number(), qkey};
    ibv_send_wr* bad = nullptr;
    return qp->post_send(&request, &bad);
  }

  std::unique_ptr<QueuePair> qp;
  Bytes memory = Bytes(8192);
  std::unique_ptr<Mr> mr;
  AddressHandle handle{};
};

struct DatagramPair : Loopback {
  End near{*context}, far{*context};
};
// Both in RTS.
struct ReadyPair : DatagramPair {
  ReadyPair() {
    near.to_rts();
    far.to_rts();
  }
};

void fill(End& end, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) end.memory[i] = static_cast<std::byte>(i * 7 + 1);
}

}  // namespace

TEST_CASE_METHOD(ReadyPair, "A datagram arrives behind the header of its network, and its send completes") {
  fill(near, 300);
  REQUIRE(far.receive(5, {far.part(0, 50), far.part(100, 1000)}) == 0);
  REQUIRE(near.send(far, {near.part(0, 100), near.part(100, 200)}, IBV_WR_SEND_WITH_IMM) == 0);
  const ibv_wc sent = next(*near.send_cq);
  CHECK((sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_SEND && sent.wr_id == 7));
  const ibv_wc got = next(*far.receive_cq);
  CHECK((got.status == IBV_WC_SUCCESS && got.opcode == IBV_WC_RECV && got.wr_id == 5));
  CHECK(got.byte_len == kGrh + 300);
  CHECK(got.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
  CHECK(got.sl == 0xA);  // a packet of RoCE v2 by IPv4, in the words of mlx5
  CHECK(got.imm_data == htobe32(0xA1B2C3D4));
  CHECK(got.src_qp == near.qp->number());
  CHECK(got.qp_num == far.qp->number());
  Bytes joined(far.memory.begin(), far.memory.begin() + 50);
  joined.insert(joined.end(), far.memory.begin() + 100, far.memory.begin() + 100 + 290);
  CHECK(std::memcmp(joined.data() + kGrh, near.memory.data(), 300) == 0);
  CHECK(joined[20] == std::byte{0x45});
  CHECK(std::memcmp(joined.data() + 36, near.handle.route.to.data() + 12, 4) == 0);
}

TEST_CASE_METHOD(DatagramPair,
                 "A datagram with another Q_Key, for another queue pair or without a receive is dropped and counted") {
  near.to_rts();
  const auto lost = [&](DatagramDrop why, const auto& send) {
    const std::uint64_t before = dropped(why);
    send();
    CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
    CHECK(eventually([&] { return !none(*far.receive_cq) || dropped(why) == before + 1; }));
    CHECK(dropped(why) == before + 1);
  };
  const auto send = [&](std::uint32_t qkey = kQkey) {
    REQUIRE(near.send(far, {near.part(0, 8)}, IBV_WR_SEND, qkey) == 0);
  };
  lost(DatagramDrop::destination, [&] { send(); });  // the far end is in RESET
  far.to_rts();
  lost(DatagramDrop::no_receive, [&] { send(); });
  REQUIRE(far.receive(1, {far.part(0, 100)}) == 0);
  lost(DatagramDrop::qkey, [&] { send(kQkey + 1); });
  send();
  CHECK(next(*far.receive_cq).wr_id == 1);
}

TEST_CASE_METHOD(DatagramPair,
                 "A datagram that its receive has no room for is dropped, and the receive stays; a shared one fails") {
  provider::Pd domain(context);
  ibv_srq_attr depth{4, 1, 0};
  const auto srq = provider::Srq::create(domain, depth, false, nullptr);
  REQUIRE(srq);
  End third(*context, srq.get());
  for (End* end : {&near, &far, &third}) end->to_rts();

  REQUIRE(far.receive(1, {far.part(0, kGrh + 99)}) == 0);
  const std::uint64_t before = dropped(DatagramDrop::no_receive);
  REQUIRE(near.send(far, {near.part(0, 100)}) == 0);
  REQUIRE(eventually([&] { return dropped(DatagramDrop::no_receive) == before + 1; }));
  REQUIRE(near.send(far, {near.part(0, 99)}) == 0);
  const ibv_wc got = next(*far.receive_cq);
  CHECK((got.status == IBV_WC_SUCCESS && got.wr_id == 1 && got.byte_len == kGrh + 99));

  ibv_sge sge = third.part(0, kGrh + 99);
  ibv_recv_wr request{2, nullptr, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(srq->post(&request, &bad) == 0);
  REQUIRE(near.send(third, {near.part(0, 100)}) == 0);
  const ibv_wc failed = next(*third.receive_cq);
  CHECK((failed.status == IBV_WC_LOC_LEN_ERR && failed.wr_id == 2));
  CHECK(third.qp->identity().state == IBV_QPS_RTS);
}

TEST_CASE_METHOD(ReadyPair,
                 "A receiver finds the traffic class, hop limit and flow label that the address handle has") {
  constexpr provider::IpFields kFields[] = {
      {0xB8, 9, 0x12345}, {0xB8, 9, 0x12345}, {0xB8, 9, 0xFFFFF}, {0xB8, 255, 0xFFFFF}, {1, 255, 0xFFFFF}};
  constexpr std::size_t kCount = std::size(kFields), kRoom = 128;
  for (const provider::Gid& gid : context->device().gids) {
    const bool ipv4 = provider::is_ipv4(gid);
    INFO((ipv4 ? "IPv4" : "IPv6"));
    AddressHandle handles[kCount];
    ibv_send_wr requests[kCount] = {};
    ibv_sge sge = near.part(0, 8);
    for (std::size_t i = 0; i < kCount; ++i) {
      REQUIRE(far.receive(i, {far.part(i * kRoom, kRoom)}) == 0);
      handles[i] = near.handle;
      handles[i].route.from = handles[i].route.to = gid;
      handles[i].route.ip = kFields[i];
      requests[i].next = i + 1 < kCount ? &requests[i + 1] : nullptr;
      requests[i].sg_list = &sge;
      requests[i].num_sge = 1;
      requests[i].opcode = IBV_WR_SEND;
      requests[i].wr.ud = {&handles[i].base, far.qp->number(), kQkey};
    }
    ibv_send_wr* bad = nullptr;
    REQUIRE(near.qp->post_send(requests, &bad) == 0);
    for (const provider::IpFields& wanted : kFields) {
      const ibv_wc got = next(*far.receive_cq);
      REQUIRE(got.status == IBV_WC_SUCCESS);
      const std::byte* const header = far.memory.data() + got.wr_id * kRoom + (ipv4 ? kGrh - 20 : 0);
      const auto first = load_be<std::uint32_t>(header);
      CHECK((first >> (ipv4 ? 16 : 20) & 0xFF) == wanted.traffic_class);
      CHECK(header[ipv4 ? 8 : 7] == std::byte{wanted.hop_limit});
      if (!ipv4) CHECK((first & 0xFFFFF) == wanted.flow_label);
    }
    while (!none(*near.send_cq)) continue;
  }
}

TEST_CASE_METHOD(ReadyPair, "A message longer than the MTU stops the send queue until the program goes on") {
  REQUIRE(near.send(far, {near.part(0, 4097)}) == 0);
  CHECK(next(*near.send_cq).status == IBV_WC_LOC_LEN_ERR);
  REQUIRE(near.send(far, {near.part(0, 8)}) == 0);
  CHECK(next(*near.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(near.to(IBV_QPS_RTS, 0) == 0);
  REQUIRE(far.receive(1, {far.part(0, 4136)}) == 0);
  REQUIRE(near.send(far, {near.part(0, 4096)}) == 0);
  CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*far.receive_cq).byte_len == 4136);
}

TEST_CASE_METHOD(Loopback, "Each step needs its attributes, and takes no others") {
  End end(*context);
  const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  for (const int one : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY})
    CHECK(end.to(IBV_QPS_INIT, init & ~one) == EINVAL);
  CHECK(end.to(IBV_QPS_INIT, init | IBV_QP_ACCESS_FLAGS) == EINVAL);
  CHECK(end.to(IBV_QPS_INIT, init) == 0);
  CHECK(end.to(IBV_QPS_RTS, IBV_QP_SQ_PSN) == EINVAL);
  CHECK(end.to(IBV_QPS_RTR, IBV_QP_DEST_QPN) == EINVAL);
  CHECK(end.to(IBV_QPS_RTR, 0) == 0);
  CHECK(end.to(IBV_QPS_RTS, 0) == EINVAL);
  CHECK(end.to(IBV_QPS_RTS, IBV_QP_SQ_PSN) == 0);
  ibv_qp_attr now{};
  ibv_qp_init_attr init_attributes{};
  end.qp->query(now, init_attributes);
  CHECK((now.qp_state == IBV_QPS_RTS && now.qkey == kQkey && init_attributes.qp_type == IBV_QPT_UD));
}

TEST_CASE_METHOD(Loopback, "ERR flushes what is posted, and RESET drops it") {
  End end(*context);
  end.to_rts();
  REQUIRE(end.receive(3, {end.part(0, 100)}) == 0);
  REQUIRE(end.to(IBV_QPS_ERR, 0) == 0);
  CHECK(next(*end.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(end.to(IBV_QPS_RESET, 0) == 0);
  end.to_rts();
  REQUIRE(end.receive(4, {end.part(0, 100)}) == 0);
  REQUIRE(end.to(IBV_QPS_RESET, 0) == 0);
  CHECK(none(*end.receive_cq));
}

TEST_CASE_METHOD(ReadyPair, "A batch is posted as a whole, and the address of a request may come behind its data") {
  for (std::uint64_t id = 0; id < 3; ++id) REQUIRE(far.receive(id, {far.part(id * 100, 100)}) == 0);
  auto& posting = *near.qp;
  posting.begin_batch();
  ibv_sge sge = near.part(0, 10);
  for (int i = 0; i < 3; ++i) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.sg_list = &sge;
    request.num_sge = 1;
    posting.add(request);
    posting.address_last(&near.handle.base, far.qp->number(), kQkey);
  }
  CHECK(none(*far.receive_cq));
  REQUIRE(posting.end_batch() == 0);
  for (std::uint64_t id = 0; id < 3; ++id) CHECK(next(*far.receive_cq).wr_id == id);
}

TEST_CASE_METHOD(DatagramPair, "What is sent to a group reaches each queue pair that is attached to it, and no other") {
  End third(*context);
  for (End* end : {&near, &far, &third}) {
    end->to_rts();
    REQUIRE(end->receive(1, {end->part(0, 100)}) == 0);
  }
  const provider::Gid group{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 77, 1, 2};
  provider::Gid other = group;
  other[15] = 3;
  CHECK(far.qp->attach_group(near.handle.route.from) == EINVAL);  // no group
  CHECK(far.qp->detach_group(group) == EINVAL);
  REQUIRE(near.qp->attach_group(group) == 0);
  REQUIRE(far.qp->attach_group(group) == 0);
  REQUIRE(far.qp->attach_group(group) == 0);
  REQUIRE(third.qp->attach_group(other) == 0);
  CHECK(far.qp->is_attached());
  const auto send = [&] {
    AddressHandle to = near.handle;
    to.route.to = group;
    ibv_sge sge = near.part(200, 8);
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.wr.ud = {&to.base, provider::kMulticastQp, kQkey};
    ibv_send_wr* bad = nullptr;
    REQUIRE(near.qp->post_send(&request, &bad) == 0);
    CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
  };
  send();
  for (End* end : {&near, &far}) {
    const ibv_wc got = next(*end->receive_cq);
    CHECK((got.status == IBV_WC_SUCCESS && got.byte_len == kGrh + 8 && got.src_qp == near.qp->number()));
    CHECK(std::memcmp(end->memory.data() + 36, group.data() + 12, 4) == 0);
  }
  REQUIRE(far.qp->detach_group(group) == 0);
  CHECK(!far.qp->is_attached());
  REQUIRE(near.receive(2, {near.part(0, 100)}) == 0);
  REQUIRE(far.receive(2, {far.part(0, 100)}) == 0);
  send();
  CHECK(next(*near.receive_cq).wr_id == 2);
  CHECK(none(*far.receive_cq));
  CHECK(none(*third.receive_cq));
}

namespace {

// The first datagram keeps the thread that reads it until the port waits for its readers.
class SlowTarget final : public provider::Numbered, public provider::DatagramTarget {
 public:
  provider::DatagramTarget* datagrams() override { return this; }
  void after_fork_in_child() override {}
  void deliver(const provider::Arrival&) noexcept override {
    if (reads.exchange(true)) return;
    eventually([this] { return uiw::detail::current_period != period; });
  }
  void may_send() noexcept override {}

  std::atomic<bool> reads{false};
  const std::uint64_t period = uiw::detail::current_period;
};

}  // namespace

TEST_CASE("A port can be opened again after it was closed while a thread read many datagrams from it") {
  constexpr std::size_t kMany = 300;  // more than a thread reads before it leaves the rest to the next event
  const auto context = open_loopback();
  SlowTarget target;
  const std::uint32_t number = provider::take_qp_number(target);
  REQUIRE(number != 0);
  const std::uint16_t port = provider::port_of(number);
  const TcpStream sender(provider::datagram_descriptor(port));  // the owner of the descriptor
  REQUIRE(sender.is_open());
  provider::DatagramRoute route;
  route.from = route.to = context->device().gids[0];
  provider::DatagramHeader header;
  header.destination_qp = header.source_qp = number;
  const auto octets = encode(header);
  Bytes datagram(octets.begin(), octets.end());
  mpa::Crc32c crc;
  crc.add(datagram);
  datagram.resize(datagram.size() + provider::kDatagramCrcSize);
  mpa::store_crc(datagram.data() + octets.size(), crc.value());
  std::atomic<bool> joins{false};
  for (std::size_t i = 0; i < kMany; ++i) {
    const provider::OutgoingDatagram one{&route, port, datagram};
    REQUIRE(eventually([&] { return provider::send_datagrams(sender.fd(), {&one, 1}, joins) == 1; }));
  }
  auto opened = provider::DatagramPort::open(context->engine(), port);
  REQUIRE(opened);
  REQUIRE(eventually([&] { return target.reads.load(); }));
  opened.reset();
  opened = provider::DatagramPort::open(context->engine(), port);
  CHECK(opened);
  provider::hide_qp(number);
  opened.reset();
  provider::free_qp_number(number);
}

}  // namespace uiw::test
