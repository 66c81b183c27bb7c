// SPDX-License-Identifier: MIT
#include "kernel-abi/netlink/nldev.h"

#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "kernel-abi/netlink/nldev_resources.h"
#include "provider/process/limits.h"
#include "provider/version.h"

namespace uiw::kernel_abi {
namespace {

constexpr std::uint8_t kNodeTypeCa = 1;  // enum rdma_node_type of the kernel
constexpr std::uint8_t kNodeTypeRnic = 4;
constexpr std::uint32_t kPort = 1;  // devices have one port
// The node of rdma_cm is reported with device number 0, which librdmacm takes as "unknown". The real device number of
// the node is that of /dev/null. If this number were reported and librdmacm failed to open the node, librdmacm would
// look for a node with this number, open /dev/null itself, and lose the error.
constexpr std::uint64_t kNoDevice = 0;

// Attributes that older kernel headers do not have.
constexpr unsigned kPrivilegedQkeyMode = 96, kMonitorMode = 103;

constexpr unsigned client_of(unsigned type) { return type >> 10; }
constexpr unsigned command_of(unsigned type) { return type & 0x3ff; }

bool is_roce(const NumberedDevice& device) { return device.info.transport == provider::Transport::roce; }
std::uint32_t index_of(const NumberedDevice& device) { return kOwnIndices + device.number; }

void write_handle(NetlinkWriter& writer, const NumberedDevice& device) {
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, index_of(device));
  writer.text(RDMA_NLDEV_ATTR_DEV_NAME, device.info.name);
}

void write_device(NetlinkWriter& writer, const NumberedDevice& device) {
  write_handle(writer, device);
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_CAP_FLAGS, provider::kDeviceCapFlags);
  writer.text(RDMA_NLDEV_ATTR_FW_VERSION, kVersion);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_NODE_GUID, device.info.guid);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, device.info.guid);
  writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, is_roce(device) ? kNodeTypeCa : kNodeTypeRnic);
  writer.text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, is_roce(device) ? "roce" : "iw");
}

void write_port(NetlinkWriter& writer, const NumberedDevice& device) {
  write_handle(writer, device);
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_PORT_STATE, port_state(device.info).number);
  writer.number<std::uint8_t>(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, physical_state(device.info).number);
  writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_NDEV_INDEX, device.info.ifindex);
  writer.text(RDMA_NLDEV_ATTR_NDEV_NAME, device.info.interface);
}

void write_node(NetlinkWriter& writer, const std::string& name, std::uint64_t abi, std::uint64_t device) {
  writer.text(RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_CHARDEV_ABI, abi);
  writer.number<std::uint64_t>(RDMA_NLDEV_ATTR_CHARDEV, device);
}

// One request and the answer to it.
class Exchange {
 public:
  Exchange(nlmsghdr* request, std::uint32_t port, const NldevWorld& world, Datagrams& answers)
      : request_(*request), attributes_(attributes_of(request)), port_(port), world_(world), answers_(answers) {}

  void answer() {
    const unsigned flags = request_.nlmsg_flags;
    int error = 0;
    if ((flags & NLM_F_REQUEST) != 0 && request_.nlmsg_type >= NLMSG_MIN_TYPE) {
      // No acknowledgement is added to a dump, which ends with NLMSG_DONE, or to an answer of the host's kernel, which
      // has the kernel's own acknowledgement.
      error = dispatch();
      if (answered_in_full_) return;
    }
    if (error != 0 || (flags & NLM_F_ACK) != 0) acknowledge(error);
  }

 private:
  // The functions below that return an int return 0 or a negative errno.

