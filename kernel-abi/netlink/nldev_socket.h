// SPDX-License-Identifier: MIT
// The socket that stands in for one of NETLINK_RDMA.
//
// The interposer gives the program a socket of NETLINK_USERSOCK, which needs no privilege and no RDMA in the kernel.
// What the program sends to the kernel comes here instead, and the answers are sent to that socket, by itself: so all
// that reads, polls, peeks and waits is the kernel's. All state is in the socket.
#pragma once

#include <cstddef>

namespace uiw::kernel_abi {

// Takes the requests that the program sends by the descriptor `fd`. When it returns, all answers can be read. Returns
// the number of octets taken, or a negative errno: ENOBUFS if the program has not read so much that the answers find no
// room. Thread-safe.
long write_nldev_request(int fd, const void* data, std::size_t size);

// Called before and after a fork, so that the child finds the lock free.
void lock_nldev_sockets();
void unlock_nldev_sockets();

}  // namespace uiw::kernel_abi
