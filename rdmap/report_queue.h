// SPDX-License-Identifier: MIT
// Progress reports of this end that are to be sent: how much of what the peer has sent is placed (kReportBit). They
// belong to whoever holds the sender's lock.
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

  // Reports are numbered from 0. One stays until TCP has taken it, as it may be built again.
  std::uint32_t end() const { return end_; }
  const Report& at(std::uint32_t number) const { return reports_[number % kMost]; }
  // TCP has taken those before `sent`. False where so many wait for it that this one has no place.
  bool push(const Report& report, std::uint32_t sent) {
    if (end_ - sent == kMost) return false;
    reports_[end_++ % kMost] = report;
    return true;
  }

 private:
  static constexpr std::uint32_t kMost = 2;
  std::uint32_t end_ = 0;
  std::array<Report, kMost> reports_;
};

}  // namespace uiw::rdmap