  int dispatch() {
    if (client_of(request_.nlmsg_type) != RDMA_NL_NLDEV) return ask_host(-EINVAL);
    const bool dump = (request_.nlmsg_flags & NLM_F_DUMP) != 0;
    // SYS_GET asks for global settings; the kernel ignores a device index in the request.
    if (command_of(request_.nlmsg_type) == RDMA_NLDEV_CMD_SYS_GET) return dump ? -EINVAL : system();
    const auto number = number_of<std::uint32_t>(attributes_[RDMA_NLDEV_ATTR_DEV_INDEX]);
    if (!number && attributes_[RDMA_NLDEV_ATTR_DEV_INDEX] != nullptr) return -EINVAL;
    if (number && *number < kOwnIndices) return ask_host(-EINVAL);
    switch (command_of(request_.nlmsg_type)) {
      case RDMA_NLDEV_CMD_GET: return dump ? dump_devices() : about(number, write_device);
      case RDMA_NLDEV_CMD_PORT_GET: return dump ? dump_ports(number) : port(number);
      case RDMA_NLDEV_CMD_GET_CHARDEV: return dump ? -EINVAL : node(number);
      case RDMA_NLDEV_CMD_RES_GET: return dump ? dump_summaries() : summary(number);
      case RDMA_NLDEV_CMD_STAT_GET: return statistic(number, dump);
      default: break;
    }
    if (const ResourceKind* kind = resource_kind(command_of(request_.nlmsg_type)))
      return dump ? dump_resources(*kind, number) : resource(*kind, number);
    return number ? -EOPNOTSUPP : ask_host(-EOPNOTSUPP);
  }

  // The loopback device is last, for programs that take the first device.
  std::vector<NumberedDevice> devices(bool rescan) const {
    std::vector<NumberedDevice> all = world_.devices(rescan);
    std::stable_partition(all.begin(), all.end(), [](const NumberedDevice& device) { return !device.info.loopback; });
    return all;
  }

  std::optional<NumberedDevice> find(std::optional<std::uint32_t> index, bool rescan = false) const {
    for (const NumberedDevice& device : world_.devices(rescan))
      if (index && index_of(device) == *index) return device;
    return std::nullopt;
  }

  NetlinkWriter begin(unsigned flags) const { return {request_.nlmsg_type, flags, request_.nlmsg_seq, port_}; }

  template <typename Write>
  int about(std::optional<std::uint32_t> index, Write write, bool rescan = false) {
    const auto device = find(index, rescan);
    if (!device) return -EINVAL;
    NetlinkWriter writer = begin(0);
    write(writer, *device);
    answers_.add(writer.octets());
    answers_.close();
    return 0;
  }

  int dump_devices() {
    const std::vector<NumberedDevice> own = devices(true);
    add_host_devices(own);
    for (const NumberedDevice& device : own) {
      NetlinkWriter writer = begin(NLM_F_MULTI);
      write_device(writer, device);
      answers_.add(writer.octets());
    }
    return done();
  }

  int dump_ports(std::optional<std::uint32_t> index) {
    const auto device = find(index, true);
    if (!device) return -EINVAL;
    NetlinkWriter writer = begin(NLM_F_MULTI);
    write_port(writer, *device);
    answers_.add(writer.octets());
    return done();
  }

  int port(std::optional<std::uint32_t> index) {
    if (number_of<std::uint32_t>(attributes_[RDMA_NLDEV_ATTR_PORT_INDEX]) != kPort) return -EINVAL;
    return about(index, write_port, true);
  }

  // ---- Verbs and rdma_cm objects of processes ----

  int summary(std::optional<std::uint32_t> index) {
    return about(index, [this](NetlinkWriter& writer, const NumberedDevice& device) {
      write_handle(writer, device);
      write_summary(writer, world_.processes(), device.info.name);
    });
  }

  int dump_summaries() {
    const std::vector<NumberedDevice> own = devices(true);
    add_host_devices(own);
    const Processes processes = world_.processes();
    for (const NumberedDevice& device : own) {
      NetlinkWriter writer = begin(NLM_F_MULTI);
      write_handle(writer, device);
      write_summary(writer, processes, device.info.name);
      answers_.add(writer.octets());
    }
    return done();
  }

