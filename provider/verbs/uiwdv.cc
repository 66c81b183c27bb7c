// SPDX-License-Identifier: MIT
// The functions of uiwdv.h. Programs pass objects of libibverbs that may belong to any device. Objects of other devices
// are recognised by members that objects of every device have.
#pragma GCC visibility push(default)
#include "provider/include/infiniband/uiwdv.h"
#pragma GCC visibility pop

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/grace_period.h"
#include "provider/process/settings.h"
#include "provider/verbs/context.h"
#include "provider/verbs/fork.h"
#include "provider/verbs/qp/qp.h"

namespace {

namespace rnic = uiw::provider;
using uiw::rdmap::AtomicOperands;
using uiw::rdmap::Immediate;

static_assert(sizeof(Immediate) == UIWDV_IMM_SIZE);

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

// Returns the queue pair that has this handle; null if the queue pair is another device's, or is for datagrams. A queue
// pair number is unique only among queue pairs of uiw, so the address of the handle is compared, too.
rnic::Qp* ours(const ibv_qp* handle) {
  const uiw::ReadSection section;
  rnic::Qp* const qp = rnic::find_qp(handle->qp_num);
  return qp != nullptr && qp->handle() == handle ? qp : nullptr;
}

// Calls the function with the Context that has this handle. False if the handle is null or belongs to another device.
template <typename Function>
bool with(const ibv_context* handle, Function function) {
  bool found = false;
  rnic::for_each_context([&](rnic::Context& context) {
    if (context.handle() != handle || handle == nullptr) return;
    found = true;
    function(context);
  });
  return found;
}
bool is_ours(const ibv_context* handle) {
  return with(handle, [](rnic::Context&) {});
}

// Fills in `to`, the program's version of the struct, which has `size` octets and may be shorter or longer than `all`.
// Members that only the program's version has become zero. EINVAL if `to` is null or too short.
template <typename Attributes>
int hand_out(const Attributes& all, Attributes* to, std::size_t size) {
  static_assert(std::is_trivially_copyable_v<Attributes>);
  if (to == nullptr || size < sizeof(std::uint32_t)) return EINVAL;
  const std::size_t known = std::min(size, sizeof all);
  std::memcpy(static_cast<void*>(to), &all, known);
  std::memset(reinterpret_cast<std::byte*>(to) + known, 0, size - known);
  return 0;
}

// 0; EOPNOTSUPP for queue pairs of other devices or for datagrams; EINVAL if the queue pair was created without send
// operations (ibv_wr_*).
int find(ibv_qp_ex* handle, rnic::Qp*& qp) {
  qp = ours(&handle->qp_base);
  if (qp == nullptr) return EOPNOTSUPP;
  return handle->wr_start != nullptr ? 0 : EINVAL;
}

void join(std::uint32_t first, std::uint32_t rest, std::uint8_t* imm) {
  std::memcpy(imm, &first, sizeof first);
  std::memcpy(imm + sizeof first, &rest, sizeof rest);
}

}  // namespace

bool uiwdv_is_supported(ibv_device* device) {
  const bool roce = rnic::settings().values.transport == rnic::Transport::roce;
  return device->transport_type == (roce ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP) && rnic::is_own_device(device->name);
}

int uiwdv_query_device(ibv_context* context, uiwdv_device_attr* attributes, std::size_t size) {
  uiwdv_device_attr all{};
  const bool found = with(context, [&](const rnic::Context& own) {
    ibv_device_attr_ex device{};
    own.query_device(device);
    std::sscanf(device.orig_attr.fw_ver, "%u.%u.%u", &all.version_major, &all.version_minor, &all.version_patch);
    std::snprintf(all.netdev, sizeof all.netdev, "%s", own.device().interface.c_str());
  });
  if (!found) return EOPNOTSUPP;
  all.caps = UIWDV_CAP_MASKED_FETCH_ADD | UIWDV_CAP_MASKED_CMP_SWAP | UIWDV_CAP_IMM8 | UIWDV_CAP_SEND_WITH_IMM;
  all.atomic_size = uiw::rdmap::kAtomicSize;
  all.imm_size = UIWDV_IMM_SIZE;
  return hand_out(all, attributes, size);
}

