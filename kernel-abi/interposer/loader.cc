// SPDX-License-Identifier: MIT
// Finds and loads libuiw.so.1 and the plugin: beside the interposer when installed, in the neighbour folders in a build
// tree, and last by the loader's own search.
#include "kernel-abi/interposer/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "kernel-abi/interposer/fd_table.h"
#include "kernel-abi/interposer/plugin_abis.h"
#include "kernel-abi/interposer/preload_descriptors.h"
#include "kernel-abi/interposer/preload_signals.h"
#include "kernel-abi/interposer/real_functions.h"

namespace uiw::kernel_abi {

__thread int t_passthrough __attribute__((tls_model("initial-exec"))) = 0;

namespace {

std::atomic<const UiwKernelAbi*> g_library{nullptr};
std::atomic<bool> g_disabled{false};         // uiw is off for the rest of the process
std::atomic<void*> g_served_verbs{nullptr};  // the libibverbs that our plugin is registered with

constexpr int kHighestGuessedAbi = 255;

__attribute__((format(printf, 1, 2))) void say(const char* format, ...) {
  char line[PATH_MAX + 256];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  if (static_cast<size_t>(length) >= sizeof line) length = sizeof line - 1;
  [[maybe_unused]] long written = syscall(SYS_write, STDERR_FILENO, line, static_cast<size_t>(length));
}

// Prints the reason once, and turns uiw off.
void disable(const char* why) {
  if (!g_disabled.exchange(true)) say("uiw: %s\n", why);
}

// Writes "<folder of this library>/<name>" to `path`.
bool beside_us(const char* name, char* path, size_t size) {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&beside_us), &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - info.dli_fname) + 1;
  const int length = snprintf(path, size, "%.*s%s", folder, info.dli_fname, name);
  return length > 0 && static_cast<size_t>(length) < size;
}

// Loads the first of these files that exists. If it exists and cannot be loaded, the message goes to `why`.
void* load_first(const char* const* names, const char* plain_name, int flags, char* why, size_t why_size) {
  why[0] = '\0';
  for (; *names != nullptr; ++names) {
    char path[PATH_MAX];
    if (!beside_us(*names, path, sizeof path) || syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0) continue;
    if (void* library = dlopen(path, flags)) return library;
    const char* message = dlerror();
    snprintf(why, why_size, "%s", message != nullptr ? message : path);
  }
  if (void* library = dlopen(plain_name, flags)) return library;
  const char* message = dlerror();
  if (why[0] == '\0') snprintf(why, why_size, "%s", message != nullptr ? message : plain_name);
  return nullptr;
}

uint64_t host_lookup(int fd) {
  const FdEntry entry = fd_lookup(fd);
  return entry.dead() || (entry.present() && fd_table_is_borrowed()) ? 0 : entry.object();
}

int host_attach(int fd, uint64_t object) { return fd_attach(forget_stale(fd), FdEntry(object)); }

// If the table has no room for it, the descriptor is just not protected.
void host_protect(int fd) { fd_attach(fd, FdEntry(kInternalObject)); }

constexpr UiwHost kHost = {host_lookup,    host_attach,  host_protect,        fd_unprotect,
                           call_sigaction, call_sigmask, fd_table_is_borrowed};

const UiwKernelAbi* load_library() {
  static const char* const kNames[] = {"libuiw.so.1", "../provider/libuiw.so.1", nullptr};
  char why[PATH_MAX];
  void* library = load_first(kNames, "libuiw.so.1", RTLD_NOW | RTLD_LOCAL, why, sizeof why);
  char line[PATH_MAX + 128];
  if (library == nullptr) {
    snprintf(line, sizeof line, "no RDMA devices, because libuiw.so.1 cannot be loaded: %s", why);
    disable(line);
    return nullptr;
  }
  auto entry = reinterpret_cast<UiwKernelAbiFunction>(dlsym(library, UIW_KERNEL_ABI_SYMBOL));
  const UiwKernelAbi* table = entry != nullptr ? entry(&kHost) : nullptr;
  if (table == nullptr) {
    disable("no RDMA devices, because libuiw.so.1 is not of the same version as libuiw-preload.so");
    return nullptr;
  }
  g_library.store(table, std::memory_order_release);
  return table;
}

bool verbs_has_abi(void* verbs, int abi) {
  char symbol[64];
  char version[64];
  snprintf(symbol, sizeof symbol, "verbs_register_driver_%d", abi);
  snprintf(version, sizeof version, "IBVERBS_PRIVATE_%d", abi);
  return dlvsym(verbs, symbol, version) != nullptr;
}

void report_unknown_abi(void* verbs) {
  char line[256];
  for (int abi = 1; abi <= kHighestGuessedAbi; ++abi) {
    if (!verbs_has_abi(verbs, abi)) continue;
    snprintf(line, sizeof line,
             "no RDMA devices, because there is no plugin for this libibverbs (private ABI IBVERBS_PRIVATE_%d)", abi);
    return disable(line);
  }
  disable("no RDMA devices, because this libibverbs has no private ABI that is known here");
}

// The plugin's constructor registers the driver with the libibverbs that it is linked to, which is the one already in
// memory. The plugin's reference keeps both loaded.
void load_plugin(void* verbs) {
  for (int abi : kPluginAbis) {
    if (!verbs_has_abi(verbs, abi)) continue;
    char plain[64];
    char in_build_tree[96];
    char in_plugin_folder[96];
    snprintf(plain, sizeof plain, "libuiw-rdmav%d.so", abi);
    snprintf(in_build_tree, sizeof in_build_tree, "../provider/plugin/%s", plain);
    snprintf(in_plugin_folder, sizeof in_plugin_folder, "libibverbs/%s", plain);
    const char* const names[] = {in_plugin_folder, plain, in_build_tree, nullptr};
    char why[PATH_MAX];
    if (load_first(names, plain, RTLD_NOW | RTLD_LOCAL, why, sizeof why) != nullptr) {
      g_served_verbs.store(verbs, std::memory_order_release);
      return;
    }
    char line[PATH_MAX + 128];
    snprintf(line, sizeof line,
             "no RDMA devices, because the plugin for this libibverbs (private ABI IBVERBS_PRIVATE_%d) cannot be "
             "loaded: %s",
             abi, why);
    return disable(line);
  }
  report_unknown_abi(verbs);
}

// libibverbs lists the verbs class before it looks for drivers, on the same thread, so this is early enough. If a
// program loads libibverbs after its first look at the class, a later look does it.
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
