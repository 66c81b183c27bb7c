// SPDX-License-Identifier: MIT
// The socket that a program gets in place of one of NETLINK_RDMA.
//
// The interposer gives the program a socket of NETLINK_USERSOCK, which needs no privilege and no RDMA in the kernel.
// Requests that the program sends to the kernel come here instead, and the answers are sent from the socket to itself,
// so that the kernel does all reading, polling, peeking and waiting. All state is in the socket.
#pragma once

#include <cstddef>

namespace uiw::kernel_abi {

// Takes the requests that the program sends by the descriptor `fd`. Returns the number of octets taken, and all answers
// can then be read; or a negative errno, for example -ENOBUFS if there is no room for the answers, since the program
// has not read earlier ones. Throws std::bad_alloc. Thread-safe.
long write_nldev_request(int fd, const void* data, std::size_t size);

// Called before and after a fork, so that the child finds the lock free.
void lock_nldev_sockets();
void unlock_nldev_sockets();

}  // namespace uiw::kernel_abi
