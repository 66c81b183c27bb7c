// SPDX-License-Identifier: MIT
#include "tools/bench/pairs.h"

#include <algorithm>
#include <cstdio>

namespace uiw::tools {
namespace {

struct Pair {
  double reference = 0;
  double own = 0;
};

std::optional<Pair> measure_pair(const Row& row, const Measure& measure, std::string& error) {
  const std::optional<double> reference = measure(row.reference, error);
  if (!reference) return std::nullopt;
  const std::optional<double> own = measure(row.own, error);
  if (!own) return std::nullopt;
  return Pair{*reference, *own};
}

std::string pair_text(const Row& row, const Pair& pair) {
  const Unit unit = unit_of(row.own.what);
  char ratio[40];
  std::snprintf(ratio, sizeof ratio, "%.2f", pair.own / pair.reference);
  return std::string(row.own.name) + " " + value_text(pair.own, unit) + ", " + row.reference.name + " " +
         value_text(pair.reference, unit) + ", ratio " + ratio;
}

void summarize(const std::vector<Pair>& pairs, BenchRow& result) {
  std::vector<double> own, reference, ratios;
  for (const Pair& pair : pairs) {
    own.push_back(pair.own);
    reference.push_back(pair.reference);
    ratios.push_back(pair.own / pair.reference);
  }
  const auto [smallest, largest] = std::minmax_element(ratios.begin(), ratios.end());
  result.value = median(own);
  result.compared = median(reference);
  result.ratio = median(ratios);
  result.spread = Spread{*smallest, *largest};
}

}  // namespace

std::optional<BenchRow> measure_row(const Row& row, unsigned runs, const Measure& measure,
                                    const std::function<bool()>& stopped, const Tell& tell) {
  BenchRow result = report_row(row);
  std::vector<Pair> pairs;
  while (pairs.size() < runs) {
    const std::string which = "pair " + std::to_string(pairs.size() + 1) + " of " + std::to_string(runs) + ": ";
    std::string error;
    const std::optional<Pair> pair = measure_pair(row, measure, error);
    if (stopped()) return std::nullopt;
    if (pair) {
      pairs.push_back(*pair);
      tell(which + pair_text(row, *pair));
      continue;
    }
    tell(which + row.own.name + ": failed: " + error);
    if (!result.repeated.empty()) {
      result.error = error;
      return result;
    }
    result.repeated = error;
  }
  summarize(pairs, result);
  return result;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

}  // namespace uiw::tools
