// SPDX-License-Identifier: MIT
// An open device: its attributes, its async events and its progress engine. Thread-safe, except for close().
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "provider/export.h"
#include "provider/memory/memory.h"
#include "provider/process/device.h"
#include "provider/progress/engine.h"
#include "provider/verbs/event_pipe.h"

namespace uiw::provider {

// Objects of the device share ownership of the context, since a program may close the device, or end, and leave some of
// them behind.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Null with errno: ENODEV if there is no such device (any more), EMFILE and similar errors. `handle` is the program's
  // ibv_context; it must remain live as long as the context.
  UIW_API static std::shared_ptr<Context> open(const std::string& device_name, const ibv_context* handle = nullptr);
  ~Context();
  // ibv_close_device: ends the queue pairs that are left, as the kernel does, and stops all progress of the device. No
  // other thread may use objects of the device meanwhile.
  UIW_API void close();

  const DeviceInfo& device() const { return device_; }
  const ibv_context* handle() const { return handle_; }
  int async_fd() const { return async_->read_fd(); }
  Engine& engine() { return engine_; }

  UIW_API void query_device(ibv_device_attr_ex& attributes) const;
  // EINVAL for a port other than 1.
  UIW_API int query_port(unsigned port, ibv_port_attr& attributes) const;

  // Reports an event to ibv_get_async_event. False if there is no memory for it; then the event is lost.
  bool report(const ibv_async_event& event);
  // Removes those of the `reported` events about this object that the program has not read, and returns how many it has
  // read.
  UIW_API unsigned withdraw_events(const void* element, unsigned reported);

 private:
  Context(DeviceInfo device, std::shared_ptr<EventPipe> async, const ibv_context* handle);
  void report_removal();
  DeviceInfo device_;
  const ibv_context* const handle_;
  std::shared_ptr<EventPipe> async_;
  Engine engine_;
};

}  // namespace uiw::provider
