// SPDX-License-Identifier: MIT
#include "tools/bench/parse.h"

#include <cstdlib>
#include <sstream>
#include <vector>

namespace uiw::tools {
namespace {

// The numbers of a line that has nothing else; empty otherwise.
std::vector<double> numbers_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<double> numbers;
  for (std::string word; words >> word;) {
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    if (end == word.c_str() || *end != '\0') return {};
    numbers.push_back(number);
  }
  return numbers;
}

// The last line of at least `columns` numbers of which the first is the message size.
std::vector<double> perftest_row(const std::string& output, std::size_t size, std::size_t columns) {
  std::istringstream lines(output);
  std::vector<double> found;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<double> numbers = numbers_of(line);
    if (numbers.size() >= columns && numbers[0] == static_cast<double>(size)) found = numbers;
  }
  return found;
}

// The number that follows the first `marker` after `from`.
std::optional<double> number_after(const std::string& text, const std::string& marker, std::size_t from = 0) {
  const std::size_t at = from == std::string::npos ? from : text.find(marker, from);
  if (at == std::string::npos) return std::nullopt;
  const char* start = text.c_str() + at + marker.size();
  char* end = nullptr;
  const double number = std::strtod(start, &end);
  if (end == start) return std::nullopt;
  return number;
}

}  // namespace

std::optional<PerftestBandwidth> parse_perftest_bandwidth(const std::string& output, std::size_t size) {
  const std::vector<double> row = perftest_row(output, size, 5);
  if (row.empty() || row[3] <= 0) return std::nullopt;
  return PerftestBandwidth{row[3], row[4] * 1e6};
}

std::optional<double> parse_perftest_latency(const std::string& output, std::size_t size) {
  const std::vector<double> row = perftest_row(output, size, 9);
  if (row.empty() || row[4] <= 0) return std::nullopt;
  return row[4];
}

std::optional<double> parse_setup(const std::string& output) {
  const std::optional<double> time = number_after(output, "");
  if (!time || *time <= 0) return std::nullopt;
  return time;
}

std::optional<double> parse_iperf3(const std::string& json) {
  const std::optional<double> bits = number_after(json, "\"bits_per_second\":", json.rfind("\"sum_received\""));
  if (!bits || *bits <= 0) return std::nullopt;
  return *bits / 1e9;
}

std::optional<double> parse_sockperf(const std::string& output) {
  const std::optional<double> median = number_after(output, "percentile 50.000 =");
  if (!median || *median <= 0) return std::nullopt;
  return median;
}

}  // namespace uiw::tools
