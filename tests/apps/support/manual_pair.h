// SPDX-License-Identifier: MIT
// The fixture Pair without rdma_cm: two queue pairs of this process that are connected with each other, `near` and
// `far`.
#pragma once

#include "tests/apps/support/cases.h"
#include "tests/apps/support/manual.h"

namespace apps {

// The device at g_host and a completion queue. With events, completions are slept for, so that threads have to be
// woken.
struct Side {
  explicit Side(bool events = false) : cq(rnic, 64, events) {}
  Rnic rnic{g_host};
  Cq cq;
};

// The side must remain live as long as the queue pairs, which are its.
struct ManualPairOn {
  explicit ManualPairOn(const Side& of) : side(of) { connect(near, far); }
  // A message from near to far, and both completions.
  void talk() const {
    char octets[32] = "hello";
    ibv_mr* mr = reg(side.rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
    far.receive(octets, sizeof octets, mr, 1);
    expect_error("ibv_post_send", near.send("hi", 3, 2), 0);
    for (int i = 0; i < 2; ++i)
      if (const ibv_wc wc = next(); wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }
  // The next completion of either.
  ibv_wc next() const {
    ibv_wc wc{};
    if (!side.cq.next(wc)) die("no completion in time");
    return wc;
  }

  const Side& side;
  ManualQp near{side.rnic, side.cq, {}}, far{side.rnic, side.cq, {}};
};

struct ManualPair : Side, ManualPairOn {
  explicit ManualPair(bool events = false) : Side(events), ManualPairOn(static_cast<const Side&>(*this)) {}
};

}  // namespace apps
