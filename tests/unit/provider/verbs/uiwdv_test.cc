// SPDX-License-Identifier: MIT
#include "provider/include/infiniband/uiwdv.h"

#include <endian.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr unsigned kAtomic = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint64_t kAllBits = ~std::uint64_t{0};
using Imm8 = std::array<std::uint8_t, UIWDV_IMM_SIZE>;

rdmap::Immediate immediate(const Imm8& octets) {
  rdmap::Immediate made;
  std::memcpy(made.data(), octets.data(), made.size());
  return made;
}

ibv_send_wr request(std::uint64_t id, ibv_wr_opcode opcode, ibv_sge* sge = nullptr) {
  ibv_send_wr made{};
  made.wr_id = id;
  made.opcode = opcode;
  made.sg_list = sge;
  made.num_sge = sge != nullptr ? 1 : 0;
  return made;
}

// What the plugin does for uiwdv_wr_*.
void add(Side& side, const ibv_send_wr& made, const provider::WorkQueues::Extension& extension) {
  side.qp->extend(extension);
  side.qp->add(made);
}

}  // namespace

TEST_CASE_METHOD(ConnectedPair, "uiwdv: an extended request is sent as extended", "[uiwdv]") {
  Registered words(b, Bytes(64), kAtomic);
  Registered results(a, Bytes(8), kLocal);
  ibv_sge sge = results.sge();
  auto* word = reinterpret_cast<std::uint64_t*>(words.data());
  std::atomic_ref(*word).store(0x00000001'FFFFFFFF);
  REQUIRE(b.post_receive(70, {}) == 0);
  REQUIRE(b.post_receive(71, {}) == 0);

  a.qp->begin_batch();
  ibv_send_wr atomic = request(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
  atomic.wr.atomic.rkey = words.key();
  atomic.wr.atomic.remote_addr = words.address();
  add(a, atomic, rdmap::AtomicOperands{1, std::uint64_t{1} << 31, 0, kAllBits});
  atomic.wr_id = 2;
  atomic.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  add(a, atomic, rdmap::AtomicOperands{0xAB, 0xFF, 0x00000001'00000000, 0xFFFFFFFF'00000000});
  const Imm8 octets{1, 2, 3, 4, 5, 6, 7, 8};
  add(a, request(3, IBV_WR_RDMA_WRITE_WITH_IMM), immediate(octets));
  // The next one is an ordinary one again.
  ibv_send_wr plain = request(4, IBV_WR_RDMA_WRITE_WITH_IMM);
  plain.imm_data = htobe32(77);
  a.qp->add(plain);
  REQUIRE(a.qp->end_batch() == 0);

  const ibv_wc_opcode opcodes[] = {IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE};
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const ibv_wc done = check_next(*a.send_cq, id);
    CHECK(done.opcode == opcodes[id - 1]);
  }
  // 0x1FFFFFFFF plus 1, without the carry out of the low half; then its low octet is swapped.
  CHECK(std::atomic_ref(*word).load() == 0x00000001'000000AB);

  ibv_wc came = next(*b.receive_cq);
  CHECK(came.wr_id == 70);
  CHECK(came.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(came.byte_len == 0);
  CHECK(std::memcmp(&came.imm_data, octets.data(), 4) == 0);
  CHECK(std::memcmp(&came.src_qp, octets.data() + 4, 4) == 0);
  came = next(*b.receive_cq);
  CHECK(came.wr_id == 71);
  CHECK(came.imm_data == htobe32(77));
  CHECK(came.src_qp == 0);
}

TEST_CASE_METHOD(ConnectedPair, "uiwdv: Immediate Data with data fails its batch; an aborted one leaves nothing",
                 "[uiwdv]") {
  Registered data(a, Bytes(8), kLocal);
  ibv_sge sge = data.sge();
  REQUIRE(b.post_receive(1, {}) == 0);
  a.qp->begin_batch();
  a.qp->add(request(1, IBV_WR_SEND));
  add(a, request(2, IBV_WR_RDMA_WRITE_WITH_IMM, &sge), immediate({}));
  a.qp->add(request(3, IBV_WR_SEND));
  CHECK(a.qp->end_batch() == EINVAL);
  a.qp->begin_batch();
  a.qp->extend(immediate({1}));
  a.qp->abort_batch();
  a.qp->begin_batch();
  a.qp->add(request(4, IBV_WR_SEND));
  REQUIRE(a.qp->end_batch() == 0);
  CHECK(next(*a.send_cq).wr_id == 4);
  const ibv_wc came = next(*b.receive_cq);
  CHECK(came.opcode == IBV_WC_RECV);
  CHECK(none(*a.send_cq));
}

TEST_CASE_METHOD(Single, "uiwdv: an extended request that is too late is flushed", "[uiwdv]") {
  REQUIRE(a.to(IBV_QPS_ERR) == 0);
  a.qp->begin_batch();
  add(a, request(1, IBV_WR_RDMA_WRITE_WITH_IMM), immediate({1}));
  a.qp->add(request(2, IBV_WR_SEND));
  CHECK(a.qp->end_batch() == 0);
  for (std::uint64_t id = 1; id <= 2; ++id) check_next(*a.send_cq, id, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE_METHOD(Pair, "uiwdv: what was agreed on", "[uiwdv]") {
  CHECK_FALSE(a.qp->agreed());
  connect({.crc = true, .depth = 5, .mulpdu = 700});
  const auto agreed = a.qp->agreed();
  REQUIRE(agreed);
  CHECK(agreed->rules.initiator);
  CHECK(agreed->rules.crc);
  CHECK(agreed->ord == 5);
  CHECK(agreed->rules.ird == 5);
  CHECK(agreed->rules.mulpdu == 700);
  REQUIRE(b.qp->agreed());
  CHECK_FALSE(b.qp->agreed()->rules.initiator);
}

TEST_CASE("uiwdv: an object is recognised by its address, not by its content", "[uiwdv]") {
  static ibv_context handle, other;
  const auto context = Context::open("uiw_lo", &handle);
  REQUIRE(context);
  uiwdv_device_attr attributes;
  CHECK(uiwdv_query_device(&handle, &attributes, sizeof attributes) == 0);
  CHECK(std::string(attributes.netdev) == "lo");
  CHECK(uiwdv_query_device(&other, &attributes, sizeof attributes) == EOPNOTSUPP);
  CHECK(uiwdv_query_device(&handle, &attributes, 0) == EINVAL);
  {
    const auto unnamed = open_loopback();  // has no handle
    CHECK(uiwdv_query_device(nullptr, &attributes, sizeof attributes) == EOPNOTSUPP);
  }

  Pd pd(context);
  const auto cq = Cq::create(*context, 16, -1, nullptr);
  ibv_qp_ex own{}, alike{};
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  const auto qp = Qp::create(*context, pd, cq.get(), cq.get(), init, &own.qp_base);
  REQUIRE(qp);
  own.qp_base.qp_num = alike.qp_base.qp_num = qp->number();
  uiwdv_qp_attr agreed;
  CHECK(uiwdv_query_qp(&own.qp_base, &agreed, sizeof agreed) == ENOTCONN);
  CHECK(uiwdv_query_qp(&alike.qp_base, &agreed, sizeof agreed) == EOPNOTSUPP);
  const Imm8 octets{};
  CHECK(uiwdv_wr_imm8(&own, octets.data()) == EINVAL);  // no send operations
  CHECK(uiwdv_wr_imm8(&alike, octets.data()) == EOPNOTSUPP);
}

TEST_CASE("uiwdv: the octets of a completion, polled either way", "[uiwdv]") {
  static ibv_context handle, other;
  const auto context = Context::open("uiw_lo", &handle);
  REQUIRE(context);
  const Imm8 octets{8, 7, 6, 5, 4, 3, 2, 1};
  ibv_wc wc{};
  std::memcpy(&wc.imm_data, octets.data(), 4);
  std::memcpy(&wc.src_qp, octets.data() + 4, 4);
  ibv_cq cq{};
  cq.context = &handle;
  Imm8 got{};
  CHECK(uiwdv_wc_imm8(&cq, &wc, got.data()) == EINVAL);
  wc.wc_flags = IBV_WC_WITH_IMM;
  CHECK(uiwdv_wc_imm8(&cq, &wc, got.data()) == 0);
  CHECK(got == octets);
  wc.status = IBV_WC_WR_FLUSH_ERR;
  CHECK(uiwdv_wc_imm8(&cq, &wc, got.data()) == EINVAL);
  wc.status = IBV_WC_SUCCESS;
  cq.context = &other;
  CHECK(uiwdv_wc_imm8(&cq, &wc, got.data()) == EOPNOTSUPP);

  static ibv_wc at;
  at = wc;
  ibv_cq_ex extended{};
  extended.context = &handle;
  got = {};
  CHECK(uiwdv_wc_read_imm8(&extended, got.data()) == EINVAL);  // created without the fields
  extended.read_wc_flags = [](ibv_cq_ex*) -> unsigned { return at.wc_flags; };
  extended.read_imm_data = [](ibv_cq_ex*) { return at.imm_data; };
  extended.read_src_qp = [](ibv_cq_ex*) { return at.src_qp; };
  CHECK(uiwdv_wc_read_imm8(&extended, got.data()) == 0);
  CHECK(got == octets);
  at.wc_flags = 0;
  CHECK(uiwdv_wc_read_imm8(&extended, got.data()) == EINVAL);
  extended.context = &other;
  CHECK(uiwdv_wc_read_imm8(&extended, got.data()) == EOPNOTSUPP);
}
