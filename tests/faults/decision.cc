// SPDX-License-Identifier: MIT
#include "tests/faults/decision.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace faults {
namespace {

std::atomic<Control*> g_control{nullptr};
thread_local bool t_inside = false;

enum Object : std::uint64_t { kProgram = 0, kUiw = 1, kInterposer = 2, kPlugin = 3, kLibrary = 4, kSelf = 5 };

// A library on whose behalf it is asked who called it.
Object object_named(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  const char* const name = slash != nullptr ? slash + 1 : path;
  const auto starts = [name](const char* with) { return std::strncmp(name, with, std::strlen(with)) == 0; };
  if (starts("libuiw.so")) return kUiw;
  if (starts("libuiw-preload")) return kInterposer;
  if (starts("libuiw-rdmav")) return kPlugin;
  if (starts("libfaults.so")) return kSelf;
  for (const char* one : {"libstdc++", "libgcc_s", "libc.so", "libnl-", "libisal"})
    if (starts(one)) return kLibrary;
  return kProgram;
}

struct Place {
  Object object;
  std::uint64_t offset;
};

Place place_of(const void* address) {
  dl_find_object found{};
  if (_dl_find_object(const_cast<void*>(address), &found) != 0 || found.dlfo_link_map == nullptr) return {kProgram, 0};
  const link_map& map = *found.dlfo_link_map;
  return {object_named(map.l_name), reinterpret_cast<std::uintptr_t>(address) - map.l_addr};
}

struct Walk {
  Caller caller;
  bool is_uiw = false;
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  const Place place = place_of(reinterpret_cast<const void*>(address - 1));
  if (place.object == kSelf) return _URC_NO_REASON;
  if (place.object == kProgram) return _URC_END_OF_STACK;
  walk.is_uiw = walk.is_uiw || place.object != kLibrary;
  if (walk.caller.count == kDepth) return walk.is_uiw ? _URC_END_OF_STACK : _URC_NO_REASON;
  walk.caller.frames[walk.caller.count++] = (std::uint64_t{place.object} << kObjectShift) | place.offset;
  return _URC_NO_REASON;
}

// The control of a program that knows nothing of it is in the file that FAULTS_CONTROL names, if there is one.
__attribute__((constructor)) void use_file() {
  const char* const path = ::getenv("FAULTS_CONTROL");
  const int fd = path != nullptr ? static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC)) : -1;
  if (fd < 0) return;
  const long memory = ::syscall(SYS_mmap, nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::syscall(SYS_close, fd);
  if (memory != -1) g_control.store(reinterpret_cast<Control*>(memory), std::memory_order_release);
}

}  // namespace

Inside::Inside() { t_inside = true; }
Inside::~Inside() { t_inside = false; }
bool Inside::already() { return t_inside; }

Caller caller(const void* from) {
  if (place_of(from).object == kProgram) return {};
  Walk walk;
  _Unwind_Backtrace(step, &walk);
  if (!walk.is_uiw) walk.caller.count = 0;
  return walk.caller;
}

bool is_watching() {
  const Control* const control = g_control.load(std::memory_order_acquire);
  return control != nullptr && control->armed.load(std::memory_order_acquire);
}

bool is_spared(int fd) {
  const Control* const control = g_control.load(std::memory_order_acquire);
  if (control == nullptr || fd <= 0) return false;
  return std::any_of(control->spared.begin(), control->spared.end(),
                     [fd](const std::atomic<int>& one) { return one.load() == fd; });
}

int decide(Function function, unsigned traits, const Caller& who) {
  Control* const control = g_control.load(std::memory_order_acquire);
  if (control == nullptr || who.count == 0 || !control->armed.load(std::memory_order_acquire)) return 0;
  if (control->logging) {
    const std::size_t number = control->logged.fetch_add(1);
    if (number < Control::kLogged) control->log[number] = {function, traits, who.frames};
  }
  if (function != control->function || !is_possible(control->error, traits)) return 0;
  const long number = control->seen.fetch_add(1);
  if (number < control->nth || (number > control->nth && !control->for_good)) return 0;
  if (control->injected.fetch_add(1) == 0) control->hit = {function, traits, who.frames};
  return control->error;
}

}  // namespace faults

extern "C" __attribute__((visibility("default"))) void faults_use(faults::Control* control) {
  faults::g_control.store(control, std::memory_order_release);
}
