// SPDX-License-Identifier: MIT
// Two queue pairs of this process, connected with each other without rdma_cm.
#pragma once

#include "cases.h"
#include "manual.h"

namespace apps {

struct Couple {
  // With events, completions are slept for, so that threads have to be woken.
  explicit Couple(bool events = false) : cq(rnic, 64, events) {
    a.connect(b.place());
    b.connect(a.place());
  }
  // A message from a to b, and both completions.
  void talk() {
    char octets[32] = "hello";
    ibv_mr* mr = reg(rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
    b.receive(octets, sizeof octets, mr, 1);
    expect_error("ibv_post_send", a.send("hi", 3, 2), 0);
    for (int i = 0; i < 2; ++i) {
      ibv_wc wc{};
      if (!cq.next(wc)) die("no completion in time");
      if (wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    }
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }

  Rnic rnic{g_host};
  Cq cq;
  HandQp a{rnic, cq, {}}, b{rnic, cq, {}};
};

}  // namespace apps
