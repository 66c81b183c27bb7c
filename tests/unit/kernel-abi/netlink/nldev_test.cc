// SPDX-License-Identifier: MIT
// Sources: kernel-abi/netlink/nldev.cc, kernel-abi/sysfs/tree_content.cc (hidden in libuiw.so.1)
#include "kernel-abi/netlink/nldev.h"

#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>
#include <sys/sysmacros.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>

using namespace uiw::kernel_abi;

namespace {

constexpr std::uint32_t kPort = 4711;
constexpr std::uint32_t kSequence = 99;

NumberedDevice sample(const std::string& interface, unsigned number) {
  NumberedDevice device{};
  device.info.name = "uiw_" + interface;
  device.info.interface = interface;
  device.info.ifindex = number + 1;
  device.info.guid = 0x0011'22ff'fe33'4455 + number;
  device.info.loopback = interface == "lo";
  device.number = number;
  return device;
}

unsigned type_of(unsigned command) { return RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command); }

Octets copy_of(OctetView octets) { return {octets.begin(), octets.end()}; }

struct World {
  std::vector<NumberedDevice> devices = {sample("lo", 0), sample("eth0", 1)};
  std::vector<uiw::provider::ProcessInventory> processes;
  Octets host_says;
  int host_asked = 0, rescans = 0;

  std::vector<Octets> answer(OctetView requests) {
    const NldevWorld world = {[this](bool rescan) {
                                if (rescan) ++rescans;
                                return devices;
                              },
                              [this] { return processes; },
                              [this](OctetView) {
                                ++host_asked;
                                return host_says;
                              }};
    return answer_nldev(copy_of(requests), kPort, world);
  }

  // The messages of the answer, each as a block of its own.
  std::vector<Octets> ask(OctetView requests) {
    std::vector<Octets> all;
    for (Octets& datagram : answer(requests)) {
      std::size_t read = 0;
      for (const nlmsghdr* message : messages_in(datagram)) {
        all.push_back(copy_of(octets_of(message)));
        read += NLMSG_ALIGN(message->nlmsg_len);
      }
      CHECK(read == datagram.size());
    }
    return all;
  }
};

using Fill = void (*)(NetlinkWriter&);

Octets request(
    unsigned command, unsigned flags = 0, Fill fill = [](NetlinkWriter&) {}) {
  NetlinkWriter writer(type_of(command), NLM_F_REQUEST | flags, kSequence, 0);
  fill(writer);
  return copy_of(writer.octets());
}

const nlmsghdr& header(const Octets& message) {
  REQUIRE(message.size() >= sizeof(nlmsghdr));
  return *reinterpret_cast<const nlmsghdr*>(message.data());
}

// Null if there is none.
const nlattr* find(const Octets& message, unsigned attribute) {
  return attributes_of(const_cast<nlmsghdr*>(&header(message)))[attribute];
}

template <typename Number>
Number number(const Octets& message, unsigned attribute) {
  return number_of<Number>(find(message, attribute)).value();
}

std::string text(const Octets& message, unsigned attribute) {
  return std::string(text_of(find(message, attribute)).value());
}

// What an acknowledgement says: 0 or a negative errno; 1 if it is none.
int error_of(const Octets& message) {
  if (header(message).nlmsg_type != NLMSG_ERROR) return 1;
  nlmsgerr body{};
  REQUIRE(message.size() == sizeof(nlmsghdr) + sizeof body);
  std::memcpy(&body, message.data() + sizeof(nlmsghdr), sizeof body);
  CHECK(header(message).nlmsg_seq == kSequence);
  CHECK(header(message).nlmsg_pid == kPort);
  CHECK((header(message).nlmsg_flags & NLM_F_CAPPED) != 0);
  return body.error;
}

int only_error(const std::vector<Octets>& messages) {
  REQUIRE(messages.size() == 1);
  return error_of(messages[0]);
}

}  // namespace

