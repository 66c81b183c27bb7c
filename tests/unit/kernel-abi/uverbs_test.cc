// SPDX-License-Identifier: MIT
// Commands of uverbs descriptors.
#include <rdma/ib_user_verbs.h>

#include "tests/unit/kernel-abi/kernel_abi_rig.h"

using namespace uiw::test;

TEST_CASE("uverbs descriptors make completion channels and nothing else", "[native]") {
  REQUIRE(abi().root(0) != nullptr);
  uint64_t object = 0;
  CHECK(abi().open("uverbs4095", O_RDWR, &object) == -ENXIO);
  CHECK(abi().open("umad0", O_RDWR, &object) == -ENXIO);
  const int fd = abi().open("uverbs0", O_RDWR | O_CLOEXEC, &object);
  REQUIRE(fd >= 0);
  const auto write = [&](const void* data, std::size_t size) { return abi().write(object, fd, data, size); };

  struct {
    ib_uverbs_cmd_hdr header;
    ib_uverbs_create_comp_channel command;
  } request = {{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 4, 1}, {0}};
  ib_uverbs_create_comp_channel_resp response = {};
  request.command.response = address_of(response);
  REQUIRE(sizeof request == 16);
  CHECK(write(&request, 4) == -EINVAL);
  CHECK(write(&request, 8) == -EINVAL);
  request.header.out_words = 0;
  CHECK(write(&request, sizeof request) == -ENOSPC);
  request.header.out_words = 1;
  CHECK(write(reinterpret_cast<void*>(16), sizeof request) == -EFAULT);
  REQUIRE(write(&request, sizeof request) == sizeof request);
  const int channel = static_cast<int>(response.fd);
  CHECK((lookup(channel) & UIW_OBJECT_KIND_MASK) == UIW_OBJECT_COMPLETION_CHANNEL);
  CHECK(::fcntl(channel, F_GETFD) == FD_CLOEXEC);
  abi().release(lookup(channel), channel);
  ::close(channel);

  request.header.command = IB_USER_VERBS_CMD_QUERY_DEVICE;
  CHECK(write(&request, sizeof request) == -EOPNOTSUPP);
  request.header.command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
  CHECK(write(&request, sizeof request) == -EOPNOTSUPP);
  request.header.command = 0x1000;
  CHECK(write(&request, sizeof request) == -EINVAL);
  abi().release(object, fd);
  ::close(fd);
}
