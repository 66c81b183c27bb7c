// SPDX-License-Identifier: MIT
#include "rdmap/terminate.h"

#include <algorithm>

namespace uiw::rdmap {

ErrorCode protection_error(ddp::AccessError error) {
  switch (error) {
    case ddp::AccessError::bounds: return ErrorCode::base_or_bounds;
    case ddp::AccessError::wrap: return ErrorCode::wrap;
    case ddp::AccessError::not_associated: return ErrorCode::not_associated;
    case ddp::AccessError::rights: return ErrorCode::access_rights;
    default: return ErrorCode::invalid_stag;
  }
}

ddp::TaggedError tagged_error(ddp::AccessError error) {
  switch (error) {
    case ddp::AccessError::bounds: return ddp::TaggedError::base_or_bounds;
    case ddp::AccessError::wrap: return ddp::TaggedError::wrap;
    case ddp::AccessError::not_associated: return ddp::TaggedError::not_associated;
    default: return ddp::TaggedError::invalid_stag;
  }
}

Terminate terminate_for(TerminateError error, Octets headers, std::size_t length, bool with_read_request) {
  Terminate terminate;
  terminate.layer = error.layer;
  terminate.type = error.type;
  terminate.code = error.code;
  if (headers.empty()) return terminate;
  terminate.has_ddp_header = true;
  terminate.segment_length = static_cast<std::uint16_t>(length);
  terminate.ddp_header_size = static_cast<std::uint8_t>(
      ddp::decode_control(headers[0]).tagged ? ddp::kTaggedHeaderSize : ddp::kUntaggedHeaderSize);
  std::copy_n(headers.begin(), terminate.ddp_header_size, terminate.ddp_header.begin());
  terminate.has_read_request = with_read_request;
  if (with_read_request) {
    std::copy_n(headers.begin() + ddp::kUntaggedHeaderSize, kReadRequestSize, terminate.read_request.begin());
  }
  return terminate;
}

}  // namespace uiw::rdmap
