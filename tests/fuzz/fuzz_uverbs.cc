// SPDX-License-Identifier: MIT
// What a program writes to a uverbs descriptor, and passes to its ioctl(). No completion channel comes of it: there is
// no room for its descriptor.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "kernel-abi/uverbs/uverbs.h"

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  UiwHost host{};
  host.attach = [](int, std::uint64_t) { return EMFILE; };
  // Memory of just this size, so that reading past it is found.
  const std::vector<std::uint8_t> command(data, data + size);
  check(uiw::kernel_abi::write_uverbs_command(host, command.data(), size) < 0);
  std::vector<std::uint8_t> argument(64);
  std::copy_n(data, std::min(size, argument.size()), argument.begin());
  check(uiw::kernel_abi::control_uverbs(-1, argument.data()) < 0);
  return 0;
}
