// SPDX-License-Identifier: MIT
#define CATCH_CONFIG_MAIN
// Its handlers would replace the copy guard's, which is installed once a process.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <catch2/catch.hpp>
