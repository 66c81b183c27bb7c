// SPDX-License-Identifier: MIT
// What this process shows of itself, and that a child of a fork shows what is its own.
#include "provider/inventory/processes.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "provider/verbs/srq.h"
#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;
using provider::Inventory;
using provider::PortCounter;
using provider::ProcessInventory;

namespace {

std::vector<std::string> names_of(pid_t pid) {
  const std::string wanted = "@uiw-process/" + std::to_string(::geteuid()) + "/" + std::to_string(pid) + "/";
  std::ifstream table("/proc/net/unix");
  std::vector<std::string> names;
  for (std::string line; std::getline(table, line);) {
    if (const auto at = line.find(wanted); at != std::string::npos) names.push_back(line.substr(at + 1));
  }
  return names;
}

}  // namespace

TEST_CASE("this process shows its objects, and those that are destroyed no more", "[inventory]") {
  const Inventory before = provider::take_inventory();
  {
    const auto context = open_loopback();
    Pd pd(context);
    const auto cq = Cq::create(*context, 10, -1, nullptr);
    std::vector<std::byte> memory(5000);
    const auto mr = Mr::create(pd, memory.data(), memory.size(), 77, 0);
    ibv_srq_attr sizes{10, 1, 0};
    const auto srq = provider::Srq::create(pd, sizes, false, nullptr);
    ibv_qp_init_attr attributes{};
    attributes.cap = {10, 10, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    const auto qp = Qp::create(*context, pd, cq.get(), cq.get(), attributes, nullptr);
    REQUIRE((mr && srq && qp));

    const Inventory now = provider::take_inventory();
    CHECK(now.contexts.size() == before.contexts.size() + 1);
    CHECK(now.pds.size() == before.pds.size() + 1);
    CHECK(now.srqs.size() == before.srqs.size() + 1);
    const auto shown_qp =
        std::find_if(now.qps.begin(), now.qps.end(), [&](const auto& one) { return one.number == qp->number(); });
    REQUIRE(shown_qp != now.qps.end());
    CHECK(shown_qp->type == IBV_QPT_RC);
    CHECK(shown_qp->state == IBV_QPS_INIT);  // as ibv_query_qp says in the iWARP view
    CHECK(shown_qp->pd == pd.listed_number());
    CHECK(std::string(now.devices[shown_qp->device].name) == "uiw_lo");
    const auto shown_mr =
        std::find_if(now.mrs.begin(), now.mrs.end(), [&](const auto& one) { return one.key == mr->key(); });
    REQUIRE(shown_mr != now.mrs.end());
    CHECK(shown_mr->length == 5000);
    CHECK(shown_mr->iova == 77);
    CHECK(shown_mr->pd == pd.listed_number());
    const auto shown_cq = std::find_if(now.cqs.begin(), now.cqs.end(),
                                       [&](const auto& one) { return one.number == cq->listed_number(); });
    REQUIRE(shown_cq != now.cqs.end());
    CHECK(shown_cq->users == 2);
  }
  const Inventory after = provider::take_inventory();
  CHECK(after.contexts.size() == before.contexts.size());
  CHECK(after.pds.size() == before.pds.size());
  CHECK(after.cqs.size() == before.cqs.size());
  CHECK(after.mrs.size() == before.mrs.size());
  CHECK(after.srqs.size() == before.srqs.size());
  CHECK(after.qps.size() == before.qps.size());
}

TEST_CASE_METHOD(Loopback, "a process with an open device has one name, and is among those that are asked once",
                 "[inventory]") {
  const auto again = open_loopback();
  CHECK(names_of(::getpid()).size() == 1);
  const auto all = provider::ask_processes();
  CHECK(std::count_if(all.begin(), all.end(), [](const ProcessInventory& one) {
          return one.pid == static_cast<std::uint32_t>(::getpid());
        }) == 1);
}

#ifndef __SANITIZE_THREAD__  // which does not allow that the child makes threads
namespace {

const ProcessInventory* find(const std::vector<ProcessInventory>& all, pid_t pid) {
  const auto found = std::find_if(all.begin(), all.end(), [pid](const ProcessInventory& one) {
    return one.pid == static_cast<std::uint32_t>(pid);
  });
  return found != all.end() ? &*found : nullptr;
}

}  // namespace

TEST_CASE_METHOD(Loopback, "a child is asked for what it has itself, and begins with zeros", "[inventory]") {
  provider::port_counters("uiw_lo").add(PortCounter::refused, 5);
  int ready[2], end[2];
  REQUIRE((::pipe(ready) == 0 && ::pipe(end) == 0));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(end[1]);
    const bool silent = names_of(::getpid()).empty();
    const auto own = provider::Context::open("uiw_lo");
    const char said = silent && own ? 'y' : 'n';
    char octet;
    if (::write(ready[1], &said, 1) != 1 || ::read(end[0], &octet, 1) != 0) ::_exit(1);
    ::_exit(0);
  }
  ::close(end[0]);
  char said = 0;
  REQUIRE(::read(ready[0], &said, 1) == 1);
  CHECK(said == 'y');
  // The loaded machine may make the child late.
  const ProcessInventory* found = nullptr;
  std::vector<ProcessInventory> all;
  CHECK(eventually([&] {
    all = provider::ask_processes();
    return (found = find(all, child)) != nullptr;
  }));
  if (found != nullptr) {
    CHECK(found->inventory.contexts.size() == 1);
    for (const auto& device : found->inventory.devices) CHECK(device.counts[index_of(PortCounter::refused)] == 0);
  }
  ::close(end[1]);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(names_of(child).empty());
  CHECK(find(provider::ask_processes(), child) == nullptr);
  for (const int fd : {ready[0], ready[1]}) ::close(fd);
}
#endif

