// SPDX-License-Identifier: MIT
#include "tools/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "provider/process/device.h"
#include "provider/process/settings.h"
#include "tools/address.h"
#include "tools/files.h"
#include "tools/packages.h"

namespace uiw::tools {
namespace {

struct BenchOptions {
  bool json = false;
  bool quick = false;
  unsigned runs = 5;
  unsigned seconds = 1;
  std::string rows = "basic";
  std::string plot;  // the file for the picture; empty if none is wanted
};

struct Place {
  std::string device;
  std::string address;
  std::size_t gid_index;
};

// Chooses an active device that has an IPv4 address, and the first IPv4 address of this device. The loopback device is
// preferred. The address must be an IPv4 one since bench.py runs perftest without IPv6.
std::optional<Place> choose_device() {
  std::vector<provider::DeviceInfo> devices = provider::enumerate_devices();
  std::stable_partition(devices.begin(), devices.end(), [](const auto& device) { return device.loopback; });
  for (const provider::DeviceInfo& device : devices) {
    const auto gid = std::find_if(device.gids.begin(), device.gids.end(), provider::is_ipv4);
    if (device.active && gid != device.gids.end())
      return Place{device.name, address_text(*gid), static_cast<std::size_t>(gid - device.gids.begin())};
  }
  return std::nullopt;
}

int complain(const std::string& text) {
  std::fprintf(stderr, "uiw bench: %s\n", text.c_str());
  return 1;
}

int bench(const BenchOptions& options) {
  if (const std::string& error = provider::settings().error; !error.empty()) return complain(error);
  int error = 0;
  const std::string python = find_program("python3", error);
  if (error != 0) return complain("python3 is missing; install it: " + how_to_install({kPython3}));
  const std::string preload = preload_library();
  const std::string script = data_file("bench/bench.py");
  if (preload.empty() || script.empty())
    return complain((preload.empty() ? "libuiw-preload.so" : "bench.py") +
                    std::string(" is missing; see `uiw doctor`"));
  const std::string tcp = helper_program("uiw-tcp");
  if (tcp.empty()) return complain("uiw-tcp is missing; see `uiw doctor`");
  const std::optional<Place> place = choose_device();
  if (!place) return complain("no device has an IPv4 address; see `uiw devices`");
  // -BEs: bench.py must not load the user's own modules, nor write compiled modules into a directory of the system.
  std::vector<std::string> words{python,
                                 "-BEs",
                                 script,
                                 "--helpers=" + tcp.substr(0, tcp.rfind('/')),
                                 "--preload=" + preload_value(preload, getenv("LD_PRELOAD")),
                                 "--device=" + place->device,
                                 "--address=" + place->address,
                                 "--gid-index=" + std::to_string(place->gid_index),
                                 "--runs=" + std::to_string(options.runs),
                                 "--duration=" + std::to_string(options.seconds),
                                 "--rows=" + options.rows,
                                 "--plot=" + options.plot};
  if (options.json) words.emplace_back("--json");
  if (options.quick) words.emplace_back("--quick");
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(python.c_str(), arguments.data());
  return complain(python + " cannot be executed: " + std::strerror(errno));
}

}  // namespace

Action add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  command.add_flag("--json", options->json, "Print JSON");
  command.add_option("--runs", options->runs, "How often each pair is measured; medians are printed (default 5)")
      ->check(CLI::Range(1U, 1000U));
  command.add_option("--duration", options->seconds, "Seconds of each measurement (default 1)")
      ->check(CLI::Range(1U, 600U));
  command.add_flag("--quick", options->quick, "Measure each once, for a second at most");
  command.add_option("--rows", options->rows, "Which rows are measured (default basic)")
      ->check(CLI::IsMember({"basic", "events", "connections", "server", "pinned", "all"}));
  command
      .add_option("--plot", options->plot,
                  "Measure and draw bandwidth over message size, and latency percentiles (SVG)")
      ->type_name("FILE");
  command.footer("Exit status 0 where everything could be measured, whether or not targets are met; else 1.");
  return [options] { return bench(*options); };
}

}  // namespace uiw::tools
