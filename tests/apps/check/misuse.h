// SPDX-License-Identifier: MIT
// What the cases of uiw_misuse have in common.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "tests/apps/support/manual_pair.h"

namespace apps {

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
// The check looks at what waits after a second: how long a case waits that is to be found then.
constexpr std::chrono::milliseconds kLate{2500};

// Memory of two queue pairs that are connected: `own` of the one that posts, `peers` of the other.
struct Talk : ManualPair {
  char own[256] = {}, peers[256] = {};
  ibv_mr* own_mr = reg(rnic.pd(), own, sizeof own, kAll);
  ibv_mr* peers_mr = reg(rnic.pd(), peers, sizeof peers, kAll);
  ~Talk() {
    near.destroy();
    far.destroy();
    for (ibv_mr* mr : {own_mr, peers_mr})
      if (mr != nullptr) ibv_dereg_mr(mr);
  }
  ibv_wc complete() const {
    const ibv_wc wc = next();
    if (wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    return wc;
  }
};

// A request with its element, to be posted by one call.
struct Request : ibv_send_wr {
  ibv_sge piece{};
  Request(ibv_wr_opcode with, const void* octets, std::uint32_t size, const ibv_mr* mr, unsigned flags)
      : ibv_send_wr{} {
    piece = {number(octets), size, mr != nullptr ? mr->lkey : 0};
    opcode = with;
    send_flags = flags;
    sg_list = &piece;
    num_sge = size > 0 ? 1 : 0;
    wr_id = 77;
  }
  Request& to(const void* address, const ibv_mr* mr) {
    wr.rdma = {number(address), mr->rkey};
    return *this;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
};

struct Receive : ibv_recv_wr {
  ibv_sge piece{};
  Receive(void* octets, std::uint32_t size, const ibv_mr* mr) : ibv_recv_wr{} {
    piece = {number(octets), size, mr->lkey};
    sg_list = &piece;
    num_sge = 1;
    wr_id = 78;
  }
  Receive(const Receive&) = delete;
  Receive& operator=(const Receive&) = delete;
};

// The program's wr_id comes back, whatever the check posts in its place.
inline void expect_own(const ibv_wc& wc) {
  if (wc.wr_id != 77 && wc.wr_id != 78) die("wr_id %llu", ull(wc.wr_id));
}

inline ibv_send_wr* bad_send = nullptr;
inline ibv_recv_wr* bad_receive = nullptr;

// Cases by their names; each function has the fault if it is called with true.
using Misuses = std::map<std::string, void (*)(bool)>;
Misuses misuses_of_peers();   // events, receives, refused requests
Misuses misuses_in_public();  // programs in the shape of faults that public programs had
Misuses misuses_elsewhere();  // what not every adapter has

// A program that reads a message after it has posted the receive again. Prints what it has read.
void show_posted_too_early();
// A program that counts on the order in which the octets of an RDMA Write are placed. Stops at the first message for
// which it was wrong, and prints whether there was one: 0 or 1.
void count_seen_in_part(int messages);
// A program that counts on the order of Writes by two queue pairs, or waits for the first. Prints how often the second
// came first.
void count_pointer_first(bool waits);

}  // namespace apps
