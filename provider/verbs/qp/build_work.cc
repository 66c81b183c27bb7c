// SPDX-License-Identifier: MIT
// How ibv_send_wr and similar requests become entries of a send queue. The checks here are those for which the manual
// pages define an errno. Any other error is found when the request is processed; then the request completes in error.
#include <endian.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "provider/memory/rights.h"
#include "provider/process/limits.h"
#include "provider/verbs/qp/receive_posting.h"
#include "provider/verbs/qp/work_queues.h"

namespace uiw::provider {

namespace {

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

// Local write and the optional flags have no meaning for a window. They are accepted, since programs pass the flags of
// the region.
constexpr unsigned kWindowAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;

// Immediate Data (RFC 7306) has 8 octets, and imm_data of a work request has 4. imm_data comes first, in network byte
// order; the other four octets are zero, as with other adapters.
rdmap::Immediate immediate_of(__be32 value) {
  rdmap::Immediate immediate{};
  std::memcpy(immediate.data(), &value, sizeof value);
  return immediate;
}

struct Meaning {
  rdmap::WorkKind kind;
  bool has_immediate = false, invalidates = false;
};

std::optional<Meaning> meaning_of(ibv_wr_opcode opcode) {
  using rdmap::WorkKind;
  switch (opcode) {
    case IBV_WR_SEND: return Meaning{WorkKind::send};
    case IBV_WR_SEND_WITH_IMM: return Meaning{WorkKind::send, true};
    case IBV_WR_SEND_WITH_INV: return Meaning{WorkKind::send, false, true};
    case IBV_WR_RDMA_WRITE: return Meaning{WorkKind::write};
    case IBV_WR_RDMA_WRITE_WITH_IMM: return Meaning{WorkKind::write, true};
    case IBV_WR_RDMA_READ: return Meaning{WorkKind::read};
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP: return Meaning{WorkKind::atomic};
    default: return std::nullopt;
  }
}

std::uint64_t length_of(const ibv_send_wr& request) {
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) length += request.sg_list[i].length;
  return length;
}

}  // namespace

rdmap::SendWork& WorkQueues::fresh(std::uint64_t sequence, rdmap::WorkKind kind, std::uint64_t id, unsigned flags) {
  rdmap::SendWork& work = sends_.at(sequence);
  work = rdmap::SendWork{};
  work.id = id;
  work.kind = kind;
  work.signaled = signal_all_ || (flags & IBV_SEND_SIGNALED) != 0;
  work.solicited = (flags & IBV_SEND_SOLICITED) != 0;
  work.fence = (flags & IBV_SEND_FENCE) != 0;
  return work;
}

// A bad lkey gives no errno: the request completes with IBV_WC_LOC_PROT_ERR.
int WorkQueues::build(std::uint64_t sequence, const ibv_send_wr& request, const Abilities& abilities) {
  if (request.opcode == IBV_WR_LOCAL_INV || request.opcode == IBV_WR_BIND_MW) return build_local(sequence, request);
  const bool inlined = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (request.num_sge < 0) return EINVAL;
  if (static_cast<std::uint32_t>(request.num_sge) > sends_.max_sges() && !inlined) return EINVAL;
  const auto meaning = meaning_of(request.opcode);
  if (!meaning) return EOPNOTSUPP;
  const rdmap::WorkKind kind = meaning->kind;
  // `abilities.reads` is false if ORD is 0: then neither RDMA Reads nor atomic operations can be sent.
  if (rdmap::is_answered(kind) && (inlined || !abilities.reads)) return EINVAL;
  if (kind == rdmap::WorkKind::send && meaning->has_immediate && !abilities.uiws_own) return EOPNOTSUPP;

  rdmap::SendWork& work = fresh(sequence, kind, request.wr_id, request.send_flags);
  if (meaning->has_immediate) {
    work.has_immediate = true;
    work.immediate = immediate_of(request.imm_data);
  }
  if (meaning->invalidates) {
    work.invalidates = true;
    work.invalidate = static_cast<ddp::Stag>(request.invalidate_rkey);
  }
  const std::uint64_t length = length_of(request);
  if (length > kMaxMessage) return EINVAL;
  work.length = static_cast<std::uint32_t>(length);
  if (kind == rdmap::WorkKind::atomic) {
    if (const int error = build_atomic(sequence, request); error != 0) return error;
  } else if (kind != rdmap::WorkKind::send) {
    work.remote_stag = static_cast<ddp::Stag>(request.wr.rdma.rkey);
    work.remote_offset = request.wr.rdma.remote_addr;
  }
  if (inlined) return take_octets(sequence, request);
  name_memory(sequence, request);
  return 0;
}

