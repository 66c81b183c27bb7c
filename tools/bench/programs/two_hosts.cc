// SPDX-License-Identifier: MIT
#include "tools/bench/programs/two_hosts.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "tools/bench/programs/program_pair.h"
#include "tools/files.h"

namespace uiw::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kInterface[] = "eth0";
constexpr char kServerAddress[] = "192.0.2.1";  // RFC 5737: of no network; nothing outside the namespaces sees it
constexpr char kClientAddress[] = "192.0.2.2";

std::string namespace_of(pid_t process) { return "/proc/" + std::to_string(process) + "/ns/net"; }

// Which namespace a path of /proc stands for; empty if it cannot be read.
std::string identity(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::read_symlink(path, ignored).string();
}

// Starts a process that does nothing in a network namespace of its own.
bool hold_namespace(Child& holder, std::string& error) {
  if (!holder.start({"unshare", "--net", "sleep", "infinity"}, {{"LD_PRELOAD", ""}})) {
    error = "no process can be made";
    return false;
  }
  const std::string own = identity("/proc/self/ns/net");
  const Clock::time_point deadline = Clock::now() + seconds(5);
  while (!holder.wait(milliseconds(5))) {
    if (const std::string now = identity(namespace_of(holder.pid())); !now.empty() && now != own) return true;
    if (Clock::now() >= deadline || interrupted() != 0) break;
  }
  error = "`unshare --net` made no network namespace";
  if (const std::string said = holder.complaint(); !said.empty()) error += ": " + said;
  return false;
}

bool run_ip(const std::string& network_namespace, const Arguments& arguments, std::string& error) {
  Arguments command{"ip"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_program(in_namespace(network_namespace, command), {{"LD_PRELOAD", ""}}, seconds(1), error).has_value();
}

bool set_up(pid_t holder, const std::string& address, std::string& error) {
  const std::string where = namespace_of(holder);
  return run_ip(where, {"address", "add", address + "/24", "dev", kInterface}, error) &&
         run_ip(where, {"link", "set", "dev", kInterface, "up"}, error);
}

}  // namespace

bool TwoHosts::make(std::string& error) {
  if (geteuid() != 0) {
    error = "only root may make network namespaces";
    return false;
  }
  for (const char* program : {"ip", "unshare", "nsenter"}) {
    int missing = 0;
    find_program(program, missing);
    if (missing == 0) continue;
    error = std::string("the program ") + program + " is missing";
    return false;
  }
  if (!hold_namespace(server_, error) || !hold_namespace(client_, error)) return false;
  const std::string server = std::to_string(server_.pid());
  const std::string client = std::to_string(client_.pid());
  return run_ip("",
                {"link", "add", kInterface, "mtu", "1500", "netns", server, "type", "veth", "peer", "name", kInterface,
                 "mtu", "1500", "netns", client},
                error) &&
         set_up(server_.pid(), kServerAddress, error) && set_up(client_.pid(), kClientAddress, error);
}

BenchSetup TwoHosts::between(BenchSetup setup) const {
  setup.device = std::string("uiw_") + kInterface;
  setup.address = kServerAddress;
  setup.gid_index = 0;
  setup.server_namespace = namespace_of(server_.pid());
  setup.client_namespace = namespace_of(client_.pid());
  return setup;
}

}  // namespace uiw::tools
