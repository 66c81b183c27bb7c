// SPDX-License-Identifier: MIT
// A child process with a deadline. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace uiw::tools {

using Environment = std::vector<std::pair<std::string, std::string>>;  // variables that are set in the child

struct Child {
  bool in_time = false;  // false: the child was killed, at the deadline or when this process was interrupted
  int status = -1;       // as waitpid() reports it
  std::string output;

  bool succeeded() const;  // in time, with status 0
};

// Runs argv[0], found through PATH, with empty standard input, and with standard output and standard error connected to
// one pipe. Waits until the child has closed both and ended, and kills it after `limit` or when this process is
// interrupted. nullopt with errno if no pipe or process can be created; a program that cannot be executed ends with
// status 127. The kernel kills the child if this process is killed.
std::optional<Child> run_child(const std::vector<std::string>& argv, const Environment& environment,
                               std::chrono::milliseconds limit);

// How a child ended, for people: "ended with status 1", "was ended by signal 11 (Segmentation fault)".
std::string ending_of(int status);

// From here on SIGINT, SIGTERM and SIGHUP are recorded for interrupted() and do not end this process.
void catch_interrupts();
// The signal that has arrived; 0 for none.
int interrupted();

}  // namespace uiw::tools
