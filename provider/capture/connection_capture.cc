// SPDX-License-Identifier: MIT
#include "provider/capture/connection_capture.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>

#include "base/mutex.h"
#include "provider/capture/capture_file.h"
#include "provider/capture/pcapng_format.h"
#include "provider/capture/segment_format.h"

namespace uiw::provider {

namespace {

std::uint64_t now() {
  using namespace std::chrono;
  return static_cast<std::uint64_t>(duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count());
}

// The number of the connection, the same at both ends: an FNV-1a hash of the two endpoints.
std::uint64_t number_of(const SegmentEndpoint& one, const SegmentEndpoint& other) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::uint64_t octet) { hash = (hash ^ (octet & 0xff)) * 0x100000001b3; };
  for (const SegmentEndpoint* end : {&std::min(one, other), &std::max(one, other)}) {
    for (const std::byte octet : end->octets()) add(std::to_integer<std::uint64_t>(octet));
    add(end->port >> 8);
    add(end->port);
  }
  return hash;
}

class ConnectionCapture final : public StreamTap {
 public:
  // Takes over the caller's claim of `number` (CaptureFile::claim()). The destructor releases the claim.
  ConnectionCapture(CaptureFile& file, std::uint64_t number, const SegmentEndpoint& local,
                    const SegmentEndpoint& remote)
      : file_(file), number_(number), ends_{{{local}, {remote}}} {}
  // In the child of a fork the destructor does nothing, since only the child's copies of the descriptors are closed and
  // the connections of the parent go on.
  ~ConnectionCapture() override {
    if (generation_ != fork_generation()) return;
    ended(Direction::sent, End::fin);
    file_.release(number_);
  }
  ConnectionCapture(const ConnectionCapture&) = delete;
  ConnectionCapture& operator=(const ConnectionCapture&) = delete;

  void open(bool calls) noexcept {
    const Direction caller = calls ? Direction::sent : Direction::received;
    const LockGuard lock(mutex_);
    write(caller, kSyn, {}, 0);
    write(opposite(caller), kSyn | kAck, {}, 0);
    write(caller, kAck, {}, 0);
  }

  void passed(Direction direction, std::span<const iovec> octets, std::size_t size) noexcept override {
    const LockGuard lock(mutex_);
    std::size_t offset = 0;  // in the first element of `octets`
    while (size > 0 && !octets.empty()) {
      std::array<iovec, kMostPieces> pieces;
      std::size_t count = 0, taken = 0;
      while (count < pieces.size() && taken < std::min(size, kMostSegmentPayload) && !octets.empty()) {
        const std::size_t left = octets.front().iov_len - offset;
        const std::size_t length = std::min({left, size - taken, kMostSegmentPayload - taken});
        pieces[count++] = {static_cast<std::byte*>(octets.front().iov_base) + offset, length};
        taken += length;
        offset = length < left ? offset + length : 0;
        if (length == left) octets = octets.subspan(1);
      }
      write(direction, kPsh | kAck, std::span(pieces).first(count), taken);
      size -= taken;
    }
  }

  void ended(Direction direction, End end) noexcept override {
    if (generation_ != fork_generation()) return;
    const LockGuard lock(mutex_);
    if (end_of(direction).closed) return;
    end_of(direction).closed = true;
    if (end == End::rst) end_of(opposite(direction)).closed = true;
    write(direction, (end == End::rst ? kRst : kFin) | kAck, {}, 0);
  }

 private:
  static constexpr std::size_t kMostPieces = 64;
  static_assert(sizeof(pcapng::PacketStart) + kMostSegmentHeaders + kMostSegmentPayload + sizeof(pcapng::PacketEnd) <=
                CaptureBlocks::kMostBlock);
  // If only one direction carries octets, an acknowledgement is written in the other direction after this many octets.
  static constexpr std::size_t kAcknowledged = 1024 * 1024;

  struct Sender {
    SegmentEndpoint endpoint;
    std::uint32_t sequence = 0;
    std::size_t unacknowledged = 0;
    bool closed = false;
  };

  static Direction opposite(Direction direction) {
    return direction == Direction::sent ? Direction::received : Direction::sent;
  }
  Sender& end_of(Direction direction) UIW_REQUIRES(mutex_) { return ends_[direction == Direction::sent ? 0 : 1]; }

  // Writes a segment with the `size` octets of `payload`, and advances the sender's sequence number. Then writes an
  // acknowledgement in the other direction if kAcknowledged octets are not acknowledged yet.
  void write(Direction direction, unsigned flags, std::span<const iovec> payload, std::size_t size)
      UIW_REQUIRES(mutex_) {
    Sender& from = end_of(direction);
    Sender& to = end_of(opposite(direction));
    const Segment segment{from.endpoint,
                          to.endpoint,
                          from.sequence,
                          (flags & kAck) != 0 ? to.sequence : 0,
                          static_cast<std::uint8_t>(flags),
                          size};
    // If the program has unmapped the payload meanwhile, the segment is written without the payload.
    if (!append(direction, segment, payload, size)) append(direction, segment, {}, 0);
    from.sequence += static_cast<std::uint32_t>(size + ((flags & (kSyn | kFin)) != 0 ? 1 : 0));
    from.unacknowledged += size;
    to.unacknowledged = 0;
    if (from.unacknowledged >= kAcknowledged) write(opposite(direction), kAck, {}, 0);
  }

  // Appends a segment with the first `captured` octets of its payload. False if they cannot be read.
  bool append(Direction direction, const Segment& segment, std::span<const iovec> payload, std::size_t captured) {
    std::array<std::byte, kMostSegmentHeaders> headers;
    const std::size_t headers_size = encode_headers(segment, headers);
    pcapng::PacketStart start(now(), headers_size + captured, headers_size + segment.payload);
    pcapng::PacketEnd end(headers_size + captured,
                          direction == Direction::sent ? pcapng::Way::outbound : pcapng::Way::inbound,
                          start.block_length);
    std::array<iovec, kMostPieces + 3> block;
    block[0] = {&start, sizeof start};
    block[1] = {headers.data(), headers_size};
    std::copy(payload.begin(), payload.end(), block.begin() + 2);
    block[2 + payload.size()] = {end.data(), end.size()};
    return file_.append(std::span(block).first(payload.size() + 3), start.block_length);
  }

  CaptureFile& file_;
  const std::uint64_t number_;
  const unsigned generation_ = fork_generation();
  Mutex mutex_;
  std::array<Sender, 2> ends_ UIW_GUARDED_BY(mutex_);  // this end, the peer
};

}  // namespace

std::unique_ptr<StreamTap> capture_connection(const sockaddr_storage& local, const sockaddr_storage& remote,
                                              bool calls) noexcept {
  CaptureFile* const file = CaptureFile::get();
  if (file == nullptr) return nullptr;
  const SegmentEndpoint own(local), peers(remote);
  const std::uint64_t number = number_of(own, peers);
  if (!file->claim(number)) return nullptr;
  std::unique_ptr<ConnectionCapture> capture(new (std::nothrow) ConnectionCapture(*file, number, own, peers));
  if (capture == nullptr)
    file->release(number);
  else
    capture->open(calls);
  return capture;
}

}  // namespace uiw::provider
