// SPDX-License-Identifier: MIT
// How `uiw bench` measures a row: in turns, with ratios within each pair, and once more after a failure.
#include "tools/bench/pairs.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace uiw::tools;

namespace {

constexpr Row kRow{"a_row", {"own", Measured::rdma_reads}, {"reference", Measured::tcp_sends}, 1.0};

// Answers with the results in their order; 0 is a failure.
struct Answers {
  std::vector<double> results;
  std::vector<std::string> asked;
  std::vector<std::string> told;
  std::size_t stop_after = 1000;  // results

  std::optional<BenchRow> measure(unsigned runs) {
    const auto once = [&](const Measurement& measurement, std::string& error) -> std::optional<double> {
      REQUIRE(asked.size() < results.size());
      const double result = results[asked.size()];
      asked.emplace_back(measurement.name);
      if (result != 0) return result;
      error = "failure " + std::to_string(asked.size());
      return std::nullopt;
    };
    return measure_row(
        kRow, runs, once, [&] { return asked.size() >= stop_after; },
        [&](const std::string& line) { told.push_back(line); });
  }
};

}  // namespace

TEST_CASE("bench pairs: reference and uiw in turns; medians, and the ratios of the pairs") {
  // The ratios are 2, 3 and 1.
  Answers answers{{10, 20, 10, 30, 20, 20}, {}, {}};
  const auto row = answers.measure(3);
  REQUIRE(row);
  CHECK(answers.asked == std::vector<std::string>{"reference", "own", "reference", "own", "reference", "own"});
  CHECK(row->value == 20);
  CHECK(row->compared == 10);
  CHECK(row->ratio == 2);
  REQUIRE(row->spread);
  CHECK(row->spread->smallest == 1);
  CHECK(row->spread->largest == 3);
  CHECK(row->repeated.empty());
  CHECK(row->error.empty());
  REQUIRE(answers.told.size() == 3);
  CHECK(answers.told[1].starts_with("pair 2 of 3: own "));
  CHECK(answers.told[1].ends_with("ratio 3.00"));
}

TEST_CASE("bench pairs: the median of the ratios is not the ratio of the medians") {
  Answers answers{{10, 10, 20, 60, 30, 60}, {}, {}};
  const auto row = answers.measure(3);
  REQUIRE(row);
  CHECK(row->value == 60);
  CHECK(row->compared == 20);
  CHECK(row->ratio == 2);
}

TEST_CASE("bench pairs: after one failure the whole pair is measured again, and the row says so") {
  for (const auto& [results, failure] : {std::pair{std::vector<double>{10, 0, 10, 20, 10, 40}, "failure 2"},
                                         std::pair{std::vector<double>{10, 20, 0, 10, 40}, "failure 3"}}) {
    Answers answers{results, {}, {}};
    const auto row = answers.measure(2);
    REQUIRE(row);
    CHECK(answers.asked.size() == results.size());
    CHECK(row->ratio == 3);
    CHECK(row->repeated == failure);
    CHECK(row->error.empty());
  }
}

TEST_CASE("bench pairs: a second failure ends the row, which then has no values") {
  for (const auto& results : {std::vector<double>{10, 0, 10, 0}, std::vector<double>{0, 10, 20, 10, 20, 0}}) {
    Answers answers{results, {}, {}};
    const auto row = answers.measure(5);
    REQUIRE(row);
    CHECK(answers.asked.size() == results.size());
    CHECK(row->error == "failure " + std::to_string(results.size()));
    CHECK_FALSE(row->repeated.empty());
    CHECK_FALSE(row->value);
    CHECK_FALSE(row->compared);
    CHECK_FALSE(row->ratio);
    CHECK_FALSE(row->spread);
  }
}

TEST_CASE("bench pairs: an interruption is no failure and gives no row") {
  Answers answers{{10, 20, 10, 0}, {}, {}, 4};
  CHECK_FALSE(answers.measure(5));
  CHECK(answers.told.size() == 1);
}

TEST_CASE("bench pairs: medians") {
  CHECK(median({3}) == 3);
  CHECK(median({5, 1, 3}) == 3);
  CHECK(median({4, 1, 3, 2}) == 2.5);
}