TEST_CASE_METHOD(World, "a dump of devices names those of uiw, loopback last, and then is done") {
  const auto messages = ask(request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP | NLM_F_ACK));
  REQUIRE(messages.size() == 3);
  CHECK(rescans == 1);
  CHECK(text(messages[0], RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_eth0");
  CHECK(text(messages[1], RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_lo");
  CHECK(number<std::uint32_t>(messages[0], RDMA_NLDEV_ATTR_DEV_INDEX) == kOwnIndices + 1);
  CHECK(number<std::uint32_t>(messages[0], RDMA_NLDEV_ATTR_PORT_INDEX) == 1);
  CHECK(number<std::uint64_t>(messages[0], RDMA_NLDEV_ATTR_NODE_GUID) == 0x0011'22ff'fe33'4456);
  CHECK(number<std::uint8_t>(messages[0], RDMA_NLDEV_ATTR_DEV_NODE_TYPE) == 4);
  CHECK(text(messages[0], RDMA_NLDEV_ATTR_DEV_PROTOCOL) == "iw");
  for (const Octets& message : messages) {
    CHECK((header(message).nlmsg_flags & NLM_F_MULTI) != 0);
    CHECK(header(message).nlmsg_seq == kSequence);
    CHECK(header(message).nlmsg_pid == kPort);
  }
  CHECK(header(messages[2]).nlmsg_type == NLMSG_DONE);
  CHECK(messages[2].size() == sizeof(nlmsghdr) + sizeof(int));
}

TEST_CASE_METHOD(World, "an adapter for RoCE is a CA with the protocol roce") {
  devices = {sample("eth0", 0)};
  devices[0].info.transport = uiw::provider::Transport::roce;
  const auto messages = ask(request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP));
  CHECK(number<std::uint8_t>(messages.at(0), RDMA_NLDEV_ATTR_DEV_NODE_TYPE) == 1);
  CHECK(text(messages.at(0), RDMA_NLDEV_ATTR_DEV_PROTOCOL) == "roce");
}

TEST_CASE_METHOD(World, "the host's devices come first, and one of the same name is hidden") {
  const auto add = [&](unsigned type, std::uint32_t index, const char* name) {
    NetlinkWriter writer(type, NLM_F_MULTI, kSequence, 1);
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, index);
    writer.text(RDMA_NLDEV_ATTR_DEV_NAME, name);
    const OctetView octets = writer.octets();
    host_says.insert(host_says.end(), octets.begin(), octets.end());
  };
  add(type_of(RDMA_NLDEV_CMD_GET), 0, "mlx5_0");
  add(type_of(RDMA_NLDEV_CMD_GET), 1, "uiw_lo");
  add(NLMSG_DONE, 0, "");
  const auto messages = ask(request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP));
  REQUIRE(messages.size() == 4);
  CHECK(text(messages[0], RDMA_NLDEV_ATTR_DEV_NAME) == "mlx5_0");
  CHECK(header(messages[0]).nlmsg_pid == kPort);
  CHECK(text(messages[1], RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_eth0");
  CHECK(text(messages[2], RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_lo");
  CHECK(header(messages[3]).nlmsg_type == NLMSG_DONE);
}

TEST_CASE_METHOD(World, "one device is answered by its index, acknowledged if that is wanted") {
  const Fill index = [](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices);
  };
  auto messages = ask(request(RDMA_NLDEV_CMD_GET, NLM_F_ACK, index));
  REQUIRE(messages.size() == 2);
  CHECK(text(messages[0], RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_lo");
  CHECK((header(messages[0]).nlmsg_flags & NLM_F_MULTI) == 0);
  CHECK(error_of(messages[1]) == 0);
  CHECK(ask(request(RDMA_NLDEV_CMD_GET, 0, index)).size() == 1);
  CHECK(host_asked == 0);
  // The answer and its acknowledgement are two datagrams, as the kernel's.
  CHECK(answer(request(RDMA_NLDEV_CMD_GET, NLM_F_ACK, index)).size() == 2);
}

TEST_CASE_METHOD(World, "a port has its state and its interface") {
  const Octets one = request(RDMA_NLDEV_CMD_PORT_GET, 0, [](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices + 1);
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  });
  const Octets all = request(RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP, [](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices + 1);
  });
  CHECK(ask(one).size() == 1);
  CHECK(ask(all).size() == 2);
  for (const Octets& question : {one, all}) {
    const Octets message = ask(question).at(0);
    CHECK(text(message, RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_eth0");
    CHECK(number<std::uint8_t>(message, RDMA_NLDEV_ATTR_PORT_STATE) == 4);
    CHECK(number<std::uint8_t>(message, RDMA_NLDEV_ATTR_PORT_PHYS_STATE) == 5);
    CHECK(number<std::uint32_t>(message, RDMA_NLDEV_ATTR_NDEV_INDEX) == 2);
    CHECK(text(message, RDMA_NLDEV_ATTR_NDEV_NAME) == "eth0");
  }
  CHECK(rescans == 4);  // the state is that of the moment
  devices[1].info.active = false;
  for (const bool enabled : {true, false}) {
    devices[1].info.enabled = enabled;
    const Octets message = ask(one).at(0);
    CHECK(number<std::uint8_t>(message, RDMA_NLDEV_ATTR_PORT_STATE) == 1);
    CHECK(number<std::uint8_t>(message, RDMA_NLDEV_ATTR_PORT_PHYS_STATE) == (enabled ? 2 : 3));
  }
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_PORT_GET, 0, [](NetlinkWriter& writer) {
          writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices + 1);
          writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_PORT_INDEX, 2);
        }))) == -EINVAL);
}

