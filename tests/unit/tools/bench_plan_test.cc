// SPDX-License-Identifier: MIT
// The plan of `uiw bench`: every row has two series of one unit, and references are measured near what they stand
// beside.
#include "tools/bench/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <string_view>

using namespace uiw::tools;

namespace {

const PlannedRow& row(const Plan& plan, std::string_view id) {
  const auto found =
      std::find_if(plan.rows.begin(), plan.rows.end(), [&](const PlannedRow& each) { return each.row.id == id; });
  REQUIRE(found != plan.rows.end());
  return *found;
}

}  // namespace

TEST_CASE("bench plan: names are unique, and each row compares values of the same unit") {
  const Plan plan = make_plan(8);
  std::set<std::string> names, ids;
  for (const Series& series : plan.series) {
    INFO(series.name);
    CHECK(names.insert(series.name).second);
    const bool perftest = series.what == Measured::rdma_bandwidth || series.what == Measured::rdma_messages ||
                          series.what == Measured::rdma_latency;
    CHECK((series.program != nullptr) == perftest);
    CHECK((series.size != 0) == perftest);
  }
  for (const PlannedRow& planned : plan.rows) {
    INFO(planned.row.id);
    CHECK(ids.insert(planned.row.id).second);
    REQUIRE(planned.series < plan.series.size());
    REQUIRE(planned.reference < plan.series.size());
    const Series& own = plan.series[planned.series];
    const Series& reference = plan.series[planned.reference];
    CHECK(planned.row.name == own.name);
    CHECK(planned.row.reference == reference.name);
    CHECK(unit_of(own.what) == unit_of(reference.what));
    CHECK(planned.row.unit == unit_of(own.what));
    const bool plain = reference.what == Measured::iperf3 || reference.what == Measured::sockperf ||
                       reference.what == Measured::tcp_sends || reference.what == Measured::tcp_setup;
    CHECK(planned.row.against_tcp == plain);
  }
}

TEST_CASE("bench plan: a reference comes before what is compared with it, and plain TCP again and again") {
  const Plan plan = make_plan(8);
  for (const PlannedRow& planned : plan.rows) {
    INFO(planned.row.id);
    const auto own = std::find(plan.order.begin(), plan.order.end(), planned.series);
    REQUIRE(own != plan.order.end());
    CHECK(std::find(plan.order.begin(), own, planned.reference) != own);
  }
  for (std::size_t which = 0; which < plan.series.size(); ++which) {
    const auto times = std::count(plan.order.begin(), plan.order.end(), which);
    CHECK(times == (plan.series[which].what == Measured::iperf3 ? 4 : 1));
  }
}

TEST_CASE("bench plan: with few processors one target differs") {
  CHECK(row(make_plan(2), "write_lat_8").row.target == 1.8);
  CHECK(row(make_plan(3), "write_lat_8").row.target == 1.8);
  CHECK(row(make_plan(4), "write_lat_8").row.target == 0.85);
  CHECK(row(make_plan(2), "send_lat_8").row.target == 0.85);
  CHECK_FALSE(row(make_plan(2), "setup_manual").row.target);
}

TEST_CASE("bench plan: medians, and the error of what failed") {
  CHECK(median({3}) == 3);
  CHECK(median({5, 1, 3}) == 3);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  Plan plan = make_plan(8);
  const PlannedRow& planned = row(plan, "write_bw_64k");
  plan.series[planned.series].samples = {1, 9, 2};
  plan.series[planned.reference].samples = {4};
  plan.series[row(plan, "send_lat_8").series].error = "it failed";
  for (const BenchRow& each : rows_of(plan)) {
    if (each.id == "write_bw_64k") {
      CHECK(each.value == 2);
      CHECK(each.compared == 4);
      CHECK(each.error.empty());
    } else if (each.id == "send_lat_8") {
      CHECK_FALSE(each.value);
      CHECK(each.error == "it failed");
    }
  }
}
