// SPDX-License-Identifier: MIT
// Requests on NETLINK_RDMA, and what a host with RDMA devices answers: every answer is whole messages with the number
// of a request. Two octets say how long the request is; the rest is what the host says.
#include <linux/netlink.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernel-abi/netlink/nldev.h"

using namespace uiw::kernel_abi;

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

NumberedDevice device(const char* interface, unsigned number) {
  NumberedDevice made{};
  made.info.name = std::string("uiw_") + interface;
  made.info.interface = interface;
  made.info.ifindex = number + 1;
  made.info.loopback = number == 0;
  made.number = number;
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>((std::size_t{data[0]} << 8 | data[1]) & 0x3FF, size - 2);
  const Octets request(data + 2, data + 2 + length);
  const Octets said(data + 2 + length, data + size);
  NldevWorld world;
  world.devices = [](bool) { return std::vector<NumberedDevice>{device("lo", 0), device("eth0", 1)}; };
  world.processes = [] {
    std::vector<uiw::provider::ProcessInventory> all(2);
    all[0].pid = 300;
    for (auto& process : all) {
      auto& inventory = process.inventory;
      const std::uint32_t lo = inventory.index_of_device("uiw_lo");
      inventory.contexts = {{lo, 1}};
      inventory.pds = {{lo, 2, 1, 5}};
      inventory.mrs = {{lo, 3, 2, 0xaabb, 0x7000, 4096}};
      inventory.cqs = {{lo, 4, 1, 2, 256}};
      inventory.srqs = {{lo, 9, 2}};
      inventory.qps.resize(3);
      inventory.cm_ids.resize(1);
    }
    return all;
  };
  world.host = [&](OctetView) { return said; };
  for (const Octets& datagram : answer_nldev(request, 4711, world)) {
    for (std::size_t at = 0; at < datagram.size();) {
      nlmsghdr header;
      check(datagram.size() - at >= sizeof header);
      std::memcpy(&header, datagram.data() + at, sizeof header);
      check(header.nlmsg_len >= sizeof header && header.nlmsg_len <= datagram.size() - at);
      at += std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), datagram.size() - at);
    }
  }
  return 0;
}
