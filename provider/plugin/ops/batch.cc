// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/batch.h"

#include <cerrno>
#include <cstring>

#include "provider/plugin/checked.h"
#include "provider/plugin/objects.h"
#include "provider/process/faults/faults.h"

namespace uiw::plugin {

namespace {

// The functions, which have `add` add each request to the batch. (There is one that tells the Checker before.)
template <void (*add)(Qp& qp, ibv_send_wr& request)>
struct Batch {
  static void offer(verbs_qp& base, std::uint64_t operations) {
    // Programs take these two for supported if they are not null. create_qp_ex() refuses them where libibverbs has
    // none.
    if ((operations & UIW_QP_EX_WITH_ATOMIC_WRITE) != 0) base.behind.words[0].wr_atomic_write = wr_atomic_write;
    if ((operations & UIW_QP_EX_WITH_FLUSH) != 0) base.behind.words[1].wr_flush = wr_flush;
    ibv_qp_ex& qp = base.qp_ex;
    qp.wr_start = wr_start;
    qp.wr_complete = rnic::calls_may_fail() ? faulty_wr_complete : wr_complete;
    qp.wr_abort = wr_abort;
    qp.wr_send = wr_send;
    qp.wr_send_inv = wr_send_inv;
    qp.wr_send_imm = wr_send_imm;
    qp.wr_rdma_write = wr_rdma_write;
    qp.wr_rdma_write_imm = wr_rdma_write_imm;
    qp.wr_rdma_read = wr_rdma_read;
    qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
    qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    qp.wr_bind_mw = wr_bind_mw;
    qp.wr_local_inv = wr_local_inv;
    qp.wr_set_ud_addr = wr_set_ud_addr;
    qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
    qp.wr_set_sge = wr_set_sge;
    qp.wr_set_sge_list = wr_set_sge_list;
    qp.wr_set_inline_data = wr_set_inline_data;
    qp.wr_set_inline_data_list = wr_set_inline_data_list;
  }

  static void flush_pending(Qp* qp) {
    if (!qp->has_pending) return;
    qp->has_pending = false;
    add(*qp, qp->pending);
  }

  static ibv_send_wr& begin_request(ibv_qp_ex* handle, ibv_wr_opcode opcode) {
    Qp* qp = of(handle);
    flush_pending(qp);  // a request that is still pending at this point has no data
    qp->pending = {};
    qp->pending.wr_id = handle->wr_id;
    qp->pending.send_flags = handle->wr_flags;
    qp->pending.opcode = opcode;
    qp->has_pending = true;
    return qp->pending;
  }

  static void give_data(ibv_qp_ex* handle, const ibv_sge* list, std::size_t count, unsigned flags) {
    Qp* qp = of(handle);
    if (!qp->has_pending) return;
    qp->has_pending = false;
    qp->pending.sg_list = const_cast<ibv_sge*>(list);
    qp->pending.num_sge = static_cast<int>(count);
    qp->pending.send_flags |= flags;
    add(*qp, qp->pending);
  }

  static void wr_start(ibv_qp_ex* qp) {
    of(qp)->rnic->begin_batch();
    of(qp)->has_pending = false;
  }
  static int wr_complete(ibv_qp_ex* qp) {
    flush_pending(of(qp));
    return with_errno(of(qp)->rnic->end_batch());
  }
  static void wr_abort(ibv_qp_ex* qp) {
    of(qp)->has_pending = false;
    of(qp)->rnic->abort_batch();
  }

  // A call of ibv_wr_complete() posts, so it counts as a call of ibv_post_send() for UIW_FAULT, and fails if that call
  // is to fail.
  static int faulty_wr_complete(ibv_qp_ex* qp) {
    const int error = rnic::fault_of_call("post_send");
    if (error == 0) return wr_complete(qp);
    wr_abort(qp);
    return with_errno(error);
  }

