// SPDX-License-Identifier: MIT
// The report of `uiw bench`: one row for each measurement, with the value of plain TCP or of a similar operation beside
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace uiw::tools {

enum class Unit { gbits_per_second, microseconds, seconds, messages_per_second };

// The smallest and the largest ratio of the pairs.
struct Spread {
  double smallest = 0;
  double largest = 0;
};

struct BenchRow {
  std::string id;    // for --json: "write_bw_64k"
  std::string name;  // "TCP: ib_write_bw 64 KiB, CRC off"
  Unit unit = Unit::gbits_per_second;
  std::string reference;         // "iperf3, one stream"
  std::optional<double> target;  // the target for the ratio: a minimum for rates, a maximum for times
  // Medians over the pairs; none if the row failed. `ratio` is the median of the pairs' ratios uiw / reference, which
  // is not exactly that of the medians.
  std::optional<double> value;
  std::optional<double> compared;
  std::optional<double> ratio;
  std::optional<Spread> spread;
  std::string repeated;     // the failure after which a pair was measured again, if there was one
  std::string error;        // the reason if there is no value
  bool against_tcp = true;  // false: the reference is not plain TCP
};

// Whether the ratio reaches the target; nullopt if one of them is missing.
std::optional<bool> met(const BenchRow& row);

// "41.2 Gb/s", "2.14 us", "0.212 s", "1.05 M/s", "51.4 k/s"
std::string value_text(double value, Unit unit);

struct BenchFrame {
  unsigned runs = 0;
  unsigned seconds = 0;
  unsigned processors = 0;
  std::string device;
  std::string address;
  std::vector<std::string> left_out;  // which rows there are not, and why: a line each
};
std::string table_of(const BenchFrame& frame, const std::vector<BenchRow>& rows);
std::string json_of(const BenchFrame& frame, const std::vector<BenchRow>& rows);

}  // namespace uiw::tools
