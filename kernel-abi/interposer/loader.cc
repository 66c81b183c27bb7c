// SPDX-License-Identifier: MIT
// Decides when libuiw.so.1 and the plugin are loaded, and prints the reason if that fails; own_files.h finds the files.
#include "kernel-abi/interposer/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/file_limit.h"
#include "kernel-abi/interposer/fd_changes.h"
#include "kernel-abi/interposer/fd_table.h"
#include "kernel-abi/interposer/file_version.h"
#include "kernel-abi/interposer/hooks/descriptors.h"
#include "kernel-abi/interposer/hooks/real_functions.h"
#include "kernel-abi/interposer/hooks/signals.h"
#include "kernel-abi/interposer/own_files.h"
#include "kernel-abi/interposer/plugin_abis.h"
#include "provider/version.h"

namespace uiw::kernel_abi {

__thread int t_passthrough __attribute__((tls_model("initial-exec"))) = 0;

namespace {

std::atomic<const UiwKernelAbi*> g_library{nullptr};
std::atomic<bool> g_disabled{false};         // uiw is off for the rest of the process
std::atomic<void*> g_served_verbs{nullptr};  // the libibverbs that our plugin is registered with

// Prints why there are no devices, once, and turns uiw off.
__attribute__((format(printf, 1, 2))) void disable(const char* format, ...) {
  if (g_disabled.exchange(true)) return;
  char line[kReasonSize + 256] = "uiw: no RDMA devices, because ";
  const size_t start = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + start, sizeof line - start - 1, format, arguments);
  va_end(arguments);
  const size_t length = strlen(line);
  line[length] = '\n';
  if (!may_write(STDERR_FILENO, length + 1)) return;
  [[maybe_unused]] long written = syscall(SYS_write, STDERR_FILENO, line, length + 1);
}

uint64_t host_lookup(int fd) {
  const FdEntry entry = fd_lookup(fd);
  return entry.present() && fd_table_is_borrowed() ? 0 : entry.object();
}

int host_attach(int fd, uint64_t object) { return fd_attach(forget_stale(fd), FdEntry(object)); }

// If the table has no room for the descriptor, the descriptor is not protected.
void host_protect(int fd) { fd_attach(fd, FdEntry(kInternalObject)); }

cpu_set_t g_processors;
bool g_processors_known = false;

__attribute__((constructor)) void note_processors() {
  g_processors_known = sched_getaffinity(0, sizeof g_processors, &g_processors) == 0;
}

const cpu_set_t* host_processors() { return g_processors_known ? &g_processors : nullptr; }

constexpr UiwHost kHost = {host_lookup,   host_attach,    host_protect, fd_unprotect,         fd_begin_change,
                           fd_end_change, call_sigaction, call_sigmask, fd_table_is_borrowed, host_processors};

// Returns the libuiw.so.1 that the program is linked to (for uiwdv.h), or null if there is none. It is used instead of
// the file beside the preload library: the plugin depends on libuiw.so.1, and the dynamic loader gives the plugin the
// libuiw.so.1 that is already loaded. If that is of another version, turns uiw off and returns null.
void* library_of_program() {
  void* library = dlopen("libuiw.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr || dlvsym(library, UIW_KERNEL_ABI_SYMBOL, kVersionNode) != nullptr) return library;
  const char* const path = path_of(library);
  char version[kLongestVersion] = "0";
  const bool known = file_version(path, version);
  disable("the program has loaded %s (uiw %s), and %s is of uiw %s; remove the older one, %s, and what belongs to it",
          path, known ? version : "of another version", own_path(), kVersion,
          strverscmp(version, kVersion) < 0 ? path : own_path());
  return nullptr;
}

// Makes the table of descriptors before it loads the library. Fork handlers of the child run in the order of their
// registration (pthread_atfork(3)), so in a child the table is ready before the library protects its descriptors again.
const UiwKernelAbi* load_library() {
  fd_table_prepare();
  static const char* const kNames[] = {"libuiw.so.1", "../provider/libuiw.so.1", nullptr};
  void* library = library_of_program();
  if (g_disabled.load(std::memory_order_relaxed)) return nullptr;
  char why[kReasonSize];
  if (library == nullptr) library = load_own(kNames, why, sizeof why);
  if (library == nullptr) {
    disable("%s", why);
    return nullptr;
  }
  auto entry = reinterpret_cast<UiwKernelAbiFunction>(dlvsym(library, UIW_KERNEL_ABI_SYMBOL, kVersionNode));
  const UiwKernelAbi* table = entry != nullptr ? entry(&kHost) : nullptr;
  if (table == nullptr) {
    disable("%s is not of the same version as %s (uiw %s); install uiw again", path_of(library), own_path(), kVersion);
    return nullptr;
  }
  g_library.store(table, std::memory_order_release);
  return table;
}

// Loads the plugin for this libibverbs. The plugin is linked to libibverbs, so the dynamic loader gives it the
// libibverbs that is already in memory, and keeps that one loaded. The plugin's constructor registers the driver with
// libibverbs.
void load_plugin(void* verbs) {
  const int abi = private_abi(verbs);
  char why[kReasonSize];
  if (is_known_abi(abi)) {
    PluginNames names(abi);
    if (load_own(names.list, why, sizeof why) != nullptr)
      g_served_verbs.store(verbs, std::memory_order_release);
    else
      disable("%s", why);
    return;
  }
  plugins_there(why, sizeof why);
  if (abi == 0)
    disable("%s has no private ABI; use rdma-core 39 or later", path_of(verbs));
  else
    disable(
        "%s has private ABI %d (IBVERBS_PRIVATE_%d), and %s; install a uiw that knows it, or add it "
        "(docs/new-rdma-core.md)",
        path_of(verbs), abi, abi, why);
}

// Loads the plugin. Called when the program uses a path in /sys/class/infiniband_verbs or opens a socket of
// NETLINK_RDMA: libibverbs does one of these before it looks for drivers, on the same thread. If libibverbs is not
// loaded yet, the next such use loads the plugin.
void serve_verbs() {
  void* verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (verbs == nullptr) return;
  if (verbs != g_served_verbs.load(std::memory_order_acquire)) load_plugin(verbs);
  dlclose(verbs);
}

}  // namespace

const UiwKernelAbi* loaded_library() { return g_library.load(std::memory_order_acquire); }

const char* tree_root(RdmaArea area, bool rescan) {
  if (t_passthrough != 0 || g_disabled.load(std::memory_order_relaxed)) return nullptr;
  if (getauxval(AT_SECURE) != 0) return nullptr;
  const int saved_errno = errno;
  Passthrough guard;
  const UiwKernelAbi* library = loaded_library();
  if (library == nullptr) library = load_library();
  const char* root = library != nullptr ? library->root(rescan ? 1 : 0) : nullptr;
  if (root != nullptr && area == RdmaArea::verbs_class) serve_verbs();
  if (g_disabled.load(std::memory_order_relaxed)) root = nullptr;
  errno = saved_errno;
  return root;
}

}  // namespace uiw::kernel_abi
