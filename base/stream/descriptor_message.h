// SPDX-License-Identifier: MIT
// Messages of a few octets with descriptors (SCM_RIGHTS) over a Unix stream socket. Neither function blocks. A new
// socket's buffer has room for a message. Thread-safe.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "base/descriptor.h"

namespace uiw {

constexpr std::size_t kMostDescriptors = 3;  // in a message

// False if the message was not sent as a whole.
bool send_message(int socket, Octets octets, std::span<const int> fds);
// Fills `octets` with the message and `fds` with its descriptors, close-on-exec, which the caller takes or drops before
// `change` ends. Entries of `fds` that are left over become -1; descriptors without an entry are closed. False, without
// descriptors, if the message is shorter than `octets`.
bool receive_message(const DescriptorChange& change, int socket, MutableOctets octets, std::span<int> fds);

}  // namespace uiw
