// SPDX-License-Identifier: MIT
// The child of a fork, whatever other threads of the parent were at: nothing it does hangs, and nothing it does reaches
// what is the parent's.
#include "provider/verbs/fork.h"

#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <functional>

#include "provider/connect/listener.h"
#include "provider/connect/local_address.h"
#include "provider/process/inheritance.h"
#include "provider/verbs/srq.h"
#include "tests/unit/provider/verbs/channel.h"

using namespace uiw;
using namespace uiw::test;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true, kThreadsInChildren = false;  // which ThreadSanitizer does not allow
#elif defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true, kThreadsInChildren = true;
#else
constexpr bool kSanitized = false, kThreadsInChildren = true;
#endif

// In a child, where no test framework reports.
void expect(bool well, const char* what) {
  if (well) return;
  std::fprintf(stderr, "in the child: %s\n", what);
  ::_exit(1);
}

// How the child ended: 0 when all was well. One that hangs ends by SIGALRM.
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    try {
      body();
    } catch (...) {
      expect(false, "an exception, or a failed assertion");
    }
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

// Everything anew, with a connection and events.
void begin_anew() {
  if (!kThreadsInChildren) return;
  const auto context = Context::open("uiw_lo");
  expect(context != nullptr, "no device");
  const Channel channel;
  ConnectedPair pair;
  const auto number = std::uint64_t{17};
  const auto cq = Cq::create(*context, 4, channel.fd(), reinterpret_cast<ibv_cq*>(number));
  expect(cq && cq->request_notify(false) == 0, "no completion queue");
  cq->push(completion_of(1), false);
  expect(channel.next(kPatience) == number, "no event");
  expect(talk(pair.a, pair.b), "no traffic");
}

// What a child finds of its parent's, and may do with its copy of it.
struct Inherited {
  explicit Inherited(Context& in) : context(in), pair(in.shared_from_this()), pd(in.shared_from_this()) {
    cq = Cq::create(in, 16, channel.fd(), reinterpret_cast<ibv_cq*>(std::uint64_t{1}));
    ibv_srq_attr attributes{16, 1, 0};
    srq = provider::Srq::create(pd, attributes, false, nullptr);
    mr = Mr::create(pd, memory.data(), memory.size(), address_of(memory), IBV_ACCESS_LOCAL_WRITE);
    REQUIRE((cq && srq && mr));
  }
  void use_and_destroy() {
    ibv_wc completion{};
    cq->poll(1, &completion);
    expect(cq->request_notify(false) == 0, "request_notify");
    expect(pair.a.to(IBV_QPS_ERR) == EIO, "modify");
    pair.a.send_cq->poll(1, &completion);
    pair.a.post_receive(7, {sge_of(memory, *mr)});
    pair.a.post(IBV_WR_SEND, 8, {sge_of(memory, *mr)});
    unsigned events = ~0U;
    for (Side* side : {&pair.a, &pair.b}) {
      side->qp.release()->leave_to_parent();
      expect(side->send_cq->prepare_destroy(events) == 0, "destruction of a send queue");
      expect(side->receive_cq->prepare_destroy(events) == 0, "destruction of a receive queue");
      expect(!side->pd.in_use(), "a domain in use");
    }
    events = ~0U;
    expect(cq->prepare_destroy(events) == 0 && events == 0, "destruction of a queue with events");
    expect(cq.release()->inherited(), "a queue of the child's own");
    expect(srq->inherited() && !srq->in_use(), "a shared receive queue in use");
    srq.release()->leave_to_parent();
    expect(mr->prepare_destroy() == 0, "deregistration");
    mr.reset();
    expect(!pd.in_use(), "the domain in use");
    mr = Mr::create(pd, memory.data(), memory.size(), address_of(memory), IBV_ACCESS_LOCAL_WRITE);
    expect(mr != nullptr, "registration");
    expect(Cq::create(context, 16, -1, nullptr) != nullptr, "creation of a queue");
  }
  Context& context;
  ConnectedPair pair;
  Pd pd;
  Channel channel;
  Bytes memory = Bytes(64);
  std::unique_ptr<Cq> cq;
  std::unique_ptr<provider::Srq> srq;
  std::unique_ptr<Mr> mr;
};

