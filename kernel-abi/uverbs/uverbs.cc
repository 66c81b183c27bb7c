// SPDX-License-Identifier: MIT
// Executes the one command that libibverbs itself writes, the creation of a completion channel, and the one method that
// it calls by ioctl(), which returns the descriptor of async events. All other verbs are functions of the plugin. Other
// commands and methods fail as in a kernel that lacks them (checks as in drivers/infiniband/core/uverbs_main.c and
// uverbs_ioctl.c).
#include "kernel-abi/uverbs/uverbs.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "kernel-abi/caller/user_memory.h"
#include "provider/verbs/cq/completion_channel.h"
#include "provider/verbs/device_file.h"

namespace uiw::kernel_abi {
namespace {

constexpr std::size_t kOctetsPerWord = 4;

std::uint64_t channel_object(int fd) { return static_cast<std::uint64_t>(fd) << 3 | UIW_OBJECT_COMPLETION_CHANNEL; }

int create_channel(const UiwHost& host, const ib_uverbs_create_comp_channel& command) {
  const int fd = provider::create_completion_channel();
  if (fd < 0) return -fd;
  int error = host.attach(fd, channel_object(fd));
  if (error != 0) {
    provider::forget_completion_channel(fd);
    ::close(fd);
    return error;
  }
  const ib_uverbs_create_comp_channel_resp response = {static_cast<__u32>(fd)};
  error = copy_to_user(command.response, &response, sizeof response);
  if (error != 0) ::close(fd);  // close() of the interposer, which makes the provider forget the channel
  return error;
}

}  // namespace

long write_uverbs_command(const UiwHost& host, const void* data, std::size_t size) {
  ib_uverbs_cmd_hdr header = {};
  if (size < sizeof header) return -EINVAL;
  if (copy_from_user(&header, data, sizeof header) != 0) return -EFAULT;
  if ((header.command & ~(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_COMMAND_MASK)) != 0) return -EINVAL;
  if (header.command != IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) return -EOPNOTSUPP;

  ib_uverbs_create_comp_channel command = {};
  if (header.in_words * kOctetsPerWord != size) return -EINVAL;
  if (size < sizeof header + sizeof command) return -ENOSPC;
  if (header.out_words * kOctetsPerWord < sizeof(ib_uverbs_create_comp_channel_resp)) return -ENOSPC;
  const auto* payload = static_cast<const std::uint8_t*>(data) + sizeof header;
  if (copy_from_user(&command, payload, sizeof command) != 0) return -EFAULT;
  const int error = create_channel(host, command);
  return error != 0 ? -error : static_cast<long>(size);
}

// Tells libibverbs the descriptor of async events, which each context has from its creation on.
int control_uverbs(int fd, void* argument) {
  ib_uverbs_ioctl_hdr header = {};
  ib_uverbs_attr attribute = {};
  if (copy_from_user(&header, argument, sizeof header) != 0) return -EFAULT;
  if (header.object_id != UVERBS_OBJECT_ASYNC_EVENT || header.method_id != UVERBS_METHOD_ASYNC_EVENT_ALLOC)
    return -ENOTTY;
  if (header.num_attrs != 1 || header.length != sizeof header + sizeof attribute || header.reserved1 != 0 ||
      header.reserved2 != 0) {
    return -EINVAL;
  }
  auto* const place = static_cast<std::uint8_t*>(argument) + sizeof header;
  if (copy_from_user(&attribute, place, sizeof attribute) != 0) return -EFAULT;
  if (attribute.attr_id != UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE || attribute.len != 0) return -EINVAL;
  const int async = provider::async_descriptor_of(fd);
  if (async < 0) return -ENOTTY;
  attribute.data_s64 = async;
  return -copy_to_user(reinterpret_cast<std::uintptr_t>(place), &attribute, sizeof attribute);
}

}  // namespace uiw::kernel_abi
