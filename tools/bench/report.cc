// SPDX-License-Identifier: MIT
#include "tools/bench/report.h"

#include <cstdio>
#include <limits>

#include "tools/json.h"
#include "tools/table.h"

namespace uiw::tools {
namespace {

std::string with_digits(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

bool smaller_is_better(Unit unit) { return unit == Unit::microseconds || unit == Unit::seconds; }

const char* unit_name(Unit unit) {
  switch (unit) {
    case Unit::gbits_per_second: return "Gb/s";
    case Unit::microseconds: return "us";
    case Unit::seconds: return "s";
    case Unit::messages_per_second: break;
  }
  return "messages/s";
}

std::string optional_json(const std::optional<double>& value) {
  return json_number(value.value_or(std::numeric_limits<double>::quiet_NaN()));
}

std::string error_json(const std::string& error) { return error.empty() ? "null" : json_string(error); }

std::string spread_json(const std::optional<Spread>& spread) {
  return spread ? json_array({json_number(spread->smallest), json_number(spread->largest)}) : "null";
}

std::vector<std::string> cells_of(const BenchRow& row) {
  const std::optional<bool> reached = met(row);
  return {row.name,
          row.value ? value_text(*row.value, row.unit) : "failed",
          row.compared ? value_text(*row.compared, row.unit) : "-",
          row.reference,
          row.ratio ? with_digits(*row.ratio, 2) : "-",
          row.spread ? with_digits(row.spread->smallest, 2) + " to " + with_digits(row.spread->largest, 2) : "-",
          row.target ? (smaller_is_better(row.unit) ? "at most " : "at least ") + with_digits(*row.target, 2) : "-",
          reached ? (*reached ? "met" : "not met") : "-"};
}

// What is said below the table: of rows that failed, once or for good, and of those that there are not.
std::vector<std::string> remarks(const BenchFrame& frame, const std::vector<BenchRow>& rows) {
  std::vector<std::string> lines;
  for (const BenchRow& row : rows) {
    const std::string name = row.name + " against " + row.reference;
    if (!row.repeated.empty()) lines.push_back(name + ": measured again after: " + row.repeated);
    if (!row.error.empty()) lines.push_back(name + ": failed: " + row.error);
  }
  for (const std::string& line : frame.left_out) lines.push_back("left out: " + line);
  return lines;
}

}  // namespace

std::optional<bool> met(const BenchRow& row) {
  if (!row.ratio || !row.target) return std::nullopt;
  return smaller_is_better(row.unit) ? *row.ratio <= *row.target : *row.ratio >= *row.target;
}

std::string value_text(double value, Unit unit) {
  switch (unit) {
    case Unit::gbits_per_second: return with_digits(value, 1) + " Gb/s";
    case Unit::microseconds: return with_digits(value, 2) + " us";
    case Unit::seconds: return with_digits(value, 3) + " s";
    case Unit::messages_per_second: break;
  }
  constexpr double kFew = 1e5;  // two digits of a million would say little of fewer messages
  return value < kFew ? with_digits(value / 1e3, 1) + " k/s" : with_digits(value / 1e6, 2) + " M/s";
}

std::string table_of(const BenchFrame& frame, const std::vector<BenchRow>& rows) {
  std::vector<std::vector<std::string>> lines{
      {"MEASURE", "UIW", "AGAINST", "MEASURED BY", "RATIO", "SPREAD", "TARGET", "RESULT"}};
  for (const BenchRow& row : rows) lines.push_back(cells_of(row));
  std::string text = "RDMA over uiw beside plain TCP on device " + frame.device + " (" + frame.address + "), " +
                     std::to_string(frame.processors) + " processors; medians of " + std::to_string(frame.runs) +
                     (frame.runs == 1 ? " pair" : " pairs") + " measured in turns, " + std::to_string(frame.seconds) +
                     " s each\n\n";
  text += aligned(lines);
  const char* separator = "\n";  // one empty line before all remarks
  for (const std::string& line : remarks(frame, rows)) {
    text += separator + line + "\n";
    separator = "";
  }
  return text;
}

std::string json_of(const BenchFrame& frame, const std::vector<BenchRow>& rows) {
  std::vector<std::string> values;
  for (const BenchRow& row : rows) {
    const std::optional<bool> reached = met(row);
    values.push_back(json_object({{"id", json_string(row.id)},
                                  {"measure", json_string(row.name)},
                                  {"unit", json_string(unit_name(row.unit))},
                                  {"better", json_string(smaller_is_better(row.unit) ? "smaller" : "larger")},
                                  {"uiw", optional_json(row.value)},
                                  {"tcp", row.against_tcp ? optional_json(row.compared) : "null"},
                                  {"tcp_measured_by", row.against_tcp ? json_string(row.reference) : "null"},
                                  {"against", optional_json(row.compared)},
                                  {"against_measured_by", json_string(row.reference)},
                                  {"ratio", optional_json(row.ratio)},
                                  {"spread", spread_json(row.spread)},
                                  {"target", optional_json(row.target)},
                                  {"met", reached ? json_bool(*reached) : "null"},
                                  {"repeated", error_json(row.repeated)},
                                  {"error", error_json(row.error)}}));
  }
  std::vector<std::string> left_out;
  for (const std::string& line : frame.left_out) left_out.push_back(json_string(line));
  return json_object({{"device", json_string(frame.device)},
                      {"address", json_string(frame.address)},
                      {"processors", json_number(frame.processors)},
                      {"runs", json_number(frame.runs)},
                      {"seconds", json_number(frame.seconds)},
                      {"rows", json_array(values)},
                      {"left_out", json_array(left_out)}}) +
         "\n";
}

}  // namespace uiw::tools