  static void wr_send(ibv_qp_ex* qp) { begin_request(qp, IBV_WR_SEND); }
  static void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
    begin_request(qp, IBV_WR_SEND_WITH_IMM).imm_data = immediate;
  }
  static void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
    begin_request(qp, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey;
  }
  static void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
    ibv_send_wr& request = begin_request(qp, IBV_WR_RDMA_WRITE);
    request.wr.rdma.rkey = rkey;
    request.wr.rdma.remote_addr = address;
  }
  static void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
    ibv_send_wr& request = begin_request(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
    request.wr.rdma.rkey = rkey;
    request.wr.rdma.remote_addr = address;
    request.imm_data = immediate;
  }
  static void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t summand) {
    ibv_send_wr& request = begin_request(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.remote_addr = address;
    request.wr.atomic.compare_add = summand;
  }
  static void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                                std::uint64_t swap) {
    ibv_send_wr& request = begin_request(qp, IBV_WR_ATOMIC_CMP_AND_SWP);
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.remote_addr = address;
    request.wr.atomic.compare_add = compare;
    request.wr.atomic.swap = swap;
  }
  static void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, const void* octets) {
    wr_atomic_fetch_add(qp, rkey, address, 0);
    std::uint64_t word;
    std::memcpy(&word, octets, sizeof word);
    of(qp)->rnic->next_is_atomic_write(word);
  }
  static void wr_flush(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::size_t length, std::uint8_t type,
                       std::uint8_t level) {
    wr_atomic_fetch_add(qp, rkey, address, 0);
    of(qp)->rnic->next_is_flush(
        {length, (type & UIW_FLUSH_GLOBAL) != 0, (type & UIW_FLUSH_PERSISTENT) != 0, level == UIW_FLUSH_MR});
  }
  static void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
    ibv_send_wr& request = begin_request(qp, IBV_WR_BIND_MW);
    request.bind_mw.mw = mw;
    request.bind_mw.rkey = rkey;
    request.bind_mw.bind_info = *info;
  }
  static void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
    begin_request(qp, IBV_WR_LOCAL_INV).invalidate_rkey = rkey;
  }
  static void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
    ibv_send_wr& request = begin_request(qp, IBV_WR_RDMA_READ);
    request.wr.rdma.rkey = rkey;
    request.wr.rdma.remote_addr = address;
  }

  static void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
    const ibv_sge sge{address, length, lkey};
    give_data(qp, &sge, 1, 0);
  }
  static void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) { give_data(qp, list, count, 0); }
  static void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
    // A length beyond 32 bits exceeds every limit, and must not be truncated to a valid one.
    const ibv_sge sge{reinterpret_cast<std::uintptr_t>(address),
                      length > 0xFFFFFFFF ? 0xFFFFFFFF : static_cast<std::uint32_t>(length), 0};
    give_data(qp, &sge, 1, IBV_SEND_INLINE);
  }
  static void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
    constexpr std::size_t kMost = 64;
    ibv_sge sges[kMost];
    if (count > kMost) {
      // Too many buffers for inline data: an impossible length makes the request fail.
      sges[0] = {0, 0xFFFFFFFF, 0};
      return give_data(qp, sges, 1, IBV_SEND_INLINE);
    }
    for (std::size_t i = 0; i < count; ++i) {
      sges[i] = {reinterpret_cast<std::uintptr_t>(list[i].addr),
                 list[i].length > 0xFFFFFFFF ? 0xFFFFFFFF : static_cast<std::uint32_t>(list[i].length), 0};
    }
    give_data(qp, sges, count, IBV_SEND_INLINE);
  }

  // The program may set the address before the data or after the data. After the data the request is no longer pending:
  // it is the last one of the batch, in which address_last() sets the address.
  static void wr_set_ud_addr(ibv_qp_ex* handle, ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
    Qp* qp = of(handle);
    if (!qp->has_pending) return qp->rnic->address_last(ah, number, qkey);
    qp->pending.wr.ud = {ah, number, qkey};
  }
  // Likewise.
  static void wr_set_xrc_srqn(ibv_qp_ex* handle, std::uint32_t number) {
    Qp* qp = of(handle);
    if (!qp->has_pending) return qp->rnic->name_last_queue(number);
    qp->pending.qp_type.xrc.remote_srqn = number;
  }
};

void add_to_batch(Qp& qp, ibv_send_wr& request) { qp.rnic->add(request); }

}  // namespace

void offer_send_ops(verbs_qp& qp, std::uint64_t operations) { Batch<add_to_batch>::offer(qp, operations); }

void offer_checked_send_ops(verbs_qp& qp, std::uint64_t operations) { Batch<add_checked>::offer(qp, operations); }

}  // namespace uiw::plugin
