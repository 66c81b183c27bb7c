// SPDX-License-Identifier: MIT
// The processes of this user and network namespace that use uiw, and what they have.
//
// A process with an open device has a datagram socket with an abstract name (unix(7)), "uiw-process/USER/PID/RANDOM",
// in which the names of the process and of its effective user are those of its own namespaces. Whoever asks finds these
// names in /proc/net/unix, and sends a datagram; the thread "uiw-cm" of the process answers with a descriptor of memory
// that has its inventory. The kernel tells either side which user the other one has, and both refuse any other than
// their own. A process that ends leaves nothing behind.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <vector>

#include "provider/inventory/inventory.h"

namespace uiw::provider {

// From here on this process is found. Does nothing if it is already; if there is no descriptor or thread for it, the
// process is not found until the next call has better luck. Called whenever a device is opened, and when a queue pair
// is made, since the child of a fork may use the devices of its parent.
void publish_inventory() noexcept;
// In the child of a fork, which is not found until it publishes itself.
void withdraw_inventory_in_child();

// How long a process may take to answer. All are asked at once.
constexpr std::chrono::milliseconds kAnswerTime{300};

// The inventories of all processes that answer, this one's among them, in the order of their PIDs. Processes that are
// stopped or hang are left out; they cost kAnswerTime once a second, and not the next questions of this process within
// that second. Throws std::bad_alloc.
std::vector<ProcessInventory> ask_processes();

}  // namespace uiw::provider
