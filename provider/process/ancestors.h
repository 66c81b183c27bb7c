// SPDX-License-Identifier: MIT
// For those who only look: asking this makes no heir (inheritance.h).
#pragma once

namespace uiw::provider {

// Whether all processes have ended from which this one descends and that had what was made in this generation.
bool ancestors_have_ended(unsigned generation);

}  // namespace uiw::provider
