// SPDX-License-Identifier: MIT
// The header of Catch2 2 (Debian 12), where there is Catch2 3 (Debian 13 and later), whose files have other names.
#pragma once

#include <catch2/catch_all.hpp>

using Catch::Approx;
