// SPDX-License-Identifier: MIT
#include "tools/bench/programs.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "tools/bench/parse.h"
#include "tools/child.h"
#include "tools/files.h"

namespace uiw::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStartLimit{5};  // until a server listens and accepts its client
constexpr seconds kSlack{15};      // set-up and tear-down around a measurement

using Arguments = std::vector<std::string>;

// The programs of one measurement, given a port.
struct Pair {
  std::function<Arguments(const std::string& port)> server;
  std::function<Arguments(const std::string& port)> client;
  Environment environment;
};

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

// Whether a process listens on the port. Reads the kernel's tables: a test connection would be taken for the client by
// programs that serve only one (ib_*, iperf3 -1).
bool listens(unsigned port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
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

// Runs the client against the server. Returns the client's output, or nullopt with `error`.
std::optional<std::string> run_pair(const Pair& pair, seconds duration, std::string& error) {
  const unsigned port = free_port();
  if (port == 0) {
    error = "no free TCP port";
    return std::nullopt;
  }
  const Arguments server_arguments = pair.server(std::to_string(port));
  const Arguments client_arguments = pair.client(std::to_string(port));
  Child server;
  if (!server.start(server_arguments, pair.environment)) {
    error = "no process can be made";
    return std::nullopt;
  }
  const Clock::time_point deadline = Clock::now() + kStartLimit;
  bool server_ended = false;
  while (!server_ended && !listens(port) && Clock::now() < deadline && interrupted() == 0)
    server_ended = server.wait(milliseconds(20));
  if (server_ended) {
    error = "server " + server_arguments[0] + " " + ending_of(server.status()) + one_line(server);
    return std::nullopt;
  }

  Child client;
  for (;;) {
    if (!client.start(client_arguments, pair.environment)) {
      error = "no process can be made";
      return std::nullopt;
    }
    // The server's output is not read meanwhile: all these programs print much less than a pipe holds.
    const bool ended = client.wait(duration + kSlack);
    if (ended && client.succeeded()) break;
    if (interrupted() != 0) {
      error = "interrupted";
      return std::nullopt;
    }
    if (!ended) {
      client.stop();
      error = "client " + client_arguments[0] + " did not end within " + std::to_string((duration + kSlack).count()) +
              " s" + one_line(client);
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
  // ib_* and iperf3 -1 end by themselves; sockperf is ended here.
  if (client_arguments[0] != "sockperf") server.wait(seconds(2));
  return client.output();
}

Environment rdma_environment(const BenchSetup& setup, const Way& way = {}) {
  const char* crc = way.crc == Crc::on ? "on" : way.crc == Crc::off ? "off" : "auto";
  Environment environment{
      {"LD_PRELOAD", preload_value(setup.preload, getenv("LD_PRELOAD"))}, {"UIW_CRC", crc}, {"LC_ALL", "C"}};
  if (way.manual != nullptr) {
    environment.emplace_back("UIW_COMPLETION", way.manual);
    environment.emplace_back("UIW_TRANSPORT", "roce");  // in the iWARP view ib_send_bw fails at its end without rdma_cm
  }
  return environment;
}

// Plain TCP must run without uiw, also if this program itself runs under uiw.
Environment plain_environment() { return {{"LD_PRELOAD", ""}, {"LC_ALL", "C"}}; }

std::optional<std::string> run_perftest(const BenchSetup& setup, const std::string& program, const Arguments& options,
                                        seconds duration, const Way& way, std::string& error) {
  Pair pair;
  pair.server = [&](const std::string& port) {
    Arguments arguments{program, "-F", "-d", setup.device, "-p", port};
    const Arguments connection =
        way.manual != nullptr ? Arguments{"-x", std::to_string(setup.gid_index)} : Arguments{"-R"};
    arguments.insert(arguments.end(), connection.begin(), connection.end());
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  };
  pair.client = [&](const std::string& port) {
    Arguments arguments = pair.server(port);
    arguments.push_back(setup.address);
    return arguments;
  };
  pair.environment = rdma_environment(setup, way);
  return run_pair(pair, duration, error);
}

// Reads two columns of the same row.
std::optional<PerftestBandwidth> measure_bandwidth(const BenchSetup& setup, const std::string& program,
                                                   std::size_t size, const Way& way, std::string& error) {
  // With margin 0 (-f) the whole time counts, as for iperf3.
  const Arguments options{"-s", std::to_string(size), "-D", std::to_string(setup.seconds), "-f", "0", "--report_gbits"};
  const std::optional<std::string> output = run_perftest(setup, program, options, seconds(setup.seconds), way, error);
  if (!output) return std::nullopt;
  const std::optional<PerftestBandwidth> result = parse_perftest_bandwidth(*output, size);
  if (!result) error = program + " printed no result";
  return result;
}

}  // namespace

std::optional<double> measure_rdma_gbits(const BenchSetup& setup, const std::string& program, std::size_t size,
                                         const Way& way, std::string& error) {
  const auto result = measure_bandwidth(setup, program, size, way, error);
  return result ? std::optional(result->gbits_per_second) : std::nullopt;
}

std::optional<double> measure_rdma_messages(const BenchSetup& setup, const std::string& program, std::size_t size,
                                            const Way& way, std::string& error) {
  const auto result = measure_bandwidth(setup, program, size, way, error);
  return result ? std::optional(result->messages_per_second) : std::nullopt;
}

std::optional<double> measure_rdma_answered(const BenchSetup& setup, Answered what, std::string& error) {
  constexpr std::size_t kSize = 8;
  const bool read = what == Answered::read;
  const std::string program = read ? "ib_read_bw" : "ib_atomic_bw";
  Arguments options{"-o", "16", "-D", std::to_string(setup.seconds), "-f", "0", "--report_gbits"};
  const Arguments own = read ? Arguments{"-s", std::to_string(kSize)} : Arguments{"-A", "FETCH_AND_ADD"};
  options.insert(options.end(), own.begin(), own.end());
  const std::optional<std::string> output = run_perftest(setup, program, options, seconds(setup.seconds), {}, error);
  if (!output) return std::nullopt;
  const std::optional<PerftestBandwidth> result = parse_perftest_bandwidth(*output, kSize);
  if (!result) error = program + " printed no result";
  return result ? std::optional(result->messages_per_second) : std::nullopt;
}

std::optional<double> measure_rdma_latency(const BenchSetup& setup, const std::string& program, std::size_t size,
                                           const Way& way, std::string& error) {
  const Arguments options{"-s", std::to_string(size), "-n", std::to_string(setup.iterations)};
  // This is enough time even if a round trip takes 100 us.
  const seconds duration(1 + setup.iterations / 10000);
  const std::optional<std::string> output = run_perftest(setup, program, options, duration, way, error);
  if (!output) return std::nullopt;
  const std::optional<double> result = parse_perftest_latency(*output, size);
  if (!result) error = program + " printed no result";
  return result;
}

std::optional<double> measure_setup(const BenchSetup& setup, std::string& error) {
  const std::string program = helper_program("uiw-setup");
  Child child;
  if (program.empty()) {
    error = "uiw-setup is missing";
  } else if (!child.start({program, setup.address, std::to_string(setup.seconds)}, rdma_environment(setup))) {
    error = "no process can be made";
  } else if (!child.wait(seconds(setup.seconds) + kSlack)) {
    error = interrupted() != 0 ? "interrupted" : "uiw-setup did not end";
  } else if (!child.succeeded()) {
    error = "uiw-setup " + ending_of(child.status()) + one_line(child);
  } else if (const std::optional<double> result = parse_setup(child.output())) {
    return result;
  } else {
    error = "uiw-setup printed no result";
  }
  return std::nullopt;
}

std::optional<double> measure_iperf3(const BenchSetup& setup, std::string& error) {
  Pair pair;
  pair.server = [&](const std::string& port) {
    return Arguments{"iperf3", "--server", "--one-off", "--bind", setup.address, "--port", port};
  };
  pair.client = [&](const std::string& port) {
    return Arguments{"iperf3", "--client", setup.address, "--port", port, "--time", std::to_string(setup.seconds),
                     "--json"};
  };
  pair.environment = plain_environment();
  const std::optional<std::string> output = run_pair(pair, seconds(setup.seconds), error);
  if (!output) return std::nullopt;
  const std::optional<double> result = parse_iperf3(*output);
  if (!result) error = "iperf3 printed no result";
  return result;
}

std::optional<double> measure_sockperf(const BenchSetup& setup, std::string& error) {
  Pair pair;
  pair.server = [&](const std::string& port) {
    return Arguments{"sockperf", "server", "--tcp", "--nonblocked", "-i", setup.address, "-p", port};
  };
  pair.client = [&](const std::string& port) {
    return Arguments{"sockperf",    "ping-pong", "--tcp", "--nonblocked", "-i",
                     setup.address, "-p",        port,    "-t",           std::to_string(setup.seconds)};
  };
  pair.environment = plain_environment();
  const std::optional<std::string> output = run_pair(pair, seconds(setup.seconds), error);
  if (!output) return std::nullopt;
  const std::optional<double> result = parse_sockperf(*output);
  if (!result) error = "sockperf printed no result";
  return result;
}

std::vector<Package> missing_packages() {
  std::vector<Package> missing;
  int error = 0;
  for (const char* program :
       {"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_write_lat", "ib_atomic_bw"}) {
    find_program(program, error);
    if (error != 0 && missing.empty()) missing.push_back(kPerftest);
  }
  for (const Package& package : {kIperf3, kSockperf}) {
    find_program(package.debian, error);
    if (error != 0) missing.push_back(package);
  }
  return missing;
}

}  // namespace uiw::tools