TEST_CASE_METHOD(World, "libibverbs and librdmacm learn the names, ABIs and numbers of their nodes") {
  const Octets uverbs = ask(request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, [](NetlinkWriter& writer) {
                          writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices + 1);
                          writer.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs");
                        })).at(0);
  CHECK(text(uverbs, RDMA_NLDEV_ATTR_CHARDEV_NAME) == "uverbs1");
  CHECK(number<std::uint64_t>(uverbs, RDMA_NLDEV_ATTR_CHARDEV_ABI) == kUverbsDeviceAbi);
  CHECK(number<std::uint64_t>(uverbs, RDMA_NLDEV_ATTR_CHARDEV) == makedev(231, 193));
  CHECK(find(uverbs, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID) == nullptr);
  const Octets cm = ask(request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, [](NetlinkWriter& writer) {
                      writer.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "rdma_cm");
                    })).at(0);
  CHECK(text(cm, RDMA_NLDEV_ATTR_CHARDEV_NAME) == "rdma_cm");
  CHECK(number<std::uint64_t>(cm, RDMA_NLDEV_ATTR_CHARDEV_ABI) == RDMA_USER_CM_ABI_VERSION);
  // librdmacm would look for another node with the number, and /dev/null has it.
  CHECK(number<std::uint64_t>(cm, RDMA_NLDEV_ATTR_CHARDEV) == 0);
}

TEST_CASE_METHOD(World, "what does not exist or makes no sense is an error") {
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_GET))) == -EINVAL);
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_GET, 0, [](NetlinkWriter& writer) {
          writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices + 7);
        }))) == -EINVAL);
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_GET, 0, [](NetlinkWriter& writer) {
          writer.number<std::uint16_t>(RDMA_NLDEV_ATTR_DEV_INDEX, 1);
        }))) == -EINVAL);
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_SET, NLM_F_ACK, [](NetlinkWriter& writer) {
          writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices);
          writer.text(RDMA_NLDEV_ATTR_DEV_NAME, "other");
        }))) == -EOPNOTSUPP);
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, [](NetlinkWriter& writer) {
          writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices);
          writer.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "umad");
        }))) == -EOPNOTSUPP);
  // A text without its end.
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, [](NetlinkWriter& writer) {
          writer.octets(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs", 6);
        }))) == -EINVAL);
  // Another client of NETLINK_RDMA, and no client.
  NetlinkWriter other(RDMA_NL_GET_TYPE(RDMA_NL_LS, 0), NLM_F_REQUEST, kSequence, 0);
  CHECK(only_error(ask(other.octets())) == -EINVAL);
  NetlinkWriter none(0xffff, NLM_F_REQUEST, kSequence, 0);
  CHECK(only_error(ask(none.octets())) == -EINVAL);
}

