// SPDX-License-Identifier: MIT
#include "kernel-abi/netlink/nldev_resources.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include <cstring>

#include "kernel-abi/sysfs/port_files.h"

namespace uiw::kernel_abi {
namespace {

using provider::ProcessInventory;

constexpr std::uint32_t kPort = 1;
constexpr unsigned kNumberBits = 10;
constexpr std::uint8_t kCmListens = 8;  // RDMA_CM_LISTEN

std::uint32_t shown_number(const ProcessInventory& process, std::uint32_t number) {
  return process.pid << kNumberBits | (number & ((1U << kNumberBits) - 1));
}

// A process that has no PID in this namespace is shown by its name, as the kernel's own users of a device are.
void write_process(NetlinkWriter& writer, const ProcessInventory& process) {
  if (process.pid != 0) return writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_PID, process.pid);
  writer.text(RDMA_NLDEV_ATTR_RES_KERN_NAME, process.inventory.command);
}

void write_number(NetlinkWriter& writer, unsigned type, const ProcessInventory& process, std::uint32_t number) {
  writer.number<std::uint32_t>(type, shown_number(process, number));
}

void write_address(NetlinkWriter& writer, unsigned type, const std::uint8_t (&shown)[28]) {
  sockaddr_storage address{};
  std::memcpy(&address, shown, sizeof shown);
  if (address.ss_family == AF_INET || address.ss_family == AF_INET6) writer.octets(type, &address, sizeof address);
}

// ---- The attributes of one object ----

void write(NetlinkWriter& writer, const ProcessInventory& process, const provider::ShownQp& qp) {
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_LQPN, qp.number);
  if (qp.type == IBV_QPT_RC || qp.type == IBV_QPT_UC) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_RQPN, qp.remote);
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_RQ_PSN, qp.rq_psn);
    writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, qp.migration);
  }
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_SQ_PSN, qp.sq_psn);
  writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_TYPE, qp.type);
  writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_STATE, qp.state);
  write_number(writer, RDMA_NLDEV_ATTR_RES_PDN, process, qp.pd);
  write_process(writer, process);
}

void write(NetlinkWriter& writer, const ProcessInventory& process, const provider::ShownCq& cq) {
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_CQE, cq.entries);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_RES_USECNT, cq.users);
  write_number(writer, RDMA_NLDEV_ATTR_RES_CQN, process, cq.number);
  write_number(writer, RDMA_NLDEV_ATTR_RES_CTXN, process, cq.context);
  write_process(writer, process);
}

void write(NetlinkWriter& writer, const ProcessInventory& process, const provider::ShownMr& mr) {
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_RKEY, mr.key);
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_LKEY, mr.key);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_RES_IOVA, mr.iova);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_RES_MRLEN, mr.length);
  write_number(writer, RDMA_NLDEV_ATTR_RES_MRN, process, mr.number);
  write_number(writer, RDMA_NLDEV_ATTR_RES_PDN, process, mr.pd);
  write_process(writer, process);
}

void write(NetlinkWriter& writer, const ProcessInventory& process, const provider::ShownPd& pd) {
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_RES_USECNT, pd.users);
  write_number(writer, RDMA_NLDEV_ATTR_RES_PDN, process, pd.number);
  write_number(writer, RDMA_NLDEV_ATTR_RES_CTXN, process, pd.context);
  write_process(writer, process);
}

void write(NetlinkWriter& writer, const ProcessInventory& process, const provider::ShownContext& context) {
  write_number(writer, RDMA_NLDEV_ATTR_RES_CTXN, process, context.number);
  write_process(writer, process);
}

void write(NetlinkWriter& writer, const ProcessInventory& process, const provider::ShownSrq& srq) {
  write_number(writer, RDMA_NLDEV_ATTR_RES_SRQN, process, srq.number);
  writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_TYPE, IBV_SRQT_BASIC);
  write_number(writer, RDMA_NLDEV_ATTR_RES_PDN, process, srq.pd);
  write_process(writer, process);
}

void write(NetlinkWriter& writer, const ProcessInventory& process, const provider::ShownCmId& id) {
  if (id.device != provider::ShownCmId::kNoDevice) writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  if (id.qp != 0) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_LQPN, id.qp);
    writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_TYPE, id.qp_type);
  }
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_RES_PS, id.port_space);
  writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_RES_STATE, id.state);
  write_address(writer, RDMA_NLDEV_ATTR_RES_SRC_ADDR, id.source);
  write_address(writer, RDMA_NLDEV_ATTR_RES_DST_ADDR, id.destination);
  write_number(writer, RDMA_NLDEV_ATTR_RES_CM_IDN, process, id.number);
  write_process(writer, process);
}

