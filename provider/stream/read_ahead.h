// SPDX-License-Identifier: MIT
// Octets that TCP has delivered, and that wait for a receive to be posted: at most what one read takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "mpa/bytes.h"

namespace uiw::provider {

class ReadAhead {
 public:
  // Keeps `rest`: either new octets where there are none, or the end of those that are there, without another copy, for
  // a small message a turn must not mean a copy of all a turn. False where there is no memory.
  bool keep(mpa::Octets rest) {
    if (size_ == 0 && !rest.empty()) {
      octets_.reset(new (std::nothrow) std::byte[rest.size()]);
      if (!octets_) return false;
      std::copy(rest.begin(), rest.end(), octets_.get());
      size_ = rest.size();
    }
    taken_ = size_ - rest.size();
    return true;
  }
  mpa::Octets rest() const { return {octets_.get() + taken_, size_ - taken_}; }
  void drop() {
    octets_.reset();
    size_ = taken_ = 0;
  }

 private:
  std::unique_ptr<std::byte[]> octets_;
  std::size_t size_ = 0, taken_ = 0;
};

}  // namespace uiw::provider
