// SPDX-License-Identifier: MIT
#include "tools/bench/plot.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "tools/bench/programs/program_pair.h"

namespace uiw::tools {
namespace {

namespace fs = std::filesystem;

// The size is that of the text column of a web page; the colours can be told apart by people who are colour-blind.
constexpr char kHead[] = R"(set terminal svg size 1000,420 font 'sans-serif,13' background 'white'
set encoding utf8
)";

constexpr char kBothHalves[] = R"(set multiplot layout 1,2 margins 0.075,0.985,0.2,0.96 spacing 0.1
set border 3 linecolor rgb '#555555'
set tics nomirror
set mxtics 1
set mytics 1
set format y '%g'
set grid ytics linecolor rgb '#dddddd' linetype 1
set logscale y 10
)";

constexpr char kBandwidthAxes[] = R"(set logscale x 2
set xrange [45:6000000]
set key bottom right Left reverse samplen 2 width 1
set xtics ('64 B' 64, '1 KiB' 1024, '16 KiB' 16384, '256 KiB' 262144, '4 MiB' 4194304)
set xlabel 'message size'
set ylabel 'bandwidth, Gb/s'
)";

// Bars on a logarithmic axis have no zero to start at, so they start at a fixed time.
constexpr char kLatencyAxes[] = R"(unset label
unset logscale x
set xrange [0.5:3.5]
set key top left
set xtics ('50th' 1, '99th' 2, '99.9th' 3)
set yrange [0.1:*] noextend
set offsets 0,0,graph 0.2,0
set xlabel 'percentile'
set ylabel 'latency, 8 octets one way, microseconds'
set style fill solid noborder
)";

const char* colour_of(Subject subject) {
  switch (subject) {
    case Subject::uiw_shared_memory: return "#0072b2";
    case Subject::uiw_tcp: return "#e69f00";
    case Subject::ucx_shared_memory: return "#009e73";
    case Subject::plain_tcp: break;
  }
  return "#8c8c8c";
}

std::string name_of(Subject subject, const char* plain_tcp) {
  switch (subject) {
    case Subject::uiw_shared_memory: return "uiw, shared memory";
    case Subject::uiw_tcp: return "uiw, TCP";
    case Subject::ucx_shared_memory: return "UCX, shared memory";
    case Subject::plain_tcp: break;
  }
  return std::string("plain TCP (") + plain_tcp + ")";
}

// As a string of gnuplot, in which nothing but the quote is special.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    result += c;
    if (c == '\'') result += c;
  }
  return result + "'";
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Three digits at least, and not more than two of them behind the point.
std::string short_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", value < 10 ? 2 : value < 100 ? 1 : 0, value);
  return text;
}

// "name << END" and its lines: an x, a y, and the y as it is shown.
std::string data_block(const std::string& name, const std::vector<std::pair<double, double>>& points) {
  std::string text = name + " << END\n";
  for (const auto& [x, y] : points) text += number(x) + " " + number(y) + " " + short_number(y) + "\n";
  return text + "END\n";
}

// One plot command for all curves, which are separated by commas.
std::string plot_command(const std::vector<std::string>& curves) {
  std::string text;
  for (const std::string& curve : curves) text += (text.empty() ? "plot " : ", \\\n  ") + curve;
  return text + "\n";
}

std::string bandwidth_half(const std::vector<BandwidthCurve>& bandwidth) {
  std::string data;
  std::vector<std::string> curves;
  for (const BandwidthCurve& curve : bandwidth) {
    if (curve.points.empty()) continue;
    const std::string name = "$bandwidth" + std::to_string(curves.size());
    std::vector<std::pair<double, double>> points;
    for (const BandwidthPoint& point : curve.points)
      points.emplace_back(static_cast<double>(point.size), point.gbits_per_second);
    data += data_block(name, points);
    curves.push_back(name + " using 1:2 with linespoints linewidth 2 pointtype 7 pointsize 0.6 linecolor rgb '" +
                     colour_of(curve.subject) + "' title " + quoted(name_of(curve.subject, "iperf3")));
  }
  return curves.empty() ? "" : data + kBandwidthAxes + plot_command(curves);
}

std::string latency_half(const std::vector<LatencyBars>& latency) {
  constexpr double kGroupWidth = 0.84;  // of the distance between two groups
  const double width = kGroupWidth / static_cast<double>(latency.size());
  std::string data;
  std::vector<std::string> curves;
  double offset = (width - kGroupWidth) / 2;
  for (const LatencyBars& bars : latency) {
    const std::string name =
        "$latency" + std::to_string(curves.size() / 2);  // each has a curve of bars and one of texts
    data += data_block(name, {{1 + offset, bars.microseconds.median},
                              {2 + offset, bars.microseconds.percentile_99},
                              {3 + offset, bars.microseconds.percentile_99_9}});
    curves.push_back(name + " using 1:2 with boxes linecolor rgb '" + colour_of(bars.subject) + "' title " +
                     quoted(name_of(bars.subject, "sockperf")));
    curves.push_back(name + " using 1:2:3 with labels offset 0,0.6 font ',10' notitle");
    offset += width;
  }
  if (latency.empty()) return "";
  return data + kLatencyAxes + "set boxwidth " + number(width * 0.92) + "\n" + plot_command(curves);
}

}  // namespace

std::string gnuplot_script(const Picture& picture, const std::string& file) {
  const std::string caption = std::to_string(picture.processors) +
                              (picture.processors == 1 ? " processor" : " processors") + ", one host; " +
                              (picture.runs == 1 ? "one run" : "medians of " + std::to_string(picture.runs) + " runs");
  return kHead + ("set output " + quoted(file)) + "\n" + kBothHalves + "set label " + quoted(caption) +
         " at screen 0.985,0.035 right font ',10' textcolor rgb '#777777'\n" + bandwidth_half(picture.bandwidth) +
         latency_half(picture.latency) + "unset multiplot\n";
}

bool run_gnuplot(const std::string& script, std::string& error) {
  // The script is in a file without a name, which gnuplot inherits.
  const int fd = memfd_create("uiw-bench-plot", 0);
  bool good = fd >= 0 && write(fd, script.data(), script.size()) == static_cast<ssize_t>(script.size());
  if (!good) {
    error = std::string("the script for gnuplot cannot be kept in memory: ") + std::strerror(errno);
  } else {
    const Arguments arguments{"gnuplot", "--default-settings", "/proc/self/fd/" + std::to_string(fd)};
    good = run_program(arguments, {{"LD_PRELOAD", ""}, {"LC_ALL", "C"}}, std::chrono::seconds(15), error).has_value();
  }
  if (fd >= 0) close(fd);
  return good;
}

std::string cannot_write(const std::string& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) return file + " is a directory";
  const fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : fs::path(".");
  const std::string asked = fs::exists(file, ignored) ? file : folder.string();
  if (access(asked.c_str(), W_OK) == 0) return {};
  return file + " cannot be written: " + asked + ": " + std::strerror(errno);
}

}  // namespace uiw::tools
