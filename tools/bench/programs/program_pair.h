// SPDX-License-Identifier: MIT
// How a benchmark that has a server and a client is run: both on this machine, each with a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/child.h"

namespace uiw::tools {

using Arguments = std::vector<std::string>;

// The two programs, given a TCP port that is free.
struct ProgramPair {
  std::function<Arguments(const std::string& port)> server;
  std::function<Arguments(const std::string& port)> client;
  Environment environment;
  // The paths of the network namespaces that they run in; empty: that of this process.
  std::string server_namespace;
  std::string client_namespace;
  bool server_ends = true;  // by itself, after its client; if false, it is ended here
};

// Starts the server, waits until it listens, and runs the client, for which it allows some seconds more than
// `duration`. Returns the client's output, or nullopt with one line in `error`. Both have ended on return.
std::optional<std::string> run_pair(const ProgramPair& pair, std::chrono::seconds duration, std::string& error);

// Runs a single program in the same way.
std::optional<std::string> run_program(const Arguments& arguments, const Environment& environment,
                                       std::chrono::seconds duration, std::string& error);

// The command line that runs `arguments` in a network namespace; `arguments` itself if the path is empty.
Arguments in_namespace(const std::string& path, Arguments arguments);

}  // namespace uiw::tools
