// SPDX-License-Identifier: MIT
// The picture of `uiw bench --plot`, which gnuplot draws: bandwidth over message size on the left, latency percentiles
// on the right.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/bench/programs/parse.h"

namespace uiw::tools {

// Whose values they are; each has one colour in both halves.
enum class Subject { uiw_shared_memory, uiw_tcp, plain_tcp, ucx_shared_memory };

struct BandwidthPoint {
  std::size_t size;  // octets of a message
  double gbits_per_second;
};
struct BandwidthCurve {
  Subject subject;
  std::vector<BandwidthPoint> points;
};
struct LatencyBars {
  Subject subject;
  Percentiles microseconds;
};
struct Picture {
  unsigned processors = 0;
  unsigned runs = 0;  // each value is the median of so many
  std::vector<BandwidthCurve> bandwidth;
  std::vector<LatencyBars> latency;
};

// The script that makes gnuplot write the picture to `file`, as SVG. It has no side effects. A curve without points is
// left out.
std::string gnuplot_script(const Picture& picture, const std::string& file);

// Has gnuplot run a script. False with one line in `error`.
bool run_gnuplot(const std::string& script, std::string& error);

// Why `file` cannot be written, in one line; empty if it seems that it can. For a message before anything is measured.
std::string cannot_write(const std::string& file);

}  // namespace uiw::tools
