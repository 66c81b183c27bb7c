// SPDX-License-Identifier: MIT
// A tap that remembers what it is told.
#pragma once

#include <algorithm>
#include <string>

#include "base/stream/stream_tap.h"
#include "tests/unit/octets.h"

namespace uiw::test {

struct Tapped {
  Bytes sent, received;
  std::string ends;  // " sent fin", " received rst" and so on
};

class RecordingTap final : public StreamTap {
 public:
  explicit RecordingTap(Tapped& into) : into_(into) {}

  void passed(Direction direction, std::span<const iovec> octets, std::size_t size) noexcept override {
    Bytes& to = direction == Direction::sent ? into_.sent : into_.received;
    for (const iovec& piece : octets) {
      const std::size_t length = std::min(piece.iov_len, size);
      const auto* const first = static_cast<const std::byte*>(piece.iov_base);
      to.insert(to.end(), first, first + length);
      size -= length;
    }
  }
  void ended(Direction direction, End end) noexcept override {
    into_.ends += direction == Direction::sent ? " sent" : " received";
    into_.ends += end == End::fin ? " fin" : " rst";
  }

 private:
  Tapped& into_;
};

}  // namespace uiw::test
