// SPDX-License-Identifier: MIT
// The deframer: any octets in any segmentation, with a sink that pauses. The same octets in one piece give the same.
// Input: 4 octets of control, then the stream. The fuzzer cannot guess CRCs, nor where markers are wanted: bit 1 mends
// them.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "mpa/crc32c.h"
#include "mpa/deframer.h"
#include "mpa/fpdu_buffer.h"
#include "mpa/markers.h"

using namespace uiw;
using namespace uiw::mpa;

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

class Sink final : public UlpduSink {
 public:
  explicit Sink(std::minstd_rand* random) : random_(random) {}
  Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) override {
    check(offset == open_.size() && offset + piece.size() <= total);
    if (offset == 0) check(piece.size() >= std::min(total, Deframer::kHeadSize));
    if (offset == 0 && random_ != nullptr && (*random_)() % 8 == 0) return Verdict::pause;
    open_.insert(open_.end(), piece.begin(), piece.end());
    finish(total);
    return Verdict::go_on;
  }
  MutableOctets destination(std::size_t most) override {
    if (random_ == nullptr) return {};
    room_.assign(1 + (*random_)() % most, std::byte{0});
    return room_;
  }
  Verdict placed(std::size_t octets, std::size_t offset, std::size_t total) override {
    check(offset == open_.size() && octets <= room_.size() && offset + octets <= total);
    open_.insert(open_.end(), room_.begin(), room_.begin() + static_cast<std::ptrdiff_t>(octets));
    finish(total);
    return Verdict::go_on;
  }
  std::vector<std::vector<std::byte>> ulpdus;

 private:
  void finish(std::size_t total) {
    if (open_.size() != total) return;
    ulpdus.push_back(std::move(open_));
    open_.clear();
  }

  std::minstd_rand* random_;
  std::vector<std::byte> open_, room_;
};

void mend(std::vector<std::byte>& stream, bool markers) {
  for (std::size_t at = 0; at + 12 <= stream.size();) {
    std::byte* const fpdu = stream.data() + at;
    const std::size_t length = markers ? length_offset(at) : 0;
    const std::size_t unmarked = fpdu_size(load_be<std::uint16_t>(fpdu + length));
    const std::size_t size = markers ? marked_size(at, unmarked) : unmarked;
    if (at + size > stream.size()) return;
    for (std::size_t i = 0; markers && i < size; i += 4) {
      if ((at + i) % kMarkerSpacing == 0) store_be(fpdu + i + 2, static_cast<std::uint16_t>(i == 0 ? 0 : i - length));
    }
    Crc32c crc;
    crc.add(fpdu, size - kCrcSize);
    store_crc(fpdu + size - kCrcSize, crc.value());
    at += size;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  keep_spare_fpdu_buffers(true);  // new ones for each input take long
  const bool crc = (data[0] & 1) != 0;
  std::minstd_rand random(1U + data[1] + 256U * data[2]);
  const std::size_t most = 1 + data[3] * 8U;
  const auto* octets = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> stream(octets + 4, octets + size);
  const bool markers = (data[0] & 4) != 0;
  if ((data[0] & 2) != 0) mend(stream, markers);

  Sink whole(nullptr), pieces(&random);
  Deframer first, second;
  const auto kind = markers ? Deframer::Kind::marked : Deframer::Kind::plain;
  first.start(crc, kind);
  second.start(crc, kind);
  const auto expected = first.receive(stream, whole);
  check(expected.consumed <= stream.size());

  Octets rest = stream;
  auto result = Deframer::Result::more;
  std::size_t again = 0;
  while (result == Deframer::Result::more || result == Deframer::Result::paused) {
    if (rest.empty() && result == Deframer::Result::more) break;
    const MutableOctets wanted = second.wanted(pieces);
    if (result == Deframer::Result::more && !wanted.empty() && random() % 2 == 0) {
      const std::size_t take = std::min({wanted.size(), rest.size(), most});
      std::copy_n(rest.begin(), take, wanted.begin());
      rest = rest.subspan(take);
      result = second.filled(take, pieces);
      continue;
    }
    // Fresh memory of just this size, so that reading past it is found.
    const std::size_t give = std::min(rest.size(), again + 1 + random() % most);
    const std::vector<std::byte> segment(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(give));
    const auto outcome = second.receive(segment, pieces);
    check(outcome.consumed <= give);
    result = outcome.result;
    again = result == Deframer::Result::paused ? give - outcome.consumed : 0;
    rest = rest.subspan(outcome.consumed);
  }
  check(result == expected.result);
  check(whole.ulpdus == pieces.ulpdus);
  check(first.taken() == second.taken());
  if (result != Deframer::Result::more) return 0;
  // Both stand at the same place in an FPDU: they take what comes next in the same way.
  const std::vector<std::byte> next(64);
  const auto expected_next = first.receive(next, whole).result;
  rest = next;
  do {
    const auto outcome = second.receive(rest, pieces);
    result = outcome.result;
    rest = rest.subspan(outcome.consumed);
  } while (result == Deframer::Result::paused);
  check(result == expected_next);
  check(whole.ulpdus == pieces.ulpdus);
  return 0;
}
