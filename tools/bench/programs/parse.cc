// SPDX-License-Identifier: MIT
#include "tools/bench/programs/parse.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
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

std::optional<PerftestLatency> parse_perftest_latency(const std::string& output, std::size_t size) {
  const std::vector<double> row = perftest_row(output, size, 9);
  if (row.empty() || row[4] <= 0) return std::nullopt;
  return PerftestLatency{{row[4], row[7], row[8]}, row[5]};
}

std::optional<double> parse_setup(const std::string& output) {
  const std::optional<double> time = number_after(output, "");
  if (!time || *time <= 0) return std::nullopt;
  return time;
}

std::optional<AnswerRate> parse_requests(const std::string& output) {
  const std::optional<double> rate = number_after(output, "");
  const std::optional<double> time = number_after(output, "answers a second,");
  if (!rate || !time || *rate <= 0 || *time <= 0) return std::nullopt;
  return AnswerRate{*rate, *time};
}

std::optional<double> parse_iperf3(const std::string& json) {
  const std::optional<double> bits = number_after(json, "\"bits_per_second\":", json.rfind("\"sum_received\""));
  if (!bits || *bits <= 0) return std::nullopt;
  return *bits / 1e9;
}

std::optional<Percentiles> parse_sockperf(const std::string& output) {
  const std::optional<double> median = number_after(output, "percentile 50.000 =");
  const std::optional<double> most = number_after(output, "percentile 99.000 =");
  const std::optional<double> nearly_all = number_after(output, "percentile 99.900 =");
  if (!median || !most || !nearly_all || *median <= 0) return std::nullopt;
  return Percentiles{*median, *most, *nearly_all};
}

// Iterations; the median, average and overall time; the average and overall bandwidth; and likewise the rate. Before
// the end of a long test there are such lines for the time until then, with the thread before the first number.
std::optional<UcxResult> parse_ucx(const std::string& output) {
  std::istringstream lines(output);
  std::optional<UcxResult> result;
  for (std::string line; std::getline(lines, line);) {
    std::replace(line.begin(), line.end(), ',', ' ');
    const std::vector<double> numbers = numbers_of(line);
    constexpr double kGbitsPerMebibyte = 8 * 1048576 / 1e9;
    if (numbers.size() == 8 && numbers[5] > 0) result = UcxResult{numbers[1], numbers[5] * kGbitsPerMebibyte};
  }
  return result;
}

std::optional<double> parse_fi_pingpong(const std::string& output) {
  std::istringstream lines(output);
  std::optional<double> result;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> cells{std::istream_iterator<std::string>(words), {}};
    // Size, sent, acknowledged, total and time have units behind their numbers; MB/sec, usec/xfer and Mxfers/sec none.
    if (cells.size() != 8 || numbers_of(cells[5] + " " + cells[6] + " " + cells[7]).empty()) continue;
    if (const double time = std::atof(cells[6].c_str()); time > 0) result = time;
  }
  return result;
}

}  // namespace uiw::tools
