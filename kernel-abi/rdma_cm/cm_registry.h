// SPDX-License-Identifier: MIT
// All rdma_cm channels and ids of this process, and the lock over them.
//
// Two kinds of lock:
//   * the registry's lock guards every queue, table and id state. It is held for moments only, and never
//     while the provider is called; so the provider's callbacks may take it on any thread, at any time.
//   * each id has a command lock, taken before the registry's, that makes its commands come one after
//     another. Callbacks do not take it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/id/cm_id.h"

namespace uiw::kernel_abi {

class CmRegistry {
 public:
  // The registry of this process: a new one after fork, for the child has none of its parent's connections.
  static CmRegistry& instance();

  std::mutex& mutex() { return mutex_; }

  // Opens a channel: its descriptor, or a negative errno; its object goes to `object`.
  int open_channel(int flags, std::uint64_t* object);
  void retain_channel(std::uint64_t object);
  void release_channel(std::uint64_t object);
  // Finds one that was closed a moment ago, too: a command that another thread had begun by then goes on with
  // it, as in the kernel, where the call holds the file.
  std::shared_ptr<CmChannel> find_channel(std::uint64_t object);

  // Makes an id with the lowest free number. The plain form takes the lock; the other wants it held.
  std::shared_ptr<CmId> create_id(const std::shared_ptr<CmChannel>& channel, const CmIdParameters& parameters);
  std::shared_ptr<CmId> create_id_locked(const std::shared_ptr<CmChannel>& channel, const CmIdParameters& parameters);
  // Nobody finds it by its number from here on. The lock is held.
  void remove_id_locked(CmId& id) noexcept;
  // ENOENT where there is no such id, EINVAL where it belongs to another channel.
  int find_id(const std::shared_ptr<CmChannel>& channel, std::uint32_t number, std::shared_ptr<CmId>& id);
  // Ends an id: 0 with the number of its events that the program has seen, or as find_id().
  int destroy_id(const std::shared_ptr<CmChannel>& channel, std::uint32_t number, std::uint32_t& events_reported);
  // Moves an id, its events and the children that wait in them. 0 or as find_id().
  int migrate_id(const std::shared_ptr<CmChannel>& from, const std::shared_ptr<CmChannel>& to, std::uint32_t number,
                 std::uint32_t& events_reported);

  // Did the id end between find_id() and the lock of its commands (ENOENT), or has its device gone (EIO)?
  int check_alive(const CmId& id);

  // Tells the ids of the device that was this interface.
  void interface_removed(unsigned ifindex);

  // Needs the lock: does another id hold this port at an overlapping address?
  bool port_is_taken(const CmRoute& asking, const CmBinding& binding) const;

  // For fork.
  static void lock_for_fork();
  static void unlock_in_parent();
  static void renew_in_child();

 private:
  // False where the id is at its end already.
  bool tear_down(const std::shared_ptr<CmId>& id, std::uint32_t& events_reported);

  std::mutex mutex_;
  std::uint64_t next_serial_ = 1;
  std::map<std::uint64_t, std::shared_ptr<CmChannel>> channels_;
  struct Closed {
    std::uint64_t object = 0;
    std::shared_ptr<CmChannel> channel;
  };
  std::array<Closed, 16> closed_;  // the latest ones
  std::size_t next_closed_ = 0;
  std::vector<std::shared_ptr<CmId>> ids_;  // by number
  std::set<std::uint32_t> free_numbers_;
  CmRegistry* inherited_ = nullptr;
};

}  // namespace uiw::kernel_abi
