// SPDX-License-Identifier: MIT
// The rdma_cm descriptor: streams of commands of <rdma/rdma_user_cm.h>. Input: records of a length octet (times 4) and
// so many octets of command. Where bit 7 of its command number is set, 0xA5A5A5A5A5A5A5A5 stands for the address of a
// buffer and 0xA5A5A5A5 for the identifier made last.
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "kernel-abi/interposer/entry.h"

extern "C" const UiwKernelAbi* uiw_kernel_abi_v8(const UiwHost* host);

namespace {

std::mutex g_mutex;
std::map<int, std::uint64_t> g_objects;

std::uint64_t lookup(int fd) {
  const std::lock_guard lock(g_mutex);
  const auto found = g_objects.find(fd);
  return found == g_objects.end() ? 0 : found->second;
}
int attach(int fd, std::uint64_t object) {
  const std::lock_guard lock(g_mutex);
  g_objects[fd] = object;
  return 0;
}
void detach(int fd) {
  const std::lock_guard lock(g_mutex);
  g_objects.erase(fd);
}

using Command = std::vector<std::uint8_t>;

void make_harmless(Command& command, int fd, bool keep_length) {
  command[0] &= 0x1F;
  command[1] = command[2] = command[3] = 0;
  // JOIN and MIGRATE take descriptors of this process: not its standard ones, please.
  if (command[0] == RDMA_USER_CM_CMD_MIGRATE_ID && command.size() >= 24) {
    const std::int32_t which = fd;
    std::memcpy(command.data() + sizeof(rdma_ucm_cmd_hdr) + 12, &which, sizeof which);
  }
  const std::uint16_t in = static_cast<std::uint16_t>(command.size() - sizeof(rdma_ucm_cmd_hdr));
  if (!keep_length) std::memcpy(command.data() + 4, &in, sizeof in);
}

// Puts the buffer's address and the identifier where the input says that they stand.
void fill_in(Command& command, std::uint64_t address, std::uint32_t id) {
  for (std::size_t place = 8; place + 4 <= command.size(); place += 4) {
    std::uint64_t wide = 0;
    std::uint32_t narrow = 0;
    std::memcpy(&narrow, command.data() + place, sizeof narrow);
    if (narrow != 0xA5A5A5A5) continue;
    if (place + 8 <= command.size()) std::memcpy(&wide, command.data() + place, sizeof wide);
    if (wide == 0xA5A5A5A5A5A5A5A5) {
      std::memcpy(command.data() + place, &address, sizeof address);
      place += 4;
    } else {
      std::memcpy(command.data() + place, &id, sizeof id);
    }
  }
}

// The answer goes wherever the program says, as with the kernel: no addresses but that buffer's and bad ones.
void confine_answer(Command& command, std::uint64_t address) {
  for (std::size_t place = 8; place <= 16 && place + 8 <= command.size(); place += 8) {
    std::uint64_t where;
    std::memcpy(&where, command.data() + place, sizeof where);
    if (where == address || where < 4096 || where >> 47 != 0) continue;
    where &= 4095;
    std::memcpy(command.data() + place, &where, sizeof where);
  }
}

}  // namespace

// In place of libc's: nobody listens anywhere, since real connections are none of a fuzzer's business. Sockets of
// datagrams are connected, which is how uiw asks for routes.
extern "C" int connect(int fd, const sockaddr* address, socklen_t size) noexcept(false) {
  int type = 0;
  socklen_t type_size = sizeof type;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_DGRAM)
    return static_cast<int>(::syscall(SYS_connect, fd, address, size));
  errno = ECONNREFUSED;
  return -1;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const UiwHost host = {lookup, attach,  [](int) {}, [](int) {}, [] {},
                               [] {},  nullptr, nullptr,    nullptr,    nullptr};
  static const UiwKernelAbi* const abi = uiw_kernel_abi_v8(&host);
  static const bool ready = abi != nullptr && abi->root(0) != nullptr;
  if (!ready) std::abort();
  std::uint64_t object = 0;
  const int fd = abi->open("rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK, &object);
  if (fd < 0) std::abort();
  attach(fd, object);
  alignas(8) static std::uint8_t answer[4096];
  std::uint32_t id = 0;
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = std::min<std::size_t>(data[at] * 4U, size - at - 1);
    ++at;
    Command command(data + at, data + at + length);
    at += length;
    bool ours = false;
    if (command.size() >= sizeof(rdma_ucm_cmd_hdr)) {
      ours = (command[0] & 0x80) != 0;
      make_harmless(command, fd, (data[0] & 1) != 0);
    }
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(answer);
    if (ours) fill_in(command, address, id);
    confine_answer(command, address);
    const bool creates = command.size() >= 8 && command[0] == RDMA_USER_CM_CMD_CREATE_ID;
    const long result = abi->write(object, fd, command.data(), command.size());
    if (result > static_cast<long>(command.size())) std::abort();
    if (creates && result > 0) std::memcpy(&id, answer, sizeof id);
  }
  detach(fd);
  abi->release(object, fd);
  ::close(fd);
  return 0;
}
