// SPDX-License-Identifier: MIT
#include "provider/connection/terminate_meaning.h"

namespace uiw::provider {

namespace {

bool is_rdma(const rdmap::Terminate& terminate, rdmap::ErrorType type) {
  return terminate.layer == rdmap::Layer::rdma && terminate.type == static_cast<std::uint8_t>(type);
}
bool is_ddp(const rdmap::Terminate& terminate, ddp::ErrorType type) {
  return terminate.layer == rdmap::Layer::ddp && terminate.type == static_cast<std::uint8_t>(type);
}

}  // namespace

rdmap::Status completion_status_of(const rdmap::Terminate& terminate) {
  if (is_rdma(terminate, rdmap::ErrorType::remote_protection) || is_ddp(terminate, ddp::ErrorType::tagged)) {
    return rdmap::Status::remote_access;
  }
  if (is_ddp(terminate, ddp::ErrorType::untagged)) return rdmap::Status::remote_invalid_request;
  switch (terminate.layer) {
    case rdmap::Layer::rdma:
      return terminate.code == static_cast<std::uint8_t>(rdmap::ErrorCode::unexpected_opcode)
                 ? rdmap::Status::remote_invalid_request
                 : rdmap::Status::remote_operation;
    case rdmap::Layer::ddp: return rdmap::Status::remote_operation;
    default: return rdmap::Status::fatal;
  }
}

ibv_event_type event_of(const rdmap::Terminate& terminate) {
  if (is_rdma(terminate, rdmap::ErrorType::remote_protection) || is_ddp(terminate, ddp::ErrorType::tagged)) {
    return IBV_EVENT_QP_ACCESS_ERR;
  }
  return terminate.layer == rdmap::Layer::llp ? IBV_EVENT_QP_FATAL : IBV_EVENT_QP_REQ_ERR;
}

}  // namespace uiw::provider
