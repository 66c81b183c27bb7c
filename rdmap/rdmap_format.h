// SPDX-License-Identifier: MIT
// RDMAP headers: control octet (RFC 5040 section 4.1), RDMA Read Request (4.4), Terminate (4.8), and the headers of RFC
// 7306: Atomic Request (5.2.1), Atomic Response (5.2.2), Immediate Data (6.2). Encoding and decoding stand side by
// side. Encoders need room for all that they write. Decoders return no value if the header is cut short; octets after
// the header are ignored.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "ddp/ddp_format.h"

namespace uiw::rdmap {

using ddp::Msn;
using ddp::Stag;

enum class Opcode : std::uint8_t {
  write = 0x0,
  read_request = 0x1,
  read_response = 0x2,
  send = 0x3,
  send_invalidate = 0x4,
  send_solicited = 0x5,
  send_solicited_invalidate = 0x6,
  terminate = 0x7,
  immediate = 0x8,  // this and the next three: RFC 7306 figure 2
  immediate_solicited = 0x9,
  atomic_request = 0xA,
  atomic_response = 0xB,
  // An extension of uiw, sent only to a peer that is uiw too (mpa::PeerKind): a Send whose Invalidate STag field
  // carries four octets of immediate data, as the consumer gave them, in each of its segments. RFC 5040 figure 4 does
  // not use these opcodes.
  send_immediate_solicited = 0xE,
  send_immediate = 0xF,
};

constexpr bool is_send_immediate(Opcode opcode) {
  return opcode == Opcode::send_immediate || opcode == Opcode::send_immediate_solicited;
}
constexpr bool is_send(Opcode opcode) {
  return (opcode >= Opcode::send && opcode <= Opcode::send_solicited_invalidate) || is_send_immediate(opcode);
}
constexpr bool is_solicited(Opcode opcode) {
  return opcode == Opcode::send_solicited || opcode == Opcode::send_solicited_invalidate ||
         opcode == Opcode::immediate_solicited || opcode == Opcode::send_immediate_solicited;
}
constexpr bool is_immediate(Opcode opcode) {
  return opcode == Opcode::immediate || opcode == Opcode::immediate_solicited;
}
constexpr bool invalidates(Opcode opcode) {
  return opcode == Opcode::send_invalidate || opcode == Opcode::send_solicited_invalidate;
}

// DDP queue numbers (RFC 5040 figure 4, RFC 7306 figure 2).
enum Queue : std::uint32_t {
  kSendQueue = 0,
  kReadRequestQueue = 1,
  kTerminateQueue = 2,
  kAtomicResponseQueue = 3,
};

constexpr unsigned kRdmapVersion = 1;

// ---- What two ends of uiw tell each other ----
// The messages are RDMA Writes and Reads of no octets. For a peer that is not uiw they are ordinary messages without
// effect: the STag and the offset of a message of no octets are not checked (RFC 5040 section 5.2.1), and RFC 6581
// section 9 uses both kinds as ready-to-receive messages. So no reserved bit is needed.

constexpr std::uint32_t kOwnStags = 0x75697700;  // "uiw", and the kind of message in the last octet
constexpr bool is_own(Stag stag) { return (static_cast<std::uint32_t>(stag) & ~0xFFU) == kOwnStags; }

// Progress reports are RDMA Writes of no octets. The tagged offset encodes how much of the peer's work this end has
// placed, and the STag says why this end sends the report.
// kRnrReport: no receive is posted for the next message, as with an RNR NAK, or this end leaves a manual connection.
constexpr Stag kRnrReport{kOwnStags};
// kProgressReport: a message follows that may be the reply to the peer's work, a receive has been posted after an RNR
// report, or this end leaves an rdma_cm connection.
constexpr Stag kProgressReport{kOwnStags + 1};
// Asks the peer to send a progress report before each of its messages that uses a receive, if the peer has placed more
// than it has confirmed so far. An end that completes Sends and Writes once they are placed (Completion::remote) needs
// such a report: the message may be the reply to a Send or Write, which has to complete before the reply does.
constexpr Stag kReportsWanted{kOwnStags + 2};
// From an XRC_SEND to an XRC_RECV queue pair: what follows is for the shared receive queue of the peer whose number is
// the tagged offset. InfiniBand has this number in each request (XRCETH); here it is said when it changes.
constexpr Stag kSharedQueue{kOwnStags + 3};

// The STag of a hello, a message by which an end tells its peer that it is uiw; the offset is kHelloOffset. The hello
// of the initiator is its ready-to-receive message, an RDMA Write to this STag or an RDMA Read from it. If the
// responder is uiw, its first message is an RDMA Write to this STag. So each end knows the kind of its peer from the
// first message that it receives.
constexpr Stag kHello{kOwnStags + 0xFF};
constexpr std::uint64_t kHelloOffset = 0x7569'7769'5741'5250;  // "uiwiWARP"
constexpr bool is_hello(Stag stag, std::uint64_t offset) { return stag == kHello && offset == kHelloOffset; }

// When the two ends of a connection, if both are uiw, send progress reports and RNR reports.
enum class Reports : std::uint8_t {
  on_request,  // once kReportsWanted has arrived
  always,      // from the start, without kReportsWanted
};

// How much of the peer's work an end has placed: the messages of the Send Queue before the MSN `send_msn`, and `writes`
// RDMA Writes, modulo 2^32. RDMA Writes that uiw sends itself (is_own()) or as ready-to-receive message do not count.
struct Progress {
  Msn send_msn{1};
  std::uint32_t writes = 0;

