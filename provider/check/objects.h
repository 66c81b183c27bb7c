// SPDX-License-Identifier: MIT
// The program's verbs objects: which there are, which were destroyed and where, and which calls use them now. Not
// thread-safe: Checker has the lock. No function reads the memory of an object.
#pragma once

#include <cstdint>
#include <deque>
#include <thread>
#include <unordered_map>

#include "provider/check/place.h"

namespace uiw::provider::check {

enum class Kind : std::uint8_t {
  context,
  domain,
  region,
  window,
  completion_queue,
  queue_pair,
  shared_receives,
  address
};

// "queue pair"
const char* name_of(Kind kind);

struct Object {
  Kind kind{};
  const void* context = nullptr;  // the ibv_context that it belongs to
  std::uint32_t number = 0;       // a queue pair's number, a region's lkey; else 0
  Place created;
  Place destroyed;
  unsigned generation = 0;  // fork_generation() when it was created
  bool live = true;
  bool ending = false;       // a call that destroys it is under way
  bool raced = false;        // it had begun while another call used the object
  bool leaked = false;       // reported as not destroyed
  bool kept = false;         // librdmacm's, which keeps it until the process ends
  unsigned calls = 0;        // calls of the program that use it now
  std::thread::id poller{};  // of a completion queue: the thread that has polled it last
};

class Objects {
 public:
  Object& add(const void* handle, const Object& object);
  // Null if nothing is known of this handle. Objects that were destroyed long ago are not known any more.
  Object* find(const void* handle);
  void destroyed(const void* handle, const Place& place);
  // What the handle stood for is not known any more.
  void forget(const void* handle) { all_.erase(handle); }
  // Calls the function for each object that is live.
  template <typename Function>
  void for_live(Function function) {
    for (auto& [handle, object] : all_) {
      if (object.live) function(handle, object);
    }
  }

 private:
  static constexpr std::size_t kMostDestroyed = 4096;
  std::unordered_map<const void*, Object> all_;
  std::deque<const void*> destroyed_;  // in the order of their destruction
};

}  // namespace uiw::provider::check
