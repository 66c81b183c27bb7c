// SPDX-License-Identifier: MIT
// The thread of connection set-up: what is asked of it is done, also where it sleeps and nothing else wakes it. By
// itself, since whatever others have set would wake it.
#include "provider/process/cm_loop.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
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
