// SPDX-License-Identifier: MIT
// What `uiw bench` prints: ratios, whether targets are met, the table and the JSON.
#include "tools/bench/report.h"

#include <catch2/catch.hpp>

using namespace uiw::tools;

namespace {

BenchRow measured(double value, double compared, Unit unit = Unit::gbits_per_second) {
  BenchRow row;
  row.id = "a_row";
  row.name = "a row";
  row.unit = unit;
  row.reference = "a reference";
  row.target = 1.0;
  row.value = value;
  row.compared = compared;
  row.ratio = value / compared;
  row.spread = Spread{*row.ratio - 0.25, *row.ratio + 0.5};
  return row;
}

}  // namespace

TEST_CASE("bench report: a rate has to reach its target, a time may not pass it") {
  CHECK(met(measured(3, 2)) == true);
  CHECK(met(measured(2, 3)) == false);
  CHECK(met(measured(2, 2)) == true);
  CHECK(met(measured(3, 2, Unit::microseconds)) == false);
  CHECK(met(measured(2, 3, Unit::microseconds)) == true);
  CHECK(met(measured(2, 2, Unit::microseconds)) == true);
  CHECK(met(measured(3, 2, Unit::seconds)) == false);
  CHECK(met(measured(2, 3, Unit::seconds)) == true);
}

TEST_CASE("bench report: no verdict without a ratio or a target") {
  BenchRow row = measured(3, 2);
  row.ratio.reset();
  CHECK_FALSE(met(row));
  row = measured(3, 2);
  row.target.reset();
  CHECK_FALSE(met(row));
}

TEST_CASE("bench report: values have their unit") {
  CHECK(value_text(41.249, Unit::gbits_per_second) == "41.2 Gb/s");
  CHECK(value_text(2.138, Unit::microseconds) == "2.14 us");
  CHECK(value_text(0.2118, Unit::seconds) == "0.212 s");
  CHECK(value_text(1'050'000, Unit::messages_per_second) == "1.05 M/s");
  CHECK(value_text(100'000, Unit::messages_per_second) == "0.10 M/s");
  CHECK(value_text(23'641, Unit::messages_per_second) == "23.6 k/s");
}

TEST_CASE("bench report: the table, and below it what failed or is missing") {
  BenchRow failed = measured(1, 1, Unit::microseconds);
  failed.name = "another";
  failed.value.reset();
  failed.compared.reset();
  failed.ratio.reset();
  failed.spread.reset();
  failed.repeated = "it began badly";
  failed.error = "it did not end";
  const BenchFrame frame{1, 2, 4, "uiw_lo", "127.0.0.1", {"rows with UCX: it is missing"}};
  CHECK(
      table_of(frame, {measured(3, 2), failed}) ==
      "RDMA over uiw beside plain TCP on device uiw_lo (127.0.0.1), 4 processors; medians of 1 pair measured in turns, "
      "2 s each\n"
      "\n"
      "MEASURE  UIW       AGAINST   MEASURED BY  RATIO  SPREAD        TARGET         RESULT\n"
      "a row    3.0 Gb/s  2.0 Gb/s  a reference  1.50   1.25 to 2.00  at least 1.00  met\n"
      "another  failed    -         a reference  -      -             at most 1.00   -\n"
      "\n"
      "another against a reference: measured again after: it began badly\n"
      "another against a reference: failed: it did not end\n"
      "left out: rows with UCX: it is missing\n");
  const std::string plain = table_of({5, 2, 4, "uiw_lo", "127.0.0.1", {}}, {measured(3, 2)});
  CHECK(plain.find("; medians of 5 pairs measured") != std::string::npos);
  CHECK(plain.ends_with("met\n"));
}

TEST_CASE("bench report: the JSON") {
  BenchRow own = measured(1, 2, Unit::messages_per_second);
  own.against_tcp = false;
  own.repeated = "it began badly";
  const std::string text = json_of({5, 1, 2, "uiw_lo", "127.0.0.1", {"rows with UCX"}}, {own});
  CHECK(
      text ==
      R"({"device": "uiw_lo", "address": "127.0.0.1", "processors": 2, "runs": 5, "seconds": 1, "rows": [{"id": "a_row", )"
      R"("measure": "a row", "unit": "messages/s", "better": "larger", "uiw": 1, "tcp": null, "tcp_measured_by": null, )"
      R"("against": 2, "against_measured_by": "a reference", "ratio": 0.5, "spread": [0.25, 1], "target": 1, "met": false, )"
      R"("repeated": "it began badly", "error": null}], "left_out": ["rows with UCX"]})"
      "\n");
}