TEST_CASE_METHOD(World, "what is about the host is answered by the host alone, with the program's port") {
  NetlinkWriter reply(type_of(RDMA_NLDEV_CMD_GET), 0, kSequence, 1);
  reply.text(RDMA_NLDEV_ATTR_DEV_NAME, "mlx5_0");
  host_says = copy_of(reply.octets());
  const auto messages = ask(request(RDMA_NLDEV_CMD_GET, NLM_F_ACK, [](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, 0);
  }));
  REQUIRE(messages.size() == 1);
  CHECK(text(messages[0], RDMA_NLDEV_ATTR_DEV_NAME) == "mlx5_0");
  CHECK(header(messages[0]).nlmsg_pid == kPort);
  CHECK(host_asked == 1);
}

namespace {

// Two processes with a device each has, of which the second has no number here.
std::vector<uiw::provider::ProcessInventory> two_processes(std::size_t queue_pairs = 1) {
  std::vector<uiw::provider::ProcessInventory> processes(2);
  processes[0].pid = 300;
  for (auto& process : processes) {
    auto& inventory = process.inventory;
    inventory.command = "program";
    const std::uint32_t lo = inventory.index_of_device("uiw_lo"), eth = inventory.index_of_device("uiw_eth0");
    inventory.contexts = {{lo, 1}};
    inventory.pds = {{lo, 2, 1, 5}};
    inventory.mrs = {{lo, 3, 2, 0xaabb, 0x7000, 4096}};
    inventory.cqs = {{lo, 4, 1, 2, 256}};
    inventory.srqs = {{eth, 9, 2}};
    for (std::size_t i = 0; i < queue_pairs; ++i) {
      uiw::provider::ShownQp qp{};
      qp.device = lo;
      qp.number = static_cast<std::uint32_t>(0x1000 * (process.pid + 1) + i);
      qp.pd = 2;
      qp.remote = 0x77;
      qp.type = 2;
      qp.state = 3;
      inventory.qps.push_back(qp);
    }
    uiw::provider::ShownCmId id{};
    id.device = uiw::provider::ShownCmId::kNoDevice;
    id.number = 6;
    id.port_space = RDMA_PS_TCP;
    id.state = 8;
    id.source[0] = AF_INET;
    inventory.cm_ids = {id};
    id.state = 0;  // bound to nothing: no device shows it
    inventory.cm_ids.push_back(id);
  }
  return processes;
}

template <std::uint32_t kNumber, unsigned kAttribute = RDMA_NLDEV_ATTR_DEV_INDEX>
void put(NetlinkWriter& writer) {
  writer.number<std::uint32_t>(kAttribute, kNumber);
}
void put_lo(NetlinkWriter& writer) { put<kOwnIndices>(writer); }

// The entries of a table, all of the type `entry`. They are valid as long as the message.
std::vector<NetlinkAttributes> entries(const Octets& message, unsigned table, unsigned entry) {
  std::vector<NetlinkAttributes> found;
  const nlattr* const all = find(message, table);
  REQUIRE(all != nullptr);
  int rest = nla_len(all);
  for (auto* one = static_cast<nlattr*>(nla_data(all)); nla_ok(one, rest) != 0; one = nla_next(one, &rest)) {
    CHECK(nla_type(one) == static_cast<int>(entry));
    nla_parse_nested(found.emplace_back().data(), NetlinkAttributes{}.size() - 1, one, nullptr);
  }
  CHECK(rest == 0);
  return found;
}

// Those in the messages of a dump, which ends as it should.
std::vector<NetlinkAttributes> entries(const std::vector<Octets>& messages, unsigned table, unsigned entry) {
  std::vector<NetlinkAttributes> found;
  REQUIRE(!messages.empty());
  CHECK(header(messages.back()).nlmsg_type == NLMSG_DONE);
  for (std::size_t i = 0; i + 1 < messages.size(); ++i) {
    CHECK(text(messages[i], RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_lo");
    for (const NetlinkAttributes& one : entries(messages[i], table, entry)) found.push_back(one);
  }
  return found;
}

template <typename Number>
Number number_in(const NetlinkAttributes& attributes, unsigned attribute) {
  return number_of<Number>(attributes[attribute]).value();
}

}  // namespace

TEST_CASE_METHOD(World, "a dump of queue pairs has those of all processes, with their PIDs") {
  processes = two_processes();
  const auto messages = ask(request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP | NLM_F_ACK, put_lo));
  const auto found = entries(messages, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY);
  REQUIRE(found.size() == 2);
  CHECK(number_in<std::uint32_t>(found[0], RDMA_NLDEV_ATTR_RES_PID) == 300);
  CHECK(number_in<std::uint32_t>(found[0], RDMA_NLDEV_ATTR_RES_LQPN) == 0x1000 * 301);
  CHECK(number_in<std::uint32_t>(found[0], RDMA_NLDEV_ATTR_RES_RQPN) == 0x77);
  CHECK(number_in<std::uint8_t>(found[0], RDMA_NLDEV_ATTR_RES_STATE) == 3);
  CHECK(number_in<std::uint32_t>(found[0], RDMA_NLDEV_ATTR_RES_PDN) == (300 << 10 | 2));
  CHECK(found[1][RDMA_NLDEV_ATTR_RES_PID] == nullptr);
  CHECK(text_of(found[1][RDMA_NLDEV_ATTR_RES_KERN_NAME]) == "program");
}

TEST_CASE_METHOD(World, "many objects come in several messages, each small enough for the buffers of programs") {
  processes = two_processes(1000);
  const Octets asked = request(RDMA_NLDEV_CMD_RES_QP_GET, NLM_F_DUMP, put_lo);
  for (const Octets& datagram : answer(asked)) CHECK(datagram.size() < 4096);
  CHECK(entries(ask(asked), RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY).size() == 2000);
}

TEST_CASE_METHOD(World, "each kind of objects is dumped, and found by its number") {
  struct Kind {
    unsigned command, table, entry, number;
  };
  constexpr Kind kKinds[] = {
      {RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY, RDMA_NLDEV_ATTR_RES_CQN},
      {RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN},
      {RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY, RDMA_NLDEV_ATTR_RES_PDN},
      {RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY, RDMA_NLDEV_ATTR_RES_CTXN},
      {RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_RES_LQPN},
      {RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
       RDMA_NLDEV_ATTR_RES_CM_IDN},
  };
  processes = two_processes();
  for (const Kind& kind : kKinds) {
    const auto dump = ask(request(kind.command, NLM_F_DUMP, put_lo));
    const auto found = entries(dump, kind.table, kind.entry);
    REQUIRE(found.size() == 2);
    const auto number = number_in<std::uint32_t>(found[0], kind.number);
    NetlinkWriter asked(type_of(kind.command), NLM_F_REQUEST, kSequence, 0);
    put_lo(asked);
    asked.number<std::uint32_t>(kind.number, number);
    const auto one = ask(asked.octets());
    REQUIRE(one.size() == 1);
    CHECK(text(one[0], RDMA_NLDEV_ATTR_DEV_NAME) == "uiw_lo");
    CHECK(number_of<std::uint32_t>(find(one[0], kind.number)) == number);
    CHECK(number_of<std::uint32_t>(find(one[0], RDMA_NLDEV_ATTR_RES_PID)) == 300);
    NetlinkWriter other(type_of(kind.command), NLM_F_REQUEST, kSequence, 0);
    put_lo(other);
    other.number<std::uint32_t>(kind.number, 12345678);
    CHECK(only_error(ask(other.octets())) == -ENOENT);
    CHECK(only_error(ask(request(kind.command, 0, put_lo))) == -EINVAL);
    CHECK(only_error(ask(request(kind.command, NLM_F_DUMP))) == -EINVAL);
  }
  const auto other_device = ask(request(RDMA_NLDEV_CMD_RES_SRQ_GET, NLM_F_DUMP, put_lo));
  CHECK(entries(other_device, RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY).empty());
}

TEST_CASE_METHOD(World, "the summary of a device counts what processes have of it") {
  processes = two_processes(3);
  const auto one = ask(request(RDMA_NLDEV_CMD_RES_GET, 0, put_lo));
  REQUIRE(one.size() == 1);
  std::string said;
  for (const auto& entry : entries(one[0], RDMA_NLDEV_ATTR_RES_SUMMARY, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY)) {
    said += text_of(entry[RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME]).value();
    said += "=" + std::to_string(number_in<std::uint64_t>(entry, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR)) + " ";
  }
  CHECK(said == "pd=2 cq=2 qp=6 cm_id=2 mr=2 ctx=2 srq=0 ");
  CHECK(ask(request(RDMA_NLDEV_CMD_RES_GET, NLM_F_DUMP)).size() == 3);
}

TEST_CASE_METHOD(World, "the counters of a port are answered, and queue pairs have none of their own") {
  processes = two_processes();
  for (auto& process : processes)
    process.inventory.devices[0].counts[index_of(uiw::provider::PortCounter::connections)] = 4;
  const auto one = ask(request(RDMA_NLDEV_CMD_STAT_GET, 0, [](NetlinkWriter& writer) {
    put_lo(writer);
    put<1, RDMA_NLDEV_ATTR_PORT_INDEX>(writer);
  }));
  REQUIRE(one.size() == 1);
  CHECK(number<std::uint32_t>(one[0], RDMA_NLDEV_ATTR_PORT_INDEX) == 1);
  std::uint64_t connections = 0;
  for (const auto& entry : entries(one[0], RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY)) {
    if (text_of(entry[RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME]) == "connections_established")
      connections = number_in<std::uint64_t>(entry, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE);
  }
  CHECK(connections == 8);
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_STAT_GET, 0, put_lo))) == -EINVAL);
  const auto of_qps = ask(request(RDMA_NLDEV_CMD_STAT_GET, NLM_F_DUMP, [](NetlinkWriter& writer) {
    put_lo(writer);
    put<RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_STAT_RES>(writer);
  }));
  REQUIRE(of_qps.size() == 1);
  CHECK(header(of_qps[0]).nlmsg_type == NLMSG_DONE);
}

