// SPDX-License-Identifier: MIT
// The retry counts of rdma_connect and rdma_accept in the RoCE view. InfiniBand's REQ and REP have fields for them, but
// MPA's frames have none. So counts other than the defaults are appended to the private data of the consumer, after a
// key. A receiving uiw removes them again. Encoding and decoding stand side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "mpa/mpa_format.h"

namespace uiw::provider {

// Each count is from 0 to 7. An RNR retry count of 7 means that retries never end.
struct RetryCounts {
  static constexpr std::uint8_t kMost = 7;
  std::uint8_t retry = kMost, rnr_retry = kMost;
  bool operator==(const RetryCounts&) const = default;
};

//   octet  0..5   "uiw-cm"
//          6      retry count
//          7      RNR retry count
constexpr std::string_view kRetryCountsKey = "uiw-cm";
constexpr std::size_t kRetryCountsSize = 8;

// Appends nothing if both counts have the default, 7, so that most private data stays as it is. Throws std::bad_alloc.
inline void append(const RetryCounts& counts, std::vector<std::byte>& private_data) {
  if (counts == RetryCounts{}) return;
  for (const char octet : kRetryCountsKey) private_data.push_back(static_cast<std::byte>(octet));
  private_data.push_back(std::byte{counts.retry});
  private_data.push_back(std::byte{counts.rnr_retry});
}

// Removes the counts from the end of a peer's private data and returns them; returns the defaults if there are none.
inline RetryCounts take_retry_counts(std::vector<std::byte>& private_data) {
  if (private_data.size() < kRetryCountsSize) return {};
  const std::byte* const at = private_data.data() + (private_data.size() - kRetryCountsSize);
  const RetryCounts counts{static_cast<std::uint8_t>(at[6]), static_cast<std::uint8_t>(at[7])};
  if (std::memcmp(at, kRetryCountsKey.data(), kRetryCountsKey.size()) != 0) return {};
  if (counts.retry > RetryCounts::kMost || counts.rnr_retry > RetryCounts::kMost) return {};
  private_data.erase(private_data.end() - kRetryCountsSize, private_data.end());
  return counts;
}

}  // namespace uiw::provider
