// SPDX-License-Identifier: MIT
// Threads that wait for completion events, in ibv_get_cq_event, poll or epoll_wait, which move the octets of their
// device meanwhile. The ends of a connection have devices of their own, though both are in this process.
//
//   uiw_waits HOST PORT CASE     runs one case; --list names them
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/completion/event_pair.h"
#include "tests/apps/support/cases.h"
#include "tests/apps/support/manual.h"
#include "tests/apps/support/process.h"

namespace {

using namespace apps;

// ---- Threads ---------------------------------------------------------------------------------------------------

std::vector<int> threads_of(const std::string& name) {
  std::vector<int> found;
  DIR* directory = opendir("/proc/self/task");
  while (const dirent* entry = readdir(directory)) {
    std::string its;
    std::getline(std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm"), its);
    if (its == name) found.push_back(std::stoi(entry->d_name));
  }
  closedir(directory);
  return found;
}

// The processor time of the process's threads with this name, in nanoseconds.
std::uint64_t time_of(const std::string& name) {
  std::uint64_t all = 0, time = 0;
  for (const int thread : threads_of(name))
    if (std::ifstream("/proc/self/task/" + std::to_string(thread) + "/schedstat") >> time) all += time;
  return all;
}

// A thread that blocks in ibv_get_cq_event.
class Waiting {
 public:
  explicit Waiting(End& end) : end_(end) {
    end.drop_events();
    end.arm();
    thread_ = std::thread([this] {
      id_ = static_cast<int>(::syscall(SYS_gettid));
      error_ = end_.event();
      over_ = true;
    });
    until_it_sleeps();
  }
  void until_it_sleeps() const {
    for (const auto end = Clock::now() + kPatience; !over_ && !sleeps(); ::poll(nullptr, 0, 1))
      if (Clock::now() > end) die("the thread does not sleep");
  }
  void signal(int number) { pthread_kill(thread_.native_handle(), number); }
  bool over() const { return over_; }
  int join() {
    thread_.join();
    return error_;
  }
  // Whether it ends in the call.
  bool cancel() {
    pthread_cancel(thread_.native_handle());
    thread_.join();
    return !over_;
  }

 private:
  bool sleeps() const {
    if (id_ == 0) return false;
    std::string line;
    std::getline(std::ifstream("/proc/self/task/" + std::to_string(id_) + "/stat"), line);
    const std::size_t name_end = line.rfind(") ");
    return name_end != std::string::npos && line[name_end + 2] == 'S';
  }

  End& end_;
  std::thread thread_;
  std::atomic<int> id_ = 0, error_ = -1;
  std::atomic<bool> over_ = false;
};

std::atomic<int> g_signals = 0;

void handle(int signal, int flags) {
  struct sigaction action {};
  action.sa_handler = [](int) { ++g_signals; };
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

// ---- Cases -----------------------------------------------------------------------------------------------------

void the_thread_that_waits_moves_the_octets(End::By way) {
  EventPair pair;
  pair.wait_by(way);
  pair.talk(200);
  const std::uint64_t before = time_of("uiw-progress");
  timespec begin{}, end{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  pair.talk(2000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  const auto all =
      static_cast<std::uint64_t>((end.tv_sec - begin.tv_sec) * 1'000'000'000 + end.tv_nsec - begin.tv_nsec);
  const std::uint64_t ours = time_of("uiw-progress") - before;
  if (4 * ours > all) die("uiw-progress took %llu of %llu ns", 0ULL + ours, 0ULL + all);
}

// A wait that ends in time though octets come which are no event for the program, and one that ends at once.
void a_wait_has_a_deadline() {
  EventPair pair;
  pair.talk(20);
  End& far = pair.far;
  far.drop_events();
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{EPOLLIN, {}}, found{};
  if (epoll_ctl(set, EPOLL_CTL_ADD, far.channel->fd, &event) != 0) die("epoll_ctl: %s", std::strerror(errno));
  std::atomic<bool> over = false;
  std::thread writer([&] {
    while (!over) {
      pair.write('x');
      pair.near.next();
    }
  });
  pollfd ready{far.channel->fd, POLLIN, 0};
  for (const int milliseconds : {0, 1, 20, 60}) {
    const auto begin = Clock::now();
    if (epoll_wait(set, &found, 1, milliseconds) != 0) die("epoll_wait finds an event");
    if (::poll(&ready, 1, milliseconds) != 0 || ready.revents != 0) die("poll finds an event");
    if (Clock::now() - begin < std::chrono::milliseconds(2 * milliseconds)) die("a wait ends too soon");
  }
  over = true;
  writer.join();
  close(set);
}

// What is in a set beside the channel ends the wait, too.
void another_descriptor_ends_the_wait() {
  EventPair pair;
  pair.talk(20);
  End& far = pair.far;
  far.drop_events();
  far.arm();
  Pipe line;
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : {far.channel->fd, line.ends[0]}) {
    epoll_event event{EPOLLIN, {}};
    event.data.fd = fd;
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl: %s", std::strerror(errno));
  }
  for (int i = 0; i < 50; ++i) {
    std::thread writer([&] { put(line.ends[1], "x", 1); });
    epoll_event found{};
    pollfd ready[] = {{far.channel->fd, POLLIN, 0}, {line.ends[0], POLLIN, 0}};
    if (i % 2 == 0 && (epoll_wait(set, &found, 1, End::kLong) != 1 || found.data.fd != line.ends[0])) die("epoll_wait");
    if (i % 2 == 1 && (::poll(ready, 2, End::kLong) != 1 || ready[0].revents != 0)) die("poll");
    char octet;
    get(line.ends[0], &octet, 1, "the octet", std::chrono::seconds(10));
    writer.join();
  }
  for (const int fd : line.ends) close(fd);
  close(set);
}

// poll() and epoll_wait() fail with EINTR whatever the handler wants; epoll_pwait() has a mask of its own.
void a_signal_ends_a_poll() {
  EventPair pair;
  pair.talk(20);
  handle(SIGUSR1, SA_RESTART);
  End& far = pair.far;
  far.drop_events();
  for (const bool by_epoll : {false, true}) {
    const int set = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{EPOLLIN, {}};
    if (epoll_ctl(set, EPOLL_CTL_ADD, far.channel->fd, &event) != 0) die("epoll_ctl: %s", std::strerror(errno));
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    const int before = g_signals;
    pthread_kill(pthread_self(), SIGUSR1);
    epoll_event found{};
    pollfd ready{far.channel->fd, POLLIN, 0};
    errno = 0;
    const int result = by_epoll ? epoll_pwait(set, &found, 1, End::kLong, &none) : ::ppoll(&ready, 1, nullptr, &none);
    if (result != -1 || errno != EINTR || g_signals != before + 1) die("a signal does not end the wait");
    close(set);
  }
}

sigjmp_buf g_before_the_wait;

// A handler leaves poll() by siglongjmp, which poll() allows: the next waits move octets all the same.
void a_signal_handler_jumps_out_of_a_poll() {
  EventPair pair;
  pair.wait_by(End::By::poll);
  pair.talk(20);
  struct sigaction action {};
  action.sa_handler = [](int) { siglongjmp(g_before_the_wait, 1); };
  sigaction(SIGUSR1, &action, nullptr);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pair.near.drop_events();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  pthread_kill(pthread_self(), SIGUSR1);
  if (sigsetjmp(g_before_the_wait, 1) == 0) {
    sigset_t none;
    sigemptyset(&none);
    pollfd ready{pair.near.channel->fd, POLLIN, 0};
    ::ppoll(&ready, 1, nullptr, &none);
    die("the handler has not run");
  }
  pair.talk(200);
}

// A thread that always has something to move still gets its signals.
void a_signal_comes_in_between_octets() {
  EventPair pair;
  pair.talk(20);
  handle(SIGUSR1, 0);
  Waiting waiting(pair.far);
  std::atomic<bool> over = false;
  std::atomic<int> written = 0;
  std::thread writer([&] {
    for (; !over; ++written) {
      pair.write('x');
      while (!pair.near.poll()) continue;
    }
  });
  while (written < 1000) std::this_thread::yield();
  waiting.signal(SIGUSR1);
  expect_error("ibv_get_cq_event", waiting.join(), EINTR);
  over = true;
  writer.join();
}

void a_signal_interrupts() {
  EventPair pair;
  handle(SIGUSR1, 0);
  Waiting waiting(pair.far);
  waiting.signal(SIGUSR1);
  expect_error("ibv_get_cq_event", waiting.join(), EINTR);
  pair.talk(10);
}

void a_signal_restarts() {
  EventPair pair;
  handle(SIGUSR1, SA_RESTART);
  Waiting waiting(pair.far);
  for (int i = 1; i <= 5; ++i) {
    waiting.signal(SIGUSR1);
    while (g_signals < i) ::poll(nullptr, 0, 1);
    waiting.until_it_sleeps();
    if (waiting.over()) die("the call has ended");
  }
  std::thread asker([&] { pair.ask(); });
  expect_error("ibv_get_cq_event", waiting.join(), 0);
  pair.answer();
  asker.join();
}

void a_cancelled_thread_leaves_the_wait_to_others() {
  EventPair pair;
  pair.talk(100);
  for (int i = 0; i < 3; ++i) {
    Waiting waiting(pair.far);
    if (!waiting.cancel()) die("the thread was not cancelled");
    pair.talk(100);
  }
}

void several_threads_wait() {
  Rnic here(g_host), there(g_host);
  std::array<std::unique_ptr<EventPairOn>, 4> all;
  for (auto& ends : all) ends = std::make_unique<EventPairOn>(here, there);
  std::array<std::thread, 4> threads;
  for (std::size_t i = 0; i < all.size(); ++i) threads[i] = std::thread([&, i] { all[i]->talk(300); });
  for (std::thread& thread : threads) thread.join();
  // And then one alone, as before.
  all[0]->talk(300);
}

// Each of them ends by itself, and what was to be moved by it is moved all the same.
void of_several_waits_each_ends_by_itself() {
  EventPair pair;
  EventPairOn others(pair.here, pair.there), third(pair.here, pair.there);
  handle(SIGUSR1, 0);
  for (int i = 0; i < 20; ++i) {
    Waiting stays(others.far), interrupted(pair.far), cancelled(third.far);
    interrupted.signal(SIGUSR1);
    expect_error("ibv_get_cq_event", interrupted.join(), EINTR);
    if (!cancelled.cancel()) die("the thread was not cancelled");
    third.write(static_cast<char>(i + 1));
    const std::atomic_ref<char> flag(third.far.memory[kRoom - 1]);
    for (const auto end = Clock::now() + kPatience; flag.load() != i + 1;)
      if (Clock::now() > end) die("the Write does not arrive");
    third.near.next();
    pair.talk(10);
    third.talk(10);
    std::thread asker([&] { others.ask(); });
    expect_error("ibv_get_cq_event", stays.join(), 0);
    others.answer();
    asker.join();
  }
}

void one_thread_waits_and_another_polls() {
  Rnic here(g_host), there(g_host);
  EventPairOn waited(here, there), polled(here, there);
  std::thread waits([&] { waited.talk(300); });
  std::thread answers([&] {
    for (int i = 0; i < 300; ++i) {
      while (!polled.far.poll()) sched_yield();
      polled.far.receive();
      polled.far.send();
      while (!polled.far.poll()) sched_yield();
    }
  });
  for (int i = 0; i < 300; ++i) {
    polled.near.send();
    for (int completions = 0; completions < 2;) completions += polled.near.poll() ? 1 : 0;
    polled.near.receive();
  }
  answers.join();
  waits.join();
}

// What the peer writes arrives though the program, which has waited for events until now, looks at its memory alone.
void writes_arrive_while_the_program_computes() {
  EventPair pair;
  for (char value = 1; value <= 20; ++value) {
    pair.talk(20);
    pair.write(value);
    const std::atomic_ref<char> flag(pair.far.memory[kRoom - 1]);
    for (const auto end = Clock::now() + kPatience; flag.load() != value;)
      if (Clock::now() > end) die("the Write does not arrive");
    pair.near.next();
  }
}

void a_fork_leaves_the_wait_alone() {
  EventPair pair;
  pair.talk(100);
  Waiting waiting(pair.far);
  join(in_child([] {}));
  std::thread asker([&] { pair.ask(); });
  expect_error("ibv_get_cq_event", waiting.join(), 0);
  pair.answer();
  asker.join();
}

// A program pins the thread that opens the device, and not those of the library with it.
void the_librarys_threads_are_not_pinned_with_the_programs() {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) die("sched_getaffinity: %s", std::strerror(errno));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) die("sched_setaffinity: %s", std::strerror(errno));
  EventPair pair;
  pair.talk(20);
  const std::vector<int> threads = threads_of("uiw-progress");
  if (threads.size() < 2) die("there are %zu threads", threads.size());
  for (const int thread : threads) {
    cpu_set_t found;
    if (sched_getaffinity(thread, sizeof found, &found) != 0 || CPU_EQUAL(&found, &all) == 0) die("a thread is pinned");
  }
}

void a_channel_that_does_not_block() {
  EventPair pair;
  End& far = pair.far;
  const int flags = fcntl(far.channel->fd, F_GETFL);
  fcntl(far.channel->fd, F_SETFL, flags | O_NONBLOCK);
  far.arm();
  expect_error("ibv_get_cq_event", far.event(), EAGAIN);
  std::thread asker([&] { pair.ask(); });
  pollfd ready{far.channel->fd, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(kPatience / std::chrono::milliseconds(1))) != 1) die("no event");
  expect_error("ibv_get_cq_event", far.event(), 0);
  fcntl(far.channel->fd, F_SETFL, flags);
  pair.answer();
  asker.join();
}

}  // namespace

int main(int argc, char** argv) {
  return run_case(
      argc, argv,
      {{"a_thread_that_reads_moves_the_octets", [] { the_thread_that_waits_moves_the_octets(End::By::read); }},
       {"a_thread_that_polls_moves_the_octets", [] { the_thread_that_waits_moves_the_octets(End::By::poll); }},
       {"a_thread_in_epoll_moves_the_octets", [] { the_thread_that_waits_moves_the_octets(End::By::epoll); }},
       {"a_wait_has_a_deadline", a_wait_has_a_deadline},
       {"another_descriptor_ends_the_wait", another_descriptor_ends_the_wait},
       {"a_signal_ends_a_poll", a_signal_ends_a_poll},
       {"a_signal_handler_jumps_out_of_a_poll", a_signal_handler_jumps_out_of_a_poll},
       {"a_signal_comes_in_between_octets", a_signal_comes_in_between_octets},
       {"a_signal_interrupts", a_signal_interrupts},
       {"a_signal_restarts", a_signal_restarts},
       {"a_cancelled_thread_leaves_the_wait_to_others", a_cancelled_thread_leaves_the_wait_to_others},
       {"several_threads_wait", several_threads_wait},
       {"of_several_waits_each_ends_by_itself", of_several_waits_each_ends_by_itself},
       {"one_thread_waits_and_another_polls", one_thread_waits_and_another_polls},
       {"writes_arrive_while_the_program_computes", writes_arrive_while_the_program_computes},
       {"a_fork_leaves_the_wait_alone", a_fork_leaves_the_wait_alone},
       {"the_librarys_threads_are_not_pinned_with_the_programs", the_librarys_threads_are_not_pinned_with_the_programs},
       {"a_channel_that_does_not_block", a_channel_that_does_not_block}});
}
