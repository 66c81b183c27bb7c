// SPDX-License-Identifier: MIT
// The functions of UiwKernelAbi (entry.h), which the interposer calls. They catch std::bad_alloc where memory may run
// out, and nothing else: pthread_cancel unwinds the thread by an exception, which must not be caught.
#include "kernel-abi/interposer/entry.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include "base/descriptor.h"
#include "base/fault_signals.h"
#include "base/processors.h"
#include "kernel-abi/caller/cancellation.h"
#include "kernel-abi/interposer/uverbs_node.h"
#include "kernel-abi/netlink/nldev_socket.h"
#include "kernel-abi/rdma_cm/cm_commands.h"
#include "kernel-abi/rdma_cm/cm_registry.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "kernel-abi/sysfs/device_tree.h"
#include "kernel-abi/uverbs/uverbs.h"
#include "provider/export.h"
#include "provider/verbs/cq/completion_channel.h"
#include "provider/verbs/device_file.h"
#include "provider/verbs/fork.h"

namespace uiw::kernel_abi {
namespace {

std::atomic<const UiwHost*> g_host{nullptr};

unsigned kind_of(std::uint64_t object) { return static_cast<unsigned>(object & UIW_OBJECT_KIND_MASK); }

const char* abi_root(int rescan) {
  const CancellationOff cancellation;
  try {
    return device_tree_root(rescan != 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

int abi_open(const char* node, int flags, std::uint64_t* object) {
  const CancellationOff cancellation;
  try {
    if (std::strcmp(node, "rdma_cm") == 0) return CmRegistry::instance().open_channel(flags, object);
    if (std::strchr(node, '/') != nullptr) {
      const int fd = open_port_file(node);
      if (fd >= 0 && (flags & O_CLOEXEC) == 0) ::fcntl(fd, F_SETFD, 0);
      return fd;
    }
    const std::optional<unsigned> number = own_verbs_node(node);
    if (!number) return -ENXIO;
    // libibverbs expects a character device; every container has this one.
    const int fd = ::open("/dev/null", (flags & (O_ACCMODE | O_CLOEXEC | O_NONBLOCK)));
    if (fd < 0) {
      DescriptorChange().take(fd, "a device");  // reports the error if descriptors have run out
      return -errno;
    }
    static std::atomic<std::uint64_t> opened{0};
    *object = uverbs_object(*number, opened.fetch_add(1) + 1);
    return fd;
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  }
}

long abi_write(std::uint64_t object, int fd, const void* data, std::size_t size) {
  const CancellationOff cancellation;
  try {
    switch (kind_of(object)) {
      case UIW_OBJECT_CM: return write_cm_command(*g_host.load(), object, data, size);
      case UIW_OBJECT_UVERBS: return write_uverbs_command(*g_host.load(), data, size);
      case UIW_OBJECT_NETLINK: return write_nldev_request(fd, data, size);
      default: return -EBADF;
    }
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  }
}

void abi_retain(std::uint64_t object) {
  if (kind_of(object) == UIW_OBJECT_CM) CmRegistry::instance().retain_channel(object);
}

void abi_release(std::uint64_t object, int fd) {
  const CancellationOff cancellation;
  try {
    if (kind_of(object) == UIW_OBJECT_CM) CmRegistry::instance().release_channel(object);
    if (kind_of(object) == UIW_OBJECT_COMPLETION_CHANNEL) provider::forget_completion_channel(fd);
  } catch (const std::bad_alloc&) {  // ids that could not be torn down stay until the process ends
  }
}

int abi_control(std::uint64_t object, int fd, void* argument) {
  const CancellationOff cancellation;
  return kind_of(object) == UIW_OBJECT_UVERBS ? control_uverbs(fd, argument) : -ENOTTY;
}

// Returns the open file of a uverbs node that the descriptor refers to, or kNoDeviceFile. Contexts of the same open
// file can share objects (device_file.h).
provider::DeviceFile device_file(int fd) {
  const std::uint64_t object = g_host.load()->lookup(fd);
  return kind_of(object) == UIW_OBJECT_UVERBS ? object : provider::kNoDeviceFile;
}

int abi_give_way(std::uint16_t port, int datagrams) {
  const CancellationOff cancellation;
  try {
    return CmRegistry::instance().give_way(port, datagrams != 0) ? 1 : 0;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

void abi_child_waits() {
  const CancellationOff cancellation;
  try {
    CmRegistry::instance().child_waits();
  } catch (const std::bad_alloc&) {  // the program's next command on the channel tries again
  }
}

// Whether a read that a signal handler has interrupted is restarted. Which handler has run is unknown, so the read is
// restarted only if all handlers, except those for SIGSEGV and SIGBUS, have SA_RESTART.
bool handlers_restart() {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction action {};
    if (signal == SIGSEGV || signal == SIGBUS || ::sigaction(signal, nullptr, &action) != 0) continue;
    const bool handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    if (handled && (action.sa_flags & SA_RESTART) == 0) return false;
  }
  return true;
}

long abi_read_event(int fd, void* to, std::size_t size) {
  ::pthread_testcancel();  // read() is a cancellation point, too, even if it need not wait
  for (;;) {
    const ssize_t n = provider::read_completion_event(fd, to, size);
    if (n != -EINTR || !handlers_restart()) return n;
  }
}

int abi_wait_in_set(int set, int channel, epoll_event* events, int most, int milliseconds, const sigset_t* mask) {
  return provider::wait_in_set(set, channel, events, most, milliseconds, mask);
}

static_assert(UIW_MOST_POLLED == provider::kMostPolled);
int abi_wait_in_poll(pollfd* fds, std::size_t count, int channel, const timespec* timeout, const sigset_t* mask) {
  return provider::wait_in_poll({fds, count}, channel, timeout, mask);
}

bool before_fork() UIW_ACQUIRE(g_registry_lock) {
  lock_nldev_sockets();
  lock_device_tree();
  return CmRegistry::lock_for_fork();
}

void after_fork_in_parent() UIW_RELEASE(g_registry_lock) {
  CmRegistry::unlock_in_parent();
  unlock_device_tree();
  unlock_nldev_sockets();
}

void after_fork_in_child() UIW_RELEASE(g_registry_lock) {
  CmRegistry::inherit_in_child();
  unlock_device_tree();
  unlock_nldev_sockets();
}

constexpr provider::ForkHooks kForkHooks = {before_fork, after_fork_in_parent, after_fork_in_child};

// Runs when the library is loaded, so that every object whose lock is held over a fork exists before the first fork
// (provider/verbs/fork.h).
[[maybe_unused]] const bool g_ready = [] {
  before_fork();
  after_fork_in_parent();
  provider::set_outer_fork_hooks(kForkHooks);
  return true;
}();

constexpr UiwKernelAbi kTable = {abi_root,        abi_open,       abi_write,       abi_retain,
                                 abi_release,     program_action, program_mask,    add_pending_faults,
                                 close_faults,    reopen_faults,  abi_give_way,    abi_control,
                                 abi_child_waits, abi_read_event, abi_wait_in_set, abi_wait_in_poll};

}  // namespace
}  // namespace uiw::kernel_abi

extern "C" UIW_API const UiwKernelAbi* uiw_kernel_abi_v8(const UiwHost* host) {
  using namespace uiw::kernel_abi;
  static const bool told = [host] {
    static uiw::DescriptorGuard guard;
    guard = {host->protect, host->unprotect, host->begin_change, host->end_change};
    uiw::set_descriptor_guard(&guard);
    if (host->signal_action != nullptr)
      uiw::use_interposed_signals({host->signal_action, host->signal_mask, host->borrowed});
    return true;
  }();
  static_cast<void>(told);
  if (host->processors != nullptr) uiw::set_starting_processors(host->processors());
  g_host.store(host);
  uiw::provider::set_device_files(device_file);
  return &kTable;
}
