// SPDX-License-Identifier: MIT
// An open device: its attributes, async events and progress engine.
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

// Its objects share it: a program may close a device, or end, and leave some of them behind.
class UIW_API Context : public std::enable_shared_from_this<Context> {
 public:
  // Null with errno: ENODEV if there is no such device (any more), EMFILE and the like.
  // `handle` is the program's ibv_context.
  static std::shared_ptr<Context> open(const std::string& device_name, const ibv_context* handle = nullptr);
  ~Context();
  // ibv_close_device: queue pairs that are left over end, as the kernel ends them, and nothing of the device moves any
  // more. Not while other threads use its objects.
  void close();

  const DeviceInfo& device() const { return device_; }
  const ibv_context* handle() const { return handle_; }
  int async_fd() const { return async_->read_fd(); }
  Engine& engine() { return engine_; }

  void query_device(ibv_device_attr_ex& attributes) const;
  // EINVAL for a port other than 1.
  int query_port(unsigned port, ibv_port_attr& attributes) const;

  // An event for ibv_get_async_event. False if there is no memory for it: then it is lost.
  bool report(const ibv_async_event& event);
  // Takes back the events about this object, of `reported` ones, that were not read; returns how many the program has.
  unsigned withdraw_events(const void* element, unsigned reported);

 private:
  Context(DeviceInfo device, std::shared_ptr<EventPipe> async, const ibv_context* handle);
  void report_removal();
  DeviceInfo device_;
  const ibv_context* const handle_;
  std::shared_ptr<EventPipe> async_;
  Engine engine_;
};

}  // namespace uiw::provider
