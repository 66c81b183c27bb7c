// SPDX-License-Identifier: MIT
#include "tools/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace uiw::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

volatile std::sig_atomic_t arrived = 0;

void note_interrupt(int signal) { arrived = signal; }

[[noreturn]] void become(const std::vector<std::string>& argv, const Environment& environment, int output,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent has ended before prctl took effect
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input >= 0) dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  for (const auto& [name, value] : environment) {
    if (value.empty())
      unsetenv(name.c_str());
    else
      setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "%s cannot be executed: %s\n", arguments[0], std::strerror(errno));
  _exit(127);
}

}  // namespace

bool Child::start(const std::vector<std::string>& argv, const Environment& environment) {
  stop();
  status_ = -1;
  output_.clear();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  fcntl(ends[1], F_SETFL, 0);  // the child writes in blocking mode, as programs expect
  const pid_t parent = getpid();
  // fork, not vfork or posix_spawn, since the child sets its environment and its death signal. No other thread runs
  // here.
  pid_ = fork();
  if (pid_ == 0) become(argv, environment, ends[1], parent);
  close(ends[1]);
  if (pid_ < 0) {
    close(ends[0]);
    return false;
  }
  pipe_ = ends[0];
  return true;
}

void Child::read_output() {
  char buffer[4096];
  while (pipe_ >= 0) {
    const ssize_t got = read(pipe_, buffer, sizeof buffer);
    if (got > 0) {
      output_.append(buffer, static_cast<std::size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      close(pipe_);
      pipe_ = -1;
    }
  }
}

bool Child::reap(bool block) {
  if (pid_ < 0) return true;
  pid_t done = 0;
  do {
    done = waitpid(pid_, &status_, block ? 0 : WNOHANG);
  } while (done < 0 && errno == EINTR);
  if (done == 0) return false;
  pid_ = -1;
  return true;
}

bool Child::running() { return !reap(false); }

bool Child::wait(milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    read_output();
    if (reap(false)) {
      read_output();
      return true;
    }
    if (arrived != 0 || Clock::now() >= deadline) return false;
    pollfd waiting{pipe_, POLLIN, 0};
    // The poll is short, to detect the end of a child that has closed its output, or whose own child keeps it open.
    poll(&waiting, pipe_ >= 0 ? 1 : 0, 10);
  }
}

void Child::stop() {
  if (pid_ >= 0 && !reap(false)) {
    kill(pid_, SIGTERM);
    const Clock::time_point deadline = Clock::now() + milliseconds(1000);
    while (!reap(false) && Clock::now() < deadline) {
      read_output();  // a child that still writes could not end otherwise
      usleep(5000);
    }
    if (pid_ >= 0) {
      kill(pid_, SIGKILL);
      reap(true);
    }
  }
  read_output();
  if (pipe_ >= 0) close(pipe_);
  pipe_ = -1;
}

bool Child::succeeded() const { return status_ != -1 && WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

std::string Child::complaint() const {
  std::size_t end = output_.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return {};
  std::size_t start = output_.find_last_of('\n', end);
  start = start == std::string::npos ? 0 : start + 1;
  start = output_.find_first_not_of(" \t", start);
  return output_.substr(start, end + 1 - start);
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status))
    return "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

int interrupted() { return arrived; }

}  // namespace uiw::tools
