// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/receive_posting.h"

#include <cerrno>

#include "provider/process/limits.h"
#include "provider/verbs/context.h"

namespace uiw::provider {

namespace {

int post_one(rdmap::ReceiveQueue& queue, const ddp::Accessor& memory, ddp::KnownSlot& known,
             const ibv_recv_wr& request) {
  if (!queue.has_room()) return ENOMEM;
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > queue.max_sges()) return EINVAL;
  rdmap::ReceiveWork& work = queue.slot();
  rdmap::Sge* sges = queue.slot_sges();
  work = {request.wr_id, 0, 0};
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    if (sge.length == 0) continue;
    resolve(sge, memory, ddp::kLocalWrite, known, sges[work.sges++]);
    length += sge.length;
  }
  if (length > kMaxMessage) return EINVAL;
  work.length = static_cast<std::uint32_t>(length);
  queue.push();
  return 0;
}

}  // namespace

void resolve(const ibv_sge& sge, const ddp::Accessor& memory, ddp::Right right, ddp::KnownSlot& known,
             rdmap::Sge& element) {
  const auto stag = static_cast<ddp::Stag>(sge.lkey);
  element.stag = stag;
  element.length = sge.length;
  element.offset = sge.addr;
  element.registered = memory.registered(known, stag, sge.addr, sge.length, right);
}

int post_receives(rdmap::ReceiveQueue& queue, const ddp::Accessor& memory, ddp::KnownSlot& known, ibv_recv_wr* requests,
                  ibv_recv_wr** bad) {
  for (ibv_recv_wr* request = requests; request != nullptr; request = request->next) {
    if (const int error = post_one(queue, memory, known, *request); error != 0) {
      if (bad != nullptr) *bad = request;
      return error;
    }
  }
  return 0;
}

}  // namespace uiw::provider