int WorkQueues::choose_before(std::uint64_t sequence, std::uint32_t queue) {
  const rdmap::SendWork& request = sends_.at(sequence);
  if (request.kind == rdmap::WorkKind::atomic) {
    if (!sends_.has_operand_room(sequence + 1)) return ENOMEM;
    sends_.operands(sequence + 1) = sends_.operands(sequence);
  }
  const std::size_t size = request.inlined ? request.length : request.sges * sizeof(rdmap::Sge);
  if (size > 0) std::memcpy(sends_.inline_room(sequence + 1), sends_.inline_room(sequence), size);
  sends_.at(sequence + 1) = request;
  sends_.at(sequence) = {};
  sends_.at(sequence).kind = rdmap::WorkKind::choice;
  sends_.at(sequence).remote_offset = queue;
  return 0;
}

int WorkQueues::build_atomic(std::uint64_t sequence, const ibv_send_wr& request) {
  if (!sends_.has_operand_room(sequence)) return ENOMEM;
  rdmap::SendWork& work = sends_.at(sequence);
  const bool add = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  work.atomic = add ? rdmap::AtomicOpcode::fetch_add : rdmap::AtomicOpcode::compare_swap;
  work.remote_stag = static_cast<ddp::Stag>(request.wr.atomic.rkey);
  work.remote_offset = request.wr.atomic.remote_addr;
  // RFC 7306 figure 5: operands that an operation does not use are zero, and unused masks are all ones.
  sends_.operands(sequence) =
      add ? rdmap::AtomicOperands{request.wr.atomic.compare_add, 0, 0, kAllBits}
          : rdmap::AtomicOperands{request.wr.atomic.swap, kAllBits, request.wr.atomic.compare_add, kAllBits};
  if (work.length != rdmap::kAtomicSize) work.status = rdmap::Status::local_length;
  work.length = rdmap::kAtomicSize;
  return 0;
}

// IBV_SEND_INLINE: copies the octets, since the program may use its memory again at once.
int WorkQueues::take_octets(std::uint64_t sequence, const ibv_send_wr& request) {
  rdmap::SendWork& work = sends_.at(sequence);
  if (work.length > sends_.max_inline()) return EINVAL;
  std::byte* to = sends_.inline_room(sequence);
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    if (sge.length > 0) std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
    to += sge.length;
  }
  work.inlined = true;
  return 0;
}

void WorkQueues::name_memory(std::uint64_t sequence, const ibv_send_wr& request) {
  rdmap::SendWork& work = sends_.at(sequence);
  const ddp::Right right = rdmap::is_answered(work.kind) ? ddp::kLocalWrite : ddp::kLocalRead;
  rdmap::Sge* sges = sends_.sge_room(sequence);
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    if (sge.length == 0) continue;
    length += sge.length;
    resolve(sge, memory_, right, known_to_send_, sges[work.sges]);
    if (sges[work.sges++].registered.registration == ddp::Registration::none) {
      work.status = rdmap::Status::local_protection;
      break;
    }
  }
  if (!rdmap::is_answered(work.kind) || work.sges == 0) return;
  work.sink_stag = sges[0].stag;
  // The response to a Read uses one range of tagged offsets for all elements, and this range must not wrap.
  work.sink_offset = sges[0].offset + length < sges[0].offset ? 0 : sges[0].offset;
}

