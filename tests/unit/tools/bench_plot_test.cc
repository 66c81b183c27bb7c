// SPDX-License-Identifier: MIT
// The script that `uiw bench --plot` gives to gnuplot.
#include "tools/bench/plot.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "tools/files.h"

using namespace uiw::tools;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/uiw-plot-test.XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Picture example() {
  Picture picture;
  picture.processors = 2;
  picture.runs = 5;
  picture.bandwidth = {{Subject::uiw_shared_memory, {{64, 1.5}, {256, 6}}}, {Subject::plain_tcp, {{64, 0.25}}}};
  picture.latency = {{Subject::uiw_shared_memory, {0.5, 1.25, 20}}, {Subject::plain_tcp, {7, 9, 4100.5}}};
  return picture;
}

}  // namespace

TEST_CASE("bench plot: the script has the file, the values and the names") {
  const std::string script = gnuplot_script(example(), "a file.svg");
  CHECK(has(script, "set terminal svg"));
  CHECK(has(script, "set output 'a file.svg'\n"));
  CHECK(has(script, "'2 processors, one host; medians of 5 runs'"));
  CHECK(has(script, "$bandwidth0 << END\n64 1.5 1.50\n256 6 6.00\nEND\n"));
  CHECK(has(script, "$bandwidth1 << END\n64 0.25 0.25\nEND\n"));
  CHECK(has(script, "title 'uiw, shared memory'"));
  CHECK(has(script, "title 'plain TCP (iperf3)'"));
  CHECK(has(script, "title 'plain TCP (sockperf)'"));
  // Each subject has a bar in each of the three groups, the first left of the middle and the second right of it.
  CHECK(has(script, "$latency0 << END\n0.79 0.5 0.50\n1.79 1.25 1.25\n2.79 20 20.0\nEND\n"));
  CHECK(has(script, "$latency1 << END\n1.21 7 7.00\n2.21 9 9.00\n3.21 4100.5 4100\nEND\n"));
  CHECK(script.ends_with("unset multiplot\n"));
}

TEST_CASE("bench plot: a quote in the name of the file does not end the string") {
  CHECK(has(gnuplot_script(example(), "it's; quit"), "set output 'it''s; quit'\n"));
}

TEST_CASE("bench plot: curves without points are left out, and so is a half without curves") {
  Picture picture = example();
  picture.bandwidth[0].points.clear();
  std::string script = gnuplot_script(picture, "file");
  CHECK_FALSE(has(script, "$bandwidth1"));
  CHECK(has(script, "$bandwidth0 << END\n64 0.25 0.25\nEND\n"));
  picture.bandwidth[1].points.clear();
  picture.latency.clear();
  script = gnuplot_script(picture, "file");
  CHECK_FALSE(has(script, "\nplot "));
}

TEST_CASE("bench plot: gnuplot draws both halves") {
  int missing = 0;
  find_program("gnuplot", missing);
  if (missing != 0) {
    WARN("gnuplot is not installed");
    return;
  }
  const Folder folder;
  const std::string file = folder.path() + "/it's.svg";
  std::string error;
  run_gnuplot(gnuplot_script(example(), file), error);
  REQUIRE(error == "");
  std::ifstream stream(file);
  const std::string svg{std::istreambuf_iterator<char>(stream), {}};
  for (const char* part :
       {"message size", "bandwidth, Gb/s", "percentile", "iperf3", "sockperf", "2 processors", "</svg>"})
    CHECK(has(svg, part));
  CHECK_FALSE(run_gnuplot("plot nothing\n", error));
  CHECK(has(error, "gnuplot ended with status"));
}

TEST_CASE("bench plot: what cannot be written is said before") {
  const Folder folder;
  const std::string& place = folder.path();
  CHECK(cannot_write(place + "/picture.svg").empty());
  CHECK(cannot_write("picture.svg").empty());
  CHECK(cannot_write(place) == place + " is a directory");
  CHECK(cannot_write(place + "/absent/picture.svg") ==
        place + "/absent/picture.svg cannot be written: " + place + "/absent: No such file or directory");
}