  bool operator==(const Progress&) const = default;
};
// The later of two values that the same end has reported. Both numbers in a value only grow, modulo 2^32.
constexpr Progress later(const Progress& a, const Progress& b) {
  const auto behind = [](auto one, auto other) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(other) - static_cast<std::uint32_t>(one)) > 0;
  };
  return behind(a.send_msn, b.send_msn) || behind(a.writes, b.writes) ? b : a;
}
constexpr std::uint64_t encode(const Progress& progress) {
  return std::uint64_t{progress.writes} << 32 | static_cast<std::uint32_t>(progress.send_msn);
}
constexpr Progress decode_progress(std::uint64_t offset) {
  return {static_cast<Msn>(static_cast<std::uint32_t>(offset)), static_cast<std::uint32_t>(offset >> 32)};
}

struct Control {
  unsigned version = kRdmapVersion;
  Opcode opcode = Opcode::write;

  bool operator==(const Control&) const = default;
};
// The two bits between version and opcode are reserved: sent as zero, and ignored when received (RFC 5040 section 4.1).
constexpr std::uint8_t encode(Control control) {
  return static_cast<std::uint8_t>(control.version << 6 | static_cast<unsigned>(control.opcode));
}
constexpr Control decode_control(std::uint8_t octet) {
  return {static_cast<unsigned>(octet >> 6), static_cast<Opcode>(octet & 0x0F)};
}
constexpr std::uint8_t control_of(Opcode opcode) { return encode(Control{kRdmapVersion, opcode}); }

// ---- RDMA Read Request (RFC 5040 section 4.4) ----

constexpr std::size_t kReadRequestSize = 28;

struct ReadRequest {
  Stag sink_stag{};
  std::uint64_t sink_offset = 0;
  std::uint32_t size = 0;
  Stag source_stag{};
  std::uint64_t source_offset = 0;

  bool operator==(const ReadRequest&) const = default;
};

inline void encode(const ReadRequest& request, std::byte* to) {
  store_be(to, static_cast<std::uint32_t>(request.sink_stag));
  store_be(to + 4, request.sink_offset);
  store_be(to + 12, request.size);
  store_be(to + 16, static_cast<std::uint32_t>(request.source_stag));
  store_be(to + 20, request.source_offset);
}

