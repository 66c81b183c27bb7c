// SPDX-License-Identifier: MIT
#include "provider/verbs/inventory_source.h"

#include <algorithm>

#include "provider/check/checker.h"
#include "provider/inventory/processes.h"
#include "provider/memory/memory.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq/cq.h"
#include "provider/verbs/queue_pair.h"
#include "provider/verbs/srq.h"

namespace uiw::provider {

namespace {

std::uint32_t device_of(Inventory& inventory, const Context& context) {
  return inventory.index_of_device(context.device().name);
}

// Listed::for_each() holds the lock of its list, and no lock of a queue pair may be taken then. for_each_queue_pair()
// holds no such lock, so QueuePair::show() may take the sender's lock.
void show_objects(Inventory& inventory) {
  Listed<Context>::for_each([&](const Context& context) {
    inventory.contexts.push_back({device_of(inventory, context), context.listed_number()});
  });
  Listed<Pd>::for_each([&](const Pd& pd) {
    const Context* const context = pd.shown_context();
    if (context == nullptr) return;
    inventory.pds.push_back({device_of(inventory, *context), pd.listed_number(), context->listed_number(),
                             static_cast<std::uint32_t>(pd.users())});
  });
  Listed<Cq>::for_each([&](const Cq& cq) {
    inventory.cqs.push_back({device_of(inventory, cq.context()), cq.listed_number(), cq.context().listed_number(),
                             static_cast<std::uint32_t>(cq.users()), static_cast<std::uint32_t>(cq.entries())});
  });
  Listed<Mr>::for_each([&](const Mr& mr) {
    if (mr.pd().shown_context() == nullptr) return;
    inventory.mrs.push_back({device_of(inventory, *mr.pd().shown_context()), mr.listed_number(),
                             mr.pd().listed_number(), mr.key(), mr.region().base, mr.region().length});
  });
  Listed<Srq>::for_each([&](const Srq& srq) {
    if (srq.pd().shown_context() == nullptr) return;
    inventory.srqs.push_back({device_of(inventory, *srq.pd().shown_context()), srq.number(), srq.pd().listed_number()});
  });
  for_each_queue_pair([&](std::uint32_t number, QueuePair& qp) {
    if (qp.inherited()) return;
    ShownQp shown{};
    shown.device = device_of(inventory, qp.context());
    shown.number = number;
    qp.show(shown, inventory.devices[shown.device].counts);
    inventory.qps.push_back(shown);
  });
  auto* const checker = check::Checker::active();
  if (checker == nullptr || inventory.devices.empty()) return;
  for (const check::Checker::Refusal& refusal : checker->refusals()) {
    ShownRefusal shown{0, refusal.key, refusal.offset, {}};
    refusal.reason.copy(shown.reason, sizeof shown.reason - 1);
    inventory.refusals.push_back(shown);
  }
}

[[maybe_unused]] const bool added = [] {
  add_inventory_source(show_objects);
  return true;
}();

}  // namespace

std::string reason_of_refusal(std::uint32_t key, std::uint64_t offset) {
  for (const ProcessInventory& process : ask_processes()) {
    const auto& all = process.inventory.refusals;
    const auto found = std::find_if(all.rbegin(), all.rend(),
                                    [&](const ShownRefusal& one) { return one.key == key && one.offset == offset; });
    if (found == all.rend()) continue;
    // Another program of this user has written it.
    std::string reason = found->reason;
    std::replace_if(
        reason.begin(), reason.end(), [](unsigned char octet) { return octet < ' ' || octet > '~'; }, '?');
    return reason;
  }
  return {};
}

void show_identity(const QpIdentity& qp, ibv_qp_state state, const ibv_qp_attr& attributes, ShownQp& shown) {
  shown.pd = qp.pd.listed_number();
  shown.rq_psn = attributes.rq_psn;
  shown.sq_psn = attributes.sq_psn;
  shown.type = static_cast<std::uint8_t>(qp.type);
  shown.state = static_cast<std::uint8_t>(state);
  shown.migration = IBV_MIG_MIGRATED;
}

void add_traffic(const StreamTraffic& traffic, PortCounts& counts) {
  counts[index_of(PortCounter::octets_sent)] += traffic.octets_sent;
  counts[index_of(PortCounter::octets_received)] += traffic.octets_received;
  counts[index_of(PortCounter::packets_sent)] += traffic.segments_sent;
  counts[index_of(PortCounter::packets_received)] += traffic.segments_received;
  counts[index_of(PortCounter::retransmitted)] += traffic.retransmitted;
}

}  // namespace uiw::provider
