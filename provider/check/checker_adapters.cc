// SPDX-License-Identifier: MIT
// `--check=all`: what works here and not on every adapter. adapters.h says on which.
#include <utility>

#include "provider/check/adapters.h"
#include "provider/check/checker.h"
#include "provider/check/text.h"
#include "provider/process/settings.h"

namespace uiw::provider::check {

namespace {

bool is_iwarp() { return settings().values.transport == Transport::iwarp; }
const Adapters& adapters() { return is_iwarp() ? kIwarpAdapters : kRoceAdapters; }

// Sentences of one call, which are reported together.
class Complaints {
 public:
  void add(const std::string& sentence) { all_ += (all_.empty() ? "" : "; ") + sentence; }
  void add_if(bool wrong, const char* sentence) {
    if (wrong) add(sentence);
  }
  void add_excess(const char* what, std::uint32_t wanted, std::uint32_t most) {
    if (wanted > most) {
      add(text("%u %s, and some %s adapters have %u", wanted, what, adapters().transport, most));
    }
  }
  bool any() const { return !all_.empty(); }
  const std::string& all() const { return all_; }

 private:
  std::string all_;
};

}  // namespace

bool Checker::warns() { return settings().values.check == Check::all; }

void Checker::warn(const char* function, const std::string& complaints) {
  const Place place = Place::here();
  if (is_made_by_librdmacm(place)) return;
  const Locked lock(*this);
  report(FaultKind::not_portable, {place, "called"}, {}, [&] { return function + (": " + complaints); });
}

void Checker::asks_for_qp(const ibv_qp_cap& wanted, ibv_qp_type type, bool shared, bool batches) {
  if (off_ || !warns()) return;
  const Adapters& most = adapters();
  Complaints complaints;
  complaints.add_excess("octets of inline data", wanted.max_inline_data, most.inline_data);
  complaints.add_excess("SGEs for sends", wanted.max_send_sge, most.sges);
  complaints.add_excess("SGEs for receives", shared ? 0 : wanted.max_recv_sge, most.sges);
  complaints.add_excess("places for sends", wanted.max_send_wr, most.requests);
  complaints.add_excess("places for receives", shared ? 0 : wanted.max_recv_wr, most.requests);
  complaints.add_if(type == IBV_QPT_UC, "only some ConnectX have UC");
  complaints.add_if(type == IBV_QPT_UD && is_iwarp(), "no iWARP adapter has UD");
  complaints.add_if(batches, "some adapters have no ibv_wr_* (irdma, qedr, cxgb4)");
  if (complaints.any()) warn("ibv_create_qp", complaints.all());
}

void Checker::asks_for_cq(int entries) {
  if (off_ || !warns()) return;
  Complaints complaints;
  complaints.add_excess("places for completions", static_cast<std::uint32_t>(entries), adapters().completions);
  if (complaints.any()) warn("ibv_create_cq", complaints.all());
}

void Checker::asks_for(Feature feature) {
  if (off_ || !warns()) return;
  switch (feature) {
    case Feature::shared_receives: return warn("ibv_create_srq", "Intel's adapters (irdma) have no SRQ");
    case Feature::windows:
      return warn("ibv_alloc_mw", "many adapters have no memory windows (cxgb4, bnxt_re, qedr, hns)");
    case Feature::resize: return warn("ibv_resize_cq", "some adapters cannot resize a CQ (cxgb4, qedr, hns)");
    case Feature::on_demand: return warn("ibv_reg_mr", "only ConnectX has on-demand paging");
  }
}

void Checker::asks_for_step(const ibv_qp_attr& attributes, int mask) {
  if (off_ || !warns()) return;
  Complaints complaints;
  const bool to_rtr = (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RTR;
  const bool to_rts = (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RTS;
  complaints.add_if(is_iwarp() && (to_rtr || to_rts), "iWARP adapters are connected by rdma_cm alone");
  complaints.add_if(!is_iwarp() && to_rtr && (mask & IBV_QP_AV) != 0 && attributes.ah_attr.grh.sgid_index == 0,
                    "GID index 0 is, on RoCE adapters, that of RoCE v1 and a link-local address; look for the GID of "
                    "type RoCE v2 with the address that is meant");
  const auto reads = [&](int flag, const char* what, std::uint32_t wanted) {
    if ((mask & flag) != 0) complaints.add_excess(what, wanted, adapters().reads);
  };
  reads(IBV_QP_MAX_QP_RD_ATOMIC, "RDMA Reads at once", attributes.max_rd_atomic);
  reads(IBV_QP_MAX_DEST_RD_ATOMIC, "RDMA Reads of the peer at once", attributes.max_dest_rd_atomic);
  if (complaints.any()) warn("ibv_modify_qp", complaints.all());
}

bool Checker::atomics_miss_processors() { return !is_iwarp(); }

// Of a request that is about to be posted.
void Checker::look_at_portability(const Work& work, const ibv_qp& qp, const ibv_send_wr& request) {
  Complaints complaints;
  const bool atomic = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  complaints.add_if(atomic, "some adapters have no atomics (irdma, cxgb4)");
  complaints.add_if(request.opcode == IBV_WR_LOCAL_INV,
                    "many adapters have no local invalidation (cxgb4, bnxt_re, "
                    "qedr, hns)");
  if (is_iwarp()) {
    complaints.add_if(request.opcode == IBV_WR_SEND_WITH_IMM, "iWARP has no Send with immediate");
    complaints.add_if(request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
                      "RDMA Write with immediate is of RFC 7306, which many iWARP adapters do not have");
  }
  if (request.opcode == IBV_WR_RDMA_READ) {
    complaints.add_excess("SGEs of an RDMA Read", static_cast<std::uint32_t>(request.num_sge), adapters().read_sges);
    for (const Span& span : work.spans) {
      const auto region = regions_.find(span.lkey);
      if (!is_iwarp() || region == regions_.end() || (region->second.access & IBV_ACCESS_REMOTE_WRITE) != 0) continue;
      complaints.add("on iWARP the region that an RDMA Read fills needs IBV_ACCESS_REMOTE_WRITE");
      break;
    }
  }
  const ibv_qp_state state = is_there(&qp) ? questions_.state_of(qp) : IBV_QPS_RTS;
  if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR)
    complaints.add("many adapters take no sends before RTS");
  if (!complaints.any()) return;
  find(work, FaultKind::not_portable, {work.caller, "posted"}, {},
       [&] { return text_of(work) + ": " + complaints.all(); });
}

// Work at the end of a queue of which nothing will say whether it was done.
void Checker::look_at_last_sends(const void* handle, const Place& place) {
  const auto queue = work_.queues.find(handle);
  if (queue == work_.queues.end() || queue->second.sends.empty()) return;
  const Work* const last = work_.find(queue->second.sends.back());
  // The peer's answer may have told the program.
  if (last == nullptr || last->signaled || last->number <= queue->second.heard || !is_there(handle) ||
      questions_.state_of(*static_cast<const ibv_qp*>(handle)) != IBV_QPS_RTS)
    return;
  report(FaultKind::unsignaled_end, {place, "destroyed"}, {last->caller, "posted"}, [&] {
    return text_of(*last) +
           " is not signaled, and nothing after it is, so that the program cannot know that it was "
           "done when it destroys the queue pair";
  });
}

}  // namespace uiw::provider::check
