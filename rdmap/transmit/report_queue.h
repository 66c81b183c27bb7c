// SPDX-License-Identifier: MIT
// What this end has to tell a peer that is uiw: its hello, and progress reports, which say how much of the peer's work
// has been placed. Called with the sender's lock held.
#pragma once

#include <array>
#include <cstdint>

#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

class ReportQueue {
 public:
  struct Report {
    Stag occasion;
    Progress progress;
  };

  // Reports are numbered from 0. A report stays until TCP has accepted it, as it may have to be built again.
  std::uint32_t end() const { return end_; }
  const Report& at(std::uint32_t number) const { return reports_[number % kMost]; }
  // TCP has accepted the reports before `sent`. False if there is no room for another one.
  bool push(const Report& report, std::uint32_t sent) {
    if (end_ - sent == kMost) return false;
    reports_[end_++ % kMost] = report;
    return true;
  }

 private:
  static constexpr std::uint32_t kMost = 4;
  std::uint32_t end_ = 0;
  std::array<Report, kMost> reports_;
};

}  // namespace uiw::rdmap
