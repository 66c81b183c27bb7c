// SPDX-License-Identifier: MIT
// Catch2's signal handlers would replace the copy guard's, which is installed once a process: they are left out.
#define CATCH_CONFIG_MAIN
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <catch2/catch.hpp>

#ifdef CATCH_VERSION_MAJOR
#if CATCH_VERSION_MAJOR >= 3
#include <catch2/internal/catch_fatal_condition_handler.hpp>

// Catch2 3 is compiled with its handlers; these take the place of its functions that install them.
namespace Catch {

FatalConditionHandler::FatalConditionHandler() = default;
FatalConditionHandler::~FatalConditionHandler() = default;
void FatalConditionHandler::engage_platform() {}
void FatalConditionHandler::disengage_platform() noexcept {}

}  // namespace Catch

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#endif
#endif