inline std::optional<ReadRequest> decode_read_request(Octets from) {
  if (from.size() < kReadRequestSize) return std::nullopt;
  ReadRequest request;
  request.sink_stag = static_cast<Stag>(load_be<std::uint32_t>(from.data()));
  request.sink_offset = load_be<std::uint64_t>(from.data() + 4);
  request.size = load_be<std::uint32_t>(from.data() + 12);
  request.source_stag = static_cast<Stag>(load_be<std::uint32_t>(from.data() + 16));
  request.source_offset = load_be<std::uint64_t>(from.data() + 20);
  return request;
}

// ---- Atomic Request and Response (RFC 7306 figures 4 to 6) ----

// The last two are uiw's own, and are sent to a uiw peer only: no standard has ibv_wr_atomic_write() and ibv_wr_flush()
// for iWARP. They are carried and answered as atomic operations are, and the result in the answer means nothing. They
// are taken from the end of the unassigned numbers.
enum class AtomicOpcode : std::uint8_t { fetch_add = 0x0, compare_swap = 0x2, write = 0xE, flush = 0xF };
constexpr bool is_uiws_own(AtomicOpcode opcode) {
  return opcode == AtomicOpcode::write || opcode == AtomicOpcode::flush;
}

constexpr std::size_t kAtomicRequestSize = 52;
constexpr std::size_t kAtomicResponseSize = 12;
constexpr std::size_t kAtomicSize = 8;  // size of the target in octets, and its alignment

// The operands of an atomic operation, in host byte order. Those of a flush are made by operands_of().
struct AtomicOperands {
  std::uint64_t data;     // the number to add, or to store; write: the octets in their order
  std::uint64_t mask;     // add: the highest bit of each field; swap: the bits that are replaced
  std::uint64_t compare;  // this and `compare_mask`: for compare-and-swap only
  std::uint64_t compare_mask;

  bool operator==(const AtomicOperands&) const = default;
};

// What ibv_wr_flush() asks for: that what was written before is seen by all that read the peer's memory, and if
// `persistent` that it outlives a loss of power.
struct Flush {
  std::uint64_t length = 0;
  bool global = false, persistent = false;
  bool whole_region = false;  // address and length mean nothing

  bool operator==(const Flush&) const = default;
};

constexpr AtomicOperands operands_of(const Flush& flush) {
  return {flush.length, (flush.global ? 1U : 0U) | (flush.persistent ? 2U : 0U), flush.whole_region ? 1U : 0U, 0};
}
constexpr Flush flush_of(const AtomicOperands& operands) {
  return {operands.data, (operands.mask & 1) != 0, (operands.mask & 2) != 0, (operands.compare & 1) != 0};
}

struct AtomicRequest {
  AtomicOpcode opcode{};
  std::uint32_t identifier = 0;
  Stag stag{};
  std::uint64_t offset = 0;
  AtomicOperands operands{};

  bool operator==(const AtomicRequest&) const = default;
};

inline void encode(const AtomicRequest& request, std::byte* to) {
  store_be(to, static_cast<std::uint32_t>(request.opcode));
  store_be(to + 4, request.identifier);
  store_be(to + 8, static_cast<std::uint32_t>(request.stag));
  store_be(to + 12, request.offset);
  store_be(to + 20, request.operands.data);
  store_be(to + 28, request.operands.mask);
  store_be(to + 36, request.operands.compare);
  store_be(to + 44, request.operands.compare_mask);
}

