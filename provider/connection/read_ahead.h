// SPDX-License-Identifier: MIT
// Octets that were read from the socket and wait until a receive is posted: at most as many as one read returns. Used
// with the receiver's lock held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "base/bytes.h"
#include "base/guarded_copy.h"

namespace uiw::provider {

class ReadAhead {
 public:
  // Keeps `rest`. If no octets are kept yet, `rest` is copied. Otherwise `rest` must be the last part of the octets
  // that are kept; then nothing is copied, so that a caller that processes one small message at a time does not copy
  // all later messages each time. False if there is no memory, or `rest` cannot be read.
  bool keep(Octets rest) {
    if (size_ == 0 && !rest.empty()) {
      octets_.reset(new (std::nothrow) std::byte[rest.size()]);
      if (!octets_) return false;
      if (!guarded_copy_unordered(octets_.get(), rest.data(), rest.size())) return false;
      size_ = rest.size();
    }
    taken_ = size_ - rest.size();
    return true;
  }
  // The octets of the last keep(). Valid until drop().
  Octets rest() const { return {octets_.get() + taken_, size_ - taken_}; }
  void drop() {
    octets_.reset();
    size_ = taken_ = 0;
  }

 private:
  std::unique_ptr<std::byte[]> octets_;
  std::size_t size_ = 0, taken_ = 0;
};

}  // namespace uiw::provider
