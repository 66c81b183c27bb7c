// SPDX-License-Identifier: MIT
#include "provider/verbs/device_file.h"

#include <atomic>

#include "provider/verbs/context.h"

namespace uiw::provider {

namespace {

std::atomic<DeviceFile (*)(int)> g_file_of{nullptr};

DeviceFile file_of(const Pd& pd) { return pd.shown_context() == nullptr ? kNoDeviceFile : pd.shown_context()->file(); }
DeviceFile file_of(const Mr& mr) { return file_of(mr.pd()); }
DeviceFile file_of(const Dm& dm) { return dm.file(); }

template <typename Object>
std::shared_ptr<Object> find(DeviceFile file, std::uint32_t handle) {
  std::shared_ptr<Object> found;
  if (file == kNoDeviceFile) return found;
  Listed<Object>::for_each([&](const Object& object) {
    // The list gives const references, but the caller may use the object as its owner does. For an object whose last
    // owner is just releasing it, lock() returns null.
    if (object.listed_number() == handle && file_of(object) == file)
      found = std::const_pointer_cast<Object>(object.weak_from_this().lock());
  });
  return found;
}

}  // namespace

DeviceFile device_file(int command_fd) {
  auto* const file_of = g_file_of.load();
  return file_of == nullptr ? kNoDeviceFile : file_of(command_fd);
}

void set_device_files(DeviceFile (*file_of)(int command_fd)) { g_file_of.store(file_of); }

int async_descriptor_of(int command_fd) {
  int found = -1;
  Listed<Context>::for_each([&](const Context& context) {
    if (context.handle() != nullptr && context.handle()->cmd_fd == command_fd) found = context.async_fd();
  });
  return found;
}

std::shared_ptr<Pd> find_pd(DeviceFile file, std::uint32_t handle) { return find<Pd>(file, handle); }
std::shared_ptr<Mr> find_mr(DeviceFile file, std::uint32_t handle) { return find<Mr>(file, handle); }
std::shared_ptr<Dm> find_dm(DeviceFile file, std::uint32_t handle) { return find<Dm>(file, handle); }

}  // namespace uiw::provider
