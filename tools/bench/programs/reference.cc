// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <cstdint>

#include "tools/bench/programs/program_pair.h"
#include "tools/bench/programs/programs.h"

namespace uiw::tools {
namespace {

using std::chrono::seconds;

// These programs must run without uiw, also if this program itself runs under uiw.
ProgramPair plain_pair(const BenchSetup& setup) {
  ProgramPair pair;
  pair.environment = {{"LD_PRELOAD", ""}, {"LC_ALL", "C"}};
  pair.server_namespace = setup.server_namespace;
  pair.client_namespace = setup.client_namespace;
  return pair;
}

// The result that `parse` finds in the output of the client `program`.
template <typename Parse>
auto parsed(const std::optional<std::string>& output, const char* program, Parse parse, std::string& error)
    -> decltype(parse(*output)) {
  if (!output) return std::nullopt;
  auto result = parse(*output);
  if (!result) error = std::string(program) + " printed no result";
  return result;
}

// ucx_perftest takes a number of messages, not a time. So many take about a second at 2 GiB/s or, if they are small,
// at a million a second.
std::uint64_t ucx_messages(const BenchSetup& setup, std::size_t size) {
  constexpr std::uint64_t kOctets = std::uint64_t{2} << 30;
  constexpr std::uint64_t kMost = 1'000'000;
  return std::min(kOctets / size, kMost) * setup.seconds;
}

std::optional<UcxResult> run_ucx(const BenchSetup& setup, const char* test, std::size_t size, ByteStream stream,
                                 std::uint64_t messages, std::string& error) {
  ProgramPair pair = plain_pair(setup);
  // -f and -v: the final numbers alone, separated by commas.
  pair.server = [&](const std::string& port) {
    return Arguments{"ucx_perftest",
                     "-p",
                     port,
                     "-t",
                     test,
                     "-s",
                     std::to_string(size),
                     "-n",
                     std::to_string(messages),
                     "-w",
                     std::to_string(messages / 10),
                     "-f",
                     "-v"};
  };
  pair.client = [&](const std::string& port) {
    Arguments arguments = pair.server(port);
    arguments.push_back(setup.address);
    return arguments;
  };
  pair.environment.emplace_back("UCX_TLS", stream == ByteStream::tcp ? "tcp" : "posix");
  const seconds duration(10 * setup.seconds);  // the number of messages is a guess for a fast machine
  return parsed(run_pair(pair, duration, error), "ucx_perftest", parse_ucx, error);
}

}  // namespace

std::optional<double> measure_iperf3(const BenchSetup& setup, std::size_t size, std::string& error) {
  ProgramPair pair = plain_pair(setup);
  pair.server = [&](const std::string& port) {
    return Arguments{"iperf3", "--server", "--one-off", "--bind", setup.address, "--port", port};
  };
  pair.client = [&](const std::string& port) {
    Arguments arguments{"iperf3", "--client", setup.address, "--port", port, "--time", std::to_string(setup.seconds),
                        "--json"};
    if (size != 0) arguments.insert(arguments.end(), {"--length", std::to_string(size)});
    return arguments;
  };
  return parsed(run_pair(pair, seconds(setup.seconds), error), "iperf3", parse_iperf3, error);
}

std::optional<Percentiles> measure_sockperf(const BenchSetup& setup, Wait wait, std::string& error) {
  ProgramPair pair = plain_pair(setup);
  pair.server = [&](const std::string& port) {
    Arguments arguments{"sockperf", "server", "--tcp", "-i", setup.address, "-p", port};
    if (wait == Wait::polls) arguments.push_back("--nonblocked");
    return arguments;
  };
  pair.client = [&](const std::string& port) {
    Arguments arguments = pair.server(port);
    arguments[1] = "ping-pong";
    arguments.insert(arguments.end(), {"-t", std::to_string(setup.seconds)});
    return arguments;
  };
  pair.server_ends = false;
  return parsed(run_pair(pair, seconds(setup.seconds), error), "sockperf", parse_sockperf, error);
}

std::optional<double> measure_ucx_gbits(const BenchSetup& setup, std::size_t size, ByteStream stream,
                                        std::string& error) {
  const auto result = run_ucx(setup, "tag_bw", size, stream, ucx_messages(setup, size), error);
  return result ? std::optional(result->gbits_per_second) : std::nullopt;
}

std::optional<double> measure_ucx_latency(const BenchSetup& setup, std::size_t size, ByteStream stream,
                                          std::string& error) {
  const auto result = run_ucx(setup, "tag_lat", size, stream, setup.iterations, error);
  return result ? std::optional(result->median_us) : std::nullopt;
}

std::optional<double> measure_libfabric_latency(const BenchSetup& setup, std::size_t size, std::string& error) {
  ProgramPair pair = plain_pair(setup);
  // About a second for messages of 8 octets as for those of 1 MiB.
  const unsigned iterations = size > 4096 ? setup.iterations / 20 : setup.iterations;
  const Arguments options{"-p", "tcp", "-e", "msg", "-S", std::to_string(size), "-I", std::to_string(iterations)};
  pair.server = [&](const std::string& port) {
    Arguments arguments{"fi_pingpong", "-B", port};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  };
  pair.client = [&](const std::string& port) {
    Arguments arguments{"fi_pingpong", "-P", port};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back(setup.address);
    return arguments;
  };
  const seconds duration(1 + setup.iterations / 2000);
  return parsed(run_pair(pair, duration, error), "fi_pingpong", parse_fi_pingpong, error);
}

}  // namespace uiw::tools
