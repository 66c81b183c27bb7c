// SPDX-License-Identifier: MIT
// Reads and writes Netlink messages and their attributes (linux/netlink.h, netlink(7)). Uses only those functions of
// libnl that take no lock, keep nothing between calls, and do no I/O.
//
// Numbers are in the byte order of the host. Messages and attributes begin at multiples of four octets; their lengths
// count the header, and not the padding after the payload. The writer of a message may be hostile: a reader never looks
// beyond the octets that it was given, whatever the lengths in them say.
#pragma once

#include <netlink/attr.h>
#include <netlink/msg.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace uiw::kernel_abi {

using Octets = std::vector<std::uint8_t>;
using OctetView = std::span<const std::uint8_t>;

// ---- reading -------------------------------------------------------------------------------------------------------

// The messages in these octets, up to the first whose length is too small for a header or exceeds the octets. The
// pointers are valid as long as the octets.
inline std::vector<nlmsghdr*> messages_in(Octets& octets) {
  std::vector<nlmsghdr*> found;
  auto* next = reinterpret_cast<nlmsghdr*>(octets.data());
  for (int rest = static_cast<int>(octets.size()); nlmsg_ok(next, rest) != 0; next = nlmsg_next(next, &rest))
    found.push_back(next);
  return found;
}

// The header and payload of a message, without the padding after the payload.
inline OctetView octets_of(const nlmsghdr* message) {
  return {reinterpret_cast<const std::uint8_t*>(message), message->nlmsg_len};
}

// The attributes of a message, indexed by type (without the flags for nesting and byte order); null if a type does not
// occur. If a type occurs more than once, the last one counts, as in the kernel. Types beyond the array are skipped.
using NetlinkAttributes = std::array<nlattr*, 128>;
inline NetlinkAttributes attributes_of(nlmsghdr* message) {
  NetlinkAttributes found{};
  nlmsg_parse(message, 0, found.data(), found.size() - 1, nullptr);
  return found;
}

// The value of an attribute as a number. None if there is no attribute, or if the value is too short; of a longer value
// the first octets count, as in the kernel.
template <typename Number>
std::optional<Number> number_of(const nlattr* attribute) {
  static_assert(std::is_unsigned_v<Number>);
  Number number;
  if (nla_memcpy(&number, attribute, sizeof number) < int{sizeof number}) return std::nullopt;
  return number;
}

// The value of an attribute as a text, up to its NUL. None if there is no attribute, or no NUL. Valid as long as the
// message.
inline std::optional<std::string_view> text_of(const nlattr* attribute) {
  if (attribute == nullptr) return std::nullopt;
  const std::string_view value(static_cast<const char*>(nla_data(attribute)), nla_len(attribute));
  const std::size_t end = value.find('\0');
  return end != value.npos ? std::optional(value.substr(0, end)) : std::nullopt;
}

// ---- writing -------------------------------------------------------------------------------------------------------

// A message that is being written, of up to kRoom octets. The functions throw std::bad_alloc if there is no memory, or
// no room in the message. An answer never lacks room, since it uses at most half of kRoom. libnl does not check that
// the length of an attribute fits into 16 bits; here it always does, since kRoom does.
class NetlinkWriter {
 public:
  NetlinkWriter(unsigned type, unsigned flags, std::uint32_t sequence, std::uint32_t port)
      : message_(nlmsg_alloc_size(kRoom)) {
    check(message_ != nullptr);
    nlmsg_put(message_.get(), port, sequence, static_cast<int>(type), 0, static_cast<int>(flags));
  }

  // Appends octets that are no attribute, directly after the header.
  void raw(const void* data, std::size_t size) {
    check(nlmsg_append(message_.get(), const_cast<void*>(data), size, NLMSG_ALIGNTO) == 0);
  }

  void octets(unsigned type, const void* data, std::size_t size) {
    check(nla_put(message_.get(), static_cast<int>(type), static_cast<int>(size), data) == 0);
  }

  template <typename Number>
  void number(unsigned type, Number value) {
    static_assert(std::is_unsigned_v<Number>);
    octets(type, &value, sizeof value);
  }

  // Appends an attribute with a text and the NUL that ends it.
  void text(unsigned type, const std::string& value) { octets(type, value.c_str(), value.size() + 1); }

  // Put what is written between the two calls into a nested attribute, which is left out if it is empty. The attribute
  // has no flag NLA_F_NESTED, as in the kernel's nldev; nla_nest_start() would set it.
  nlattr* begin_nest(unsigned type) {
    nlattr* const nest = nla_reserve(message_.get(), static_cast<int>(type), 0);
    check(nest != nullptr);
    return nest;
  }
  void end_nest(nlattr* nest) { nla_nest_end(message_.get(), nest); }

  // The message as written so far. The length of the message includes the padding after its last attribute.
  OctetView octets() const { return octets_of(nlmsg_hdr(message_.get())); }

 private:
  static constexpr std::size_t kRoom = 8192;

  static void check(bool done) {
    if (!done) throw std::bad_alloc();
  }
  struct Free {
    void operator()(nl_msg* message) const { nlmsg_free(message); }
  };

  std::unique_ptr<nl_msg, Free> message_;
};

// Collects messages into datagrams. Messages share a datagram only up to kLargest octets, since readers may have
// buffers of 4096 octets only (libmnl).
class Datagrams {
 public:
  static constexpr std::size_t kLargest = 3584;

  void add(OctetView message) {
    if (datagrams_.empty() || datagrams_.back().size() + message.size() > kLargest) datagrams_.emplace_back();
    Octets& last = datagrams_.back();
    last.insert(last.end(), message.begin(), message.end());
    last.resize(NLMSG_ALIGN(last.size()));
  }
  // Ends a datagram, so that the next message begins a new one. Called at the end of each answer.
  void close() {
    if (!datagrams_.empty() && !datagrams_.back().empty()) datagrams_.emplace_back();
  }
  std::vector<Octets> take() {
    if (!datagrams_.empty() && datagrams_.back().empty()) datagrams_.pop_back();
    return std::move(datagrams_);
  }

 private:
  std::vector<Octets> datagrams_;
};

}  // namespace uiw::kernel_abi
