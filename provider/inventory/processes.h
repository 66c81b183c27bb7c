// SPDX-License-Identifier: MIT
// Finds the processes of this user and network namespace that use uiw, and asks them for their inventories.
//
// A process with an open device has a datagram socket with an abstract name (unix(7)), "uiw-process/USER/PID/RANDOM",
// with its PID and effective user as its own namespaces number them. A process that asks finds these names in
// /proc/net/unix, and sends a datagram to each. The thread "uiw-cm" of the process that is asked answers with the
// descriptor of a memfd with its inventory. The kernel tells each side the user of the other, and both refuse any user
// but their own. When a process ends, its name disappears.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <vector>

#include "provider/inventory/inventory.h"

namespace uiw::provider {

// Makes this process visible to processes that ask, if it is not visible yet. If no descriptor or no thread is
// available, the process stays invisible until a later call succeeds. Called when a device is opened, and, since the
// child of a fork may use the devices and rdma_cm ids of its parent, when a queue pair is made or ids are taken over.
void publish_inventory() noexcept;
// Called in the child of a fork, which is invisible until it calls publish_inventory().
void withdraw_inventory_in_child();

// How long a process may take to answer. All processes are asked at the same time.
constexpr std::chrono::milliseconds kAnswerTime{1000};

// The inventories of all processes that answer, including this one, in the order of their PIDs; at most 256 others are
// asked. Processes that are stopped are left out after a few milliseconds, and those that hang after kAnswerTime;
// within the next second, calls of this process wait only a few milliseconds for these, too. Throws std::bad_alloc.
std::vector<ProcessInventory> ask_processes();

}  // namespace uiw::provider
