// SPDX-License-Identifier: MIT
// The wire format of the datagrams of UD queue pairs. Each of them is the payload of a UDP datagram: uiw's own header
// with queue pair numbers and Q_Key, a DDP untagged segment (RFC 5041 section 4.3) with an RDMAP Send (RFC 5040 section
// 4.3), and CRC32c. docs/datagrams.md describes the format for other implementations.
//
// Encoding and decoding stand side by side. Octets from the wire are hostile: the decoder accepts only what the encoder
// makes, apart from reserved fields of DDP and RDMAP, which it ignores. It never reads past the end, allocates nothing
// and does not throw, and it returns the reason why it refuses a datagram. The caller checks what depends on the state
// of a queue pair (whether the queue pair exists, its Q_Key, the address of the sender).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "ddp/ddp_format.h"
#include "mpa/crc32c.h"
#include "provider/connect/qp_port.h"
#include "rdmap/rdmap_format.h"

namespace uiw::provider {

//   octet  0..3   "uiwd"
//          4      version, 1
//          5..7   zero
//          8..11  destination queue pair number, of 24 bits; kMulticastQp where the datagram goes to a group
//         12..15  source queue pair number, of 24 bits
//         16..19  Q_Key
//         20..37  DDP untagged header: last, queue 0, offset 0; the RDMAP opcode is Send, Send with solicited event, or
//                 uiw's Send with immediate, whose four octets are in the place of the Invalidate STag
//         38..    payload, of any size
//         the last four: CRC32c of all octets before them, least significant octet first, as in an FPDU
// Numbers are big-endian.
constexpr std::string_view kDatagramKey = "uiwd";
constexpr std::uint8_t kDatagramVersion = 1;
constexpr std::size_t kDatagramOwnHeader = 20;
constexpr std::size_t kDatagramHeaderSize = kDatagramOwnHeader + ddp::kUntaggedHeaderSize;
constexpr std::size_t kDatagramCrcSize = 4;
constexpr std::size_t kDatagramOverhead = kDatagramHeaderSize + kDatagramCrcSize;  // octets beside the payload

constexpr std::uint32_t kMulticastQp = 0xFFFFFF;  // all queue pairs of a group; no queue pair has this number

struct DatagramHeader {
  std::uint32_t destination_qp = 0, source_qp = 0;
  std::uint32_t qkey = 0;
  bool solicited = false;
  // The four octets of immediate data, read as a big-endian word (rdmap::word_of()).
  std::optional<std::uint32_t> immediate;
  // Counts the sender's datagrams, for people who read a capture. Receivers ignore it.
  ddp::Msn msn{};

  bool operator==(const DatagramHeader&) const = default;
};

enum class DatagramError : std::uint8_t {
  none,
  size,       // too short for headers and CRC
  key,        // the first octets are not kDatagramKey
  version,    // another version, or the reserved octets are not zero
  qp_number,  // more than 24 bits, or kMulticastQp as the source
  crc,
  segment,  // not an RDMAP Send in a single untagged segment of DDP queue 0
};

struct DecodedDatagram {
  DatagramError error = DatagramError::none;
  DatagramHeader header;  // `header` and `payload` are valid only if there is no error
  Octets payload;         // a part of the octets that were decoded
};

using DatagramHeaderOctets = std::array<std::byte, kDatagramHeaderSize>;

// The queue pair numbers must fit 24 bits. The caller sends the payload and the CRC after the header.
inline DatagramHeaderOctets encode(const DatagramHeader& header) {
  DatagramHeaderOctets octets{};
  std::memcpy(octets.data(), kDatagramKey.data(), kDatagramKey.size());
  octets[4] = std::byte{kDatagramVersion};
  store_be<std::uint32_t>(octets.data() + 8, header.destination_qp);
  store_be<std::uint32_t>(octets.data() + 12, header.source_qp);
  store_be<std::uint32_t>(octets.data() + 16, header.qkey);
  ddp::UntaggedHeader segment;
  segment.last = true;
  segment.queue = rdmap::kSendQueue;
  segment.msn = header.msn;
  if (header.immediate) {
    segment.ulp_control =
        rdmap::control_of(header.solicited ? rdmap::Opcode::send_immediate_solicited : rdmap::Opcode::send_immediate);
    segment.ulp_word = *header.immediate;
  } else {
    segment.ulp_control = rdmap::control_of(header.solicited ? rdmap::Opcode::send_solicited : rdmap::Opcode::send);
  }
  ddp::encode(segment, octets.data() + kDatagramOwnHeader);
  return octets;
}

namespace detail {
// Decodes the DDP segment into `header`. False if the segment is not a Send that encode() makes.
inline bool decode_datagram_segment(Octets from, DatagramHeader& header) {
  const ddp::Control control = ddp::decode_control(from[0]);
  const auto segment = ddp::decode_untagged(from);
  if (!segment || control.tagged || !control.last || control.version != ddp::kDdpVersion ||
      segment->queue != rdmap::kSendQueue || segment->offset != 0) {
    return false;
  }
  const rdmap::Control send = rdmap::decode_control(segment->ulp_control);
  if (send.version != rdmap::kRdmapVersion) return false;
  const bool immediate = rdmap::is_send_immediate(send.opcode);
  if (!immediate && send.opcode != rdmap::Opcode::send && send.opcode != rdmap::Opcode::send_solicited) return false;
  header.solicited = rdmap::is_solicited(send.opcode);
  if (immediate) header.immediate = segment->ulp_word;
  header.msn = segment->msn;
  return true;
}
}  // namespace detail

// `from` is a whole UDP payload. The result refers to the octets of `from`.
inline DecodedDatagram decode_datagram(Octets from) {
  const auto refused = [](DatagramError error) { return DecodedDatagram{error, {}, {}}; };
  if (from.size() < kDatagramOverhead) return refused(DatagramError::size);
  if (std::memcmp(from.data(), kDatagramKey.data(), kDatagramKey.size()) != 0) return refused(DatagramError::key);
  // The version and the three reserved octets.
  if (load_be<std::uint32_t>(from.data() + 4) != std::uint32_t{kDatagramVersion} << 24) {
    return refused(DatagramError::version);
  }
  DecodedDatagram result;
  result.header.destination_qp = load_be<std::uint32_t>(from.data() + 8);
  result.header.source_qp = load_be<std::uint32_t>(from.data() + 12);
  result.header.qkey = load_be<std::uint32_t>(from.data() + 16);
  if (result.header.destination_qp > kMulticastQp || result.header.source_qp >= kMulticastQp) {
    return refused(DatagramError::qp_number);
  }
  const Octets covered = from.first(from.size() - kDatagramCrcSize);
  mpa::Crc32c crc;
  crc.add(covered);
  if (mpa::load_crc(from.data() + covered.size()) != crc.value()) return refused(DatagramError::crc);
  if (!detail::decode_datagram_segment(covered.subspan(kDatagramOwnHeader), result.header)) {
    return refused(DatagramError::segment);
  }
  result.payload = covered.subspan(kDatagramHeaderSize);
  return result;
}

// Whether the datagram was sent from the port of its source queue pair: the UDP source port (host byte order) must be
// the one in the queue pair number. On the sender's host only the user for whom uiw has reserved this port can send
// from it.
constexpr bool comes_from_holder(const DatagramHeader& header, std::uint16_t source_port) {
  return port_of(header.source_qp) == source_port;
}

}  // namespace uiw::provider
