// SPDX-License-Identifier: MIT
#include "tools/bench/programs/program_pair.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace uiw::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStartLimit{5};  // until a server listens and accepts its client
constexpr seconds kSlack{15};      // set-up and tear-down around a measurement
constexpr char kNoProcess[] = "no process can be made";

// A port that is free at this moment; 0 if there is none.
unsigned free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  sockaddr_in local{};
  local.sin_family = AF_INET;
  socklen_t length = sizeof local;
  auto* generic = reinterpret_cast<sockaddr*>(&local);
  const bool good = bind(fd, generic, sizeof local) == 0 && getsockname(fd, generic, &length) == 0;
  close(fd);
  return good ? ntohs(local.sin_port) : 0;
}

// Whether something listens on the port in the network namespace of the process. Reads the kernel's tables: a test
// connection would be taken for the client by programs that serve only one (ib_*, iperf3 -1).
bool listens(pid_t process, unsigned port) {
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream lines("/proc/" + std::to_string(process) + "/net/" + table);
    for (std::string line; std::getline(lines, line);) {
      unsigned local = 0;
      unsigned state = 0;
      if (std::sscanf(line.c_str(), " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &local, &state) == 2 &&
          local == port && state == 0x0A)
        return true;
    }
  }
  return false;
}

std::string one_line(const Child& child) {
  const std::string said = child.complaint();
  return said.empty() ? "" : ": " + said;
}

std::string too_slow(const std::string& who, seconds duration, const Child& child) {
  return who + " did not end within " + std::to_string((duration + kSlack).count()) + " s" + one_line(child);
}

// Like client.wait(), but reads what the server prints too: of a thousand connections perftest prints more than a pipe
// holds, and would wait for its reader.
bool wait_for_client(Child& client, Child& server, milliseconds limit) {
  constexpr milliseconds kTurn{20};
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    if (client.wait(kTurn)) return true;
    if (Clock::now() >= deadline || interrupted() != 0) return false;
    server.wait(milliseconds(0));
  }
}

}  // namespace

Arguments in_namespace(const std::string& path, Arguments arguments) {
  if (!path.empty()) arguments.insert(arguments.begin(), {"nsenter", "--net=" + path, "--"});
  return arguments;
}

std::optional<std::string> run_pair(const ProgramPair& pair, seconds duration, std::string& error) {
  const unsigned port = free_port();
  if (port == 0) {
    error = "no free TCP port";
    return std::nullopt;
  }
  const Arguments server_arguments = pair.server(std::to_string(port));
  const Arguments client_arguments = pair.client(std::to_string(port));
  Child server;
  if (!server.start(in_namespace(pair.server_namespace, server_arguments), pair.environment)) {
    error = kNoProcess;
    return std::nullopt;
  }
  const Clock::time_point deadline = Clock::now() + kStartLimit;
  bool server_ended = false;
  while (!server_ended && !listens(server.pid(), port) && Clock::now() < deadline && interrupted() == 0)
    server_ended = server.wait(milliseconds(20));
  if (server_ended) {
    error = "server " + server_arguments[0] + " " + ending_of(server.status()) + one_line(server);
    return std::nullopt;
  }

  Child client;
  for (;;) {
    if (!client.start(in_namespace(pair.client_namespace, client_arguments), pair.environment)) {
      error = kNoProcess;
      return std::nullopt;
    }
    const bool ended = wait_for_client(client, server, duration + kSlack);
    if (ended && client.succeeded()) break;
    if (interrupted() != 0) {
      error = "interrupted";
      return std::nullopt;
    }
    if (!ended) {
      client.stop();
      error = too_slow("client " + client_arguments[0], duration, client);
      return std::nullopt;
    }
    // A client that was too early is started again while the server still waits.
    if (Clock::now() >= deadline || server.wait(milliseconds(100))) {
      error = "client " + client_arguments[0] + " " + ending_of(client.status()) + one_line(client);
      server.stop();
      if (const std::string said = one_line(server); !said.empty()) error += "; server" + said;
      return std::nullopt;
    }
  }
  if (pair.server_ends) server.wait(seconds(2));
  return client.output();
}

std::optional<std::string> run_program(const Arguments& arguments, const Environment& environment, seconds duration,
                                       std::string& error) {
  Child child;
  if (!child.start(arguments, environment)) {
    error = kNoProcess;
  } else if (!child.wait(duration + kSlack)) {
    child.stop();
    error = interrupted() != 0 ? "interrupted" : too_slow(arguments[0], duration, child);
  } else if (!child.succeeded()) {
    error = arguments[0] + " " + ending_of(child.status()) + one_line(child);
  } else {
    return child.output();
  }
  return std::nullopt;
}

}  // namespace uiw::tools
