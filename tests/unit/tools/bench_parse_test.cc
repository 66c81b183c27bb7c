// SPDX-License-Identifier: MIT
// What perftest, iperf3, sockperf and uiw-setup print, and text that holds no result.
#include "tools/bench/parse.h"

#include <catch2/catch.hpp>

using namespace uiw::tools;

TEST_CASE("bench parse: a bandwidth of perftest") {
  const char* const output =
      " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
      " 8          1000           0.00               0.25                 3.906250\n"
      " 65536      218900           0.00               22.95              0.043776\n"
      "---------------------------------------------------------------------------------------\n";
  const auto large = parse_perftest_bandwidth(output, 65536);
  REQUIRE(large);
  CHECK(large->gbits_per_second == Approx(22.95));
  CHECK(large->messages_per_second == Approx(43776));
  const auto small = parse_perftest_bandwidth(output, 8);
  REQUIRE(small);
  CHECK(small->messages_per_second == Approx(3906250));
  CHECK_FALSE(parse_perftest_bandwidth(output, 1024));
  CHECK_FALSE(parse_perftest_bandwidth(" 8 1000 0.00 0.00 0.000000\n", 8));
  CHECK_FALSE(parse_perftest_bandwidth(" 8 1000 0.00 0.25\n", 8));
  CHECK_FALSE(parse_perftest_bandwidth("", 8));
}

TEST_CASE("bench parse: a latency of perftest") {
  const char* const output =
      " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% "
      "percentile[usec]   99.9% percentile[usec]\n"
      " 8       10000          3.05           61.23        3.50               3.61           0.83            4.90"
      "                    16.02\n";
  CHECK(parse_perftest_latency(output, 8) == Approx(3.50).epsilon(0));
  CHECK_FALSE(parse_perftest_latency(output, 16));
  CHECK_FALSE(parse_perftest_latency("Couldn't connect to 127.0.0.1:18515\n", 8));
}

TEST_CASE("bench parse: iperf3, sockperf and uiw-setup") {
  const char* const iperf3 =
      R"({"end": {"sum_sent": {"bits_per_second": 99e9}, "sum_received": {"seconds": 1, "bits_per_second":41200000000.5}}})";
  CHECK(parse_iperf3(iperf3).value_or(0) == Approx(41.2));
  CHECK_FALSE(parse_iperf3(R"({"error": "unable to connect to server"})"));
  CHECK(parse_sockperf("sockperf: ---> percentile 99.000 =   20.1\nsockperf: ---> percentile 50.000 =    7.253\n")
            .value_or(0) == Approx(7.253));
  CHECK_FALSE(parse_sockperf("sockperf: ERROR: connection refused\n"));
  CHECK(parse_setup("46.125 us a queue pair\n").value_or(0) == Approx(46.125));
  CHECK_FALSE(parse_setup("no device has this address\n"));
  CHECK_FALSE(parse_setup(""));
}
