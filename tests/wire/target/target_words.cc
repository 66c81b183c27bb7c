// SPDX-License-Identifier: MIT
// What a command says and what its words mean.
#include <arpa/inet.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/wire/target/target.h"

namespace target {

void say(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(stdout);
}

void must(int result, const char* call) {
  if (result == 0) return;
  const int error = result > 0 ? result : errno;
  throw std::runtime_error(std::to_string(error) + " " + call + " " + std::strerror(error));
}

std::uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 0); }

std::string to_hex(const std::uint8_t* octets, std::size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[octets[i] >> 4];
    text += digits[octets[i] & 15];
  }
  return text.empty() ? "-" : text;
}

std::vector<std::uint8_t> from_hex(const std::string& text) {
  std::vector<std::uint8_t> octets;
  if (text == "-") return octets;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    octets.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return octets;
}

sockaddr_storage parse_address(const std::string& host, const std::string& port) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  const auto order = htons(static_cast<std::uint16_t>(number(port)));
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = order;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = order;
  } else {
    throw std::runtime_error("0 no address: " + host);
  }
  return storage;
}

std::uint8_t* span_of(const std::string& name, std::size_t offset, std::size_t length) {
  Memory& memory = find(g_target.memories, name);
  if (offset > memory.size || length > memory.size - offset) throw std::runtime_error("0 outside of " + name);
  return memory.base + offset;
}

ibv_qp* queue_pair(const std::string& name) {
  const auto at = g_target.datagram_qps.find(name);
  return at != g_target.datagram_qps.end() ? at->second : find(g_target.ids, name)->qp;
}

}  // namespace target
