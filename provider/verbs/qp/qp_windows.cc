// SPDX-License-Identifier: MIT
// Work requests about memory windows (Verbs draft sections 7.8, 7.10 and 8.1.2.3; the manual pages of ibv_bind_mw,
// ibv_post_send and ibv_wr_post): how they are posted, and what they do in their turn.
#include <cerrno>

#include "provider/connect/manual/pairs.h"
#include "provider/memory/rights.h"
#include "provider/verbs/context.h"
#include "provider/verbs/qp/qp.h"

namespace uiw::provider {

namespace {

// Local write says nothing about a window; programs pass it on from the flags of the region.
constexpr unsigned kWindowAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;

}  // namespace

// All that can be wrong with a bind itself shows when it is carried out, for the objects may change until then.
int Qp::prepare_bind(std::uint64_t sequence, std::uint64_t id, unsigned flags, const ibv_mw& mw, std::uint32_t rkey,
                     const ibv_mw_bind_info& info) {
  if ((info.mw_access_flags & ~kWindowAccess) != 0) return EINVAL;
  const bool type1 = mw.type == IBV_MW_TYPE_1;
  if (info.mr == nullptr && (!type1 || info.length != 0)) return EINVAL;
  rdmap::SendWork& work = fresh_work(sequence, rdmap::WorkKind::bind, id, flags);
  if (!send_queue_.has_operand_room(sequence)) return ENOMEM;
  if (((rkey ^ mw.rkey) & ~0xFFU) != 0) work.status = rdmap::Status::window_bind;  // not of this window
  send_queue_.binding(sequence) = {static_cast<ddp::Stag>(rkey),
                                   info.mr == nullptr ? ddp::Stag{0} : static_cast<ddp::Stag>(info.mr->lkey),
                                   info.addr,
                                   info.length,
                                   remote_rights(info.mw_access_flags),
                                   type1 ? ddp::WindowType::type1 : ddp::WindowType::type2,
                                   (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0};
  return 0;
}

int Qp::prepare_invalidate(std::uint64_t sequence, std::uint64_t id, unsigned flags, std::uint32_t rkey) {
  fresh_work(sequence, rdmap::WorkKind::local_invalidate, id, flags).invalidate = static_cast<ddp::Stag>(rkey);
  return 0;
}

int Qp::post_bind(ibv_mw& mw, const ibv_mw_bind& bind) {
  if (mw.type != IBV_MW_TYPE_1) return EINVAL;
  std::unique_lock lock(locks_.send);
  if (!await_batch(lock) || !posts()) return EINVAL;
  const std::uint64_t sequence = send_queue_.tail();
  if (!make_room(sequence)) return ENOMEM;
  const auto rkey = static_cast<std::uint32_t>(stag_table().next_key(static_cast<ddp::Stag>(mw.rkey)));
  const int error = prepare_bind(sequence, bind.wr_id, bind.send_flags, mw, rkey, bind.bind_info);
  if (error != 0) return error;
  push_prepared(1);
  mw.rkey = rkey;
  if (manual_) manual::start_retry_timers();
  transmit();
  return 0;
}

// Verbs draft figure 23: the errors of either are completion errors.
rdmap::Status Qp::carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) {
  if (work.kind == rdmap::WorkKind::bind) {
    if (stag_table().bind(binding, &pd_, this) != ddp::WindowError::none) return rdmap::Status::window_bind;
    if (binding.type == ddp::WindowType::type2) has_windows_ = true;
    return rdmap::Status::success;
  }
  switch (stag_table().invalidate(work.invalidate, &pd_, this)) {
    case ddp::WindowError::none: return rdmap::Status::success;
    case ddp::WindowError::deallocated: return rdmap::Status::local_operation;  // section 7.8
    default: return rdmap::Status::local_protection;
  }
}

// Memory regions are invalidated by their owner alone, windows of type 1 too; those of type 2 by the peer of their
// stream as well.
std::optional<rdmap::ErrorCode> Qp::invalidate(rdmap::Stag stag) {
  switch (stag_table().invalidate(stag, &pd_, this)) {
    case ddp::WindowError::none: return std::nullopt;
    case ddp::WindowError::deallocated: return rdmap::ErrorCode::invalid_stag;
    case ddp::WindowError::not_associated: return rdmap::ErrorCode::not_associated;
    default: return rdmap::ErrorCode::cannot_invalidate;
  }
}

// The stream is gone, and with it whom the windows were for. The draft (section 6.1.4) would have a program unbind them
// before it destroys the queue pair; those that do not, and they are many, must not be left with half of it.
void Qp::release_windows() {
  if (!has_windows_) return;
  stag_table().release_stream(&pd_, this);
  has_windows_ = false;
}

}  // namespace uiw::provider
