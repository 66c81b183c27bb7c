// SPDX-License-Identifier: MIT
// Child processes with a deadline. Each child is ended by its pid, at the latest when its Child is destroyed; and by
// the kernel if this process is killed. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace uiw::tools {

using Environment = std::vector<std::pair<std::string, std::string>>;  // set in the child; empty value removes

class Child {
 public:
  Child() = default;
  ~Child() { stop(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Starts argv[0], found through PATH, with standard output and standard error connected to one pipe and empty
  // standard input. False if no process can be created; a program that cannot be executed ends with status 127.
  bool start(const std::vector<std::string>& argv, const Environment& environment);

  // Collects output until the child has ended or `limit` has passed; true if it has ended. Returns false early if this
  // process was interrupted (see interrupted()).
  bool wait(std::chrono::milliseconds limit);

  // Ends the child by SIGTERM, and by SIGKILL if it has not ended within a second. Does nothing if there is no child.
  void stop();

  pid_t pid() const { return pid_; }      // -1 unless the child was running when last looked at
  bool running();                         // does not read output
  int status() const { return status_; }  // the status of waitpid, after the end
  bool succeeded() const;                 // ended with status 0
  const std::string& output() const { return output_; }
  std::string complaint() const;  // the last line of output that is not empty

 private:
  void read_output();
  bool reap(bool block);

  pid_t pid_ = -1;
  int pipe_ = -1;
  int status_ = -1;
  std::string output_;
};

// How a child ended, for people: "ended with status 1", "was ended by signal 11 (Segmentation fault)".
std::string ending_of(int status);

// From here on SIGINT, SIGTERM and SIGHUP are recorded for interrupted() and do not end this process.
void catch_interrupts();
// The signal that has arrived; 0 for none.
int interrupted();

}  // namespace uiw::tools
