// SPDX-License-Identifier: MIT
// A Context is an open device: its attributes, its async events, and the Engine, which sends and receives for its queue
// pairs. Thread-safe, except for close().
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "provider/export.h"
#include "provider/memory/memory.h"
#include "provider/process/device.h"
#include "provider/process/netlink/link_watch.h"
#include "provider/process/shown/listed.h"
#include "provider/progress/engine.h"
#include "provider/verbs/event_pipe.h"

namespace uiw::provider {

// The kinds of objects that Context::take() counts, since the device limits their number (provider/process/limits.h).
// Queue pairs, memory regions and windows are counted elsewhere.
enum class Limited : std::uint8_t { pd, cq, srq, ah };
inline constexpr std::size_t kLimitedKinds = 4;

// The objects of a device (domains, queues, queue pairs) share ownership of its Context, since a program may close the
// device, or end, without having destroyed them.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Null with errno: ENODEV if there is no such device (any more), EMFILE and similar errors. `handle` is the program's
  // ibv_context and must remain live as long as the Context. Contexts whose cmd_fd refers to the same open file can
  // import each other's objects (device_file.h). Throws std::bad_alloc.
  UIW_API static std::shared_ptr<Context> open(const std::string& device_name, const ibv_context* handle = nullptr);
  ~Context();
  // ibv_close_device: stops the queue pairs that the program has not destroyed, as the kernel does, and then the
  // Engine. No other thread may use objects of the device meanwhile.
  UIW_API void close();

  // The device as it was when it was opened; gids() has its current GIDs.
  const DeviceInfo& device() const { return device_; }
  // The GID table as last read by the thread "uiw-cm" after a change, or by look(). Takes no lock.
  const std::vector<Gid>& gids() const { return *gids_.load(std::memory_order_acquire); }
  // The GID with this index; kNoGid if the index is empty. If no GID is known for the index, the kernel is asked first.
  // Throws std::bad_alloc.
  UIW_API Gid gid(unsigned index);
  // Asks the kernel for the current state of the device; std::nullopt if its network interface no longer exists. Throws
  // std::bad_alloc.
  std::optional<DeviceInfo> look();
  const ibv_context* handle() const { return handle_; }
  DeviceFile file() const { return file_; }
  // Whether another Context of this device belongs to the same open file; see file().
  UIW_API bool shares_file() const;
  int async_fd() const { return async_->read_fd(); }
  Engine& engine() { return engine_; }
  std::uint32_t listed_number() const { return listed_.number(); }

  // Take and release the lock of the data that look() updates, before and after a fork, since the child goes on using
  // these data.
  void lock_view() UIW_ACQUIRE(look_mutex_) { look_mutex_.lock(); }
  void unlock_view() UIW_RELEASE(look_mutex_) { look_mutex_.unlock(); }

  // Counts one more object of this kind; false if there are as many as the device allows. The class
  // Share, below, calls this.
  UIW_API bool take(Limited kind);
  void give_back(Limited kind) { objects(kind).fetch_sub(1, std::memory_order_relaxed); }

  UIW_API void query_device(ibv_device_attr_ex& attributes) const;
  // The current attributes of the port. 0, or EINVAL for a port other than 1. Throws std::bad_alloc.
  UIW_API int query_port(unsigned port, ibv_port_attr& attributes);
  // The speed of the interface, in Mb/s. A link that reports none, such as loopback, counts as 10 Gb/s.
  unsigned speed_mbps() const { return device_.speed_mbps == 0 ? 10000 : device_.speed_mbps; }

  // For an injected fault: while `down`, ibv_query_port() reports the port as down. Nothing else changes.
  void set_port_down(bool down) { port_down_.store(down); }

  // Reports an event to ibv_get_async_event. False if the event is lost: there is no memory for it, or the pipe of
  // events belongs to another process for good (event_pipe.h).
  bool report(const ibv_async_event& event);
  // Removes the events about `element` (a queue pair, completion queue or shared receive queue) that the program has
  // not read. `reported`: how many events about it report() has written. Returns how many of them the program has read;
  // 0 if the program has closed the library's descriptors of the pipe, or the pipe belongs to another process.
  UIW_API unsigned withdraw_events(const void* element, unsigned reported);

 private:
  Context(DeviceInfo device, std::shared_ptr<EventPipe> async, const ibv_context* handle);
  void report_port(ibv_event_type type);
  // Called on the thread "uiw-cm" when something has happened to the interface.
  void heard(const InterfaceNews& news);
  void heard_link(bool active);
  void heard_addresses(std::vector<Gid> present);
  std::atomic<int>& objects(Limited kind) { return objects_[static_cast<std::size_t>(kind)]; }

  const DeviceInfo device_;
  const ibv_context* const handle_;
  const DeviceFile file_;
  std::shared_ptr<EventPipe> async_;
  Engine engine_;
  std::array<std::atomic<int>, kLimitedKinds> objects_{};
  std::atomic<bool> port_down_{false};
  TableMutex look_mutex_;
  DeviceInfo now_ UIW_GUARDED_BY(look_mutex_);  // as look() read it last
  // All GID tables so far. gids_ points to the last one; a thread may still read an earlier one.
  std::deque<std::vector<Gid>> tables_ UIW_GUARDED_BY(look_mutex_);
  std::atomic<const std::vector<Gid>*> gids_;
  // The port state and the GIDs that the program knows: those at the time when it opened the device, or those reported
  // by events since. Used only on the thread "uiw-cm".
  bool told_active_;
  std::vector<Gid> told_gids_;
  Listed<Context> listed_{*this};
};

// Counts one object in its Context from the object's creation to its end.
class Share {
 public:
  Share() = default;
  // Empty, with errno ENOMEM, if the device allows no more objects of this kind.
  Share(std::shared_ptr<Context> context, Limited kind) : kind_(kind) {
    if (context->take(kind)) {
      context_ = std::move(context);
    } else {
      errno = ENOMEM;
    }
  }
  ~Share() {
    if (context_ != nullptr) context_->give_back(kind_);
  }
  Share(Share&& other) noexcept : context_(std::move(other.context_)), kind_(other.kind_) {}
  Share& operator=(Share&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(kind_, other.kind_);
    return *this;
  }
  explicit operator bool() const { return context_ != nullptr; }

 private:
  std::shared_ptr<Context> context_;
  Limited kind_{};
};

}  // namespace uiw::provider
