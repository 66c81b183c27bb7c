// SPDX-License-Identifier: MIT
#include "base/random.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/descriptor.h"

namespace uiw {

bool fill_random(void* to, std::size_t size) {
  const auto wanted = static_cast<long>(size);
  if (::getrandom(to, size, GRND_NONBLOCK) == wanted) return true;
  const DescriptorChange change;  // lasts until the descriptor is closed
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/dev/urandom", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return false;
  const bool filled = ::syscall(SYS_read, fd, to, size) == wanted;
  ::syscall(SYS_close, fd);
  return filled;
}

std::uint64_t secret_number() {
  std::uint64_t number = 0;
  if (fill_random(&number, sizeof number)) return number;
  // libc takes its stack canary and pointer guard from the octets of AT_RANDOM, so these octets are mixed before use,
  // and a number that becomes known does not reveal them.
  std::array<std::uint64_t, 2> given{};
  if (const auto* octets = reinterpret_cast<const void*>(::getauxval(AT_RANDOM)); octets != nullptr) {
    std::memcpy(given.data(), octets, sizeof given);
  }
  const auto now = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return given[0] ^ std::rotl(given[1], 31) ^ now;
}

}  // namespace uiw
