// SPDX-License-Identifier: MIT
// uiw-requests WHAT ADDRESS SIZE CLIENTS SECONDS: measures how many requests a server answers, and how much processor
// time an answer takes. `uiw bench` runs it.
//
// WHAT is "tcp" for plain TCP; "events" for RDMA Sends with completion events (requests and answers then have SIZE
// octets); "writes" for requests of 64 octets that the server answers by RDMA Writes of SIZE octets, where both ends
// poll; "pinned" for the same with each end on a processor of its own. The program prints the answers a second, and the
// processor time (user and system, of both ends) for each answer in microseconds.
#include <arpa/inet.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <new>
#include <string>
#include <thread>

#include "tools/bench/requests/ends.h"

namespace uiw::requests {

void fail(const char* what, int error) {
  std::printf("%s%s%s\n", what, error != 0 ? ": " : "", error != 0 ? std::strerror(error) : "");
  std::fflush(stdout);
  _exit(1);  // other threads still use what destructors would take away
}

sockaddr_in server_address(const Job& job, const Shared& shared) {
  sockaddr_in address = job.address;
  while ((address.sin_port = shared.port) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return address;
}

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kConnectLimit{8};   // until all clients are connected
constexpr seconds kEndLimit{4};       // until both ends have ended
constexpr milliseconds kWarmUp{100};  // before the measurement begins

volatile std::sig_atomic_t interrupted = 0;

// Sets the handler of the signals that would end this process. On such a signal this process kills its two child
// processes itself, since the kernel (PR_SET_PDEATHSIG) does so only some time later.
void handle_signals(void (*handler)(int)) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, handler);
}

// Pins this process to one of the processors that it may use; `which` counts them from 0.
void stay_on_processor(unsigned which) {
  cpu_set_t usable, chosen;
  CPU_ZERO(&chosen);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) fail("sched_getaffinity", errno);
  unsigned seen = 0;
  for (std::size_t processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &usable) && seen++ == which) CPU_SET(processor, &chosen);
  if (CPU_COUNT(&chosen) == 0) fail("there is one processor only");
  if (sched_setaffinity(0, sizeof chosen, &chosen) != 0) fail("sched_setaffinity", errno);
}

// The server or the clients, as a child process; the kernel kills the child if this process ends.
class EndProcess {
 public:
  EndProcess(const std::function<void()>& work) {
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) fail("fork", errno);
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    handle_signals(SIG_DFL);
    if (getppid() != parent) _exit(1);
    work();
    std::exit(0);
  }
  EndProcess(const EndProcess&) = delete;
  EndProcess& operator=(const EndProcess&) = delete;
  ~EndProcess() {
    if (pid_ > 0 && kill(pid_, SIGKILL) == 0) waitpid(pid_, nullptr, 0);
  }

  // The user and system time of all threads of the child so far, in seconds.
  double processor_time() const {
    clockid_t clock{};
    timespec now{};
    if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &now) != 0) fail("clock_getcpuclockid");
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }

  // Whether the child has ended. A child that fails has printed the reason.
  bool ended() {
    int status = 0;
    if (pid_ <= 0) return true;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    pid_ = 0;
    failed_ = status != 0;
    return true;
  }
  bool failed() const { return failed_; }

 private:
  pid_t pid_ = 0;
  bool failed_ = false;
};

struct Snapshot {
  Clock::time_point time;
  double processor_time;
  double answers;
};

class Measurement {
 public:
  Measurement(EndProcess& server, EndProcess& clients, Shared& shared)
      : server_(server), clients_(clients), shared_(shared) {}

  // Measures and prints the result. False if that failed or a signal came; the reason of a failure is printed.
  bool run(seconds duration) {
    if (!wait(kConnectLimit, [&] { return shared_.connected.load(); }))
      return one_has_ended() ? false : complain("not all are connected in time");
    if (!sleep(kWarmUp)) return false;
    const Snapshot before = look();
    if (!sleep(duration)) return false;
    const Snapshot after = look();
    shared_.over = true;
    const bool ended = wait(kEndLimit, [&] { return server_.ended() && clients_.ended(); });
    if (server_.failed() || clients_.failed()) return false;
    if (!ended) return complain("the ends did not end in time");
    const double answers = after.answers - before.answers;
    if (answers <= 0) return complain("there was no answer");
    const std::chrono::duration<double> took = after.time - before.time;
    std::printf("%.1f answers a second, %.4f us of processor time each\n", answers / took.count(),
                (after.processor_time - before.processor_time) * 1e6 / answers);
    return true;
  }

 private:
  static bool complain(const char* text) {
    std::printf("%s\n", text);
    return false;
  }

  bool one_has_ended() { return server_.ended() || clients_.ended(); }

  // Waits until `done` returns true. False when `limit` has passed, on a signal, or if one of the processes has ended
  // before `over` is set.
  bool wait(milliseconds limit, const std::function<bool()>& done) {
    const Clock::time_point end = Clock::now() + limit;
    while (!done()) {
      if (Clock::now() >= end || interrupted != 0 || (!shared_.over && one_has_ended())) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return true;
  }

  bool sleep(milliseconds time) {
    const Clock::time_point end = Clock::now() + time;
    return wait(time + seconds(1), [&] { return Clock::now() >= end; });
  }

  Snapshot look() const {
    std::uint64_t answers = 0;
    for (const Shared::Counter& client : shared_.clients) answers += client.answers;
    return {Clock::now(), server_.processor_time() + clients_.processor_time(), static_cast<double>(answers)};
  }

  EndProcess& server_;
  EndProcess& clients_;
  Shared& shared_;
};

int measure(const std::string& what, const Job& job, seconds duration) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap", errno);
  Shared& shared = *new (memory) Shared;
  handle_signals([](int) { interrupted = 1; });
  const Style style = what == "events" ? Style::events : Style::writes;
  EndProcess server([&] {
    if (what == "pinned") stay_on_processor(0);
    what == "tcp" ? serve_tcp(job, shared) : serve_rdma(job, style, shared);
  });
  EndProcess clients([&] {
    if (what == "pinned") stay_on_processor(1);
    what == "tcp" ? ask_tcp(job, shared) : ask_rdma(job, style, shared);
  });
  return Measurement(server, clients, shared).run(duration) ? 0 : 1;
}

}  // namespace
}  // namespace uiw::requests

int main(int argc, char** argv) {
  using namespace uiw::requests;
  const std::string what = argc == 6 ? argv[1] : "";
  Job job;
  if (argc == 6) {
    job.address.sin_family = AF_INET;
    job.size = std::strtoul(argv[3], nullptr, 10);
    job.clients = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10));
  }
  const bool known = what == "tcp" || what == "events" || what == "writes" || what == "pinned";
  if (!known || inet_pton(AF_INET, argv[2], &job.address.sin_addr) != 1 || job.size == 0 || job.clients == 0 ||
      job.clients > kMostClients) {
    std::fprintf(stderr,
                 "usage: uiw-requests tcp|events|writes|pinned ADDRESS SIZE CLIENTS SECONDS; `uiw bench` runs it\n");
    return 2;
  }
  return measure(what, job, std::chrono::seconds(std::atoi(argv[5])));
}
