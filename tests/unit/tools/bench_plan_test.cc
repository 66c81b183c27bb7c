// SPDX-License-Identifier: MIT
// The plan of `uiw bench`: every row compares two measurements of one unit, and stands only where its needs are met.
#include "tools/bench/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <string_view>

using namespace uiw::tools;

namespace {

constexpr Available kAll{true, true, true};

const Row& row(const std::vector<Row>& rows, std::string_view id) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& each) { return each.id == id; });
  REQUIRE(found != rows.end());
  return *found;
}

bool has(const std::vector<Row>& rows, std::string_view id) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& each) { return each.id == id; });
}

bool by_perftest(const Measurement& measurement) {
  return measurement.what == Measured::rdma_bandwidth || measurement.what == Measured::rdma_messages ||
         measurement.what == Measured::rdma_latency || measurement.what == Measured::rdma_average_latency;
}

}  // namespace

TEST_CASE("bench plan: ids are unique, and each row compares values of the same unit") {
  std::set<std::string> ids;
  for (const Row& each : make_plan(8, kAll)) {
    INFO(each.id);
    CHECK(ids.insert(each.id).second);
    CHECK(unit_of(each.own.what) == unit_of(each.reference.what));
    for (const Measurement& measurement : {each.own, each.reference}) {
      INFO(measurement.name);
      CHECK((measurement.program != nullptr) == by_perftest(measurement));
      if (by_perftest(measurement)) CHECK(measurement.size != 0);
    }
    const BenchRow reported = report_row(each);
    CHECK(reported.id == each.id);
    CHECK(reported.name == each.own.name);
    CHECK(reported.reference == each.reference.name);
    CHECK(reported.unit == unit_of(each.own.what));
    CHECK(reported.target.value_or(0) == each.target);
    CHECK(reported.against_tcp == is_plain_tcp(each.reference.what));
  }
}

TEST_CASE("bench plan: the rows of shared memory and of TCP say which byte stream they mean") {
  for (const Row& each : make_plan(8, kAll)) {
    INFO(each.id);
    const std::string_view name = each.own.name;
    CHECK((each.own.way.stream == ByteStream::shared_memory) == name.starts_with("shared memory: "));
    CHECK(std::string_view(each.id).starts_with("shm_") == name.starts_with("shared memory: "));
    CHECK((each.own.way.stream == ByteStream::tcp) == name.starts_with("TCP: "));
    CHECK((each.needs == Needs::two_hosts) == name.starts_with("two hosts: "));
    // UCX is told by `way` too whether to use shared memory.
    if (each.needs == Needs::ucx) CHECK(each.reference.way.stream == each.own.way.stream);
  }
}

TEST_CASE("bench plan: rows whose needs are not met are left out") {
  struct Case {
    Available available;
    bool ucx, libfabric, hosts;
  };
  for (const Case& each : {Case{{}, false, false, false}, Case{{true, false, false}, true, false, false},
                           Case{{false, true, false}, false, true, false},
                           Case{{false, false, true}, false, false, true}, Case{kAll, true, true, true}}) {
    const std::vector<Row> rows = make_plan(8, each.available);
    CHECK(has(rows, "shm_send_lat_8_ucx") == each.ucx);
    CHECK(has(rows, "send_bw_1m_ucx") == each.ucx);
    CHECK(has(rows, "send_lat_8_libfabric") == each.libfabric);
    CHECK(has(rows, "hosts_write_bw_64k") == each.hosts);
    CHECK(has(rows, "shm_write_bw_64k"));
    CHECK(has(rows, "write_bw_64k"));
    CHECK(has(rows, "fetch_adds"));
  }
}

TEST_CASE("bench plan: with few processors one target differs") {
  CHECK(row(make_plan(2, kAll), "write_lat_8").target == 1.8);
  CHECK(row(make_plan(3, kAll), "write_lat_8").target == 1.8);
  CHECK(row(make_plan(4, kAll), "write_lat_8").target == 1.0);
  CHECK(row(make_plan(2, kAll), "send_lat_8").target == 1.0);
  CHECK_FALSE(report_row(row(make_plan(2, kAll), "setup_manual")).target);
}