inline std::optional<AtomicRequest> decode_atomic_request(Octets from) {
  if (from.size() < kAtomicRequestSize) return std::nullopt;
  AtomicRequest request;
  request.opcode = static_cast<AtomicOpcode>(load_be<std::uint32_t>(from.data()) & 0xF);  // the other bits are reserved
  request.identifier = load_be<std::uint32_t>(from.data() + 4);
  request.stag = static_cast<Stag>(load_be<std::uint32_t>(from.data() + 8));
  request.offset = load_be<std::uint64_t>(from.data() + 12);
  request.operands.data = load_be<std::uint64_t>(from.data() + 20);
  request.operands.mask = load_be<std::uint64_t>(from.data() + 28);
  request.operands.compare = load_be<std::uint64_t>(from.data() + 36);
  request.operands.compare_mask = load_be<std::uint64_t>(from.data() + 44);
  return request;
}

struct AtomicResponse {
  std::uint32_t identifier = 0;
  std::uint64_t original = 0;  // the value before the operation

  bool operator==(const AtomicResponse&) const = default;
};

inline void encode(const AtomicResponse& response, std::byte* to) {
  store_be(to, response.identifier);
  store_be(to + 4, response.original);
}

inline std::optional<AtomicResponse> decode_atomic_response(Octets from) {
  if (from.size() < kAtomicResponseSize) return std::nullopt;
  return AtomicResponse{load_be<std::uint32_t>(from.data()), load_be<std::uint64_t>(from.data() + 4)};
}

// ---- Immediate Data (RFC 7306 figure 7): the consumer's octets, without a change of byte order ----

constexpr std::size_t kImmediateSize = 8;
using Immediate = std::array<std::byte, kImmediateSize>;

inline void encode(const Immediate& immediate, std::byte* to) { std::memcpy(to, immediate.data(), kImmediateSize); }

inline std::optional<Immediate> decode_immediate(Octets from) {
  if (from.size() < kImmediateSize) return std::nullopt;
  Immediate immediate;
  std::memcpy(immediate.data(), from.data(), kImmediateSize);
  return immediate;
}

// Converts the four octets of a Send with immediate (Opcode::send_immediate) to `ulp_word` of its DDP header
// (ddp::UntaggedHeader), and back.
inline std::uint32_t word_of(const Immediate& immediate) { return load_be<std::uint32_t>(immediate.data()); }
inline Immediate immediate_of_word(std::uint32_t word) {
  Immediate immediate{};
  store_be(immediate.data(), word);
  return immediate;
}

// ---- Terminate (RFC 5040 section 4.8) ----

enum class Layer : std::uint8_t { rdma = 0, ddp = 1, llp = 2 };

// Error types of layer RDMA and their codes (RFC 5040 figure 9).
enum class ErrorType : std::uint8_t { local_catastrophic = 0, remote_protection = 1, remote_operation = 2 };
enum class ErrorCode : std::uint8_t {
  invalid_stag = 0x00,
  base_or_bounds = 0x01,
  access_rights = 0x02,
  not_associated = 0x03,
  wrap = 0x04,
  version = 0x05,
  unexpected_opcode = 0x06,
  catastrophic_stream = 0x07,
  catastrophic_global = 0x08,
  cannot_invalidate = 0x09,
  unspecified = 0xFF,
};

// An error and, if a segment has caused it, the headers of this segment, kept as octets.
struct Terminate {
  Layer layer = Layer::rdma;
  std::uint8_t type = 0;
  std::uint8_t code = 0;
  bool has_ddp_header = false;       // the header flag D; uiw sends flag M (segment length) together with D
  std::uint16_t segment_length = 0;  // DDP segment length
  std::uint8_t ddp_header_size = 0;  // 14 or 18
  std::array<std::byte, ddp::kUntaggedHeaderSize> ddp_header{};
  bool has_read_request = false;  // the header flag R
  std::array<std::byte, kReadRequestSize> read_request{};
};

constexpr std::size_t kTerminateControlSize = 4;
constexpr std::size_t kMaxTerminate = kTerminateControlSize + 2 + ddp::kUntaggedHeaderSize + kReadRequestSize;

