// SPDX-License-Identifier: MIT
// How a Terminate is made: the error that it reports, and the segment that it names (RFC 5040 section 4.8 and figure 9;
// for DDP RFC 5041 section 7, for MPA RFC 5044 section 8 and RFC 6581 section 8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ddp/stag_table.h"
#include "mpa/mpa_format.h"
#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// An error of any layer, as the Terminate Control field has it.
struct TerminateError {
  Layer layer;
  std::uint8_t type, code;

  constexpr TerminateError(ErrorType what, ErrorCode why)
      : layer(Layer::rdma), type(static_cast<std::uint8_t>(what)), code(static_cast<std::uint8_t>(why)) {}
  constexpr TerminateError(ddp::TaggedError why)
      : TerminateError(ddp::ErrorType::tagged, static_cast<std::uint8_t>(why)) {}
  constexpr TerminateError(ddp::UntaggedError why)
      : TerminateError(ddp::ErrorType::untagged, static_cast<std::uint8_t>(why)) {}
  constexpr TerminateError(ddp::ErrorType what, std::uint8_t why)
      : layer(Layer::ddp), type(static_cast<std::uint8_t>(what)), code(why) {}
  constexpr TerminateError(mpa::MpaError why) : layer(Layer::llp), type(0), code(static_cast<std::uint8_t>(why)) {}
};

// A local catastrophic error has no code.
inline constexpr TerminateError kLocalCatastrophic{ErrorType::local_catastrophic, ErrorCode{0}};
// For an error that no message has caused (Bad LLP Close, an error of a completion queue: Verbs draft figure 24), an
// error at this end that is not the fault of the message that the Terminate names, and a misaligned address or a wrong
// identifier in an atomic operation (RFC 7306 section 8.2).
inline constexpr TerminateError kCatastrophicStream{ErrorType::remote_operation, ErrorCode::catastrophic_stream};

// The codes for an error of the STag table other than AccessError::none. RFC 5041 has no code for a missing right, so
// tagged_error() reports an STag without the right as invalid.
ErrorCode protection_error(ddp::AccessError error);
ddp::TaggedError tagged_error(ddp::AccessError error);

// Makes a Terminate. Without `headers` it names no segment; otherwise it names the segment of `length` octets whose DDP
// header is at the beginning of `headers`. `with_read_request`: the segment is a Read Request, and its RDMAP header
// follows the DDP header in `headers`; the Terminate gets both.
Terminate terminate_for(TerminateError error, Octets headers = {}, std::size_t length = 0,
                        bool with_read_request = false);

}  // namespace uiw::rdmap
