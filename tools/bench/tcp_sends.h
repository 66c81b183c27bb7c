// SPDX-License-Identifier: MIT
// How many small messages a second one plain TCP connection takes: what 8-byte RDMA Writes are compared with. And how
// long it takes to make connections: what queue pairs are compared with.
#pragma once

#include <chrono>
#include <string>

namespace uiw::tools {

// Sends 8 octets at a time, with TCP_NODELAY, over a connection of this process to itself at `address` (IPv4)
// while a second thread takes them, for about `duration`. Returns sends a second, up to the arrival of the
// last octet; 0 on failure, with `error` set.
double tcp_sends_per_second(const std::string& address, std::chrono::milliseconds duration, std::string& error);

// Microseconds that one end of a connection takes, from the socket on until an octet has come each way; 200 at a time,
// again and again for about `duration`, the median of these. 0 on failure, with `error` set.
double tcp_setup_us(const std::string& address, std::chrono::milliseconds duration, std::string& error);

}  // namespace uiw::tools
