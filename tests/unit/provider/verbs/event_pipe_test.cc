// SPDX-License-Identifier: MIT
// Events that nobody reads: no limit of the process or of its user stands in their way, none is lost, and nobody waits.
#include "provider/verbs/event_pipe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/guarded_copy.h"
#include "tests/unit/provider/verbs/channel.h"

using namespace uiw;
using namespace uiw::test;

namespace {

// A completion queue that says so for each of its completions.
struct Teller {
  Teller(Context& in, const Channel& channel, std::uint64_t number)
      : cq(Cq::create(in, 1, channel.fd(), reinterpret_cast<ibv_cq*>(number))) {
    REQUIRE(cq);
  }
  void tell() {
    REQUIRE(cq->request_notify(false) == 0);
    cq->push(completion_of(1), false);
    ibv_wc completion{};
    REQUIRE(cq->poll(1, &completion) == 1);
  }
  unsigned destroy() {
    unsigned to_acknowledge = ~0U;
    CHECK(cq->prepare_destroy(to_acknowledge) == 0);
    cq.reset();
    return to_acknowledge;
  }
  std::unique_ptr<Cq> cq;
};

bool sigpipe_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

// No descriptor is to be had while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit none{0, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE_METHOD(Loopback, "channel: one that the program has closed takes events and raises no signal", "[channel]") {
  const int fd = provider::create_completion_channel();
  REQUIRE(fd >= 0);
  const auto cq = Cq::create(*context, 4, fd, nullptr);
  REQUIRE(cq);
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  ::close(fd);  // behind our back first
  for (const bool forgotten : {false, true}) {
    if (forgotten) provider::forget_completion_channel(fd);
    CHECK(cq->request_notify(false) == 0);
    cq->push(completion_of(1), false);
    CHECK_FALSE(sigpipe_pending());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  unsigned to_acknowledge = ~0U;
  CHECK(cq->prepare_destroy(to_acknowledge) == 0);
  CHECK(to_acknowledge == 0);
}

TEST_CASE_METHOD(Loopback,
                 "channel: where the program has closed what is not its own, nobody waits for events to be read",
                 "[channel]") {
  const Channel channel;
  Teller read(*context, channel, 1), unread(*context, channel, 2), late(*context, channel, 3);
  read.tell();
  CHECK(channel.next() == 1);
  unread.tell();
  struct stat pipe {};
  REQUIRE(::fstat(channel.fd(), &pipe) == 0);
  unsigned closed = 0;
  for (int fd = 0; fd < 4096; ++fd) {
    struct stat other {};
    if (fd == channel.fd() || ::fstat(fd, &other) != 0) continue;
    if (other.st_dev == pipe.st_dev && other.st_ino == pipe.st_ino) closed += ::close(fd) == 0;
  }
  REQUIRE(closed == 2);
  late.tell();
  CHECK(read.destroy() == 0);
  CHECK(unread.destroy() == 0);
  CHECK(late.destroy() == 0);
  CHECK(channel.next() == 2);  // the program's part of the pipe is left alone
}

TEST_CASE("channel: two hundred take little of what a user may have in pipes", "[channel]") {
  std::vector<std::unique_ptr<Channel>> channels(200);
  int octets = 0;
  for (auto& channel : channels) {
    channel = std::make_unique<Channel>();
    octets += ::fcntl(channel->fd(), F_GETPIPE_SZ);
  }
  CHECK(octets <= 200 * ::sysconf(_SC_PAGESIZE));
  CHECK(::fcntl(open_loopback()->async_fd(), F_GETPIPE_SZ) <= ::sysconf(_SC_PAGESIZE));
}

TEST_CASE_METHOD(Loopback, "channel: the events of three thousand queues wait for the program", "[channel]") {
  constexpr std::uint64_t kQueues = 3000;
  const Channel channel;
  std::vector<std::unique_ptr<Teller>> queues;
  for (std::uint64_t i = 1; i <= kQueues; ++i) queues.push_back(std::make_unique<Teller>(*context, channel, i));
  for (const unsigned times : {1U, 3U}) {
    for (auto& queue : queues) {
      for (unsigned i = 0; i < times; ++i) queue->tell();
    }
    std::map<std::uint64_t, unsigned> seen;
    std::uint64_t last = 0;
    bool in_order = true;
    for (std::uint64_t i = 0; i < times * kQueues; ++i) {
      const std::uint64_t number = channel.next(kPatience);
      REQUIRE(number != 0);
      ++seen[number];
      in_order = in_order && number > std::exchange(last, number);
    }
    if (times == 1) CHECK(in_order);
    CHECK(channel.next() == 0);
    CHECK(seen.size() == kQueues);
    CHECK(std::all_of(seen.begin(), seen.end(), [times](const auto& one) { return one.second == times; }));
  }
  for (auto& queue : queues) CHECK(queue->destroy() == 4);
}

TEST_CASE_METHOD(Loopback, "channel: destroying a queue takes its unread events, and needs no descriptor",
                 "[channel]") {
  const unsigned events = GENERATE(1U, 40U, 700U);  // of each; more than the pipe holds
  const Channel channel;
  Teller a(*context, channel, 1), b(*context, channel, 2), c(*context, channel, 3);
  for (unsigned i = 0; i < events; ++i) {
    a.tell();
    b.tell();
    c.tell();
  }
  CHECK(channel.next() == 1);
  {
    const NoDescriptors none;
    CHECK(a.destroy() == 1);
  }
  CHECK((::fcntl(channel.fd(), F_GETFL) & O_NONBLOCK) == 0);
  for (unsigned i = 0; i < events; ++i) {
    REQUIRE(channel.next(kPatience) == 2);
    REQUIRE(channel.next(kPatience) == 3);
  }
  CHECK(channel.next(std::chrono::milliseconds(20)) == 0);
  CHECK(b.destroy() == events);
  CHECK(c.destroy() == events);
}

TEST_CASE_METHOD(Loopback, "channel: a thread that waits for events does not hold up the destruction of a queue",
                 "[channel]") {
  const Channel channel;
  Teller a(*context, channel, 1), b(*context, channel, 2);
  std::atomic<std::uint64_t> taken{0};
  std::thread reader([&] {
    ib_uverbs_comp_event_desc event{};
    if (::read(channel.fd(), &event, sizeof event) == sizeof event) taken = event.cq_handle;
  });
  CHECK(a.destroy() == 0);
  CHECK(taken == 0);
  b.tell();
  reader.join();
  CHECK(taken == 2);
  CHECK(b.destroy() == 1);
}

TEST_CASE_METHOD(Loopback, "channel: the first event that a thread makes while it waits is kept for it", "[channel]") {
  const Channel channel;
  Teller a(*context, channel, 1), b(*context, channel, 2);
  int number = 0;
  const auto pipe = provider::completion_channel(channel.fd(), context, number);
  REQUIRE(pipe);
  ib_uverbs_comp_event_desc event{};
  CHECK_FALSE(pipe->take_kept(&event));
  pipe->keep_for_caller(sizeof event);
  SECTION("and others go through the pipe") {
    std::thread([&] { b.tell(); }).join();
    a.tell();
    b.tell();
    CHECK((channel.next() == 2 && channel.next() == 2 && channel.next() == 0));
    REQUIRE(pipe->take_kept(&event));
    CHECK(event.cq_handle == 1);
    a.tell();
    CHECK(channel.next() == 1);
    CHECK((a.destroy() == 2 && b.destroy() == 2));
  }
  SECTION("unless the thread wants another size") {
    CHECK_FALSE(pipe->take_kept(&event));
    pipe->keep_for_caller(sizeof event - 1);
    a.tell();
    CHECK(channel.next() == 1);
    CHECK_FALSE(pipe->take_kept(&event));
  }
  SECTION("and not for a second thread") {
    std::thread([&] {
      pipe->keep_for_caller(sizeof event);
      a.tell();
      CHECK_FALSE(pipe->take_kept(&event));
    }).join();
    CHECK(channel.next() == 1);
  }
  SECTION("until its queue is destroyed") {
    a.tell();
    CHECK(a.destroy() == 0);
    CHECK_FALSE(pipe->take_kept(&event));
  }
  SECTION("and goes to the pipe where the thread has no memory for it") {
    install_copy_guard();
    a.tell();
    void* const none = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(none != MAP_FAILED);
    CHECK_FALSE(pipe->take_kept(none));
    CHECK(channel.next() == 1);
    ::munmap(none, 4096);
  }
}

TEST_CASE_METHOD(Loopback, "context: thousands of async events wait for the program", "[channel]") {
  constexpr std::uintptr_t kEvents = 4000;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_FATAL;
  for (std::uintptr_t i = 1; i <= kEvents; ++i) {
    event.element.qp = reinterpret_cast<ibv_qp*>(i);
    REQUIRE(context->report(event));
  }
  // One that is in the pipe, and one that is not yet.
  for (const std::uintptr_t gone : {10U, 3000U}) {
    CHECK(context->withdraw_events(reinterpret_cast<void*>(gone), 1) == 0);
  }
  for (std::uintptr_t i = 1; i <= kEvents; ++i) {
    if (i == 10 || i == 3000) continue;
    const auto next = next_event(*context);
    REQUIRE(next);
    REQUIRE(next->element == i);
  }
  CHECK_FALSE(next_event(*context, 20));
}
