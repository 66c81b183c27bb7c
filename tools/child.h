// SPDX-License-Identifier: MIT
// Child processes with a deadline. Every child is ended by its pid, at the latest when its Child is
// destroyed, and by the kernel should this process be killed.
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

  // Starts argv[0], found through PATH, its standard output and error going to one pipe, its input empty.
  // False where no process can be made; a program that cannot be executed ends with status 127.
  bool start(const std::vector<std::string>& argv, const Environment& environment);

  // Collects output until the child has ended or `limit` has passed; true when it has ended. Returns early,
  // false, when this process was interrupted (see interrupted()).
  bool wait(std::chrono::milliseconds limit);

  // Ends the child: SIGTERM, and SIGKILL where that does not help within a second. Does nothing without one.
  void stop();

  bool running();                         // reads no output
  int status() const { return status_; }  // as of waitpid, once ended
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

// From here on SIGINT, SIGTERM and SIGHUP make interrupted() true instead of ending this process.
void catch_interrupts();
// The signal that has arrived; 0 for none.
int interrupted();

}  // namespace uiw::tools
