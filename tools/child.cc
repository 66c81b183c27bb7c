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
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "%s cannot be executed: %s\n", arguments[0], std::strerror(errno));
  _exit(127);
}

}  // namespace

bool Child::succeeded() const { return in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0; }

std::optional<Child> run_child(const std::vector<std::string>& argv, const Environment& environment,
                               milliseconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const pid_t parent = getpid();
  // fork() and not vfork() or posix_spawn(), since the child sets its environment and its death signal. fork() is safe
  // here, since this process has only one thread.
  const pid_t pid = fork();
  if (pid == 0) become(argv, environment, ends[1], parent);
  close(ends[1]);
  Child child;
  const Clock::time_point deadline = Clock::now() + limit;
  while (pid > 0 && !child.in_time && arrived == 0 && Clock::now() < deadline) {
    pollfd waiting{ends[0], POLLIN, 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    char buffer[4096];
    const ssize_t got = read(ends[0], buffer, sizeof buffer);
    if (got > 0) child.output.append(buffer, static_cast<std::size_t>(got));
    child.in_time = got == 0;
  }
  close(ends[0]);
  if (pid < 0) return std::nullopt;
  // A child that has closed its outputs may go on running.
  bool ended = false;
  while (child.in_time && !ended) {
    ended = waitpid(pid, &child.status, WNOHANG) == pid;
    child.in_time = ended || (arrived == 0 && Clock::now() < deadline);
    if (!ended) poll(nullptr, 0, 1);
  }
  if (ended) return child;
  kill(pid, SIGKILL);
  while (waitpid(pid, &child.status, 0) < 0 && errno == EINTR) continue;
  return child;
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
