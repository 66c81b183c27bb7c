// SPDX-License-Identifier: MIT
#include "provider/check/objects.h"

namespace uiw::provider::check {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::context: return "device context";
    case Kind::domain: return "protection domain";
    case Kind::region: return "memory region";
    case Kind::window: return "memory window";
    case Kind::completion_queue: return "completion queue";
    case Kind::queue_pair: return "queue pair";
    case Kind::shared_receives: return "shared receive queue";
    case Kind::address: return "address handle";
  }
  return "object";
}

Object& Objects::add(const void* handle, const Object& object) { return all_[handle] = object; }

Object* Objects::find(const void* handle) {
  const auto found = all_.find(handle);
  return found != all_.end() ? &found->second : nullptr;
}

void Objects::destroyed(const void* handle, const Place& place) {
  Object* const object = find(handle);
  if (object == nullptr) return;
  object->live = false;
  object->destroyed = place;
  destroyed_.push_back(handle);
  if (destroyed_.size() <= kMostDestroyed) return;
  if (const auto oldest = all_.find(destroyed_.front()); oldest != all_.end() && !oldest->second.live)
    all_.erase(oldest);
  destroyed_.pop_front();
}

}  // namespace uiw::provider::check
