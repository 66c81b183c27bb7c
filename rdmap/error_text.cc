// SPDX-License-Identifier: MIT
#include "rdmap/error_text.h"

#include "mpa/mpa_format.h"

namespace uiw::rdmap {

namespace {

constexpr const char* kUnknown = "an unknown error";

const char* mpa_error(std::uint8_t code) {
  switch (static_cast<mpa::MpaError>(code)) {
    case mpa::MpaError::closed: return "TCP connection closed, terminated or lost";
    case mpa::MpaError::crc: return "MPA CRC of an FPDU is wrong";
    case mpa::MpaError::marker: return "MPA marker and length of an FPDU disagree";
    case mpa::MpaError::invalid_frame: return "invalid MPA request or reply frame";
    case mpa::MpaError::local_catastrophic: return "local catastrophic error";
    case mpa::MpaError::insufficient_ird: return "insufficient IRD resources";
    case mpa::MpaError::no_matching_rtr: return "no matching ready-to-receive message";
  }
  return kUnknown;
}

const char* ddp_tagged_error(std::uint8_t code) {
  switch (static_cast<ddp::TaggedError>(code)) {
    case ddp::TaggedError::invalid_stag: return "invalid STag";
    case ddp::TaggedError::base_or_bounds: return "base or bounds violation";
    case ddp::TaggedError::not_associated: return "STag not associated with the stream";
    case ddp::TaggedError::wrap: return "tagged offset wraps";
    case ddp::TaggedError::version: return "invalid DDP version";
  }
  return kUnknown;
}

const char* ddp_untagged_error(std::uint8_t code) {
  switch (static_cast<ddp::UntaggedError>(code)) {
    case ddp::UntaggedError::invalid_queue: return "invalid queue number";
    case ddp::UntaggedError::no_buffer: return "no buffer for this message sequence number";
    case ddp::UntaggedError::msn_range: return "message sequence number out of range";
    case ddp::UntaggedError::invalid_offset: return "invalid message offset";
    case ddp::UntaggedError::too_long: return "message too long for the posted receive";
    case ddp::UntaggedError::version: return "invalid DDP version";
  }
  return kUnknown;
}

const char* ddp_error(const Terminate& terminate) {
  switch (static_cast<ddp::ErrorType>(terminate.type)) {
    case ddp::ErrorType::local_catastrophic: return "local catastrophic error";
    case ddp::ErrorType::tagged: return ddp_tagged_error(terminate.code);
    case ddp::ErrorType::untagged: return ddp_untagged_error(terminate.code);
  }
  return kUnknown;
}

const char* rdma_error(const Terminate& terminate) {
  if (static_cast<ErrorType>(terminate.type) == ErrorType::local_catastrophic) return "local catastrophic error";
  switch (static_cast<ErrorCode>(terminate.code)) {
    case ErrorCode::invalid_stag: return "invalid STag";
    case ErrorCode::base_or_bounds: return "base or bounds violation";
    case ErrorCode::access_rights: return "access rights violation";
    case ErrorCode::not_associated: return "STag not associated with the stream";
    case ErrorCode::wrap: return "tagged offset wraps";
    case ErrorCode::version: return "invalid RDMAP version";
    case ErrorCode::unexpected_opcode: return "unexpected opcode";
    case ErrorCode::catastrophic_stream: return "catastrophic error of the stream";
    case ErrorCode::catastrophic_global: return "catastrophic error of the adapter";
    case ErrorCode::cannot_invalidate: return "STag cannot be invalidated";
    case ErrorCode::unspecified: return "unspecified error";
  }
  return kUnknown;
}

}  // namespace

const char* text_of(Status status) {
  switch (status) {
    case Status::success: return "success";
    case Status::local_length: return "the message is longer than the receive";
    case Status::local_protection: return "local memory is not registered for this use, or not accessible";
    case Status::local_operation: return "the connection does not support the operation";
    case Status::flushed: return "flushed";
    case Status::remote_access: return "the peer's memory is not registered for this use";
    case Status::remote_invalid_request: return "the peer calls the request invalid";
    case Status::remote_operation: return "the peer could not carry out the request";
    case Status::fatal: return "the connection failed";
    case Status::window_bind: return "the memory window could not be bound";
    case Status::retry_exceeded: return "the peer does not answer, or has left before it confirmed the request";
    case Status::rnr_exceeded: return "the peer has posted no receive for too long";
  }
  return kUnknown;
}

TerminateText text_of(const Terminate& terminate) {
  switch (terminate.layer) {
    case Layer::rdma: return {"RDMAP", rdma_error(terminate)};
    case Layer::ddp: return {"DDP", ddp_error(terminate)};
    case Layer::llp: return {"MPA", mpa_error(terminate.code)};
  }
  return {"an unknown layer", kUnknown};
}

}  // namespace uiw::rdmap
