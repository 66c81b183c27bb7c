// SPDX-License-Identifier: MIT
// The plan of `uiw bench`: every row compares two measurements of one unit, and stands only where its needs are met.
#include "tools/bench/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace uiw::tools;

namespace {

constexpr Available kAll{true, true, true, true, true};
const std::vector<Group> kEveryGroup{Group::basic, Group::events, Group::connections, Group::server, Group::pinned};

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
         measurement.what == Measured::rdma_latency || measurement.what == Measured::rdma_average_latency ||
         measurement.what == Measured::rdma_event_latency || measurement.what == Measured::connections_messages ||
         measurement.what == Measured::connections_bandwidth;
}

}  // namespace

TEST_CASE("bench plan: ids are unique, and each row compares values of the same unit") {
  std::set<std::string> ids;
  for (const Row& each : make_plan(kEveryGroup, 8, kAll)) {
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
  for (const Row& each : make_plan(kEveryGroup, 8, kAll)) {
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
    bool ucx, libfabric, hosts, descriptors, processors;
  };
  for (const Case& each : {Case{{}, false, false, false, false, false},
                           Case{{true, false, false, false, false}, true, false, false, false, false},
                           Case{{false, true, false, false, false}, false, true, false, false, false},
                           Case{{false, false, true, false, false}, false, false, true, false, false},
                           Case{{false, false, false, true, false}, false, false, false, true, false},
                           Case{{false, false, false, false, true}, false, false, false, false, true},
                           Case{kAll, true, true, true, true, true}}) {
    const std::vector<Row> rows = make_plan(kEveryGroup, 8, each.available);
    CHECK(has(rows, "shm_send_lat_8_ucx") == each.ucx);
    CHECK(has(rows, "send_bw_1m_ucx") == each.ucx);
    CHECK(has(rows, "send_lat_8_libfabric") == each.libfabric);
    CHECK(has(rows, "hosts_write_bw_64k") == each.hosts);
    CHECK(has(rows, "shm_write_bw_64k"));
    CHECK(has(rows, "write_bw_64k"));
    CHECK(has(rows, "fetch_adds"));
    CHECK(has(rows, "writes_8_1000_connections") == each.descriptors);
    CHECK(has(rows, "writes_8_256_connections"));
    CHECK(has(rows, "shm_pinned_writes_4k") == each.processors);
  }
}

TEST_CASE(
    "bench plan: each group has rows, each row is in one group, and there are only the groups that are asked for") {
  std::size_t rows = 0;
  for (const NamedGroup& each : kGroups) {
    INFO(each.name);
    const std::size_t count = make_plan({each.group}, 8, kAll).size();
    CHECK(count > 0);
    rows += count;
  }
  CHECK(rows == make_plan(kEveryGroup, 8, kAll).size());
  CHECK(make_plan({}, 8, kAll).empty());
  const std::vector<Row> events = make_plan({Group::events}, 8, kAll);
  CHECK(has(events, "event_lat_8"));
  CHECK_FALSE(has(events, "send_lat_8"));
}

TEST_CASE("bench plan: many connections are compared with one, over the same byte stream") {
  for (const Row& each : make_plan({Group::connections}, 8, kAll)) {
    INFO(each.id);
    CHECK(each.own.connections > 1);
    CHECK(each.reference.connections == 1);
    CHECK(each.own.what == each.reference.what);
    CHECK(each.own.size == each.reference.size);
    CHECK(each.own.way.stream == each.reference.way.stream);
    CHECK((each.needs == Needs::many_descriptors) == (each.own.connections == 1000));
  }
}

TEST_CASE("bench plan: a server and plain TCP have messages of one size and as many clients") {
  for (const Row& each : make_plan({Group::server}, 8, kAll)) {
    INFO(each.id);
    CHECK(is_plain_tcp(each.reference.what));
    CHECK(each.own.size == each.reference.size);
    CHECK(each.own.connections == each.reference.connections);
  }
}

TEST_CASE("bench plan: with few processors one target differs") {
  CHECK(row(make_plan({Group::basic}, 2, kAll), "write_lat_8").target == 1.8);
  CHECK(row(make_plan({Group::basic}, 3, kAll), "write_lat_8").target == 1.8);
  CHECK(row(make_plan({Group::basic}, 4, kAll), "write_lat_8").target == 1.0);
  CHECK(row(make_plan({Group::basic}, 2, kAll), "send_lat_8").target == 1.0);
  CHECK_FALSE(report_row(row(make_plan({Group::basic}, 2, kAll), "setup_manual")).target);
}
