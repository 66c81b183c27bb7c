// SPDX-License-Identifier: MIT
// The numbers of a device node for verbs, /dev/infiniband/uverbsN, and of its open files.
//
// libibverbs finds the device of a descriptor by the device number (ibv_import_device), so each node shows its own
// number, though the open file is /dev/null. The object of a descriptor (entry.h) has the number of its node, and a
// serial number of the open(), which duplicates of the descriptor share. Part of the interposer and of the library.
#pragma once

#include <stdint.h>
#include <sys/sysmacros.h>
#include <sys/types.h>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// The kernel's numbers: IB_UVERBS_MAJOR and IB_UVERBS_BASE_MINOR in drivers/infiniband/core/uverbs_main.c.
inline constexpr unsigned kUverbsMajor = 231;
inline constexpr unsigned kUverbsFirstMinor = 192;

inline dev_t uverbs_device(unsigned number) { return makedev(kUverbsMajor, kUverbsFirstMinor + number); }

inline constexpr unsigned kUverbsNumberShift = 3;  // above the bits of UIW_OBJECT_KIND_MASK
inline constexpr unsigned kUverbsSerialShift = 19;
inline constexpr uint64_t kUverbsNumberMask = 0xffff;
inline constexpr uint64_t kUverbsSerialMask = (uint64_t{1} << 43) - 1;

inline uint64_t uverbs_object(unsigned number, uint64_t serial) {
  return (serial & kUverbsSerialMask) << kUverbsSerialShift | (number & kUverbsNumberMask) << kUverbsNumberShift |
         UIW_OBJECT_UVERBS;
}
inline unsigned uverbs_number(uint64_t object) {
  return static_cast<unsigned>(object >> kUverbsNumberShift & kUverbsNumberMask);
}

}  // namespace uiw::kernel_abi
