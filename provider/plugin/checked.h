// SPDX-License-Identifier: MIT
// The operations of a process that is checked (`uiw run --check`, provider/check/): each tells the Checker of the
// program's call, and carries it out as the operation of the same name does.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "provider/plugin/abi/ops_table.h"
#include "provider/plugin/objects.h"

namespace uiw::plugin {

extern const NamedOp kCheckedOps[];
extern const std::size_t kCheckedOpCount;

// What the Checker asks of the plugin's objects.
extern const rnic::check::Questions kQuestions;

// A device was opened, by a process that is checked, or is about to be closed, by any process.
void note_opened(ibv_context& context);
void note_closes(ibv_context& context);

// Adds a request to the batch that is open (ibv_wr_*).
void add_checked(Qp& qp, ibv_send_wr& request);

}  // namespace uiw::plugin