// The length of the longest DDP and RDMAP headers of a segment.
constexpr std::size_t kMaxHeaders =
    ddp::kUntaggedHeaderSize +
    std::max({kReadRequestSize, kAtomicRequestSize, kAtomicResponseSize, kImmediateSize, kMaxTerminate});

// Writes the Terminate and returns the number of octets.
inline std::size_t encode(const Terminate& terminate, std::byte* to) {
  const bool ddp = terminate.has_ddp_header;
  const bool rdma = terminate.has_read_request;
  store_be(to, static_cast<std::uint32_t>(static_cast<std::uint32_t>(terminate.layer) << 28 |
                                          static_cast<std::uint32_t>(terminate.type & 0x0F) << 24 |
                                          static_cast<std::uint32_t>(terminate.code) << 16 |
                                          (ddp ? 0x8000U | 0x4000U : 0U) | (rdma ? 0x2000U : 0U)));
  std::size_t size = kTerminateControlSize;
  if (ddp) {
    store_be(to + size, terminate.segment_length);
    size += 2;
    std::memcpy(to + size, terminate.ddp_header.data(), terminate.ddp_header_size);
    size += terminate.ddp_header_size;
  }
  if (rdma) {
    std::memcpy(to + size, terminate.read_request.data(), kReadRequestSize);
    size += kReadRequestSize;
  }
  return size;
}

// Recognizes a Terminate of the kernel's siw (Linux 6.18) on a little-endian machine. siw swaps Layer and EType, and
// sends M, D and R in the low bits of their octet, M in the lowest. The function returns true if M and D are set in
// these low bits and all other bits after the error code, except R, are 0. A sender that follows RFC 5040 never sends
// such a word, since these low bits are reserved. A Terminate of siw without M and D cannot be recognized. The DDP
// segment length from siw counts the payload alone, and siw may set R without sending the header of the Read Request.
constexpr bool is_terminate_of_siw(std::uint32_t word) { return (word & 0xFBFFU) == 0x0300U; }

// Returns no value if the Terminate is cut short.
inline std::optional<Terminate> decode_terminate(Octets from) {
  if (from.size() < kTerminateControlSize) return std::nullopt;
  const auto word = load_be<std::uint32_t>(from.data());
  const bool siw = is_terminate_of_siw(word);
  const std::uint32_t high = word >> 28, low = word >> 24 & 0x0F;
  Terminate terminate;
  terminate.layer = static_cast<Layer>(siw ? low : high);
  terminate.type = static_cast<std::uint8_t>(siw ? high : low);
  terminate.code = word >> 16 & 0xFF;
  const bool length = siw || (word & 0x8000U) != 0, ddp = siw || (word & 0x4000U) != 0;
  const bool rdma = (word & (siw ? 0x0400U : 0x2000U)) != 0;
  Octets rest = from.subspan(kTerminateControlSize);
  if (length || ddp) {
    if (rest.size() < 2) return std::nullopt;
    terminate.segment_length = load_be<std::uint16_t>(rest.data());
    rest = rest.subspan(2);
  }
  if (ddp) {
    if (rest.empty()) return std::nullopt;
    const std::size_t size = ddp::decode_control(rest[0]).tagged ? ddp::kTaggedHeaderSize : ddp::kUntaggedHeaderSize;
    if (rest.size() < size) return std::nullopt;
    terminate.has_ddp_header = true;
    terminate.ddp_header_size = static_cast<std::uint8_t>(size);
    std::memcpy(terminate.ddp_header.data(), rest.data(), size);
    rest = rest.subspan(size);
    if (siw) terminate.segment_length = static_cast<std::uint16_t>(terminate.segment_length + size);
  }
  if (rdma && (!siw || rest.size() >= kReadRequestSize)) {
    if (rest.size() < kReadRequestSize) return std::nullopt;
    terminate.has_read_request = true;
    std::memcpy(terminate.read_request.data(), rest.data(), kReadRequestSize);
  }
  return terminate;
}

}  // namespace uiw::rdmap