// ---- Which objects there are ----

// Whether an object is on this device. An rdma_cm id that listens at all addresses is on every device, as in the
// kernel.
template <typename Record>
bool is_of(const ProcessInventory& process, const Record& record, std::string_view device) {
  if (record.device >= process.inventory.devices.size()) return false;
  return device == process.inventory.devices[record.device].name;
}
bool is_of(const ProcessInventory& process, const provider::ShownCmId& id, std::string_view device) {
  if (id.device == provider::ShownCmId::kNoDevice) return id.state == kCmListens;
  return is_of<provider::ShownCmId>(process, id, device);
}

template <typename Record>
std::uint32_t number_in(const ProcessInventory& process, const Record& record) {
  return shown_number(process, record.number);
}
std::uint32_t number_in(const ProcessInventory&, const provider::ShownQp& qp) { return qp.number; }

template <auto kRecords>
std::vector<ResourceKind::Object> objects(const Processes& processes, std::string_view device) {
  std::vector<ResourceKind::Object> found;
  for (const ProcessInventory& process : processes) {
    for (const auto& record : process.inventory.*kRecords) {
      if (!is_of(process, record, device)) continue;
      found.push_back(
          {number_in(process, record), [&process, &record](NetlinkWriter& writer) { write(writer, process, record); }});
    }
  }
  return found;
}

using provider::Inventory;

constexpr ResourceKind kQps = {RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_RES_LQPN,
                               objects<&Inventory::qps>};
constexpr ResourceKind kCmIds = {RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, RDMA_NLDEV_ATTR_RES_CM_IDN,
                                 objects<&Inventory::cm_ids>};
constexpr ResourceKind kCqs = {RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, RDMA_NLDEV_ATTR_RES_CQN,
                               objects<&Inventory::cqs>};
constexpr ResourceKind kMrs = {RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN,
                               objects<&Inventory::mrs>};
constexpr ResourceKind kPds = {RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, RDMA_NLDEV_ATTR_RES_PDN,
                               objects<&Inventory::pds>};
constexpr ResourceKind kContexts = {RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY, RDMA_NLDEV_ATTR_RES_CTXN,
                                    objects<&Inventory::contexts>};
constexpr ResourceKind kSrqs = {RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY, RDMA_NLDEV_ATTR_RES_SRQN,
                                objects<&Inventory::srqs>};

}  // namespace

const ResourceKind* resource_kind(unsigned command) {
  switch (command) {
    case RDMA_NLDEV_CMD_RES_QP_GET: return &kQps;
    case RDMA_NLDEV_CMD_RES_CM_ID_GET: return &kCmIds;
    case RDMA_NLDEV_CMD_RES_CQ_GET: return &kCqs;
    case RDMA_NLDEV_CMD_RES_MR_GET: return &kMrs;
    case RDMA_NLDEV_CMD_RES_PD_GET: return &kPds;
    case RDMA_NLDEV_CMD_RES_CTX_GET: return &kContexts;
    case RDMA_NLDEV_CMD_RES_SRQ_GET: return &kSrqs;
    default: return nullptr;
  }
}

void write_summary(NetlinkWriter& writer, const Processes& processes, std::string_view device) {
  static constexpr std::pair<const char*, const ResourceKind*> kNames[] = {
      {"pd", &kPds}, {"cq", &kCqs},       {"qp", &kQps},  {"cm_id", &kCmIds},
      {"mr", &kMrs}, {"ctx", &kContexts}, {"srq", &kSrqs}};
  nlattr* const table = writer.begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY);
  for (const auto& [name, kind] : kNames) {
    nlattr* const entry = writer.begin_nest(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
    writer.text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
    writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, kind->objects(processes, device).size());
    writer.end_nest(entry);
  }
  writer.end_nest(table);
}

void write_hw_counters(NetlinkWriter& writer, const Processes& processes, std::string_view device) {
  const provider::PortCounts counts = counts_of(processes, device);
  nlattr* const table = writer.begin_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
  for (const PortFile& file : hw_counter_files()) {
    nlattr* const entry = writer.begin_nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
    writer.text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, file.name);
    writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, file.value(counts));
    writer.end_nest(entry);
  }
  writer.end_nest(table);
}

}  // namespace uiw::kernel_abi
