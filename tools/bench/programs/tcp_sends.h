// SPDX-License-Identifier: MIT
// The references of plain TCP: how many small messages per second one connection carries, for 8-byte RDMA Writes; and
// how long it takes to make connections, for the set-up of queue pairs.
#pragma once

#include <chrono>
#include <string>

namespace uiw::tools {

// Sends 8 octets at a time, with TCP_NODELAY, over a connection of this process to itself at `address` (IPv4), while a
// second thread receives them, for about `duration`. Returns sends per second, up to the arrival of the last octet; 0
// on failure, with `error` set.
double tcp_sends_per_second(const std::string& address, std::chrono::milliseconds duration, std::string& error);

// Microseconds for one end of a connection, from creating the socket until an octet has arrived in each direction.
// Makes 200 connections at a time, repeatedly for about `duration`, and returns the median; 0 on failure, with `error`
// set.
double tcp_setup_us(const std::string& address, std::chrono::milliseconds duration, std::string& error);

}  // namespace uiw::tools
