// SPDX-License-Identifier: MIT
#include "tools/command_line.h"

#include "tools/bench/bench.h"
#include "tools/completion/completion.h"
#include "tools/devices.h"
#include "tools/doctor/doctor.h"
#include "tools/run/run.h"

namespace uiw::tools {

std::unique_ptr<CommandLine> command_line(const std::string& version, const std::vector<std::string>& program) {
  auto made = std::make_unique<CommandLine>();
  CLI::App& app = made->app;
  app.name("uiw");
  app.description("uiw: an RDMA adapter made of software alone, for programs that use libibverbs and librdmacm.");
  app.set_version_flag("--version", version, "Print the version and exit");
  app.require_subcommand(1);
  const auto command = [&](const char* name, const char* help) {
    CLI::App* added = app.add_subcommand(name, help);
    added->fallthrough(false);
    return added;
  };
  const auto chosen = [&](CLI::App* added, const Action& what) {
    added->final_callback([chosen = &made->action, what] { *chosen = what; });
  };
  CLI::App* run = command("run", "Run a program with uiw's RDMA devices");
  chosen(run, add_run(*run, program));
  CLI::App* devices = command("devices", "List the RDMA devices that uiw offers on this machine");
  chosen(devices, add_devices(*devices));
  CLI::App* doctor = command("doctor", "Check that uiw works here, and say what to do where it does not");
  chosen(doctor, add_doctor(*doctor));
  CLI::App* bench = command("bench", "Measure RDMA over uiw beside plain TCP, on this machine");
  chosen(bench, add_bench(*bench));
  CLI::App* completion = command("completion", "Print a script that makes a shell complete uiw's command line");
  chosen(completion, add_completion(*completion));
  return made;
}

}  // namespace uiw::tools
