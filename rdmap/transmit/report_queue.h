// SPDX-License-Identifier: MIT
// Messages of uiw's own that wait to be sent to a peer that is uiw, too: the hello, which says that this end is uiw,
// the request for progress reports, and progress reports, which say how much of the peer's work has been placed
// (rdmap_format.h). Called with the sender's lock held.
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

  // Reports are numbered from 0. A report stays until TCP has accepted it, since it may have to be built again.
  std::uint32_t end() const { return end_; }
  const Report& at(std::uint32_t number) const { return reports_[number % kMost]; }
  // `sent`: TCP has accepted the reports before this number. False if there is no room for another report.
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
