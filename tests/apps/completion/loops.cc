// SPDX-License-Identifier: MIT
// Servers whose completion channels are in the event loop of another library, beside descriptors and timers of the
// program: libevent and libuv, whose epoll sets are level-triggered, and Asio, whose set is edge-triggered.
//
//   uiw_loops HOST PORT CASE     runs one case; --list names them
#include <event2/event.h>
#include <sys/eventfd.h>
#include <uv.h>

#include <array>
#include <asio.hpp>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/apps/completion/event_pair.h"
#include "tests/apps/support/cases.h"

namespace {

using namespace apps;

using Function = std::function<void()>;
constexpr int kTick = 5;  // milliseconds

// What the server needs of a loop: `ready` is called each time that the descriptor can be read, which `ready` then
// reads until it is empty; `tick` again and again while the loop runs; stop() is called from one of them.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual void watch(int fd, Function ready) = 0;
  virtual void run(Function tick) = 0;
  virtual void stop() = 0;
};

class Libevent final : public Loop {
 public:
  Libevent() : base_(event_base_new()) {}
  ~Libevent() override {
    for (event* one : events_) event_free(one);
    event_base_free(base_);
  }
  void watch(int fd, Function ready) override { add(fd, EV_READ | EV_PERSIST, std::move(ready), nullptr); }
  void run(Function tick) override {
    const timeval period = {0, 1000 * kTick};
    add(-1, EV_PERSIST, std::move(tick), &period);
    event_base_dispatch(base_);
  }
  void stop() override { event_base_loopbreak(base_); }

 private:
  void add(int fd, short what, Function function, const timeval* period) {
    functions_.push_back(std::make_unique<Function>(std::move(function)));
    const auto call = [](int, short, void* its) { (*static_cast<Function*>(its))(); };
    events_.push_back(event_new(base_, fd, what, call, functions_.back().get()));
    if (event_add(events_.back(), period) != 0) die("event_add");
  }
  event_base* base_;
  std::vector<event*> events_;
  std::vector<std::unique_ptr<Function>> functions_;
};

class Libuv final : public Loop {
 public:
  Libuv() { uv_loop_init(&loop_); }
  ~Libuv() override {
    const auto close = [](uv_handle_t* one, void*) { uv_close(one, nullptr); };
    uv_walk(&loop_, close, nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop_) != 0) die("uv_loop_close");
  }
  void watch(int fd, Function ready) override {
    polls_.push_back(std::make_unique<Poll>());
    Poll& added = *polls_.back();
    added.ready = std::move(ready);
    uv_poll_init(&loop_, &added.handle, fd);
    added.handle.data = &added.ready;
    const auto call = [](uv_poll_t* its, int, int) { (*static_cast<Function*>(its->data))(); };
    if (uv_poll_start(&added.handle, UV_READABLE, call) != 0) die("uv_poll_start");
  }
  void run(Function tick) override {
    uv_timer_t timer;
    uv_timer_init(&loop_, &timer);
    timer.data = &tick;
    const auto call = [](uv_timer_t* its) { (*static_cast<Function*>(its->data))(); };
    uv_timer_start(&timer, call, kTick, kTick);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_close(reinterpret_cast<uv_handle_t*>(&timer), nullptr);
    uv_run(&loop_, UV_RUN_NOWAIT);
  }
  void stop() override { uv_stop(&loop_); }

 private:
  struct Poll {
    uv_poll_t handle;
    Function ready;
  };
  uv_loop_t loop_;
  std::vector<std::unique_ptr<Poll>> polls_;
};

class Asio final : public Loop {
 public:
  ~Asio() override {
    for (auto& one : descriptors_) one->release();
  }
  void watch(int fd, Function ready) override {
    descriptors_.push_back(std::make_unique<asio::posix::stream_descriptor>(context_, fd));
    wait(*descriptors_.back(), std::move(ready));
  }
  void run(Function tick) override {
    asio::steady_timer timer(context_);
    const std::function<void(asio::error_code)> again = [&](asio::error_code error) {
      if (error) return;
      tick();
      timer.expires_after(std::chrono::milliseconds(kTick));
      timer.async_wait(again);
    };
    again({});
    context_.run();
  }
  void stop() override { context_.stop(); }

 private:
  void wait(asio::posix::stream_descriptor& descriptor, Function ready) {
    descriptor.async_wait(asio::posix::stream_descriptor::wait_read, [=, this, &descriptor](asio::error_code error) {
      if (error) return;
      ready();
      wait(descriptor, ready);
    });
  }
  asio::io_context context_;
  std::vector<std::unique_ptr<asio::posix::stream_descriptor>> descriptors_;
};

// Takes all events of a channel, and answers the messages that have come.
void serve(End& far) {
  for (int error = far.event(); error != EAGAIN; error = far.event()) {
    expect_error("ibv_get_cq_event", error, 0);
    far.arm();
    ibv_wc wc{};
    while (ibv_poll_cq(far.cq, 1, &wc) == 1) {
      if (wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
      if (wc.opcode != IBV_WC_RECV) continue;
      far.receive();
      far.send();
    }
  }
}

// Four clients that block ask one server. A descriptor of the program ends the loop, whose timer goes on meanwhile.
template <typename Made>
void a_server() {
  constexpr std::size_t kClients = 4;
  constexpr int kRounds = 500;
  Rnic here(g_host), there(g_host);
  std::array<std::unique_ptr<EventPairOn>, kClients> all;
  const int over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  {
    Made loop;
    for (auto& ends : all) {
      ends = std::make_unique<EventPairOn>(here, there);
      End& far = ends->far;
      fcntl(far.channel->fd, F_SETFL, O_NONBLOCK);
      far.arm();
      loop.watch(far.channel->fd, [&far] { serve(far); });
    }
    loop.watch(over, [&] { loop.stop(); });
    std::atomic<std::size_t> left = kClients;
    std::array<std::thread, kClients> clients;
    for (std::size_t i = 0; i < kClients; ++i) {
      clients[i] = std::thread([&, i] {
        // Also where the server has had nothing to do for a while.
        for (int round = 0; round < kRounds; ++round) {
          if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2 * kTick));
          all[i]->ask();
        }
        const std::uint64_t one = 1;
        if (--left == 0 && write(over, &one, sizeof one) != sizeof one) die("write: %s", std::strerror(errno));
      });
    }
    int ticks = 0;
    loop.run([&] { ++ticks; });
    for (std::thread& client : clients) client.join();
    if (ticks < 2) die("the timer of the loop has stood still");
  }
  close(over);
}

}  // namespace

int main(int argc, char** argv) {
  return run_case(argc, argv, {{"libevent", a_server<Libevent>}, {"libuv", a_server<Libuv>}, {"asio", a_server<Asio>}});
}
