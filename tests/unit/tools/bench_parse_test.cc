// SPDX-License-Identifier: MIT
// What perftest, iperf3, sockperf, uiw-setup, uiw-requests, ucx_perftest and fi_pingpong print, and text that holds no
// result.
#include "tools/bench/programs/parse.h"

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
  const auto result = parse_perftest_latency(output, 8);
  REQUIRE(result);
  CHECK(result->percentiles.median == 3.50);
  CHECK(result->percentiles.percentile_99 == 4.90);
  CHECK(result->percentiles.percentile_99_9 == 16.02);
  CHECK(result->average == 3.61);
  CHECK_FALSE(parse_perftest_latency(output, 16));
  CHECK_FALSE(parse_perftest_latency("Couldn't connect to 127.0.0.1:18515\n", 8));
}

TEST_CASE("bench parse: iperf3, sockperf, uiw-setup and uiw-requests") {
  const char* const iperf3 =
      R"({"end": {"sum_sent": {"bits_per_second": 99e9}, "sum_received": {"seconds": 1, "bits_per_second":41200000000.5}}})";
  CHECK(parse_iperf3(iperf3).value_or(0) == Approx(41.2));
  CHECK_FALSE(parse_iperf3(R"({"error": "unable to connect to server"})"));
  const auto sockperf = parse_sockperf(
      "sockperf: ---> percentile 99.900 =   31.5\nsockperf: ---> percentile 99.000 =   20.1\n"
      "sockperf: ---> percentile 50.000 =    7.253\n");
  REQUIRE(sockperf);
  CHECK(sockperf->median == 7.253);
  CHECK(sockperf->percentile_99 == 20.1);
  CHECK(sockperf->percentile_99_9 == 31.5);
  CHECK_FALSE(parse_sockperf("sockperf: ERROR: connection refused\n"));
  CHECK(parse_setup("46.125 us a queue pair\n").value_or(0) == Approx(46.125));
  CHECK_FALSE(parse_setup("no device has this address\n"));
  CHECK_FALSE(parse_setup(""));
  const auto requests = parse_requests("41803.6 answers a second, 46.7228 us of processor time each\n");
  REQUIRE(requests);
  CHECK(requests->per_second == Approx(41803.6));
  CHECK(requests->processor_us == Approx(46.7228));
  CHECK_FALSE(parse_requests("an answer has another length\n"));
  CHECK_FALSE(parse_requests("0.0 answers a second, 46.7228 us of processor time each\n"));
}

TEST_CASE("bench parse: UCX, whose megabytes are of 2^20 octets") {
  const char* const output =
      "[1732431234.123] [host:1234:0] parser.c:1 UCX WARN a warning, 1, 2\n"
      "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
      "[thread 0]1510,0.180,666.530,666.530,1500.31,1500.31,1500,1500\n"
      "5000,0.170,609.198,634.535,1641.50,1575.96,1642,1576\n";
  const auto result = parse_ucx(output);
  REQUIRE(result);
  CHECK(result->median_us == 0.17);
  CHECK(result->gbits_per_second == Approx(1575.96 * 1048576 * 8 / 1e9));
  CHECK_FALSE(parse_ucx("[thread 0]1510,0.180,666.530,666.530,1500.31,1500.31,1500,1500\n"));
  CHECK_FALSE(parse_ucx(""));
}

TEST_CASE("bench parse: fi_pingpong") {
  const char* const output =
      "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
      "1m      1k      =1k      1.9g        0.60s   3467.35     302.41       0.00\n";
  CHECK(parse_fi_pingpong(output) == 302.41);
  CHECK_FALSE(parse_fi_pingpong("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"));
  CHECK_FALSE(parse_fi_pingpong("fi_getinfo: -61(No data available)\n"));
}