TEST_CASE_METHOD(World, "messages that are no request are at most acknowledged") {
  NetlinkWriter silent(type_of(RDMA_NLDEV_CMD_GET), NLM_F_DUMP, kSequence, 0);
  CHECK(answer(silent.octets()).empty());
  NetlinkWriter control(NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, kSequence, 0);
  CHECK(only_error(ask(control.octets())) == 0);
}

TEST_CASE_METHOD(World, "several requests in a datagram are answered one by one, up to the first that is broken") {
  Octets both = request(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
  const Octets one = both;
  both.insert(both.end(), one.begin(), one.end());
  CHECK(ask(both).size() == 6);
  both.resize(both.size() - 1);
  CHECK(ask(both).size() == 3);
}

TEST_CASE_METHOD(World, "octets of any kind are answered or ignored") {
  std::minstd_rand random(1);
  const Octets seed = request(RDMA_NLDEV_CMD_GET_CHARDEV, NLM_F_ACK, [](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, kOwnIndices);
    writer.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE, "uverbs");
  });
  for (int i = 0; i < 20000; ++i) {
    Octets octets = seed;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      octets[random() % octets.size()] = static_cast<std::uint8_t>(random());
    if (i % 4 == 0) octets.resize(random() % octets.size());
    for (const Octets& datagram : answer(octets)) REQUIRE(datagram.size() < 4096);
  }
}

