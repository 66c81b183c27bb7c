// SPDX-License-Identifier: MIT
// How a row of the report is measured: its reference and uiw in turns, so that both meet the same machine, and once
// again after a failure.
//
// A machine that others use too is faster now than a minute later. So the ratio is taken within each pair, of which the
// two measurements follow each other, and the report has the median and the spread of these ratios.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/measurement.h"
#include "tools/bench/plan.h"
#include "tools/bench/report.h"

namespace uiw::tools {

// Measures once; nullopt on failure, with `error`, and also if the benchmark was interrupted.
using Measure = std::function<std::optional<double>(const Measurement& measurement, std::string& error)>;
// Is told of each pair, and of each failure, in one line.
using Tell = std::function<void(const std::string& line)>;

// Measures `runs` pairs, each the reference first. The first pair that fails is measured once more; a second failure in
// the same row ends it, and the result has the error and no values. nullopt if `stopped` says that the benchmark was
// interrupted.
std::optional<BenchRow> measure_row(const Row& row, unsigned runs, const Measure& measure,
                                    const std::function<bool()>& stopped, const Tell& tell);

// `samples` has at least one element.
double median(std::vector<double> samples);

}  // namespace uiw::tools
