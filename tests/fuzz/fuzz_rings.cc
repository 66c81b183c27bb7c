// SPDX-License-Identifier: MIT
// A stream in shared memory whose peer is hostile: between any two steps of this end, and while a ULPDU is handed over,
// the peer writes octets, positions and flags of its choice. No octet outside the ring is accessed (AddressSanitizer),
// and what is handed over is a sequence of ULPDUs.
// Input: steps of an octet each, with what they need behind them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/stream/shared_ring.h"
#include "mpa/deframer.h"

using namespace uiw;

namespace {

constexpr std::size_t kRing = 512;

void check(bool condition) {
  if (!condition) std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(reinterpret_cast<const std::byte*>(data), size) {}
  bool empty() const { return data_.empty(); }
  // Of fixed size; zeros behind the end.
  template <typename Value>
  Value take() {
    Value value{};
    const Octets octets = take(sizeof value);
    std::memcpy(&value, octets.data(), octets.size());
    return value;
  }
  Octets take(std::size_t most) {
    const Octets octets = data_.first(std::min(most, data_.size()));
    data_ = data_.subspan(octets.size());
    return octets;
  }

 private:
  Octets data_;
};

struct Direction {
  std::unique_ptr<RingControl> control = std::make_unique<RingControl>();
  std::vector<std::byte> ring = std::vector<std::byte>(kRing);
};

// What the peer does, at any time.
class Peer {
 public:
  Peer(Input& input, Direction& incoming, Direction& outgoing)
      : input_(input), incoming_(incoming), outgoing_(outgoing) {}
  void step(unsigned what) {
    switch (what % 7) {
      case 0: return send(input_.take(input_.take<std::uint8_t>()));
      case 1: return incoming_.control->written.store(input_.take<std::uint64_t>());
      case 2: return outgoing_.control->read.store(input_.take<std::uint64_t>());
      case 3: return outgoing_.control->read.store(outgoing_.control->written.load());
      case 4: return scribble(input_.take<std::uint16_t>() % kRing, input_.take(input_.take<std::uint8_t>() % 64));
      case 5: return incoming_.control->placed.store(input_.take<std::uint64_t>());
      default:
        incoming_.control->writer_waits.store(input_.take<std::uint8_t>());
        outgoing_.control->reader_sleeps.store(input_.take<std::uint8_t>());
        outgoing_.control->reader_follows.store(input_.take<std::uint8_t>());
        outgoing_.control->placed.store(input_.take<std::uint64_t>());
    }
  }

 private:
  // As it should be.
  void send(Octets octets) {
    for (const std::byte octet : octets) incoming_.ring[sent_++ % kRing] = octet;
    incoming_.control->written.store(sent_);
  }
  void scribble(std::size_t at, Octets octets) {
    for (std::size_t i = 0; i < octets.size(); ++i) incoming_.ring[(at + i) % kRing] = octets[i];
  }

  Input& input_;
  Direction &incoming_, &outgoing_;
  std::uint64_t sent_ = 0;
};

class Sink final : public mpa::UlpduSink {
 public:
  Sink(Input& input, Peer& peer) : input_(input), peer_(peer) {}
  Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) override {
    check(offset == (offset == 0 ? 0 : done_) && (offset == 0 || total == total_));
    check(offset + piece.size() <= total);
    if (offset == 0) check(piece.size() >= std::min(total, mpa::Deframer::kHeadSize));
    const unsigned what = input_.take<std::uint8_t>();
    if (offset == 0 && what % 16 == 7) return Verdict::pause;
    if (what % 2 == 0) peer_.step(what / 2);
    unsigned sum = 0;
    for (const std::byte octet : piece) sum += std::to_integer<unsigned>(octet);
    sum_ = sum;
    done_ = offset + piece.size();
    total_ = total;
    return Verdict::go_on;
  }

 private:
  Input& input_;
  Peer& peer_;
  std::size_t done_ = 0, total_ = 0;
  volatile unsigned sum_ = 0;  // so that each octet is read
};

// False once the stream is over.
bool receive(RingReader& reader, mpa::Deframer& deframer, Sink& sink) {
  Octets found;
  switch (reader.look(found)) {
    case RingReader::Look::nothing: reader.await_octets(); return true;
    case RingReader::Look::octets: break;
    default: return false;
  }
  check(!found.empty() && found.size() <= kRing);
  const auto [result, consumed] = deframer.receive(found, sink);
  check(consumed <= found.size());
  reader.advance(consumed);
  reader.release();
  reader.peer_waits();
  return result == mpa::Deframer::Result::more || result == mpa::Deframer::Result::paused;
}

bool send(RingWriter& writer, Octets octets) {
  std::vector<std::byte> memory(octets.begin(), octets.end());
  const std::size_t half = memory.size() / 2;
  const std::array<iovec, 2> vectors = {{{memory.data(), half}, {memory.data() + half, memory.size() - half}}};
  const ssize_t taken = writer.write(vectors, [] {});
  check(taken <= static_cast<ssize_t>(memory.size()) && taken <= static_cast<ssize_t>(kRing));
  if (taken == -EAGAIN) writer.await_room();
  return taken >= 0 || taken == -EAGAIN;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Direction incoming, outgoing;
  Peer peer(input, incoming, outgoing);
  Sink sink(input, peer);
  RingReader reader(*incoming.control, incoming.ring);
  RingWriter writer(*outgoing.control, outgoing.ring);
  mpa::Deframer deframer;
  deframer.start(false, mpa::Deframer::Kind::shared);
  while (!input.empty()) {
    const unsigned what = input.take<std::uint8_t>();
    if (what % 4 == 0 && !receive(reader, deframer, sink)) break;
    if (what % 4 == 1 && !send(writer, input.take(input.take<std::uint8_t>()))) break;
    if (what % 4 > 1) peer.step(what / 4);
    writer.note_placed(deframer.taken());
    if (what % 2 == 0 && writer.has_placed_to_show()) {
      writer.show_placed();
      check(!writer.has_placed_to_show() && outgoing.control->placed.load() >= deframer.taken());
    }
  }
  return 0;
}