int WorkQueues::build_local(std::uint64_t sequence, const ibv_send_wr& request) {
  if (request.opcode == IBV_WR_LOCAL_INV) {
    fresh(sequence, rdmap::WorkKind::local_invalidate, request.wr_id, request.send_flags).invalidate =
        static_cast<ddp::Stag>(request.invalidate_rkey);
    return 0;
  }
  ibv_mw* mw = request.bind_mw.mw;
  if (mw == nullptr || mw->type != IBV_MW_TYPE_2) return EINVAL;  // windows of type 1 are bound by ibv_bind_mw
  return build_bind(sequence, request.wr_id, request.send_flags, *mw, request.bind_mw.rkey, request.bind_mw.bind_info);
}

// Other errors of a bind are found when it is carried out, since the window and the region may change until then.
// ibv_bind_mw() (type 1) stores the new rkey in the window, as its manual page says. ibv_post_send() (type 2) does not,
// since the program has chosen the rkey.
int WorkQueues::build_bind(std::uint64_t sequence, std::uint64_t id, unsigned flags, ibv_mw& mw, std::uint32_t rkey,
                           const ibv_mw_bind_info& info) {
  constexpr std::uint32_t kKeyBits = 0xFF;
  if ((info.mw_access_flags & ~kWindowAccess) != 0) return EINVAL;
  const bool type1 = mw.type == IBV_MW_TYPE_1;
  if (info.mr == nullptr && (!type1 || info.length != 0)) return EINVAL;
  fresh(sequence, rdmap::WorkKind::bind, id, flags);
  if (!sends_.has_operand_room(sequence)) return ENOMEM;
  rkey = (mw.rkey & ~kKeyBits) | (rkey & kKeyBits);
  if (type1) mw.rkey = rkey;
  sends_.binding(sequence) = {static_cast<ddp::Stag>(rkey),
                              info.mr == nullptr ? ddp::Stag{0} : static_cast<ddp::Stag>(info.mr->lkey),
                              info.addr,
                              info.length,
                              remote_rights(info.mw_access_flags),
                              type1 ? ddp::WindowType::type1 : ddp::WindowType::type2,
                              (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0};
  return 0;
}

int WorkQueues::extend(std::uint64_t sequence, const Extension& extension, const Abilities& abilities) {
  rdmap::SendWork& work = sends_.at(sequence);
  const auto become = [&](rdmap::AtomicOpcode opcode, const rdmap::AtomicOperands& operands) {
    if (work.kind != rdmap::WorkKind::atomic || work.sges != 0) return EINVAL;
    if (!abilities.uiws_own) return EOPNOTSUPP;
    work.atomic = opcode;
    work.status = rdmap::Status::success;  // the length of an SGE that is not there is no error
    sends_.operands(sequence) = operands;
    return 0;
  };
  if (const auto* operands = std::get_if<rdmap::AtomicOperands>(&extension)) {
    if (work.kind != rdmap::WorkKind::atomic) return EINVAL;
    sends_.operands(sequence) = *operands;
  } else if (const auto* immediate = std::get_if<rdmap::Immediate>(&extension)) {
    if (work.length != 0) return EINVAL;
    work.kind = rdmap::WorkKind::immediate;
    work.has_immediate = false;
    work.immediate = *immediate;
  } else if (const auto* write = std::get_if<AtomicWrite>(&extension)) {
    return become(rdmap::AtomicOpcode::write, {htobe64(write->octets), kAllBits, 0, 0});
  } else if (const auto* flush = std::get_if<rdmap::Flush>(&extension)) {
    return become(rdmap::AtomicOpcode::flush, rdmap::operands_of(*flush));
  }
  return 0;
}

}  // namespace uiw::provider