  bool names_no_other_port() const {
    const nlattr* wanted = attributes_[RDMA_NLDEV_ATTR_PORT_INDEX];
    return wanted == nullptr || number_of<std::uint32_t>(wanted) == kPort;
  }

  // Answers a dump of the objects of a kind, in as many messages as they need.
  int dump_resources(const ResourceKind& kind, std::optional<std::uint32_t> index) {
    constexpr std::size_t kFull = 2048;
    const auto device = find(index);
    if (!device || !names_no_other_port()) return -EINVAL;
    const Processes processes = world_.processes();
    const std::vector<ResourceKind::Object> objects = kind.objects(processes, device->info.name);
    for (auto next = objects.begin(); next != objects.end();) {
      NetlinkWriter writer = begin(NLM_F_MULTI);
      write_handle(writer, *device);
      nlattr* const table = writer.begin_nest(kind.table);
      for (; next != objects.end() && writer.octets().size() < kFull; ++next) {
        nlattr* const entry = writer.begin_nest(kind.entry);
        next->write(writer);
        writer.end_nest(entry);
      }
      writer.end_nest(table);
      answers_.add(writer.octets());
    }
    return done();
  }

  int resource(const ResourceKind& kind, std::optional<std::uint32_t> index) {
    const auto number = number_of<std::uint32_t>(attributes_[kind.number]);
    const auto device = find(index);
    if (!device || !number || !names_no_other_port()) return -EINVAL;
    const Processes processes = world_.processes();
    for (const ResourceKind::Object& object : kind.objects(processes, device->info.name)) {
      if (object.number != *number) continue;
      return about(index, [&object](NetlinkWriter& writer, const NumberedDevice& of) {
        write_handle(writer, of);
        object.write(writer);
      });
    }
    return -ENOENT;
  }

  // Answers STAT_GET with the counters of the port. Queue pairs and memory regions have no counters of their own, so a
  // dump of such counters is empty.
  int statistic(std::optional<std::uint32_t> index, bool dump) {
    const auto device = find(index);
    if (!device || !names_no_other_port()) return -EINVAL;
    if (attributes_[RDMA_NLDEV_ATTR_STAT_RES] != nullptr) return dump ? done() : -EOPNOTSUPP;
    if (!dump && attributes_[RDMA_NLDEV_ATTR_PORT_INDEX] == nullptr) return -EINVAL;
    NetlinkWriter writer = begin(dump ? NLM_F_MULTI : 0);
    write_handle(writer, *device);
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
    write_hw_counters(writer, world_.processes(), device->info.name);
    answers_.add(writer.octets());
    if (dump) return done();
    answers_.close();
    return 0;
  }

  // Answers SYS_GET, the settings of RDMA as a whole. Programs apply the settings to all devices, so if the host's
  // kernel has RDMA, the kernel's values are repeated here, except for the monitor mode.
  int system() {
    Octets host = world_.host(octets_of(&request_));
    NetlinkAttributes said{};
    for (nlmsghdr* message : messages_in(host))
      if (message->nlmsg_type == request_.nlmsg_type) said = attributes_of(message);
    const auto by_host = [&said](unsigned attribute) { return number_of<std::uint8_t>(said[attribute]); };
    NetlinkWriter writer = begin(0);
    // The kernel's default, in which nobody moves devices between network namespaces.
    constexpr std::uint8_t kShared = 1;
    writer.number<std::uint8_t>(RDMA_NLDEV_SYS_ATTR_NETNS_MODE,
                                by_host(RDMA_NLDEV_SYS_ATTR_NETNS_MODE).value_or(kShared));
    // Whether a controlled Q_Key may be set without a privilege. uiw allows this; a kernel that does not report the
    // mode does not allow it.
    writer.number<std::uint8_t>(kPrivilegedQkeyMode, by_host(kPrivilegedQkeyMode).value_or(host.empty() ? 1 : 0));
    // 0: the program's socket gets no reports of devices that come and go, not even from the host.
    writer.number<std::uint8_t>(kMonitorMode, 0);
    // Whether registered memory stays usable over a fork. Memory of uiw does, since no pages are pinned; that of the
    // host's adapters does since Linux 5.13.
    const auto copies = by_host(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK);
    if (copies || host.empty()) writer.number<std::uint8_t>(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, copies.value_or(1));
    answers_.add(writer.octets());
    answers_.close();
    return 0;
  }

