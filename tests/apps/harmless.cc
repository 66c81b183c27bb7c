// SPDX-License-Identifier: MIT
// What a program may do to itself and its RDMA objects, and comes to no harm by uiw.
//
//   uiw_harmless HOST PORT CASE
#include <csignal>

#include "by_hand.h"
#include "cases.h"

namespace {

using apps::die;
using apps::expect_error;

// Two queue pairs of this process, connected with each other.
struct Couple {
  apps::Rnic rnic{apps::g_host};
  apps::Cq cq{rnic, 64};
  apps::HandQp a{rnic, cq, {}}, b{rnic, cq, {}};
  Couple() {
    a.connect(b.place());
    b.connect(a.place());
  }
  // A message from a to b, and both completions.
  void talk() {
    char octets[32] = "hello";
    ibv_mr* mr = apps::reg(rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
    b.receive(octets, sizeof octets, mr, 1);
    expect_error("ibv_post_send", a.send("hi", 3, 2), 0);
    for (int i = 0; i < 2; ++i) {
      ibv_wc wc{};
      if (!cq.next(wc)) die("no completion in time");
      if (wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    }
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }
};

apps::Cases make_cases() {
  apps::Cases cases;

  // With queue pairs, a completion queue with moderation, a shared receive queue and a region left over.
  cases["device_closed_first"] = [] {
    auto* couple = new Couple;
    couple->talk();
    ibv_modify_cq_attr moderation{};
    moderation.attr_mask = IBV_CQ_ATTR_MODERATE;
    moderation.moderate = {100, 50'000};
    expect_error("ibv_modify_cq", ibv_modify_cq(couple->cq.get(), &moderation), 0);
    expect_error("ibv_req_notify_cq", ibv_req_notify_cq(couple->cq.get(), 0), 0);
    char octets[8] = {};
    ibv_mr* mr = apps::reg(couple->rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
    couple->b.receive(octets, sizeof octets, mr, 1);
    expect_error("ibv_post_send", couple->a.send("bye", 4, 2), 0);
    expect_error("ibv_close_device", ibv_close_device(couple->rnic.context()), 0);
    usleep(100'000);  // what has been started may end
  };

  return cases;
}

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, make_cases()); }
