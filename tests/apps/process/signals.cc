// SPDX-License-Identifier: MIT
// SIGSEGV and SIGBUS belong to the program: what it does with them goes the same way with connections as without, while
// registered memory that is gone is an error of a work request and nothing else, whatever the program blocks.
//
//   uiw_signals HOST PORT CASE
#include "tests/apps/process/signals.h"

int main(int argc, char** argv) {
  apps::Cases cases;
  apps::signals::blocked_cases(cases);
  apps::signals::handler_cases(cases);
  apps::signals::default_cases(cases);
  return apps::run_case(argc, argv, cases);
}
