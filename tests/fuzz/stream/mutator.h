// SPDX-License-Identifier: MIT
// Changes inputs of the fuzzer of streams by whole steps, so that what follows a change keeps its meaning.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>

#include "tests/fuzz/stream/step.h"

// Of libFuzzer: changes octets as it sees fit.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace uiw::fuzz {

class Mutator {
 public:
  Mutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed)
      : data_(data), records_(size / kStepSize), most_(most / kStepSize), random_(seed) {}

  // The new size.
  std::size_t mutate() {
    if (records_ < 2) {
      while (records_ < std::min<std::size_t>(most_, 8)) fill(records_++);
      return records_ * kStepSize;
    }
    for (unsigned changes = 1 + below(3); changes > 0; --changes) change();
    return records_ * kStepSize;
  }

 private:
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }
  std::uint8_t* record(std::size_t number) { return data_ + number * kStepSize; }
  std::size_t any_step() { return records_ < 2 ? 0 : 1 + below(records_ - 1); }

  void change() {
    switch (below(12)) {
      case 0:
      case 1: return insert();
      case 2: return erase();
      case 3: return repeat();
      case 4:
      case 5: return swap();
      case 6: record(0)[below(3)] ^= static_cast<std::uint8_t>(1U << below(8)); return;
      case 7: LLVMFuzzerMutate(record(any_step()), kStepSize, kStepSize); return;
      case 8: record(any_step())[below(kStepSize)] = static_cast<std::uint8_t>(below(256)); return;
      default: return alter();
    }
  }
  // A step in which most fields are small or what a field often is.
  void fill(std::size_t number) {
    static constexpr std::uint8_t kUsual[] = {0, 0, 1, 2, 3, 4, 8, 16, 32, 0x20, 0x40, 0x41, 0x60, 0x80, 0xC1, 0xFF};
    for (std::size_t i = 0; i < kStepSize; ++i) record(number)[i] = kUsual[below(std::size(kUsual))];
    record(number)[0] = static_cast<std::uint8_t>(below(static_cast<unsigned>(Act::count)));
    if (record(number)[0] == static_cast<unsigned>(Act::segment))
      record(number)[1] = static_cast<std::uint8_t>(0x20 | below(256));
  }
  void insert() {
    if (records_ == most_) return;
    const std::size_t at = 1 + below(records_);
    std::memmove(record(at + 1), record(at), (records_ - at) * kStepSize);
    ++records_;
    fill(at);
  }
  void erase() {
    if (records_ < 3) return;
    const std::size_t at = any_step(), count = 1 + below(std::min<std::size_t>(4, records_ - at));
    std::memmove(record(at), record(at + count), (records_ - at - count) * kStepSize);
    records_ -= count;
  }
  void repeat() {
    const std::size_t from = any_step(), count = std::min(1 + below(records_ - from), most_ - records_);
    std::memcpy(record(records_), record(from), count * kStepSize);
    records_ += count;
  }
  void swap() {
    const std::size_t a = any_step(), b = any_step();
    if (a != b) std::swap_ranges(record(a), record(a) + kStepSize, record(b));
  }
  void alter() {
    std::uint8_t& field = record(any_step())[below(kStepSize)];
    if (below(2) == 0) {
      field ^= static_cast<std::uint8_t>(1U << below(8));
    } else {
      field = static_cast<std::uint8_t>(field + below(9) - 4);
    }
  }

  std::uint8_t* data_;
  std::size_t records_, most_;
  std::minstd_rand random_;
};

// The beginning of one input and the end of another one.
inline std::size_t cross(const std::uint8_t* a, std::size_t a_size, const std::uint8_t* b, std::size_t b_size,
                         std::uint8_t* out, std::size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  const std::size_t a_records = a_size / kStepSize, b_records = b_size / kStepSize;
  if (a_records == 0 || b_records == 0) return 0;
  std::size_t head = 1 + random() % a_records, from = random() % b_records;
  head = std::min(head, most / kStepSize);
  const std::size_t tail = std::min(b_records - from, most / kStepSize - head);
  std::memcpy(out, a, head * kStepSize);
  std::memcpy(out + head * kStepSize, b + from * kStepSize, tail * kStepSize);
  return (head + tail) * kStepSize;
}

}  // namespace uiw::fuzz
