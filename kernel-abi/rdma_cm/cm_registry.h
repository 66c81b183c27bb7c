// SPDX-License-Identifier: MIT
// All rdma_cm channels and ids of this process, and the rules of their locks.
//
// There are two kinds of locks:
//
//   * The registry's lock guards all queues, tables and states of ids. It is held for short times only, and never while
//     a function of the provider is called that may call back; so the provider's callbacks may take it on any thread,
//     at any time.
//   * Each id has a command lock, which is taken before the registry's lock. It makes the commands of an id run one
//     after the other. Callbacks about a connection or a listener do not take it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/id/cm_id.h"
#include "kernel-abi/rdma_cm/registry_lock.h"

namespace uiw::kernel_abi {

class CmRegistry {
 public:
  // The registry of this process. The child of a fork uses its copy, without the connections, which stay the parent's.
  static CmRegistry& instance();

  // Opens a channel. Returns its descriptor, or a negative errno; sets `object` (interposer/entry.h).
  int open_channel(int flags, std::uint64_t* object);
  void retain_channel(std::uint64_t object);
  void release_channel(std::uint64_t object);
  // The channel of an object, or null. Also finds the channels that were closed last, so that a command that another
  // thread has begun before the close can complete, as in the kernel, where the call keeps the file open.
  std::shared_ptr<CmChannel> find_channel(std::uint64_t object);

  // Creates an id with the lowest free number. create_id() takes the lock, and returns null if the channel is closed.
  std::shared_ptr<CmId> create_id(const std::shared_ptr<CmChannel>& channel, const CmIdParameters& parameters);
  std::shared_ptr<CmId> create_id_locked(const std::shared_ptr<CmChannel>& channel, const CmIdParameters& parameters)
      UIW_REQUIRES(g_registry_lock);
  // Removes an id from the table, so that it cannot be found by its number any more.
  void remove_id_locked(CmId& id) noexcept UIW_REQUIRES(g_registry_lock);
  // Finds an id by its number. 0; ENOENT if there is no such id, EINVAL if it belongs to another channel.
  int find_id(const std::shared_ptr<CmChannel>& channel, std::uint32_t number, std::shared_ptr<CmId>& id);
  // Finds the id that has joined the multicast group with this number. 0, or an errno as find_id().
  int find_member(const std::shared_ptr<CmChannel>& channel, std::uint32_t group, std::shared_ptr<CmId>& id);
  // Destroys an id. Returns 0 and the number of its events that the program has fetched, or an errno as find_id().
  int destroy_id(const std::shared_ptr<CmChannel>& channel, std::uint32_t number, std::uint32_t& events_reported);
  // Moves an id to another channel, with its events and the new ids in them. Returns 0 and the number of the id's
  // events that the program has fetched; an errno as find_id(); EINVAL also if `to` is closed; or EIO if `from` is
  // still the parent's and `to` is another channel.
  int migrate_id(const std::shared_ptr<CmChannel>& from, const std::shared_ptr<CmChannel>& to, std::uint32_t number,
                 std::uint32_t& events_reported);

  // Whether a command may use the id. 0; ENOENT if the id was destroyed between find_id() and taking its command lock;
  // EIO if its device is gone, or if it stays with the parent of this process (CmId::is_left_to_parent()).
  int check_alive(const CmId& id);

  // All ids.
  std::vector<std::shared_ptr<CmId>> ids();

  // Called when a network interface was removed: the ids on its device report that to the program.
  void interface_removed(unsigned ifindex);

  // Frees the TCP port `number`, or with `datagrams` the UDP port, for a socket of the program: an id that is bound to
  // this port moves to a substitute port (provider/connect/rdma_port.h). Returns whether an id has moved.
  bool give_way(std::uint16_t number, bool datagrams);

  // Whether another id of the same port space has this port (cma.c: cma_check_port). 0 if no other id has the port, or
  // if both ids may have it; EADDRNOTAVAIL if one of the two ids has it for all addresses; EADDRINUSE if both have it
  // for the same address.
  int check_port(const CmRoute& asking, const CmBinding& binding) const UIW_REQUIRES(g_registry_lock);

  // Called around a fork. lock_for_fork() returns whether there is a channel that a child would inherit.
  static bool lock_for_fork() UIW_ACQUIRE(g_registry_lock);
  static void unlock_in_parent() UIW_RELEASE(g_registry_lock);
  static void inherit_in_child() UIW_RELEASE(g_registry_lock);
  // Called before a thread of the child of a fork waits for descriptors, perhaps for an inherited channel: such a
  // channel then becomes readable when the parent has ended and a peer connects.
  void child_waits();
  // Called for each command on a channel except DESTROY_ID, and for the channel from which MIGRATE_ID moves an id. An
  // inherited channel and its ids become this process's: now if the parent has ended, else when the parent ends. EIO if
  // the channel is another process's, or if the parent's end cannot be waited for.
  int use(const CmChannel& channel);

 private:
  void forget_inherited();
  int await_parent();
  void parent_ended();
  void take_over();
  // False if the id has been torn down already.
  bool tear_down(const std::shared_ptr<CmId>& id, std::uint32_t& events_reported);

  std::uint64_t next_serial_ UIW_GUARDED_BY(g_registry_lock) = 1;
  std::map<std::uint64_t, std::shared_ptr<CmChannel>> channels_ UIW_GUARDED_BY(g_registry_lock);
  struct Closed {
    std::uint64_t object = 0;
    std::shared_ptr<CmChannel> channel;
  };
  std::array<Closed, 16> closed_ UIW_GUARDED_BY(g_registry_lock);  // the channels that were closed last
  std::size_t next_closed_ UIW_GUARDED_BY(g_registry_lock) = 0;
  std::vector<std::shared_ptr<CmId>> ids_ UIW_GUARDED_BY(g_registry_lock);  // indexed by number
  std::set<std::uint32_t> free_numbers_ UIW_GUARDED_BY(g_registry_lock);
  // In the child of a fork:
  std::atomic<bool> has_inherited_{false};  // there are channels of the parent that are not this process's yet
  bool awaits_parent_ UIW_GUARDED_BY(g_registry_lock) = false;  // parent_ended() will be called
  bool wanted_ UIW_GUARDED_BY(g_registry_lock) = false;         // the program has used an inherited channel
  // Objects of the parent, which are neither used nor destroyed here.
  std::vector<std::shared_ptr<void>> left_ UIW_GUARDED_BY(g_registry_lock);
};

}  // namespace uiw::kernel_abi
