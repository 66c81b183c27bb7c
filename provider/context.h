// SPDX-License-Identifier: MIT
// An open device: its attributes, protection domains, memory regions, async events and progress engine.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <string>

#include "ddp/stag_table.h"
#include "provider/device.h"
#include "provider/engine.h"
#include "provider/event_pipe.h"
#include "provider/export.h"

namespace uiw::provider {

// A protection domain: what ties memory to queue pairs. EBUSY on destruction while something is in it.
class UIW_API Pd {
 public:
  explicit Pd(class Context& context) : context_(context) {}
  class Context& context() { return context_; }
  void add_user() { users_.fetch_add(1, std::memory_order_relaxed); }
  void remove_user() { users_.fetch_sub(1, std::memory_order_relaxed); }
  bool in_use() const { return users_.load(std::memory_order_relaxed) != 0; }

 private:
  class Context& context_;
  std::atomic<int> users_{0};
};

// A memory region; lkey and rkey are its STag.
class UIW_API Mr {
 public:
  // Null with errno: EINVAL for access flags or a range that cannot be, EFAULT where the memory is not there or not
  // accessible so, ENOMEM. `iova` is the tagged offset of the first octet.
  static std::unique_ptr<Mr> create(Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access);
  ~Mr();
  std::uint32_t key() const { return static_cast<std::uint32_t>(stag_); }

 private:
  Mr(Pd& pd, ddp::Stag stag) : pd_(pd), stag_(stag) {}
  Pd& pd_;
  const ddp::Stag stag_;
};

class UIW_API Context {
 public:
  // Null with errno: ENODEV if there is no such device (any more), EMFILE and the like.
  // `handle` is the program's ibv_context.
  static std::unique_ptr<Context> open(const std::string& device_name, const ibv_context* handle = nullptr);
  ~Context();

  const DeviceInfo& device() const { return device_; }
  const ibv_context* handle() const { return handle_; }
  int async_fd() const { return async_->read_fd(); }
  Engine& engine() { return engine_; }

  void query_device(ibv_device_attr_ex& attributes) const;
  // EINVAL for a port other than 1.
  int query_port(unsigned port, ibv_port_attr& attributes) const;

  // An event for ibv_get_async_event. False if the program has not read thousands of them, and this one is lost.
  bool report(const ibv_async_event& event);
  // Takes out the events about this object that were not read yet.
  unsigned purge_events(const void* element);

 private:
  Context(DeviceInfo device, std::shared_ptr<EventPipe> async, const ibv_context* handle);
  void report_removal();
  DeviceInfo device_;
  const ibv_context* const handle_;
  std::shared_ptr<EventPipe> async_;
  Engine engine_;
};

// The STags of this process.
ddp::StagTable& stag_table();

}  // namespace uiw::provider