// Threads that do something over and over.
class Hammers {
 public:
  ~Hammers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  void add(std::function<void()> blow) {
    threads_.emplace_back([this, blow = std::move(blow)] {
      while (!stop_) blow();
    });
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// These run on threads, where no assertion may be made.
void connect_and_end(Context& context) {
  Pd pd(context.shared_from_this());
  const auto cq = Cq::create(context, 16, -1, nullptr);
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {4, 4, 1, 1, 0};
  const auto qp = Qp::create(context, pd, cq.get(), cq.get(), attributes, nullptr);
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_INIT;
  int ends[2];
  if (!qp || qp->modify(wanted, IBV_QP_STATE) != 0) return;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
  TcpStream socket(ends[0]);
  // The queue pair's end may linger for seconds. An ordinary user has 1024 descriptors, so this waits for some to be
  // free.
  if (ends[0] > 512) {
    ::close(ends[1]);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  qp->attach(socket, attachment_of({.mulpdu = 1024}, true));
  ::close(ends[1]);
}

int listen_and_stop() {
  sockaddr_storage any{};
  auto& address = reinterpret_cast<sockaddr_in&>(any);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::shared_ptr<provider::Listener> listener;
  return provider::listen(provider::bind_socket(any, false), 1, {}, listener);
}

}  // namespace

TEST_CASE_METHOD(Loopback, "fork: a child polls a queue that a thread of the parent was polling", "[fork]") {
  const auto cq = Cq::create(*context, 4, -1, nullptr);
  cq->push(completion_of(1), false);
  cq->push(completion_of(2), false);
  ibv_wc completion{};
  Cq::Stamp stamp{};
  std::atomic<bool> polls{false}, forked{false};
  std::thread poller([&] {
    polls = cq->begin_poll(completion, stamp);
    while (!forked) std::this_thread::yield();
    cq->end_poll();
  });
  const bool locked = eventually([&] { return polls.load(); });
  CHECK(in_child([&] {
          ibv_wc second{};
          unsigned events;
          expect(cq->poll(1, &second) == 1 && second.wr_id == 2, "a poll");
          expect(cq->resize(8) == 0 && cq->prepare_destroy(events) == 0, "its end");
        }) == 0);
  forked = true;
  poller.join();
  CHECK(locked);
}

TEST_CASE_METHOD(Loopback, "fork: nothing that a child does reaches the parent's connection or its events",
                 "[fork][native]") {
  Inherited mine(*context);
  CHECK(talk(mine.pair.a, mine.pair.b));
  REQUIRE(mine.cq->request_notify(false) == 0);
  mine.cq->push(completion_of(1), false);
  CHECK(in_child([&] { mine.use_and_destroy(); }) == 0);
  CHECK(in_child(begin_anew) == 0);
  CHECK(mine.channel.next() == 1);
  CHECK(mine.channel.next() == 0);
  CHECK(talk(mine.pair.a, mine.pair.b));
  CHECK(talk(mine.pair.b, mine.pair.a));
  unsigned events = 0;
  CHECK(mine.cq->prepare_destroy(events) == 0);
  CHECK(events == 1);
}

TEST_CASE(
    "fork: a channel is the first child's that uses it, once the parent has ended, and until then its events wait",
    "[fork][native]") {
  if (!kThreadsInChildren) return;
  int to_parent[2], to_second[2], to_test[2];
  for (int* ends : {to_parent, to_second, to_test}) REQUIRE(::pipe(ends) == 0);
  const auto tell = [](int end, char what) { expect(::write(end, &what, 1) == 1, "a pipe takes nothing"); };
  const auto hear = [](int end) {
    char what = 0;
    return ::read(end, &what, 1) == 1 ? what : '\0';
  };
  // A process that makes a channel and two children, and ends while these live.
  CHECK(in_child([&] {
          const auto context = open_loopback();
          const Channel channel;
          const auto number = std::uint64_t{17};
          const auto cq = Cq::create(*context, 4, channel.fd(), reinterpret_cast<ibv_cq*>(number));
          const unsigned generation = fork_generation();
          const auto push = [&] {
            expect(cq->request_notify(false) == 0, "request_notify");
            cq->push(completion_of(1), false);
          };
          if (::fork() == 0) {
            ::alarm(20);
            push();
            expect(provider::owner_of(generation) == provider::Owner::ancestor, "the parent lives");
            expect(channel.next() == 0, "an event on the parent's channel");
            tell(to_parent[1], 'f');
            expect(channel.next(kPatience) == number, "no event once the parent has ended");
            expect(provider::owner_of(generation) == provider::Owner::self, "the first child is not the heir");
            push();
            expect(channel.next() == number, "no event on the channel that is its own");
            tell(to_second[1], 'f');
            ::_exit(0);
          }
          if (::fork() == 0) {
            ::alarm(20);
            expect(hear(to_second[0]) == 'f', "the first child is not well");
            expect(provider::owner_of(generation) == provider::Owner::other, "two children are heirs");
            push();
            expect(channel.next() == 0, "an event on another child's channel");
            tell(to_test[1], 's');
            ::_exit(0);
          }
          expect(hear(to_parent[0]) == 'f', "the first child is not well");
        }) == 0);
  pollfd last{to_test[0], POLLIN, 0};
  CHECK((::poll(&last, 1, 20'000) == 1 && hear(to_test[0]) == 's'));
  for (const int* ends : {to_parent, to_second, to_test}) {
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST_CASE_METHOD(Loopback, "fork: children of a parent whose threads are busy with everything", "[fork][native]") {
  if (kSanitized) {
    WARN("locks of a sanitizer's allocator are not released in a child: left out");
    return;
  }
  Inherited shared(*context);
  Pd pd(context);
  {
    Hammers hammers;
    hammers.add([&] {
      Bytes memory(64);
      Mr::create(pd, memory.data(), 64, address_of(memory), IBV_ACCESS_LOCAL_WRITE);
    });
    hammers.add([&] { provider::Mw::create(pd, IBV_MW_TYPE_1); });
    hammers.add([&] {
      const int fd = provider::create_completion_channel();
      {
        const auto cq = Cq::create(*context, 4, fd, nullptr);
        cq->request_notify(false);
        cq->push(completion_of(1), false);
      }
      provider::forget_completion_channel(fd);
      ::close(fd);
    });
    hammers.add([&] {
      ibv_wc completion{};
      shared.cq->request_notify(false);
      shared.cq->push(completion_of(1), false);
      shared.cq->poll(1, &completion);
      shared.cq->resize(32);
    });
    hammers.add([&] {
      ibv_srq_attr attributes{16, 1, 0};
      const auto srq = provider::Srq::create(pd, attributes, false, nullptr);
      shared.srq->query(attributes);
    });
    hammers.add([&] { connect_and_end(*context); });
    hammers.add([&] {
      auto opened = Context::open("uiw_lo");
      const int events = opened ? opened->async_fd() : -1;
      opened.reset();
      ::close(events);  // the program's, which is this test
    });
    hammers.add([&] { listen_and_stop(); });
    hammers.add([&] { provider::enumerate_devices(); });
    for (int i = 0; i < 60; ++i) {
      INFO("child " << i);
      REQUIRE(in_child([&] {
                shared.use_and_destroy();
                begin_anew();
              }) == 0);
    }
  }
  CHECK(talk(shared.pair.a, shared.pair.b));
}
