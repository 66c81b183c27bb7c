// SPDX-License-Identifier: MIT
// Netlink messages and their attributes (linux/netlink.h, netlink(7)): writing and reading beside each other.
//
// Numbers are in the byte order of the host. Messages and attributes begin at multiples of four octets; their lengths
// count the header and not the padding behind. Whoever writes a message may be hostile: a reader never looks beyond the
// octets that it was given, whatever the lengths in them say. No function does I/O.
#pragma once

#include <linux/netlink.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace uiw::kernel_abi {

using Octets = std::vector<std::uint8_t>;
using OctetView = std::span<const std::uint8_t>;

// The next multiple of four.
constexpr std::size_t netlink_aligned(std::size_t length) { return (length + NLMSG_ALIGNTO - 1) & ~std::size_t{3}; }

// ---- reading -------------------------------------------------------------------------------------------------------

struct NetlinkMessage {
  nlmsghdr header{};
  OctetView whole;    // header and payload, without the padding behind
  OctetView payload;  // what follows the header
};

// Takes the first message from `rest`. None, and `rest` as it was, if there are not even the octets that the message's
// own length promises, or if this length is too small for a header.
inline std::optional<NetlinkMessage> take_message(OctetView& rest) {
  NetlinkMessage message;
  if (rest.size() < sizeof message.header) return std::nullopt;
  std::memcpy(&message.header, rest.data(), sizeof message.header);
  const std::size_t length = message.header.nlmsg_len;
  if (length < sizeof message.header || length > rest.size()) return std::nullopt;
  message.whole = rest.first(length);
  message.payload = message.whole.subspan(sizeof message.header);
  rest = rest.subspan(std::min(netlink_aligned(length), rest.size()));
  return message;
}

struct NetlinkAttribute {
  unsigned type = 0;  // without the flags for nesting and byte order
  OctetView value;
};

// Takes the first attribute from `rest`; none, and `rest` as it was, as above. What is left then is no attribute.
inline std::optional<NetlinkAttribute> take_attribute(OctetView& rest) {
  nlattr header{};
  if (rest.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, rest.data(), sizeof header);
  const std::size_t length = header.nla_len;
  if (length < sizeof header || length > rest.size()) return std::nullopt;
  const OctetView value = rest.subspan(sizeof header, length - sizeof header);
  rest = rest.subspan(std::min(netlink_aligned(length), rest.size()));
  return NetlinkAttribute{header.nla_type & static_cast<unsigned>(NLA_TYPE_MASK), value};
}

// The value of the last attribute of this type, as the kernel looks attributes up. None if there is none.
inline std::optional<OctetView> find_attribute(OctetView attributes, unsigned type) {
  std::optional<OctetView> found;
  while (const auto attribute = take_attribute(attributes))
    if (attribute->type == type) found = attribute->value;
  return found;
}

// A number. None if the value is shorter than the number; longer values are read as the kernel reads them.
template <typename Number>
std::optional<Number> number_of(OctetView value) {
  static_assert(std::is_unsigned_v<Number>);
  Number number;
  if (value.size() < sizeof number) return std::nullopt;
  std::memcpy(&number, value.data(), sizeof number);
  return number;
}

// A text up to its NUL, which has to be there. It is valid as long as the value.
inline std::optional<std::string_view> text_of(OctetView value) {
  const void* end = value.empty() ? nullptr : std::memchr(value.data(), 0, value.size());
  if (end == nullptr) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(value.data()),
                          static_cast<std::size_t>(static_cast<const std::uint8_t*>(end) - value.data()));
}

// ---- writing -------------------------------------------------------------------------------------------------------

// One message. An attribute that does not fit, since attributes end at 65535 octets, spoils the message, and octets()
// is empty then.
class NetlinkWriter {
 public:
  NetlinkWriter(unsigned type, unsigned flags, std::uint32_t sequence, std::uint32_t port) {
    nlmsghdr header{};
    header.nlmsg_type = static_cast<std::uint16_t>(type);
    header.nlmsg_flags = static_cast<std::uint16_t>(flags);
    header.nlmsg_seq = sequence;
    header.nlmsg_pid = port;
    raw(&header, sizeof header);
  }

  // Octets behind the header that are no attribute.
  void raw(const void* data, std::size_t size) {
    const auto* octets = static_cast<const std::uint8_t*>(data);
    octets_.insert(octets_.end(), octets, octets + size);
    octets_.resize(netlink_aligned(octets_.size()));
  }

  void octets(unsigned type, const void* data, std::size_t size) {
    nlattr header{};
    if (size > kLongestAttribute - sizeof header) {
      spoilt_ = true;
      return;
    }
    header.nla_type = static_cast<std::uint16_t>(type);
    header.nla_len = static_cast<std::uint16_t>(sizeof header + size);
    raw(&header, sizeof header);
    raw(data, size);
  }

  template <typename Number>
  void number(unsigned type, Number value) {
    static_assert(std::is_unsigned_v<Number>);
    octets(type, &value, sizeof value);
  }

  // With the NUL that ends it.
  void text(unsigned type, std::string_view value) {
    Octets with_end(value.begin(), value.end());
    with_end.push_back(0);
    octets(type, with_end.data(), with_end.size());
  }

  // An attribute of attributes: what is written between the two calls is in it. Returns the place, which end_nest()
  // takes. Without the flag for nesting, as nldev has always written its tables.
  std::size_t begin_nest(unsigned type) {
    const std::size_t place = octets_.size();
    octets(type, nullptr, 0);
    return place;
  }
  void end_nest(std::size_t place) {
    const std::size_t length = octets_.size() - place;
    if (length > kLongestAttribute) {
      spoilt_ = true;
      return;
    }
    const auto value = static_cast<std::uint16_t>(length);
    std::memcpy(octets_.data() + place + offsetof(nlattr, nla_len), &value, sizeof value);
  }

  // Of what is written so far.
  std::size_t size() const { return octets_.size(); }

  // The message with its length, and with padding behind it.
  const Octets& octets() {
    if (spoilt_) octets_.clear();
    if (octets_.empty()) return octets_;
    const auto length = static_cast<std::uint32_t>(octets_.size());
    std::memcpy(octets_.data() + offsetof(nlmsghdr, nlmsg_len), &length, sizeof length);
    return octets_;
  }

 private:
  static constexpr std::size_t kLongestAttribute = 65535;

  Octets octets_;
  bool spoilt_ = false;
};

// Messages put together to datagrams. Readers have buffers of 4096 octets (libmnl) or more, so a datagram has several
// messages only as long as it is not larger than those that the kernel makes for them.
class Datagrams {
 public:
  static constexpr std::size_t kLargest = 3584;

  void add(OctetView message) {
    if (message.empty()) return;
    if (datagrams_.empty() || datagrams_.back().size() + message.size() > kLargest) datagrams_.emplace_back();
    Octets& last = datagrams_.back();
    last.insert(last.end(), message.begin(), message.end());
    last.resize(netlink_aligned(last.size()));
  }
  // What is added next begins a datagram, as an answer of its own does.
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
