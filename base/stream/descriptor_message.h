// SPDX-License-Identifier: MIT
// Messages of a few octets with descriptors (SCM_RIGHTS) over a Unix stream socket. Neither function blocks. The buffer
// of a new socket has room for one message. Thread-safe.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "base/descriptor.h"

namespace uiw {

constexpr std::size_t kMostDescriptors = 3;  // in a message

// False if the message was not sent as a whole.
bool send_message(int socket, Octets octets, std::span<const int> fds);
// Fills `octets` with the message and `fds` with its descriptors, which are close-on-exec. Before `change` ends, the
// caller passes each of them to take(), guard() or drop() of `change`. Entries of `fds` that are left over become -1;
// descriptors without an entry are closed. False, with all entries -1, if fewer octets have arrived than `octets` has
// room for.
bool receive_message(const DescriptorChange& change, int socket, MutableOctets octets, std::span<int> fds);

}  // namespace uiw
