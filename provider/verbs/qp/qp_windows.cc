// SPDX-License-Identifier: MIT
// Work requests about memory windows (Verbs draft sections 7.8, 7.10 and 8.1.2.3; the manual pages of ibv_bind_mw,
// ibv_post_send and ibv_wr_post): how ibv_bind_mw posts one, and what they do in their turn.
#include <cerrno>

#include "provider/connect/manual/pairs.h"
#include "provider/verbs/context.h"
#include "provider/verbs/qp/qp.h"

namespace uiw::provider {

int Qp::post_bind(ibv_mw& mw, const ibv_mw_bind& bind) {
  if (mw.type != IBV_MW_TYPE_1) return EINVAL;
  std::unique_lock lock(locks_.send);
  if (!await_batch(lock) || !posts()) return EINVAL;
  const std::uint64_t sequence = send_queue_.tail();
  if (!make_room(sequence)) return ENOMEM;
  const auto rkey = static_cast<std::uint32_t>(stag_table().next_key(static_cast<ddp::Stag>(mw.rkey)));
  const int error = builder_.build_bind(sequence, bind.wr_id, bind.send_flags, mw, rkey, bind.bind_info);
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
