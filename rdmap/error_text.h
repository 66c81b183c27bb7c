// SPDX-License-Identifier: MIT
// Texts of errors, for log messages. The texts are static and never null. The texts for Terminate messages follow the
// specifications (RFC 5040 section 4.8 figure 9; for DDP RFC 5041 section 7, for MPA RFC 5044 section 8 and RFC 6581
// section 8; RFC 7306 section 8.2).
#pragma once

#include "rdmap/rdmap_format.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

struct TerminateText {
  const char* layer;  // "RDMAP", "DDP", "MPA", or "an unknown layer"
  const char* error;  // what the code means, or "an unknown error"
};
TerminateText text_of(const Terminate& terminate);

// A text that says why a work request completes with this status.
const char* text_of(Status status);

}  // namespace uiw::rdmap
