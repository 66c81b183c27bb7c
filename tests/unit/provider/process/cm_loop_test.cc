// SPDX-License-Identifier: MIT
// The thread of connection set-up: what is asked of it is done, also where it sleeps and nothing else wakes it. By
// itself, since whatever others have set would wake it.
#include "provider/process/cm_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

using std::chrono::milliseconds;
using uiw::provider::CmLoop;

namespace {

constexpr std::chrono::seconds kPatience{20};

class Told final : public CmLoop::TimedTask {
 public:
  void run() override { told_.set_value(); }
  bool wait() { return told_.get_future().wait_for(kPatience) == std::future_status::ready; }

 private:
  std::promise<void> told_;
};

}  // namespace

TEST_CASE("cm loop: a timer wakes the thread that sleeps", "[cm_loop]") {
  CmLoop& loop = CmLoop::instance();
  for (int i = 0; i < 20; ++i) {
    const auto one = std::make_shared<Told>();
    loop.after(milliseconds(2), one);
    CHECK(one->wait());
    std::promise<void> told;
    loop.after(milliseconds(2), [&] { told.set_value(); });
    CHECK(told.get_future().wait_for(kPatience) == std::future_status::ready);
  }
}

TEST_CASE("cm loop: a timer that comes before all others does not wait for them", "[cm_loop]") {
  CmLoop& loop = CmLoop::instance();
  const auto late = std::make_shared<Told>();
  loop.after(std::chrono::hours(1), late);
  const auto soon = std::make_shared<Told>();
  loop.after(milliseconds(2), soon);
  CHECK(soon->wait());
  // Set anew it comes at the new time.
  loop.after(milliseconds(2), late);
  CHECK(late->wait());
}

TEST_CASE("cm loop: tasks have their turn in the order of posting, and one for several posts", "[cm_loop]") {
  struct Counted final : CmLoop::Task {
    void run() override { turns.push_back(static_cast<int>(turns.size())); }
    std::vector<int> turns;
  };
  CmLoop& loop = CmLoop::instance();
  const auto task = std::make_shared<Counted>();
  std::promise<void> go, done;
  REQUIRE(loop.post([&] { go.get_future().wait(); }) == 0);
  for (int i = 0; i < 3; ++i) loop.post(task);
  REQUIRE(loop.post([&] { done.set_value(); }) == 0);
  go.set_value();
  REQUIRE(done.get_future().wait_for(kPatience) == std::future_status::ready);
  CHECK(task->turns.size() == 1);
}

TEST_CASE("cm loop: what is posted behind comes after all descriptors that are ready, and what these post",
          "[cm_loop]") {
  constexpr int kDescriptors = 200;  // more than the kernel reports at a time
  struct Log {
    std::mutex mutex;
    std::string text;
    void add(char what) {
      const std::lock_guard lock(mutex);
      text += what;
    }
  } log;
  struct Says : CmLoop::Task {
    Says(Log& to, char said) : log(to), what(said) {}
    void run() override { log.add(what); }
    Log& log;
    const char what;
  };
  struct Ready final : CmLoop::Handler {
    explicit Ready(Log& to) : log(to), fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
    ~Ready() override {
      CmLoop::instance().unwatch(fd);
      ::close(fd);
    }
    void ready(std::uint32_t) override {
      std::uint64_t value = 0;
      if (::read(fd, &value, sizeof value) < 0) return;
      log.add('d');
      CmLoop::instance().post(std::make_shared<Says>(log, 'p'));
    }
    Log& log;
    const int fd;
  };
  CmLoop& loop = CmLoop::instance();
  std::vector<std::shared_ptr<Ready>> watched;
  for (int i = 0; i < kDescriptors; ++i) {
    watched.push_back(std::make_shared<Ready>(log));
    REQUIRE(loop.watch(watched.back()->fd, EPOLLIN, watched.back()) == 0);
  }
  std::promise<void> begun, go, done;
  struct Done final : Says {
    Done(Log& to, std::promise<void>& promise) : Says(to, 'b'), told(promise) {}
    void run() override {
      Says::run();
      told.set_value();
    }
    std::promise<void>& told;
  };
  REQUIRE(loop.post([&] {
    begun.set_value();
    go.get_future().wait();
    loop.post_behind(std::make_shared<Done>(log, done));
  }) == 0);
  begun.get_future().wait();
  for (const auto& one : watched) {
    const std::uint64_t value = 1;
    REQUIRE(::write(one->fd, &value, sizeof value) == sizeof value);
  }
  go.set_value();
  REQUIRE(done.get_future().wait_for(kPatience) == std::future_status::ready);
  CHECK(log.text == std::string(kDescriptors, 'd') + std::string(kDescriptors, 'p') + "b");
}
