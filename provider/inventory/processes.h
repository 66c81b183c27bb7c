// SPDX-License-Identifier: MIT
// The processes of this user and network namespace that use uiw, and what they have.
//
// A process with an open device has a datagram socket with an abstract name (unix(7)), "uiw-process/USER/PID/RANDOM",
// with its PID and effective user as its own namespaces number them. A process that asks finds these names in
// /proc/net/unix, and sends a datagram to each. The thread "uiw-cm" of the other process answers with the descriptor of
// a memfd that has its inventory. The kernel tells each side the user of the other, and both refuse any user but their
// own. A process that ends leaves nothing behind.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <vector>

#include "provider/inventory/inventory.h"

namespace uiw::provider {

// Makes this process visible to those that ask, if it is not yet. Without a descriptor or a thread for it, the process
// stays invisible until a later call succeeds. Called whenever a device is opened, and when a queue pair is made, since
// the child of a fork may use the devices of its parent.
void publish_inventory() noexcept;
// In the child of a fork, which is invisible until it publishes itself.
void withdraw_inventory_in_child();

// How long a process may take to answer. All are asked at once.
constexpr std::chrono::milliseconds kAnswerTime{300};

// The inventories of all processes that answer, including this one, in the order of their PIDs. Processes that are
// stopped or hang are left out. A call waits kAnswerTime for them; later calls of this process wait only a few
// milliseconds for them, until a second has passed. Throws std::bad_alloc.
std::vector<ProcessInventory> ask_processes();

}  // namespace uiw::provider