int uiwdv_query_qp(ibv_qp* qp, uiwdv_qp_attr* attributes, std::size_t size) {
  rnic::Qp* const own = ours(qp);
  if (own == nullptr) return EOPNOTSUPP;
  const auto agreed = own->agreed();
  if (!agreed) return ENOTCONN;
  const auto& [rules, peer, ord] = *agreed;
  uiwdv_qp_attr all{};
  all.flags = (rules.crc ? unsigned{UIWDV_QP_CRC} : 0U) | (rules.initiator ? unsigned{UIWDV_QP_INITIATOR} : 0U) |
              (peer != uiw::mpa::PeerKind::other ? unsigned{UIWDV_QP_SEND_WITH_IMM} : 0U);
  all.mpa_revision = rules.revision;
  all.ord = ord;
  all.ird = rules.ird;
  all.mulpdu = static_cast<std::uint32_t>(peer == uiw::mpa::PeerKind::uiw ? rules.mulpdu_to_uiw : rules.mulpdu);
  return hand_out(all, attributes, size);
}

// Each of the next three functions begins a request by the most similar call of libibverbs, and adds what that call
// cannot express.

int uiwdv_wr_masked_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_addr, std::uint64_t add,
                              std::uint64_t boundary_mask) {
  rnic::Qp* own = nullptr;
  if (const int error = find(qp, own); error != 0) return error;
  ibv_wr_atomic_fetch_add(qp, rkey, remote_addr, add);
  own->extend(AtomicOperands{add, boundary_mask, 0, kAllBits});
  return 0;
}

int uiwdv_wr_masked_cmp_swap(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_addr, std::uint64_t compare,
                             std::uint64_t compare_mask, std::uint64_t swap, std::uint64_t swap_mask) {
  rnic::Qp* own = nullptr;
  if (const int error = find(qp, own); error != 0) return error;
  ibv_wr_atomic_cmp_swp(qp, rkey, remote_addr, compare, swap);
  own->extend(AtomicOperands{swap, swap_mask, compare, compare_mask});
  return 0;
}

int uiwdv_wr_imm8(ibv_qp_ex* qp, const std::uint8_t imm[UIWDV_IMM_SIZE]) {
  rnic::Qp* own = nullptr;
  if (const int error = find(qp, own); error != 0) return error;
  ibv_wr_rdma_write_imm(qp, 0, 0, 0);
  Immediate immediate;
  std::memcpy(immediate.data(), imm, immediate.size());
  own->extend(immediate);
  return 0;
}

// A completion has the first four octets of the immediate data in imm_data, and the others in src_qp, which ibverbs
// uses for datagrams only.

int uiwdv_wc_imm8(ibv_cq* cq, const ibv_wc* wc, std::uint8_t imm[UIWDV_IMM_SIZE]) {
  if (!is_ours(cq->context)) return EOPNOTSUPP;
  if (wc->status != IBV_WC_SUCCESS || (wc->wc_flags & IBV_WC_WITH_IMM) == 0) return EINVAL;
  join(wc->imm_data, wc->src_qp, imm);
  return 0;
}

int uiwdv_wc_read_imm8(ibv_cq_ex* cq, std::uint8_t imm[UIWDV_IMM_SIZE]) {
  if (!is_ours(cq->context)) return EOPNOTSUPP;
  if (cq->read_imm_data == nullptr || cq->read_src_qp == nullptr || cq->read_wc_flags == nullptr) {
    return EINVAL;
  }
  if (cq->status != IBV_WC_SUCCESS || (ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM) == 0) return EINVAL;
  join(ibv_wc_read_imm_data(cq), ibv_wc_read_src_qp(cq), imm);
  return 0;
}
