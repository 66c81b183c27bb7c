// SPDX-License-Identifier: MIT
#include <chrono>
#include <cstdlib>

#include "tools/bench/programs/program_pair.h"
#include "tools/bench/programs/programs.h"
#include "tools/files.h"

namespace uiw::tools {
namespace {

using std::chrono::seconds;

Environment rdma_environment(const BenchSetup& setup, const Way& way = {}) {
  const char* crc = way.crc == Crc::on ? "on" : way.crc == Crc::off ? "off" : "auto";
  Environment environment{
      {"LD_PRELOAD", preload_value(setup.preload, getenv("LD_PRELOAD"))}, {"UIW_CRC", crc}, {"LC_ALL", "C"}};
  if (way.stream != ByteStream::automatic)
    environment.emplace_back("UIW_SAME_HOST", way.stream == ByteStream::tcp ? "tcp" : "auto");
  if (way.manual != nullptr) {
    environment.emplace_back("UIW_COMPLETION", way.manual);
    environment.emplace_back("UIW_TRANSPORT", "roce");  // in the iWARP view ib_send_bw fails at its end without rdma_cm
  }
  return environment;
}

std::optional<std::string> run_perftest(const BenchSetup& setup, const std::string& program, const Arguments& options,
                                        seconds duration, const Way& way, std::string& error) {
  ProgramPair pair;
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
  pair.server_namespace = setup.server_namespace;
  pair.client_namespace = setup.client_namespace;
  return run_pair(pair, duration, error);
}

// With margin 0 (-f) the whole time counts, as for iperf3.
Arguments bandwidth_options(const BenchSetup& setup, const Arguments& more) {
  Arguments options{"-D", std::to_string(setup.seconds), "-f", "0", "--report_gbits"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

std::optional<PerftestBandwidth> bandwidth_of(const std::optional<std::string>& output, const std::string& program,
                                              std::size_t size, std::string& error) {
  if (!output) return std::nullopt;
  const std::optional<PerftestBandwidth> result = parse_perftest_bandwidth(*output, size);
  if (!result) error = program + " printed no result";
  return result;
}

std::optional<PerftestBandwidth> run_bandwidth(const BenchSetup& setup, const std::string& program, std::size_t size,
                                               const Arguments& options, const Way& way, std::string& error) {
  const std::optional<std::string> output =
      run_perftest(setup, program, bandwidth_options(setup, options), seconds(setup.seconds), way, error);
  return bandwidth_of(output, program, size, error);
}

// Runs a program that is a part of uiw, and measures alone.
std::optional<std::string> run_helper(const char* name, const Arguments& options, const Environment& environment,
                                      seconds duration, std::string& error) {
  const std::string program = helper_program(name);
  if (program.empty()) {
    error = std::string(name) + " is missing";
    return std::nullopt;
  }
  Arguments arguments{program};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_program(arguments, environment, duration, error);
}

const char* name_of(Ends ends) {
  switch (ends) {
    case Ends::events: return "events";
    case Ends::writes: return "writes";
    case Ends::pinned: return "pinned";
    case Ends::tcp: break;
  }
  return "tcp";
}

}  // namespace

std::optional<PerftestBandwidth> measure_rdma_bandwidth(const BenchSetup& setup, const std::string& program,
                                                        std::size_t size, const Way& way, std::string& error) {
  return run_bandwidth(setup, program, size, {"-s", std::to_string(size)}, way, error);
}

std::optional<PerftestBandwidth> measure_rdma_connections(const BenchSetup& setup, std::size_t size,
                                                          unsigned connections, const Way& way, std::string& error) {
  constexpr std::size_t kSmall = 4096;
  constexpr seconds kConnecting{10};
  // perftest asks for a completion of every hundredth Write and of the last, and counts each as a hundred. With another
  // number of Writes it stops polling too early, and then waits for ever for room to send.
  constexpr unsigned kCompletedAtOnce = 100;
  unsigned writes = (size <= kSmall ? 3'000'000 : 51'200) / connections * setup.seconds;
  if (writes > kCompletedAtOnce) writes -= writes % kCompletedAtOnce;
  // Without -N perftest searches the times of all pairs of Writes for the highest bandwidth, which takes minutes.
  const Arguments options{"-s", std::to_string(size),   "-q", std::to_string(connections),
                          "-n", std::to_string(writes), "-N", "--report_gbits"};
  const std::optional<std::string> output =
      run_perftest(setup, "ib_write_bw", options, kConnecting + seconds(5 * setup.seconds), way, error);
  return bandwidth_of(output, "ib_write_bw", size, error);
}

std::optional<double> measure_rdma_answered(const BenchSetup& setup, Answered what, std::string& error) {
  constexpr std::size_t kSize = 8;
  Arguments options{"-o", "16"};
  const Arguments own =
      what == Answered::read ? Arguments{"-s", std::to_string(kSize)} : Arguments{"-A", "FETCH_AND_ADD"};
  options.insert(options.end(), own.begin(), own.end());
  const char* program = what == Answered::read ? "ib_read_bw" : "ib_atomic_bw";
  const std::optional<PerftestBandwidth> result = run_bandwidth(setup, program, kSize, options, {}, error);
  return result ? std::optional(result->messages_per_second) : std::nullopt;
}

std::optional<PerftestLatency> measure_rdma_latency(const BenchSetup& setup, const std::string& program,
                                                    std::size_t size, const Way& way, Wait wait, std::string& error) {
  Arguments options{"-s", std::to_string(size), "-n", std::to_string(setup.iterations)};
  if (wait == Wait::events) options.push_back("-e");
  // This is enough time even if a round trip takes 100 us.
  const seconds duration(1 + setup.iterations / 10000);
  const std::optional<std::string> output = run_perftest(setup, program, options, duration, way, error);
  if (!output) return std::nullopt;
  const std::optional<PerftestLatency> result = parse_perftest_latency(*output, size);
  if (!result) error = program + " printed no result";
  return result;
}

std::optional<double> measure_rdma_setup(const BenchSetup& setup, std::string& error) {
  const std::optional<std::string> output = run_helper("uiw-setup", {setup.address, std::to_string(setup.seconds)},
                                                       rdma_environment(setup), seconds(setup.seconds), error);
  if (!output) return std::nullopt;
  const std::optional<double> result = parse_setup(*output);
  if (!result) error = "uiw-setup printed no result";
  return result;
}

std::optional<AnswerRate> measure_requests(const BenchSetup& setup, Ends ends, std::size_t size, unsigned clients,
                                           const Way& way, std::string& error) {
  // Plain TCP must run without uiw, also if this program itself runs under uiw.
  const Environment environment =
      ends == Ends::tcp ? Environment{{"LD_PRELOAD", ""}, {"LC_ALL", "C"}} : rdma_environment(setup, way);
  const Arguments options{name_of(ends), setup.address, std::to_string(size), std::to_string(clients),
                          std::to_string(setup.seconds)};
  const std::optional<std::string> output =
      run_helper("uiw-requests", options, environment, seconds(setup.seconds), error);
  if (!output) return std::nullopt;
  const std::optional<AnswerRate> result = parse_requests(*output);
  if (!result) error = "uiw-requests printed no result";
  return result;
}

}  // namespace uiw::tools
