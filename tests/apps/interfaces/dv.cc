// SPDX-License-Identifier: MIT
// The functions of <infiniband/uiwdv.h>, called by a C++ program that links libuiw, over stock libibverbs and
// librdmacm.
//
//   uiw_dv HOST PORT
#include <endian.h>
#include <infiniband/uiwdv.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/apps/support/extended.h"

namespace {

using apps::die;
using apps::Endpoint;
using apps::Window;

#define MUST(condition)                                                         \
  do {                                                                          \
    if (!(condition)) die("%s:%d: not so: %s", __FILE__, __LINE__, #condition); \
  } while (false)

struct Octets {
  std::uint8_t octet[UIWDV_IMM_SIZE];
  bool operator==(const Octets&) const = default;
};

// Both ends of a connection.
class Pair {
 public:
  // `extended`: the far end receives into an extended completion queue, where there are such.
  Pair(const std::string& host, const std::string& port, bool extended = false)
      : near_(apps::call(host, port)), listener_(apps::create_ep(host, port, RAI_PASSIVE)) {
    apps::make_qp(near_, {16, 16, 4, 4, 64});
    uiwdv_qp_attr agreed;
    MUST(uiwdv_query_qp(near_.qp(), &agreed, sizeof agreed) == ENOTCONN);
    std::thread accepts([&] {
      far_.emplace(listener_.request());
      if (extended) make_queue();
      apps::make_qp(*far_, {16, 16, 4, 4, 64}, 0, far_cq_ != nullptr ? ibv_cq_ex_to_cq(far_cq_) : nullptr);
      words_mr_ = apps::reg(far_->id()->pd, words_, sizeof words_,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
      apps::accept(*far_, apps::window_of(words_, words_mr_));
    });
    apps::connect(near_, Window{});
    accepts.join();
    window_ = apps::receive_window(near_);
    before_mr_ = apps::reg(near_.id()->pd, &before_, sizeof before_, IBV_ACCESS_LOCAL_WRITE);
  }
  ~Pair() {
    apps::disconnect(near_, *far_);
    ibv_dereg_mr(words_mr_);
    ibv_dereg_mr(before_mr_);
    far_.reset();
    if (far_cq_ != nullptr) MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(far_cq_)) == 0);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  Endpoint& near() { return near_; }
  Endpoint& far() { return *far_; }
  ibv_cq_ex* far_cq() { return far_cq_; }
  ibv_qp_ex* qp() { return ibv_qp_to_qp_ex(near_.qp()); }
  std::uint64_t& word(unsigned which) { return words_[which]; }
  std::uint64_t address(unsigned which) const { return window_.address + 8 * which; }
  std::uint32_t rkey() const { return window_.rkey; }

  void start(std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_wr_start(qp());
    name(id, flags);
  }
  void name(std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    qp()->wr_id = id;
    qp()->wr_flags = flags;
  }
  void result() { ibv_wr_set_sge(qp(), before_mr_->lkey, reinterpret_cast<std::uintptr_t>(&before_), 8); }
  std::uint64_t before() const { return before_; }

  void done(std::uint64_t id, ibv_wc_opcode opcode, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    if (!near_.send_completion(wc)) die("request %llu does not complete", apps::ull(id));
    if (wc.wr_id != id || wc.status != status) {
      die("request %llu completes with %s, not %llu with %s", apps::ull(wc.wr_id), ibv_wc_status_str(wc.status),
          apps::ull(id), ibv_wc_status_str(status));
    }
    if (status == IBV_WC_SUCCESS) MUST(wc.opcode == opcode);
  }
  ibv_wc received() {
    ibv_wc wc{};
    if (!far_->recv_completion(wc)) die("nothing is received");
    apps::must_succeed(wc, "a receive");
    return wc;
  }

 private:
  void make_queue() {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 16;
    attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_SRC_QP;
    far_cq_ = ibv_create_cq_ex(far_->id()->verbs, &attributes);
    if (far_cq_ == nullptr) MUST(errno == EOPNOTSUPP);
  }

  Endpoint near_;
  apps::Listener listener_;
  ibv_cq_ex* far_cq_ = nullptr;
  std::optional<Endpoint> far_;
  alignas(8) std::uint64_t words_[8] = {};
  alignas(8) std::uint64_t before_ = 0;
  ibv_mr *words_mr_ = nullptr, *before_mr_ = nullptr;
  Window window_;
};

void queries(Pair& pair) {
  ibv_context* context = pair.near().id()->verbs;
  MUST(uiwdv_is_supported(context->device));
  uiwdv_device_attr device;
  MUST(uiwdv_query_device(context, &device, sizeof device) == 0);
  MUST(device.caps ==
       (UIWDV_CAP_MASKED_FETCH_ADD | UIWDV_CAP_MASKED_CMP_SWAP | UIWDV_CAP_IMM8 | UIWDV_CAP_SEND_WITH_IMM));
  MUST(device.atomic_size == 8 && device.imm_size == UIWDV_IMM_SIZE);
  MUST(std::string(device.netdev) == ibv_get_device_name(context->device) + std::strlen("uiw_"));
  ibv_device_attr attributes{};
  MUST(ibv_query_device(context, &attributes) == 0);
  const std::string version = std::to_string(device.version_major) + "." + std::to_string(device.version_minor) + "." +
                              std::to_string(device.version_patch);
  MUST(version == attributes.fw_ver);

  // A program that is older than the library, and one that is newer.
  struct {
    uiwdv_device_attr known;
    std::uint32_t added;
  } larger;
  std::memset(&larger, 0xAA, sizeof larger);
  MUST(uiwdv_query_device(context, &larger.known, sizeof larger) == 0);
  MUST(larger.known.caps == device.caps && larger.added == 0);
  std::memset(&larger, 0xAA, sizeof larger);
  MUST(uiwdv_query_device(context, &larger.known, offsetof(uiwdv_device_attr, atomic_size)) == 0);
  MUST(larger.known.caps == device.caps && larger.known.atomic_size == 0xAAAAAAAA);
  MUST(uiwdv_query_device(context, &device, 3) == EINVAL);
  MUST(uiwdv_query_device(context, nullptr, sizeof device) == EINVAL);

  uiwdv_qp_attr near, far;
  MUST(uiwdv_query_qp(pair.near().qp(), &near, sizeof near) == 0);
  MUST(uiwdv_query_qp(pair.far().qp(), &far, sizeof far) == 0);
  MUST((near.flags & UIWDV_QP_INITIATOR) != 0 && (far.flags & UIWDV_QP_INITIATOR) == 0);
  MUST((near.flags & UIWDV_QP_CRC) == (far.flags & UIWDV_QP_CRC));
  MUST((near.flags & UIWDV_QP_SEND_WITH_IMM) != 0 && (far.flags & UIWDV_QP_SEND_WITH_IMM) != 0);
  MUST(near.mpa_revision == 2 && far.mpa_revision == 2);
  MUST(near.ord == apps::kDepth && near.ird == apps::kDepth && far.ord == near.ird && far.ird == near.ord);
  MUST(near.mulpdu >= 128 && near.mulpdu <= 64768);
}

void foreign(Pair& pair) {
  // Objects of libibverbs that look like ours, at other addresses.
  ibv_context* context = pair.near().id()->verbs;
  alignas(ibv_device) unsigned char device_octets[sizeof(ibv_device)];
  std::memcpy(device_octets, context->device, sizeof device_octets);
  auto* device = reinterpret_cast<ibv_device*>(device_octets);
  std::strcpy(device->name, "mlx5_0");
  MUST(!uiwdv_is_supported(device));

  static ibv_context other;
  other.device = device;
  uiwdv_device_attr attributes;
  MUST(uiwdv_query_device(&other, &attributes, sizeof attributes) == EOPNOTSUPP);

  ibv_qp_ex qp{};
  qp.qp_base.context = &other;
  qp.qp_base.qp_num = pair.near().qp()->qp_num;
  qp.wr_start = [](ibv_qp_ex*) { die("a foreign queue pair was called"); };
  qp.wr_atomic_fetch_add = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint64_t) { die("a foreign call"); };
  uiwdv_qp_attr agreed;
  const std::uint8_t immediate[UIWDV_IMM_SIZE] = {};
  for (const std::uint32_t number : {pair.near().qp()->qp_num, 0u, 1u, 0xFFFFFFu, 0xFFFFFFFFu}) {
    qp.qp_base.qp_num = number;
    MUST(uiwdv_query_qp(&qp.qp_base, &agreed, sizeof agreed) == EOPNOTSUPP);
    MUST(uiwdv_wr_masked_fetch_add(&qp, 0, 0, 0, 0) == EOPNOTSUPP);
    MUST(uiwdv_wr_masked_cmp_swap(&qp, 0, 0, 0, 0, 0, 0) == EOPNOTSUPP);
    MUST(uiwdv_wr_imm8(&qp, immediate) == EOPNOTSUPP);
  }
  ibv_cq cq{};
  cq.context = &other;
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_WITH_IMM;
  std::uint8_t octets[UIWDV_IMM_SIZE];
  MUST(uiwdv_wc_imm8(&cq, &wc, octets) == EOPNOTSUPP);
  ibv_cq_ex extended{};
  extended.context = &other;
  MUST(uiwdv_wc_read_imm8(&extended, octets) == EOPNOTSUPP);
}

void masked_additions(Pair& pair) {
  constexpr std::uint64_t kHigh = 1;
  struct Case {
    std::uint64_t original, add, mask, sum;
  };
  const Case cases[] = {
      {5, 7, 0, 12},
      {~0ull, 1, 0, 0},
      // Two fields of 32 bits, four of 16, eight of 8, 64 of 1.
      {0xFFFFFFFF'FFFFFFFF, 0x00000001'00000001, kHigh << 63 | kHigh << 31, 0},
      {0x00000001'FFFFFFFF, 0x00000000'00000001, kHigh << 63 | kHigh << 31, 0x00000001'00000000},
      {0x00000001'FFFFFFFF, 0x00000000'00000001, kHigh << 63, 0x00000002'00000000},
      {0x0001'FFFF'0003'FFFF, 0x0001'0001'0001'0001, 0x8000'8000'8000'8000, 0x0002'0000'0004'0000},
      {0xFF01FF02FF03FF04, 0x0101010101010101, 0x8080808080808080, 0x0002000300040005},
      {0xF0F0F0F0F0F0F0F0, 0xFF00FF00FF00FF00, ~0ull, 0x0FF00FF00FF00FF0},
  };
  std::uint64_t id = 100;
  for (const Case& c : cases) {
    pair.word(2) = c.original;
    pair.start(++id);
    MUST(uiwdv_wr_masked_fetch_add(pair.qp(), pair.rkey(), pair.address(2), c.add, c.mask) == 0);
    pair.result();
    MUST(ibv_wr_complete(pair.qp()) == 0);
    pair.done(id, IBV_WC_FETCH_ADD);
    MUST(pair.before() == c.original);
    MUST(std::atomic_ref(pair.word(2)).load() == c.sum);
  }
  MUST(pair.word(1) == 0 && pair.word(3) == 0);
}

void masked_swaps(Pair& pair) {
  struct Case {
    std::uint64_t original, compare, compare_mask, swap, swap_mask, then;
  };
  const Case cases[] = {
      {5, 5, ~0ull, 9, ~0ull, 9},
      {5, 6, ~0ull, 9, ~0ull, 5},
      {0x1111222233334444, 0xFFFF2222FFFFFFFF, 0x0000FFFF00000000, 0xAAAABBBBCCCCDDDD, 0x00000000FFFF0000,
       0x11112222CCCC4444},
      {0x1111222233334444, 0xFFFF2223FFFFFFFF, 0x0000FFFF00000000, 0xAAAABBBBCCCCDDDD, 0x00000000FFFF0000,
       0x1111222233334444},
      {0x1111222233334444, 0, 0, 0, 0xFF, 0x1111222233334400},  // compares nothing
      {0x1111222233334444, 0x1111222233334444, ~0ull, ~0ull, 0, 0x1111222233334444},
  };
  std::uint64_t id = 200;
  for (const Case& c : cases) {
    pair.word(2) = c.original;
    pair.start(++id);
    MUST(uiwdv_wr_masked_cmp_swap(pair.qp(), pair.rkey(), pair.address(2), c.compare, c.compare_mask, c.swap,
                                  c.swap_mask) == 0);
    pair.result();
    MUST(ibv_wr_complete(pair.qp()) == 0);
    pair.done(id, IBV_WC_COMP_SWAP);
    MUST(pair.before() == c.original);
    MUST(std::atomic_ref(pair.word(2)).load() == c.then);
  }
}

void immediates(Pair& pair) {
  for (std::uint64_t id = 0; id < 4; ++id) apps::post_receive(pair.far().qp(), {}, id);
  const Octets first{{1, 2, 3, 4, 5, 6, 7, 8}}, last{{0xFF, 0, 0xFE, 1, 0xFD, 2, 0xFC, 3}};
  std::uint64_t value = 0x0102030405060708;
  pair.start(1, 0);
  MUST(uiwdv_wr_imm8(pair.qp(), first.octet) == 0);
  pair.name(2, 0);
  ibv_wr_send(pair.qp());
  pair.name(3, 0);  // and one of ibverbs, with data
  ibv_wr_rdma_write_imm(pair.qp(), pair.rkey(), pair.address(5), htobe32(0xCAFE));
  ibv_wr_set_inline_data(pair.qp(), &value, sizeof value);
  pair.name(4);
  MUST(uiwdv_wr_imm8(pair.qp(), last.octet) == 0);
  MUST(ibv_wr_complete(pair.qp()) == 0);
  pair.done(4, IBV_WC_RDMA_WRITE);

  Octets got{};
  ibv_cq* cq = pair.far().id()->recv_cq;
  ibv_wc wc = pair.received();
  MUST(wc.wr_id == 0 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags == IBV_WC_WITH_IMM && wc.byte_len == 0);
  MUST(wc.imm_data == htobe32(0x01020304));
  MUST(uiwdv_wc_imm8(cq, &wc, got.octet) == 0 && got == first);
  wc = pair.received();
  MUST(wc.wr_id == 1 && wc.opcode == IBV_WC_RECV && wc.wc_flags == 0);
  MUST(uiwdv_wc_imm8(cq, &wc, got.octet) == EINVAL);
  wc = pair.received();
  MUST(wc.wr_id == 2 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 8);
  MUST(uiwdv_wc_imm8(cq, &wc, got.octet) == 0 && got == (Octets{{0, 0, 0xCA, 0xFE, 0, 0, 0, 0}}));
  MUST(pair.word(5) == value);
  wc = pair.received();
  MUST(wc.wr_id == 3 && wc.byte_len == 0 && uiwdv_wc_imm8(cq, &wc, got.octet) == 0 && got == last);
}

void extended_queue(Pair& pair) {
  ibv_cq_ex* cq = pair.far_cq();
  if (cq == nullptr) {
    std::puts("no extended completion queues");
    return;
  }
  apps::post_receive(pair.far().qp(), {}, 1);
  apps::post_receive(pair.far().qp(), {}, 2);
  apps::post_receive(pair.far().qp(), {}, 3);
  const Octets immediate{{1, 2, 3, 4, 5, 6, 7, 8}};
  pair.start(3, 0);
  MUST(uiwdv_wr_imm8(pair.qp(), immediate.octet) == 0);
  pair.name(4, 0);
  ibv_wr_send(pair.qp());
  pair.name(5);
  ibv_wr_send_imm(pair.qp(), htobe32(0xCAFE0001));
  MUST(ibv_wr_complete(pair.qp()) == 0);
  pair.done(5, IBV_WC_SEND);
  Octets got{};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ibv_poll_cq_attr attributes{};
    const auto end = apps::Clock::now() + apps::kPatience;
    int error;
    while ((error = ibv_start_poll(cq, &attributes)) == ENOENT && apps::Clock::now() < end) sched_yield();
    MUST(error == 0);
    MUST(cq->wr_id == id && cq->status == IBV_WC_SUCCESS);
    if (id == 1) MUST(uiwdv_wc_read_imm8(cq, got.octet) == 0 && got == immediate);
    if (id == 2) MUST(uiwdv_wc_read_imm8(cq, got.octet) == EINVAL);
    if (id == 3) {
      MUST(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
      MUST(ibv_wc_read_imm_data(cq) == htobe32(0xCAFE0001) && ibv_wc_read_byte_len(cq) == 0);
      MUST(uiwdv_wc_read_imm8(cq, got.octet) == 0 && got == (Octets{{0xCA, 0xFE, 0, 1, 0, 0, 0, 0}}));
    }
    ibv_end_poll(cq);
  }
}

void mistakes(Pair& pair) {
  const Octets immediate{{9, 9, 9, 9, 9, 9, 9, 9}};
  std::uint64_t value = 1;
  // Data behind Immediate Data: nothing of the batch goes out.
  pair.word(2) = 10;
  pair.start(1);
  MUST(uiwdv_wr_masked_fetch_add(pair.qp(), pair.rkey(), pair.address(2), 1, 0) == 0);
  pair.result();
  MUST(uiwdv_wr_imm8(pair.qp(), immediate.octet) == 0);
  ibv_wr_set_inline_data(pair.qp(), &value, sizeof value);
  MUST(ibv_wr_complete(pair.qp()) == EINVAL);
  // What an aborted batch was to do does not reach the next one.
  pair.start(2);
  MUST(uiwdv_wr_masked_fetch_add(pair.qp(), pair.rkey(), pair.address(2), 100, ~0ull) == 0);
  ibv_wr_abort(pair.qp());
  pair.start(3);
  ibv_wr_atomic_fetch_add(pair.qp(), pair.rkey(), pair.address(2), 3);
  pair.result();
  MUST(ibv_wr_complete(pair.qp()) == 0);
  pair.done(3, IBV_WC_FETCH_ADD);
  MUST(pair.before() == 10);
  MUST(std::atomic_ref(pair.word(2)).load() == 13);
  // A queue pair without send operations.
  ibv_qp_ex* plain = ibv_qp_to_qp_ex(pair.far().qp());
  if (plain != nullptr) {
    MUST(uiwdv_wr_imm8(plain, immediate.octet) == EINVAL);
    MUST(uiwdv_wr_masked_fetch_add(plain, 0, 0, 0, 0) == EINVAL);
    MUST(uiwdv_wr_masked_cmp_swap(plain, 0, 0, 0, 0, 0, 0) == EINVAL);
  }
  // Too late: it is flushed as any other request.
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  MUST(ibv_modify_qp(pair.near().qp(), &error, IBV_QP_STATE) == 0);
  pair.start(4);
  MUST(uiwdv_wr_imm8(pair.qp(), immediate.octet) == 0);
  pair.name(5);
  MUST(uiwdv_wr_masked_cmp_swap(pair.qp(), pair.rkey(), pair.address(2), 0, 0, 0, ~0ull) == 0);
  pair.result();
  MUST(ibv_wr_complete(pair.qp()) == 0);
  pair.done(4, IBV_WC_RDMA_WRITE, IBV_WC_WR_FLUSH_ERR);
  pair.done(5, IBV_WC_COMP_SWAP, IBV_WC_WR_FLUSH_ERR);
  MUST(std::atomic_ref(pair.word(2)).load() == 13);
}

// Both ends send with immediate at once: the called one may have had no message yet, where it knows its caller from the
// memory that they share.
void sends_at_once(Pair& pair) {
  for (Endpoint* end : {&pair.far(), &pair.near()}) {
    apps::post_receive(end->qp());
  }
  for (Endpoint* end : {&pair.far(), &pair.near()}) {
    MUST(apps::SendRequest(IBV_WR_SEND_WITH_IMM).immediate(htobe32(0x01020304)).try_post(end->qp()) == 0);
  }
  for (Endpoint* end : {&pair.far(), &pair.near()}) {
    ibv_wc wc{};
    MUST(end->send_completion(wc));
    apps::must_succeed(wc, "Send with immediate");
    MUST(end->recv_completion(wc));
    apps::must_succeed(wc, "its receive");
    MUST((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && wc.imm_data == htobe32(0x01020304));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) die("usage: %s HOST PORT", argv[0]);
  {
    Pair pair(argv[1], argv[2], true);
    extended_queue(pair);
  }
  for (int turn = 0; turn < 20; ++turn) {
    Pair pair(argv[1], argv[2]);
    sends_at_once(pair);
  }
  Pair pair(argv[1], argv[2]);
  queries(pair);
  foreign(pair);
  masked_additions(pair);
  masked_swaps(pair);
  immediates(pair);
  mistakes(pair);
  std::puts("as uiwdv(7) says");
  return 0;
}