TEST_CASE_METHOD(Loopback, "datagrams that are no question do no harm", "[inventory]") {
  const auto names = names_of(::getpid());
  REQUIRE(names.size() == 1);
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, names[0].data(), names[0].size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + names[0].size());
  const std::string long_one(5000, 'x');
  for (const std::string& text : {std::string(), std::string("uiw"), std::string("uiw inventory!", 15), long_one}) {
    for (int i = 0; i < 100; ++i) {
      ::sendto(fd, text.data(), text.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), length);
    }
  }
  char octet;
  CHECK(::recv(fd, &octet, 1, MSG_DONTWAIT) < 0);
  ::close(fd);
  CHECK(names_of(::getpid()).size() == 1);
}

TEST_CASE_METHOD(Loopback, "objects and connections come and go while others look at them", "[inventory]") {
  std::atomic<bool> stop{false};
  std::atomic<unsigned> looks{0};
  std::thread looker([&] {
    std::uint64_t sent = 0;
    while (!stop) {
      const Inventory inventory = provider::take_inventory();
      for (const auto& device : inventory.devices) {
        if (std::string(device.name) != "uiw_lo") continue;
        const std::uint64_t now = device.counts[index_of(PortCounter::octets_sent)];
        if (now < sent) stop = true;  // counters of a process that lives never fall
        sent = now;
      }
      ++looks;
    }
  });
  constexpr unsigned kRounds = 30;
  for (unsigned round = 0; round < kRounds && !stop; ++round) {
    Side a(*context), b(*context);
    attach(a, b);
    Registered out(a, Bytes(1000, std::byte{1})), in(b, Bytes(1000), kLocal);
    CHECK(b.post_receive(1, {in.sge()}) == 0);
    CHECK(a.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    CHECK(in.mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == 0);
  }
  CHECK(eventually([&] { return looks > 10 || stop; }));
  CHECK_FALSE(stop);
  stop = true;
  looker.join();
}

TEST_CASE_METHOD(Loopback, "counters of a port have the traffic of connections that live and that have ended",
                 "[inventory]") {
  const auto counts = [] {
    const Inventory inventory = provider::take_inventory();
    for (const auto& device : inventory.devices) {
      if (std::string(device.name) == "uiw_lo") return device.counts;
    }
    return provider::PortCounts{};
  };
  const auto sent = [&counts] { return counts()[index_of(PortCounter::octets_sent)]; };
  const auto received = [&counts] { return counts()[index_of(PortCounter::octets_received)]; };
  const std::uint64_t sent_before = sent(), received_before = received();
  const std::uint64_t connections = counts()[index_of(PortCounter::connections)];
  constexpr std::size_t kSize = 100'000;
  {
    Side a(*context), b(*context);
    attach(a, b);
    Registered out(a, Bytes(kSize, std::byte{1})), in(b, Bytes(kSize), kLocal);
    CHECK(b.post_receive(1, {in.sge()}) == 0);
    CHECK(a.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    CHECK(sent() - sent_before >= kSize);
    CHECK(received() - received_before >= kSize);
    CHECK(counts()[index_of(PortCounter::connections)] == connections + 2);
  }
  CHECK(sent() - sent_before >= kSize);
  CHECK(sent() - sent_before < kSize + kSize / 10);
  CHECK(received() - received_before >= kSize);
}
