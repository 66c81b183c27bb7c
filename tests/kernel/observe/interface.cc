// SPDX-License-Identifier: MIT
// What the device does when its interface goes down and up, and when an address comes and goes.
#include <ifaddrs.h>

#include <cstdlib>
#include <set>

#include "tests/kernel/observe/pair.h"

namespace observe {
namespace {

constexpr const char* kAddress = "10.99.0.77";  // one that comes and goes

class Interface {
 public:
  explicit Interface(const Device& device) : device_(device) {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
      sockaddr_in address;
      std::memcpy(&address, one->ifa_addr, sizeof address);
      if (address.sin_addr.s_addr == device.address.sin_addr.s_addr) name_ = one->ifa_name;
    }
    ::freeifaddrs(all);
  }

  // `ip` with these arguments, in which % is the interface; then the events that have come.
  void change(const std::string& what, std::string arguments) const {
    arguments.replace(arguments.find('%'), 1, name_);
    const int status = std::system(("ip " + arguments).c_str());
    say("interface: " + what, (status == 0 ? "" : "ip fails; ") + events());
  }
  void look(const std::string& when) const {
    ibv_port_attr port{};
    ibv_query_port(device_.context, 1, &port);
    say("interface: the port " + when, ibv_port_state_str(port.state));
    say("interface: the port " + when + ", its physical state", port.phys_state == 5 ? "LinkUp"
                                                                : port.phys_state == 3
                                                                    ? "Disabled"
                                                                    : std::to_string(port.phys_state));
  }
  void gids(const std::string& when) const {
    ibv_gid wanted{};
    const sockaddr_in address = address_of(kAddress);
    wanted.raw[10] = wanted.raw[11] = 0xFF;
    std::memcpy(wanted.raw + 12, &address.sin_addr, 4);
    bool found = false;
    for (int i = 0; i < 32; ++i) {
      ibv_gid one{};
      if (ibv_query_gid(device_.context, 1, i, &one) == 0 && std::memcmp(&one, &wanted, sizeof one) == 0) found = true;
    }
    say("interface: the table of GIDs " + when, found ? "has it" : "has it not");
  }
  void binds(const std::string& when) const {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    sockaddr_in address = address_of(kAddress);
    const std::string bound = result(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)));
    say("interface: rdma_bind_addr " + when, bound + (id->verbs == device_.context ? ", to the device" : ""));
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  }

 private:
  // Of several of one kind in turn, as many as addresses have changed, one is enough.
  std::string events() const {
    std::set<std::string> kinds;
    const std::string all = await_events(device_, 1000, [&](const ibv_async_event& event) {
      const std::string kind = ibv_event_type_str(event.event_type);
      kinds.insert(kind);
      return kind;
    });
    std::string text;
    for (const std::string& kind : kinds) text += (text.empty() ? "" : ", ") + kind;
    return text.empty() ? all : text;
  }

  const Device& device_;
  std::string name_;
};

}  // namespace

void observe_interface(const Device& device) {
  const Interface interface(device);
  interface.look("at first");
  interface.gids("at first");
  interface.binds("to an address that is not there");
  interface.change("an address is added", std::string("address add ") + kAddress + "/24 dev %");
  interface.gids("after that");
  interface.binds("after that");
  interface.change("the address is removed", std::string("address del ") + kAddress + "/24 dev %");
  interface.gids("at the end");
  interface.binds("at the end");
  interface.change("it goes down", "link set % down");
  interface.look("then");
  interface.change("it goes up", "link set % up");
  interface.look("after all");
  interface.change("its MTU becomes 1280", "link set % mtu 1280");
  ibv_port_attr port{};
  ibv_query_port(device.context, 1, &port);
  say("interface: the active MTU then", std::to_string(128 << port.active_mtu));
  interface.change("its MTU becomes 1500", "link set % mtu 1500");
}

}  // namespace observe
