// SPDX-License-Identifier: MIT
// The open file to which the cmd_fd of a context refers. Contexts of the same file can share protection domains, memory
// regions and device memory (ibv_import_device and ibv_import_pd, _mr and _dm). Duplicates of a descriptor refer to the
// same file. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "provider/export.h"
#include "provider/memory/memory.h"

namespace uiw::provider {

// The open file of a context whose cmd_fd is this descriptor; kNoDeviceFile if there is none.
DeviceFile device_file(int command_fd);

// Sets the function by which device_file() finds the file of a descriptor. Until it is set, no descriptor has a file.
void set_device_files(DeviceFile (*file_of)(int command_fd));

// The descriptor of async events of the context with this command descriptor; -1 if there is no such context.
int async_descriptor_of(int command_fd);

// The object with this handle (listed_number()) that a context of this file has made; null if there is none. The caller
// shares the ownership of the object, and may use it as its other owners do, but not at the same time.
UIW_API std::shared_ptr<Pd> find_pd(DeviceFile file, std::uint32_t handle);
UIW_API std::shared_ptr<Mr> find_mr(DeviceFile file, std::uint32_t handle);
UIW_API std::shared_ptr<Dm> find_dm(DeviceFile file, std::uint32_t handle);

}  // namespace uiw::provider
