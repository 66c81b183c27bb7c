// SPDX-License-Identifier: MIT
// The code of a remote protection error (RFC 5040 figure 9) for what the STag table has found.
#pragma once

#include "ddp/stag_table.h"
#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// `error` is not `none`.
constexpr ErrorCode protection_error(ddp::AccessError error) {
  switch (error) {
    case ddp::AccessError::bounds: return ErrorCode::base_or_bounds;
    case ddp::AccessError::wrap: return ErrorCode::wrap;
    case ddp::AccessError::not_associated: return ErrorCode::not_associated;
    case ddp::AccessError::rights: return ErrorCode::access_rights;
    default: return ErrorCode::invalid_stag;
  }
}

}  // namespace uiw::rdmap
