// SPDX-License-Identifier: MIT
// Every way in which work fails on a manual connection, as programs written for InfiniBand look for it:
// the one request completes with its status, those before it succeed, those behind it flush, the queue pair
// is in ERR; the responder has its async event, or a completion of its own.
//
// The requester calls (two_programs.h).
//
// By the local rule (UIW_COMPLETION=local) a Send or Write completes once TCP has it (RFC 5040 section 5.5),
// and may have done so before the peer complains of it.
#include <sys/mman.h>

#include <tuple>

#include "tests/apps/errors/statuses.h"

namespace apps::manual::statuses {

namespace {

// The ways to have no access, for one operation. `right` is what the peer's queue pair needs for it.
void add_access_cases(Cases& cases, const std::string& name, ibv_wr_opcode opcode, std::uint32_t length,
                      unsigned right) {
  const bool atomic = answered(opcode) && opcode != IBV_WR_RDMA_READ;
  const auto key = [=](ibv_send_wr& request) -> std::uint32_t& {
    return atomic ? request.wr.atomic.rkey : request.wr.rdma.rkey;
  };
  const auto address = [=](ibv_send_wr& request) -> std::uint64_t& {
    return atomic ? request.wr.atomic.remote_addr : request.wr.rdma.remote_addr;
  };
  const auto refused = [&](const char* why, const std::function<void(const Exposed&, ibv_send_wr&)>& spoil) {
    Failing what;
    what.status = IBV_WC_REM_ACCESS_ERR;
    what.event = IBV_EVENT_QP_ACCESS_ERR;
    what.add_culprit = [=](Requester& requester) {
      spoil(requester.exposed, requester.add(kCulprit, opcode, length, 131'072));
    };
    add_case(cases, name + why, what);
  };
  refused("_bad_rkey", [=](const Exposed&, ibv_send_wr& request) { key(request) ^= 0x5A5A5A00; });
  refused("_out_of_bounds", [=](const Exposed& exposed, ibv_send_wr& request) {
    address(request) = exposed.address + kSize - length / 16 * 8;
  });
  refused("_region_rights", [=](const Exposed& exposed, ibv_send_wr& request) { key(request) = exposed.none; });
  refused("_other_domain", [=](const Exposed& exposed, ibv_send_wr& request) { key(request) = exposed.foreign; });
  // To InfiniBand, an operation that the peer's queue pair does not take at all is an invalid request.
  Failing denied;
  denied.status = IBV_WC_REM_INV_REQ_ERR;
  denied.event = IBV_EVENT_QP_REQ_ERR;
  denied.peer.access = kRemote & ~right;
  denied.add_culprit = [=](Requester& requester) { requester.add(kCulprit, opcode, length, 131'072); };
  add_case(cases, name + "_queue_pair_rights", denied);
}

void* page() { return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

// Messages that do not fit their receives.
void add_message_cases(Cases& cases) {
  for (const auto& [name, opcode] : {std::pair("send", IBV_WR_SEND), {"send_imm", IBV_WR_SEND_WITH_IMM}}) {
    for (const auto& [size, length] : {std::pair("", kReceive + 1), {"_by_far", kLong}}) {
      Failing what;
      what.status = IBV_WC_REM_INV_REQ_ERR;
      what.receive = IBV_WC_LOC_LEN_ERR;
      what.add_culprit = [opcode = opcode, length = length](Requester& requester) {
        requester.add(kCulprit, opcode, length);
      };
      add_case(cases, std::string(name) + "_too_long" + size, what);
    }
  }
  Failing what;
  what.status = IBV_WC_REM_INV_REQ_ERR;
  what.receive = IBV_WC_LOC_LEN_ERR;
  what.add_culprit = [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND, 1); };
  what.post_receive = [](Responder& responder) { responder.post_receive(2, 0); };
  add_case(cases, "send_no_room", what);

  what = {};
  what.status = IBV_WC_REM_ACCESS_ERR;
  what.event = IBV_EVENT_QP_ACCESS_ERR;
  what.add_culprit = [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND_WITH_INV, kMessage); };
  add_case(cases, "send_inv_bad_rkey", what);

  what = {};
  what.status = IBV_WC_REM_OP_ERR;
  what.receive = IBV_WC_LOC_PROT_ERR;
  what.add_culprit = [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND, kMessage); };
  what.post_receive = [](Responder& responder) {
    void* gone = page();
    const ibv_mr* mr = responder.end.reg(gone, 4096, IBV_ACCESS_LOCAL_WRITE);
    responder.end.post_receive(2, {reinterpret_cast<std::uint64_t>(gone), kReceive, mr->lkey});
    mprotect(gone, 4096, PROT_NONE);  // whose place nothing else may take
  };
  add_case(cases, "receive_gone", what);
}

void add_atomic_cases(Cases& cases) {
  for (const auto& [name, opcode] :
       {std::pair("fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD), {"compare_swap", IBV_WR_ATOMIC_CMP_AND_SWP}}) {
    add_access_cases(cases, name, opcode, 8, IBV_ACCESS_REMOTE_ATOMIC);
    Failing what;
    what.status = IBV_WC_REM_INV_REQ_ERR;
    what.event = IBV_EVENT_QP_REQ_ERR;
    what.add_culprit = [opcode = opcode](Requester& requester) { requester.add(kCulprit, opcode, 8, 131'076); };
    add_case(cases, std::string(name) + "_misaligned", what);
  }
}

// What the requester finds by itself.
void add_local_cases(Cases& cases) {
  const auto add = [&](const char* name, ibv_wc_status status, const std::function<void(Requester&)>& culprit,
                       bool late = false) {
    Failing what;
    what.status = status;
    what.here = true;
    what.late = late;
    what.add_culprit = culprit;
    add_case(cases, name, what);
  };
  for (const auto& [name, opcode] : {std::pair("send_bad_lkey", IBV_WR_SEND),
                                     {"write_bad_lkey", IBV_WR_RDMA_WRITE},
                                     {"read_bad_lkey", IBV_WR_RDMA_READ}}) {
    add(name, IBV_WC_LOC_PROT_ERR, [opcode = opcode](Requester& requester) {
      requester.add(kCulprit, opcode, kMessage, 131'072);
      requester.last_sge().lkey ^= 0x5A5A5A00;
    });
  }
  add("send_out_of_bounds", IBV_WC_LOC_PROT_ERR,
      [](Requester& requester) { requester.add(kCulprit, IBV_WR_SEND, kMessage, kSize - 10); });
  add("read_into_constant", IBV_WC_LOC_PROT_ERR, [](Requester& requester) {
    const ibv_mr* constant = requester.end.reg(requester.memory.data(), kSize, 0);
    requester.add(kCulprit, IBV_WR_RDMA_READ, kMessage, 131'072);
    requester.last_sge().lkey = constant->lkey;
  });
  add("send_gone", IBV_WC_LOC_PROT_ERR, [](Requester& requester) {
    void* gone = page();
    const ibv_mr* mr = requester.end.reg(gone, 4096, IBV_ACCESS_LOCAL_WRITE);
    requester.add(kCulprit, IBV_WR_SEND, kMessage);
    requester.last_sge() = {reinterpret_cast<std::uint64_t>(gone), kMessage, mr->lkey};
    mprotect(gone, 4096, PROT_NONE);  // whose place nothing else may take
  });
  for (const auto& [name, opcode, length] : {std::tuple("read_sink_gone", IBV_WR_RDMA_READ, kMessage),
                                             {"fetch_add_sink_gone", IBV_WR_ATOMIC_FETCH_AND_ADD, 8U}}) {
    add(
        name, IBV_WC_LOC_PROT_ERR,
        [opcode = opcode, length = length](Requester& requester) {
          void* gone = page();
          const ibv_mr* mr = requester.end.reg(gone, 4096, IBV_ACCESS_LOCAL_WRITE);
          requester.add(kCulprit, opcode, length, 131'072);
          requester.last_sge() = {reinterpret_cast<std::uint64_t>(gone), length, mr->lkey};
          mprotect(gone, 4096, PROT_NONE);
        },
        true);
  }
  for (const auto& [name, opcode] :
       {std::pair("fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD), {"compare_swap", IBV_WR_ATOMIC_CMP_AND_SWP}}) {
    for (const auto& [how, length] : {std::pair("_too_short", 4U), {"_too_long", 9U}, {"_far_too_long", 4096U}}) {
      add((std::string(name) + how).c_str(), IBV_WC_LOC_LEN_ERR,
          [opcode = opcode, length = length](Requester& requester) {
            requester.add(kCulprit, opcode, length, kLaterAt);
          });
    }
  }
  add("invalidate_bad_key", IBV_WC_LOC_PROT_ERR, [](Requester& requester) {
    ibv_send_wr& request = requester.add(kCulprit, IBV_WR_LOCAL_INV, 0);
    request.num_sge = 0;
    request.invalidate_rkey = requester.mr->rkey;
  });
}

Cases make_cases() {
  Cases cases;
  add_access_cases(cases, "write", IBV_WR_RDMA_WRITE, kMessage, IBV_ACCESS_REMOTE_WRITE);
  add_access_cases(cases, "long_write", IBV_WR_RDMA_WRITE, kLong, IBV_ACCESS_REMOTE_WRITE);
  add_access_cases(cases, "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, kMessage, IBV_ACCESS_REMOTE_WRITE);
  add_access_cases(cases, "read", IBV_WR_RDMA_READ, kMessage, IBV_ACCESS_REMOTE_READ);
  add_atomic_cases(cases);
  add_message_cases(cases);
  add_local_cases(cases);
  add_absent_cases(cases);
  add_rnr_cases(cases);
  return cases;
}

}  // namespace

}  // namespace apps::manual::statuses

int main(int argc, char** argv) { return apps::manual::run_case(argc, argv, apps::manual::statuses::make_cases()); }
