// SPDX-License-Identifier: MIT
#include "provider/post_receive.h"

#include <cerrno>

#include "provider/context.h"
#include "provider/limits.h"

namespace uiw::provider {

namespace {

int post_one(rdmap::ReceiveQueue& queue, const void* domain, const ibv_recv_wr& request) {
  if (queue.full()) return ENOMEM;
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > queue.max_pieces()) return EINVAL;
  rdmap::ReceiveWork& work = queue.slot();
  rdmap::Piece* pieces = queue.slot_pieces();
  work = {request.wr_id, 0, 0};
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    if (sge.length == 0) continue;
    const ddp::Access access =
        stag_table().find(static_cast<ddp::Stag>(sge.lkey), domain, sge.addr, sge.length, ddp::kLocalWrite);
    if (access.error != ddp::AccessError::none) return EINVAL;
    pieces[work.pieces++] = {access.memory, sge.length};
    length += sge.length;
  }
  if (length > kMaxMessage) return EINVAL;
  work.length = static_cast<std::uint32_t>(length);
  queue.push();
  return 0;
}

}  // namespace

int post_receives(rdmap::ReceiveQueue& queue, const void* domain, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  for (ibv_recv_wr* request = requests; request != nullptr; request = request->next) {
    if (const int error = post_one(queue, domain, *request); error != 0) {
      if (bad != nullptr) *bad = request;
      return error;
    }
  }
  return 0;
}

}  // namespace uiw::provider
