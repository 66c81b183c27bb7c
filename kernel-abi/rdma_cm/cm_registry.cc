// SPDX-License-Identifier: MIT
// The tables of channels and ids, their end, and their inheritance over a fork.
#include "kernel-abi/rdma_cm/cm_registry.h"

#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "base/immortal.h"
#include "base/mutex.h"
#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/inventory/processes.h"
#include "provider/process/inheritance.h"
#include "provider/process/log.h"
#include "provider/process/netlink/link_watch.h"

namespace uiw::kernel_abi {

CmRegistry& CmRegistry::instance() {
  static Immortal<CmRegistry> registry;
  static const bool made = [] {
    provider::observe_interfaces([](const provider::InterfaceNews& news) {
      if (news.kind == provider::InterfaceNews::Kind::removed) instance().interface_removed(news.ifindex);
    });
    return true;
  }();
  static_cast<void>(made);
  return *registry;
}

int CmRegistry::open_channel(int flags, std::uint64_t* object) {
  std::shared_ptr<CmChannel> channel;
  int fd = -1;
  if (const int error = CmChannel::create(flags, channel, fd); error != 0) return -error;
  const LockGuard lock(g_registry_lock);
  *object = next_serial_++ << 3 | UIW_OBJECT_CM;
  try {
    channels_.emplace(*object, std::move(channel));
  } catch (const std::bad_alloc&) {
    ::close(fd);
    return -ENOMEM;
  }
  return fd;
}

std::shared_ptr<CmChannel> CmRegistry::find_channel(std::uint64_t object) {
  const LockGuard lock(g_registry_lock);
  const auto found = channels_.find(object);
  if (found != channels_.end()) return found->second;
  for (const Closed& closed : closed_)
    if (closed.object == object) return closed.channel;
  return nullptr;
}

void CmRegistry::retain_channel(std::uint64_t object) {
  const LockGuard lock(g_registry_lock);
  const auto found = channels_.find(object);
  if (found != channels_.end()) found->second->retain();
}

void CmRegistry::release_channel(std::uint64_t object) {
  std::shared_ptr<CmChannel> channel;
  {
    const LockGuard lock(g_registry_lock);
    const auto found = channels_.find(object);
    if (found == channels_.end() || !found->second->release()) return;
    channel = std::move(found->second);
    channels_.erase(found);
    channel->close();
    closed_[next_closed_++ % closed_.size()] = {object, channel};
  }
  if (has_inherited_.load()) forget_inherited();
  for (;;) {
    std::shared_ptr<CmId> id;
    {
      const LockGuard lock(g_registry_lock);
      if (channel->ids().empty()) return;
      id = ids_[*channel->ids().begin()];
    }
    const LockGuard command(id->command_lock());
    std::uint32_t events_reported;
    tear_down(id, events_reported);  // removes the id from its channel, if no other thread has done so
  }
}

std::shared_ptr<CmId> CmRegistry::create_id_locked(const std::shared_ptr<CmChannel>& channel,
                                                   const CmIdParameters& parameters) {
  const bool reused = !free_numbers_.empty();
  const auto number = reused ? *free_numbers_.begin() : static_cast<std::uint32_t>(ids_.size());
  auto id = std::make_shared<CmId>(number, channel, parameters);
  const auto place = channel->ids().insert(number).first;
  try {
    if (!reused) ids_.emplace_back();
  } catch (const std::bad_alloc&) {
    channel->ids().erase(place);
    throw;
  }
  if (reused) free_numbers_.erase(number);
  ids_[number] = id;
  return id;
}

std::shared_ptr<CmId> CmRegistry::create_id(const std::shared_ptr<CmChannel>& channel,
                                            const CmIdParameters& parameters) {
  const LockGuard lock(g_registry_lock);
  return channel->closed() ? nullptr : create_id_locked(channel, parameters);
}

int CmRegistry::find_id(const std::shared_ptr<CmChannel>& channel, std::uint32_t number, std::shared_ptr<CmId>& id) {
  const LockGuard lock(g_registry_lock);
  if (number >= ids_.size() || ids_[number] == nullptr) return ENOENT;
  if (ids_[number]->events().channel() != channel) return EINVAL;
  id = ids_[number];
  return 0;
}

int CmRegistry::find_member(const std::shared_ptr<CmChannel>& channel, std::uint32_t group, std::shared_ptr<CmId>& id) {
  const LockGuard lock(g_registry_lock);
  for (const std::shared_ptr<CmId>& one : ids_) {
    if (one == nullptr || !one->groups().has(group)) continue;
    if (one->events().channel() != channel) return EINVAL;
    id = one;
    return 0;
  }
  return ENOENT;
}

int CmRegistry::check_alive(const CmId& id) {
  const LockGuard lock(g_registry_lock);
  if (id.is_destroyed()) return ENOENT;
  if (id.is_left_to_parent()) {
    provider::log_event(provider::LogLevel::error,
                        "rdma_cm: id %u is of no use in the child of a fork: its connection was the parent's",
                        id.number());
    return EIO;
  }
  return id.is_removed() ? EIO : 0;
}

std::vector<std::shared_ptr<CmId>> CmRegistry::ids() {
  const LockGuard lock(g_registry_lock);
  std::vector<std::shared_ptr<CmId>> all = ids_;
  std::erase(all, nullptr);
  return all;
}

void CmRegistry::interface_removed(unsigned ifindex) {
  for (const std::shared_ptr<CmId>& id : ids()) id->interface_removed(ifindex);
}

bool CmRegistry::give_way(std::uint16_t number, bool datagrams) {
  std::vector<std::shared_ptr<CmId>> ids;
  {
    const LockGuard lock(g_registry_lock);
    for (const std::shared_ptr<CmId>& id : ids_)
      if (id != nullptr && !id->events().channel()->inherited() && id->route().binding() &&
          port_of(id->route().binding()->address) == number && looks_up(id->route()) == datagrams) {
        ids.push_back(id);
      }
  }
  bool gave = false;
  for (const std::shared_ptr<CmId>& id : ids) {
    const LockGuard command(id->command_lock());
    if (check_alive(*id) == 0 && id->give_way() == 0) gave = true;
  }
  return gave;
}

void CmRegistry::remove_id_locked(CmId& id) noexcept {
  if (id.number() >= ids_.size() || ids_[id.number()].get() != &id) return;
  id.events().channel()->ids().erase(id.number());
  ids_[id.number()].reset();
  try {
    free_numbers_.insert(id.number());
  } catch (const std::bad_alloc&) {  // the number is then not used again
  }
}

// Called with the id's command lock held. Also tears down the id's children, which are the new ids of its
// CONNECT_REQUEST events that the program has not fetched. Takes their command locks as well; no thread that holds a
// child's lock waits for its listener's, so there is no deadlock.
bool CmRegistry::tear_down(const std::shared_ptr<CmId>& id, std::uint32_t& events_reported) {
  CmId::Detached detached;
  CmEvents dropped;
  {
    const LockGuard lock(g_registry_lock);
    if (id->is_destroyed()) return false;
    remove_id_locked(*id);
    detached = id->destroy();
    dropped = id->events().channel()->take_matching(
        [&](const CmEvent& event) { return event.owner == id || event.child == id; });
  }
  events_reported = detached.events_reported;
  CmId::tear_down(std::move(detached));
  for (const CmEvent& event : dropped) {
    if (event.child == nullptr || event.child == id) continue;
    const LockGuard command(event.child->command_lock());
    std::uint32_t unseen;
    tear_down(event.child, unseen);
  }
  return true;
}

int CmRegistry::destroy_id(const std::shared_ptr<CmChannel>& channel, std::uint32_t number,
                           std::uint32_t& events_reported) {
  std::shared_ptr<CmId> id;
  if (const int error = find_id(channel, number, id); error != 0) return error;
  const LockGuard command(id->command_lock());
  return tear_down(id, events_reported) ? 0 : ENOENT;  // another thread may have destroyed it first
}

int CmRegistry::migrate_id(const std::shared_ptr<CmChannel>& from, const std::shared_ptr<CmChannel>& to,
                           std::uint32_t number, std::uint32_t& events_reported) {
  const LockGuard lock(g_registry_lock);
  if (number >= ids_.size() || ids_[number] == nullptr) return ENOENT;
  const std::shared_ptr<CmId> id = ids_[number];
  if (id->events().channel() != from || to->closed()) return EINVAL;
  if (from->inherited() && from != to) {
    provider::log_event(
        provider::LogLevel::error,
        "rdma_cm: id %u is the parent process's as long as that lives, and cannot move to another channel", number);
    return EIO;
  }
  events_reported = id->events().events_reported();
  if (from == to) return 0;
  CmEvents events = from->take_matching([&](const CmEvent& event) { return event.owner == id; });
  const auto move = [&](CmId& moving) {
    assume_held(g_registry_lock);
    to->ids().insert(from->ids().extract(moving.number()));
    moving.events().set_channel(to);
  };
  move(*id);
  while (!events.empty()) {
    const CmEvent& event = events.front();
    if (event.child != nullptr && !event.child->is_destroyed()) move(*event.child);
    to->post(events);
  }
  return 0;
}

int CmRegistry::check_port(const CmRoute& asking, const CmBinding& binding) const {
  const std::uint16_t port = port_of(binding.address);
  for (const std::shared_ptr<CmId>& id : ids_) {
    if (id == nullptr || &id->route() == &asking || id->route().port_space() != asking.port_space() ||
        !id->route().binding())
      continue;
    const CmBinding& other = *id->route().binding();
    if (port_of(other.address) != port) continue;
    if (other.reuse && binding.reuse) continue;
    const bool one_family = other.address.ss_family == binding.address.ss_family;
    if (!one_family && other.v6only && binding.v6only) continue;
    if (is_wildcard(other.address) || is_wildcard(binding.address)) return EADDRNOTAVAIL;
    if (is_same_host(other.address, binding.address)) return EADDRINUSE;
  }
  return 0;
}

bool CmRegistry::lock_for_fork() {
  g_registry_lock.lock();
  return !instance().channels_.empty();
}
void CmRegistry::unlock_in_parent() { g_registry_lock.unlock(); }

// Drops each CONNECT_REQUEST that the program has not fetched, since its connection and its id stay the parent's. All
// other events in a queue become the child's together with the channel.
void CmRegistry::inherit_in_child() {
  CmRegistry& own = instance();
  own.closed_ = {};
  for (const auto& [object, channel] : own.channels_) {
    channel->inherit();
    for (const CmEvent& event : channel->take_matching([](const CmEvent& one) { return one.child != nullptr; })) {
      event.owner->count_reported(event);
      event.child->inherit(own.left_);
      own.remove_id_locked(*event.child);
    }
  }
  for (const std::shared_ptr<CmId>& id : own.ids_)
    if (id != nullptr) id->inherit(own.left_);
  own.has_inherited_ = !own.channels_.empty();
  own.awaits_parent_ = own.wanted_ = false;
  g_registry_lock.unlock();
}

// Called when the program has closed a channel: if no other channel is inherited, the end of the parent does not matter
// any more.
void CmRegistry::forget_inherited() {
  {
    const LockGuard lock(g_registry_lock);
    for (const auto& [object, channel] : channels_)
      if (channel->inherited()) return;
    has_inherited_ = false;
  }
  provider::release_ancestors();
}

int CmRegistry::await_parent() {
  {
    const LockGuard lock(g_registry_lock);
    if (std::exchange(awaits_parent_, true)) return 0;
  }
  int error;
  try {
    error = provider::when_ancestors_end([this] { parent_ended(); });
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error == 0) return 0;
  provider::log_event(provider::LogLevel::error, "rdma_cm: the end of the parent process cannot be waited for: %s",
                      provider::text_of_errno(error));
  const LockGuard lock(g_registry_lock);
  awaits_parent_ = false;
  return EIO;
}

void CmRegistry::child_waits() {
  if (has_inherited_.load()) await_parent();
}

void CmRegistry::parent_ended() {
  std::vector<std::shared_ptr<CmId>> left;
  bool wanted, more = false;
  {
    const LockGuard lock(g_registry_lock);
    awaits_parent_ = false;
    wanted = wanted_;
    for (const auto& [object, channel] : channels_) {
      if (!channel->inherited()) continue;
      const provider::Owner prospect = channel->prospect();
      more = more || prospect == provider::Owner::ancestor;
      if (prospect != provider::Owner::self) continue;
      for (const std::uint32_t number : channel->ids()) {
        if (wanted) break;
        ids_[number]->listener().watch_for_caller();
        left.push_back(ids_[number]);
      }
    }
  }
  if (wanted) take_over();
  for (const std::shared_ptr<CmId>& id : left) id->announce();
  if (more) await_parent();
}

int CmRegistry::use(const CmChannel& channel) {
  if (!has_inherited_.load()) return 0;
  provider::Owner owner;
  bool first;
  {
    const LockGuard lock(g_registry_lock);
    if (!channel.inherited()) return 0;
    first = !std::exchange(wanted_, true);
    owner = channel.owner();
  }
  switch (owner) {
    case provider::Owner::self: take_over(); return 0;
    case provider::Owner::ancestor:
      if (first) {
        provider::log_event(provider::LogLevel::info,
                            "rdma_cm: the parent process shares this channel; what it bound and what calls come is its "
                            "until it has ended");
      }
      return await_parent();
    case provider::Owner::other: break;
  }
  provider::log_event(provider::LogLevel::error,
                      "rdma_cm: the channel is of no use here: another child of the same process has taken it over");
  return EIO;
}

// Takes over the channels whose parent has ended; those that another process owns stay as they are.
void CmRegistry::take_over() {
  std::vector<std::shared_ptr<CmId>> ids;
  {
    const LockGuard lock(g_registry_lock);
    bool all = true;
    for (const auto& [object, channel] : channels_) {
      if (!channel->inherited()) continue;
      if (channel->owner() != provider::Owner::self) {
        all = false;
        continue;
      }
      channel->take_over();
      for (const std::uint32_t number : channel->ids()) ids.push_back(ids_[number]);
    }
    has_inherited_ = !all;
  }
  if (ids.empty()) return;
  provider::publish_inventory();
  provider::log_event(provider::LogLevel::info,
                      "rdma_cm: the parent process has ended, and this process goes on with %zu of its ids",
                      ids.size());
  for (const std::shared_ptr<CmId>& id : ids) id->go_on();
}

}  // namespace uiw::kernel_abi
