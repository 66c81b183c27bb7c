// SPDX-License-Identifier: MIT
#include "provider/check/posted_work.h"

#include <algorithm>
#include <utility>

#include "provider/check/program_memory.h"

namespace uiw::provider::check {

namespace {

// An entry of a map of disjoint ranges, by their first octets, that has an octet of [from, end); else the map's end.
template <typename Map>
auto overlapping(const Map& ranges, std::uintptr_t from, std::uintptr_t end) {
  auto after = ranges.lower_bound(end);
  if (after == ranges.begin()) return ranges.end();
  --after;
  return after->second.end > from ? after : ranges.end();
}

}  // namespace

std::uint64_t Memory::user_of(const Span& span, Role role) const {
  const std::uintptr_t end = span.address + span.length;
  if (role == Role::sink) {
    const auto found = overlapping(sinks_, span.address, end);
    return found != sinks_.end() ? found->second.number : 0;
  }
  const auto found = overlapping(sources_, span.address, end);
  return found != sources_.end() ? found->second.latest : 0;
}

const Memory::Source* Memory::same_source(const Span& span) const {
  const auto found = sources_.find(span.address);
  return found != sources_.end() && found->second.end == span.address + span.length ? &found->second : nullptr;
}

void Memory::enter(Span& span, Role role, std::uint64_t number) {
  const std::uintptr_t end = span.address + span.length;
  if (role == Role::sink) {
    if (user_of(span, role) != 0) return;
    sinks_[span.address] = {end, number};
  } else {
    const bool same = same_source(span) != nullptr;
    if (!same && user_of(span, role) != 0) return;
    Source& source = sources_[span.address];
    source = {end, number, span.checksum, source.users + 1};
  }
  span.entered = true;
}

void Memory::leave(const Span& span, Role role) {
  if (!span.entered) return;
  if (role == Role::sink) {
    sinks_.erase(span.address);
  } else if (const auto found = sources_.find(span.address); --found->second.users == 0) {
    sources_.erase(found);
  }
}

void PostedWork::add(Work work) {
  Queue& queue = queues[work.queue];
  for (Span& span : work.spans) {
    ++users_of_key[span.lkey];
    if (span.address != 0) memory.enter(span, work.role, work.number);
  }
  if (work.sends) {
    queue.sends.push_back(work.number);
    queue.has_sent = true;
    if (work.signaled) ++queue.signaled;
  } else {
    queue.receives.insert(work.number);
  }
  if (work.cq != nullptr) ++completion_queues[work.cq].owed;
  const std::uint64_t number = work.number;
  all_.emplace(number, std::move(work));
  // Adapters have no more work than the queue is deep. What the program has posted beyond that is complete already, but
  // it does not know; the oldest is forgotten.
  while (queue.sends.size() > 2 * std::size_t{queue.depth} + 1) {
    const auto oldest = all_.find(queue.sends.front());
    if (oldest != all_.end() && oldest->second.signaled) {
      const auto cq = completion_queues.find(oldest->second.cq);
      if (cq == completion_queues.end() || !cq->second.ignores_overrun) break;
    }
    queue.sends.pop_front();
    if (oldest != all_.end()) {
      pass(oldest->second);
      remove(oldest, nullptr);
    }
  }
}

const Work* PostedWork::find(std::uint64_t number) const {
  const auto found = all_.find(number);
  return found != all_.end() ? &found->second : nullptr;
}

Work* PostedWork::find(std::uint64_t number) {
  const auto found = all_.find(number);
  return found != all_.end() ? &found->second : nullptr;
}

bool PostedWork::uses(const Work& work, std::uint32_t lkey) {
  return std::any_of(work.spans.begin(), work.spans.end(), [lkey](const Span& span) { return span.lkey == lkey; });
}

// Removes work that is not in its queue's `sends` any more.
void PostedWork::remove(std::unordered_map<std::uint64_t, Work>::iterator at, std::vector<Work>* done) {
  Work& work = at->second;
  uncover(work, 0);
  for (const Span& span : work.spans) {
    if (const auto users = users_of_key.find(span.lkey); --users->second == 0) users_of_key.erase(users);
    memory.leave(span, work.role);
  }
  if (const auto cq = completion_queues.find(work.cq); cq != completion_queues.end()) --cq->second.owed;
  Queue& queue = queues[work.queue];
  if (work.sends && work.signaled) --queue.signaled;
  if (!work.sends) queue.receives.erase(work.number);
  if (done != nullptr) done->push_back(std::move(work));
  all_.erase(at);
}

void PostedWork::pass(const Work& work) {
  passed_[work.number] = work.wr_id;
  passed_order_.push_back(work.number);
  if (passed_order_.size() <= kMostPassed) return;
  passed_.erase(passed_order_.front());
  passed_order_.pop_front();
}

std::optional<std::uint64_t> PostedWork::complete(std::uint64_t number, std::vector<Work>& done) {
  const auto found = all_.find(number);
  if (found == all_.end()) {
    const auto passed = passed_.find(number);
    if (passed == passed_.end()) return std::nullopt;
    return passed->second;
  }
  const std::uint64_t wr_id = found->second.wr_id;
  if (found->second.sends) {
    std::deque<std::uint64_t>& sends = queues[found->second.queue].sends;
    while (!sends.empty()) {
      const std::uint64_t oldest = sends.front();
      // Two threads that post at the same time may have done so in another order than their numbers say.
      if (oldest > number) break;
      sends.pop_front();
      if (oldest == number) break;
      const auto before = all_.find(oldest);
      if (before == all_.end()) continue;
      pass(before->second);
      // A signaled one has been lost by a queue that overran, or comes later, posted by another thread.
      remove(before, before->second.signaled ? nullptr : &done);
    }
  }
  remove(all_.find(number), &done);
  return wr_id;
}

void PostedWork::keep_memory(std::uint64_t number) {
  if (Work* const work = find(number)) {
    for (Span& span : work->spans) span.before = {};
  }
}

void PostedWork::withdraw(std::uint64_t number) {
  const auto found = all_.find(number);
  if (found == all_.end()) return;
  if (found->second.sends) std::erase(queues[found->second.queue].sends, number);
  remove(found, nullptr);
}

void PostedWork::drop(const void* queue) {
  const auto found = queues.find(queue);
  if (found == queues.end()) return;
  std::vector<std::uint64_t> numbers(found->second.receives.begin(), found->second.receives.end());
  numbers.insert(numbers.end(), found->second.sends.begin(), found->second.sends.end());
  found->second.sends.clear();
  for (const std::uint64_t number : numbers) {
    const auto work = all_.find(number);
    if (work == all_.end()) continue;
    pass(work->second);
    remove(work, nullptr);
  }
}

void PostedWork::forget_memory(std::uint32_t lkey) {
  if (!users_of_key.contains(lkey)) return;
  for (auto& [number, work] : all_) {
    for (Span& span : work.spans) {
      if (span.lkey != lkey) continue;
      uncover(work, 0);
      memory.leave(span, work.role);
      span.entered = false;
      span.address = 0;
      span.checksum.reset();
    }
  }
}

void PostedWork::leave_to_parent() {
  for (const auto& [number, work] : all_) pass(work);
  all_.clear();
  memory = {};
  users_of_key.clear();
  for (auto& [handle, queue] : queues) {
    queue.sends.clear();
    queue.receives.clear();
    queue.signaled = 0;
    queue.waits_since.reset();
    queue.refused_at.reset();
  }
  for (auto& [handle, cq] : completion_queues) cq.owed = 0;
}

}  // namespace uiw::provider::check