  // Answers with the name and number of a device node. If the request has a device index, this is the node of that
  // device; otherwise it is a node that belongs to no device (rdma_cm).
  int node(std::optional<std::uint32_t> index) {
    const auto type = text_of(attributes_[RDMA_NLDEV_ATTR_CHARDEV_TYPE]);
    if (!type) return -EINVAL;
    if (index) {
      if (*type != "uverbs") return find(index) ? -EOPNOTSUPP : -EINVAL;
      return about(index, [](NetlinkWriter& writer, const NumberedDevice& device) {
        write_node(writer, node_name(device.number), kUverbsDeviceAbi, node_device(device.number));
      });
    }
    if (*type != "rdma_cm") return ask_host(-EOPNOTSUPP);
    NetlinkWriter writer = begin(0);
    write_node(writer, "rdma_cm", RDMA_USER_CM_ABI_VERSION, kNoDevice);
    answers_.add(writer.octets());
    answers_.close();
    return 0;
  }

  // Adds the host's devices, except those that have the name of a device of uiw.
  void add_host_devices(const std::vector<NumberedDevice>& own) {
    Octets answer = world_.host(octets_of(&request_));
    for (nlmsghdr* message : messages_in(answer)) {
      if (message->nlmsg_type != request_.nlmsg_type) continue;
      const auto name = text_of(attributes_of(message)[RDMA_NLDEV_ATTR_DEV_NAME]);
      const bool hidden = std::any_of(own.begin(), own.end(),
                                      [&](const NumberedDevice& device) { return name && *name == device.info.name; });
      if (!hidden) pass_on(message);
    }
  }

  // Sends the request to the host's kernel and passes its answer on. Returns `otherwise` if the kernel has no RDMA.
  int ask_host(int otherwise) {
    Octets answer = world_.host(octets_of(&request_));
    if (answer.empty()) return otherwise;
    for (nlmsghdr* message : messages_in(answer)) pass_on(message);
    answers_.close();
    answered_in_full_ = true;
    return 0;
  }

  // Adds a message of the kernel's answer, addressed to the Netlink port of the program's socket, not of uiw's.
  void pass_on(nlmsghdr* message) {
    message->nlmsg_pid = port_;
    answers_.add(octets_of(message));
  }

  int done() {
    NetlinkWriter writer(NLMSG_DONE, NLM_F_MULTI, request_.nlmsg_seq, port_);
    const int error = 0;
    writer.raw(&error, sizeof error);
    answers_.add(writer.octets());
    answers_.close();
    answered_in_full_ = true;
    return 0;
  }

  // Adds an acknowledgement or an error. NLM_F_CAPPED: of the request only the header is repeated.
  void acknowledge(int error) {
    NetlinkWriter writer(NLMSG_ERROR, NLM_F_CAPPED, request_.nlmsg_seq, port_);
    nlmsgerr body{};
    body.error = error;
    body.msg = request_;
    writer.raw(&body, sizeof body);
    answers_.add(writer.octets());
    answers_.close();
  }

  const nlmsghdr& request_;  // the header; in memory the payload follows it
  const NetlinkAttributes attributes_;
  const std::uint32_t port_;
  const NldevWorld& world_;
  Datagrams& answers_;
  bool answered_in_full_ = false;
};

}  // namespace

std::vector<Octets> answer_nldev(Octets requests, std::uint32_t port, const NldevWorld& world) {
  Datagrams answers;
  for (nlmsghdr* request : messages_in(requests)) Exchange(request, port, world, answers).answer();
  return answers.take();
}

}  // namespace uiw::kernel_abi