namespace {

// What an answer says of RDMA as a whole; nothing where the attribute is missing.
std::optional<unsigned> system_says(const Octets& message, unsigned attribute) {
  const nlattr* const value = find(message, attribute);
  return value != nullptr ? std::optional<unsigned>(number_of<std::uint8_t>(value).value()) : std::nullopt;
}

constexpr unsigned kPrivilegedQkeyMode = 96, kMonitorMode = 103;  // of rdma/rdma_netlink.h since Linux 6.7 and 6.12

}  // namespace

TEST_CASE_METHOD(World, "the system copies registered pages at a fork, where the kernel has no RDMA") {
  const auto messages = ask(request(RDMA_NLDEV_CMD_SYS_GET, NLM_F_ACK));
  REQUIRE(messages.size() == 2);
  CHECK(header(messages[0]).nlmsg_type == type_of(RDMA_NLDEV_CMD_SYS_GET));
  CHECK((header(messages[0]).nlmsg_flags & NLM_F_MULTI) == 0);
  CHECK(system_says(messages[0], RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK) == 1);
  CHECK(system_says(messages[0], RDMA_NLDEV_SYS_ATTR_NETNS_MODE) == 1);
  CHECK(system_says(messages[0], kPrivilegedQkeyMode) == 1);
  CHECK(system_says(messages[0], kMonitorMode) == 0);
  CHECK(error_of(messages[1]) == 0);
  CHECK(only_error(ask(request(RDMA_NLDEV_CMD_SYS_GET, NLM_F_DUMP))) == -EINVAL);
  // It is about no device.
  const auto of_device = ask(request(RDMA_NLDEV_CMD_SYS_GET, 0, [](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(RDMA_NLDEV_ATTR_DEV_INDEX, 0);
  }));
  REQUIRE(of_device.size() == 1);
  CHECK(system_says(of_device[0], RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK) == 1);
}

