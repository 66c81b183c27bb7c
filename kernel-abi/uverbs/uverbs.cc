// SPDX-License-Identifier: MIT
// Verbs call the plugin directly. libibverbs itself writes only one command, the creation of a completion channel. All
// other commands are unknown, as to a kernel without them (checks as in drivers/infiniband/core/uverbs_main.c).
#include "kernel-abi/uverbs/uverbs.h"

#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "kernel-abi/caller/user_memory.h"
#include "provider/verbs/completion_channel.h"

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
  if (error != 0) ::close(fd);  // the interposer's close(), so that the provider forgets the channel
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

}  // namespace uiw::kernel_abi
