// SPDX-License-Identifier: MIT
// What wrong use of verbs and rdma_cm must give: the documented errno or completion status, and never a
// crash.
//
//   uiw_bad_input HOST PORT CASE     runs one case; --list names them
//
// Both ends are in this process: a listener and a caller on HOST.
#include "tests/apps/errors/bad_input.h"

int main(int argc, char** argv) {
  apps::Cases cases;
  apps::bad_input::work_request_cases(cases);
  apps::bad_input::remote_memory_cases(cases);
  apps::bad_input::object_cases(cases);
  return apps::run_case(argc, argv, cases);
}