TEST_CASE_METHOD(World, "where the kernel has RDMA, the system is as its adapters need it") {
  const auto answered = [&](std::optional<std::uint8_t> copies, std::uint8_t netns) {
    NetlinkWriter writer(type_of(RDMA_NLDEV_CMD_SYS_GET), 0, kSequence, 1);
    writer.number<std::uint8_t>(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, netns);
    writer.number<std::uint8_t>(kMonitorMode, 1);
    if (copies) writer.number<std::uint8_t>(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, *copies);
    host_says = copy_of(writer.octets());
    const auto messages = ask(request(RDMA_NLDEV_CMD_SYS_GET));
    REQUIRE(messages.size() == 1);
    CHECK(header(messages[0]).nlmsg_pid == kPort);
    return messages[0];
  };
  const Octets since_5_13 = answered(1, 0);
  CHECK(system_says(since_5_13, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK) == 1);
  CHECK(system_says(since_5_13, RDMA_NLDEV_SYS_ATTR_NETNS_MODE) == 0);
  CHECK(system_says(since_5_13, kPrivilegedQkeyMode) == 0);
  CHECK(system_says(since_5_13, kMonitorMode) == 0);
  const Octets before = answered({}, 1);
  CHECK_FALSE(system_says(before, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK));
  CHECK(system_says(before, RDMA_NLDEV_SYS_ATTR_NETNS_MODE) == 1);
  // A kernel that does not know the question.
  NetlinkWriter refusal(NLMSG_ERROR, 0, kSequence, 1);
  nlmsgerr body{};
  body.error = -EINVAL;
  refusal.raw(&body, sizeof body);
  host_says = copy_of(refusal.octets());
  const auto messages = ask(request(RDMA_NLDEV_CMD_SYS_GET));
  REQUIRE(messages.size() == 1);
  CHECK_FALSE(system_says(messages[0], RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK));
}
