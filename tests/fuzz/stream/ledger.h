// SPDX-License-Identifier: MIT
// What the program has posted to the send queue, how much of it has gone out, and what has completed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "rdmap/work.h"
#include "tests/fuzz/stream/memory.h"

namespace uiw::fuzz {

using rdmap::Status;
using rdmap::WorkKind;

struct Posted {
  rdmap::SendWork work;
  std::array<Piece, 3> pieces;
  unsigned count = 0;
  std::uint32_t sent = 0;  // octets that have gone out
  bool data_sent = false;  // of a Write, its Immediate Data may not
  bool whole = false;      // all of it has gone out
  bool answered = false;
  bool carried_out = false;
};

// An octet of inline data.
constexpr std::uint8_t inline_octet(std::uint64_t id, std::size_t at) {
  return static_cast<std::uint8_t>(id * 31 + at);
}

class Ledger {
 public:
  void clear() { works_.clear(), completed_ = sending_ = 0, failed_ = false; }
  Posted& post() { return works_.emplace_back(); }
  std::uint64_t next_id() const { return works_.size(); }
  bool all_complete() const { return completed_ == works_.size(); }
  Posted* oldest() { return all_complete() ? nullptr : &works_[completed_]; }
  Posted& of(std::uint64_t id) {
    check(id < works_.size());
    return works_[id];
  }
  // The work whose message is on the wire now, or comes next. `begins`: an FPDU of it begins. That is all over once
  // work has been flushed.
  Posted& sending(bool begins) {
    while (sending_ < works_.size() && rdmap::is_local(works_[sending_].work.kind)) {
      check(works_[sending_].carried_out);
      ++sending_;
    }
    check(sending_ < works_.size() && (sending_ >= completed_ || !begins));
    return works_[sending_];
  }
  // The same; nothing if there is none.
  const Posted* next_to_send() {
    while (sending_ < works_.size() && rdmap::is_local(works_[sending_].work.kind)) ++sending_;
    return sending_ < works_.size() ? &works_[sending_] : nullptr;
  }
  void sent_whole() { works_[sending_++].whole = true; }

  void complete(const rdmap::SendWork& work, Status status) {
    check(completed_ < works_.size());
    const Posted& posted = works_[completed_];
    check(work.id == completed_ && work.kind == posted.work.kind);
    ++completed_;
    check(status != Status::success || !failed_);
    failed_ = failed_ || status != Status::success;
    if (status != Status::success) return;
    if (rdmap::is_local(work.kind)) return check(posted.carried_out);
    check(posted.whole);
    check(!rdmap::is_answered(work.kind) || posted.answered);
  }
  // The next request in the order of posting has been answered.
  void answer(std::uint64_t id) {
    for (std::uint64_t i = completed_; i < id; ++i)
      check(!rdmap::is_answered(works_[i].work.kind) || works_[i].answered);
    check(rdmap::is_answered(of(id).work.kind) && !of(id).answered);
    of(id).answered = true;
  }

 private:
  std::vector<Posted> works_;  // by identifier
  std::uint64_t completed_ = 0, sending_ = 0;
  bool failed_ = false;
};

}  // namespace uiw::fuzz
