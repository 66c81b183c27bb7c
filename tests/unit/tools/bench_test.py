# SPDX-License-Identifier: MIT
"""`uiw bench`: how rows are measured, what the benchmark programs print, the plan, the picture and the report."""
import contextlib
import io
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[3] / "tools/bench"))
import bench
import plan
import plot
import programs
import report
from processes import Failure, Interrupted

ALL = {"ucx", "libfabric", "hosts", "descriptors", "processors"}


class Pairs(unittest.TestCase):
    def measure(self, runs, results):
        """Measures a row with these results in their order; None is a failure. The result, what was measured, and the lines
        that were told."""
        row = plan.Row("a_row", plan.Measurement("own", "rdma_reads"), plan.Measurement("reference", "tcp_sends"), 1.0)
        asked, told = [], io.StringIO()

        def once(measurement):
            asked.append(measurement.name)
            if results[len(asked) - 1] is Interrupted:
                raise Interrupted(2)
            if results[len(asked) - 1] is None:
                raise Failure(f"failure {len(asked)}")
            return results[len(asked) - 1]

        self.told = told
        with contextlib.redirect_stderr(told):
            result = bench.measure_row(row, runs, once)
        self.assertEqual(len(asked), len(results))
        return result, asked, told.getvalue().splitlines()

    def test_reference_and_uiw_in_turns_with_medians_and_the_ratios_of_the_pairs(self):
        # The ratios are 2, 3 and 1.
        row, asked, told = self.measure(3, [10, 20, 10, 30, 20, 20])
        self.assertEqual(asked, ["reference", "own"] * 3)
        self.assertEqual([row[key] for key in ("uiw", "against", "tcp", "ratio", "spread")], [20, 10, 10, 2, [1, 3]])
        self.assertEqual((row["repeated"], row["error"]), (None, None))
        self.assertEqual(len(told), 3)
        self.assertRegex(told[1], "^pair 2 of 3: own .*ratio 3.00$")

    def test_the_median_of_the_ratios_is_not_the_ratio_of_the_medians(self):
        row, _, _ = self.measure(3, [10, 10, 20, 60, 30, 60])
        self.assertEqual([row[key] for key in ("uiw", "against", "ratio")], [60, 20, 2])
        row, _, _ = self.measure(2, [1, 4, 1, 1])
        self.assertEqual(row["uiw"], 2.5)

    def test_after_one_failure_the_whole_pair_is_measured_again_and_the_row_says_so(self):
        for results, failure in (([10, None, 10, 20, 10, 40], "failure 2"), ([10, 20, None, 10, 40], "failure 3")):
            row, _, _ = self.measure(2, results)
            self.assertEqual([row[key] for key in ("ratio", "repeated", "error")], [3, failure, None])

    def test_a_second_failure_ends_the_row_which_then_has_no_values(self):
        for results in ([10, None, 10, None], [None, 10, 20, 10, 20, None]):
            row, _, _ = self.measure(5, results)
            self.assertEqual(row["error"], f"failure {len(results)}")
            self.assertIsNotNone(row["repeated"])
            self.assertEqual([row[key] for key in ("uiw", "against", "tcp", "ratio", "spread", "met")], [None] * 6)

    def test_an_interruption_is_no_failure_and_gives_no_row(self):
        with self.assertRaises(Interrupted):
            self.measure(5, [10, 20, 10, Interrupted])
        self.assertEqual(self.told.getvalue().count("\n"), 1)


class Parse(unittest.TestCase):
    def test_a_bandwidth_of_perftest(self):
        output = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8          1000           0.00               0.25                 3.906250
 65536      218900           0.00               22.95              0.043776
---------------------------------------------------------------------------------------
"""
        self.assertEqual(programs.parse_bandwidth(output, 65536), (22.95, 43776))
        self.assertEqual(programs.parse_bandwidth(output, 8), (0.25, 3906250))
        for text, size in ((output, 1024), (" 8 1000 0.00 0.00 0.000000\n", 8), (" 8 1000 0.00 0.25\n", 8), ("", 8)):
            self.assertIsNone(programs.parse_bandwidth(text, size))

    def test_a_latency_of_perftest(self):
        output = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% "
                  "percentile[usec]   99.9% percentile[usec]\n"
                  " 8       10000          3.05           61.23        3.50               3.61           0.83            4.90"
                  "                    16.02\n")
        self.assertEqual(programs.parse_latency(output, 8), (3.50, 4.90, 16.02, 3.61))
        self.assertIsNone(programs.parse_latency(output, 16))
        self.assertIsNone(programs.parse_latency("Couldn't connect to 127.0.0.1:18515\n", 8))

    def test_iperf3_and_sockperf(self):
        self.assertAlmostEqual(programs.parse_iperf3(
            'warning: this is old\n{"end": {"sum_sent": {"bits_per_second": 99e9}, "sum_received": {"seconds": 1, '
            '"bits_per_second":41200000000.5}}}'), 41.2, 6)
        self.assertIsNone(programs.parse_iperf3('{"error": "unable to connect to server"}'))
        output = ("sockperf: ---> percentile 99.900 =   31.5\nsockperf: ---> percentile 99.000 =   20.1\n"
                  "sockperf: ---> percentile 50.000 =    7.253\n")
        self.assertEqual(programs.parse_sockperf(output), [7.253, 20.1, 31.5])
        self.assertIsNone(programs.parse_sockperf("sockperf: ERROR: connection refused\n"))

    def test_the_programs_of_uiw(self):
        for text, behind, values in (
                ("46.125 us a queue pair\n", (), [46.125]), ("no device has this address\n", (), None), ("", (), None),
                ("41803.6 answers a second, 46.7228 us of processor time each\n", ("answers a second,",), [41803.6, 46.7228]),
                ("an answer has another length\n", ("answers a second,",), None),
                ("0.0 answers a second, 46.7228 us of processor time each\n", ("answers a second,",), None)):
            self.assertEqual(programs.parse_helper(text, *behind), values)

    def test_ucx_whose_megabytes_are_of_2_to_the_20_octets(self):
        early = "[thread 0]1510,0.180,666.530,666.530,1500.31,1500.31,1500,1500\n"
        output = ("[1732431234.123] [host:1234:0] parser.c:1 UCX WARN a warning, 1, 2\n"
                  "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
                  + early + "5000,0.170,609.198,634.535,1641.50,1575.96,1642,1576\n")
        self.assertEqual(programs.parse_ucx(output), (1575.96 * 8 * 1048576 / 1e9, 0.17))
        self.assertIsNone(programs.parse_ucx(early))
        self.assertIsNone(programs.parse_ucx(""))

    def test_fi_pingpong(self):
        head = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
        self.assertEqual(programs.parse_fi_pingpong(
            head + "1m      1k      =1k      1.9g        0.60s   3467.35     302.41       0.00\n"), 302.41)
        self.assertIsNone(programs.parse_fi_pingpong(head))
        self.assertIsNone(programs.parse_fi_pingpong("fi_getinfo: -61(No data available)\n"))


class Plan(unittest.TestCase):
    def rows(self, groups=plan.GROUPS, processors=8, available=ALL):
        return plan.make_plan(groups, processors, available)

    def test_ids_are_unique_and_each_row_compares_values_of_the_same_unit(self):
        ids = [row.id for row in self.rows()]
        self.assertEqual(len(ids), len(set(ids)))
        for row in self.rows():
            with self.subTest(row.id):
                self.assertEqual(plan.unit_of(row.own), plan.unit_of(row.reference))
                for measurement in (row.own, row.reference):
                    perftest = measurement.what in ("rdma_bandwidth", "rdma_messages", "rdma_latency", "rdma_average_latency",
                                                    "rdma_event_latency", "connections_messages", "connections_bandwidth")
                    self.assertEqual(measurement.program is not None, perftest)
                    self.assertTrue(not perftest or measurement.size)
                reported = report.empty_row(row)
                self.assertEqual([reported[key] for key in ("id", "measure", "against_measured_by", "unit", "target")],
                                 [row.id, row.own.name, row.reference.name, plan.unit_of(row.own), row.target])
                plain_tcp = row.reference.name if row.reference.what in plan.PLAIN_TCP else None
                self.assertEqual(reported["tcp_measured_by"], plain_tcp)

    def test_the_rows_of_shared_memory_and_of_tcp_say_which_byte_stream_they_mean(self):
        for row in self.rows():
            with self.subTest(row.id):
                self.assertEqual(row.own.way.stream == "auto", row.own.name.startswith("shared memory: "))
                self.assertEqual(row.id.startswith("shm_"), row.own.name.startswith("shared memory: "))
                self.assertEqual(row.own.way.stream == "tcp", row.own.name.startswith("TCP: "))
                self.assertEqual(row.needs == "hosts", row.own.name.startswith("two hosts: "))
                if row.needs == "ucx":  # UCX is told by the way too whether to use shared memory
                    self.assertEqual(row.reference.way.stream, row.own.way.stream)

    def test_rows_whose_needs_are_not_met_are_left_out(self):
        for available in (set(), *({need} for need in ALL), ALL):
            ids = {row.id for row in plan.make_plan(plan.GROUPS, 8, available)}
            for id, need in (("shm_send_lat_8_ucx", "ucx"), ("send_bw_1m_ucx", "ucx"), ("send_lat_8_libfabric", "libfabric"),
                             ("hosts_write_bw_64k", "hosts"), ("shm_write_bw_64k", None), ("write_bw_64k", None),
                             ("fetch_adds", None), ("writes_8_1000_connections", "descriptors"),
                             ("writes_8_256_connections", None), ("shm_pinned_writes_4k", "processors")):
                self.assertEqual(id in ids, need is None or need in available, id)

    def test_each_group_has_rows_each_row_is_in_one_group_and_there_are_only_the_groups_that_are_asked_for(self):
        counts = [len(list(self.rows([group]))) for group in plan.GROUPS]
        self.assertTrue(all(counts))
        self.assertEqual(sum(counts), len(list(self.rows())))
        self.assertEqual(list(self.rows([])), [])
        ids = [row.id for row in self.rows(["events"])]
        self.assertIn("event_lat_8", ids)
        self.assertNotIn("send_lat_8", ids)

    def test_many_connections_are_compared_with_one_over_the_same_byte_stream(self):
        for row in self.rows(["connections"]):
            with self.subTest(row.id):
                self.assertGreater(row.own.connections, 1)
                self.assertEqual(row.reference._replace(name=row.own.name, connections=row.own.connections), row.own)
                self.assertEqual(row.reference.connections, 1)
                self.assertEqual(row.needs == "descriptors", row.own.connections == 1000)

    def test_a_server_and_plain_tcp_have_messages_of_one_size_and_as_many_clients(self):
        for row in self.rows(["server"]):
            with self.subTest(row.id):
                self.assertIn(row.reference.what, plan.PLAIN_TCP)
                self.assertEqual((row.own.size, row.own.connections), (row.reference.size, row.reference.connections))

    def test_with_few_processors_one_target_differs(self):
        targets = {processors: {row.id: row.target for row in self.rows(["basic"], processors)} for processors in (2, 3, 4)}
        self.assertEqual([targets[processors]["write_lat_8"] for processors in (2, 3, 4)], [1.8, 1.8, 1.0])
        self.assertEqual(targets[2]["send_lat_8"], 1.0)
        self.assertIsNone(targets[2]["setup_manual"])


class Plot(unittest.TestCase):
    def setUp(self):
        self.picture = {"processors": 2, "runs": 5,
                        "bandwidth": {plot.UIW_SHARED_MEMORY: [(64, 1.5), (256, 6)], plot.PLAIN_TCP: [(64, 0.25)]},
                        "latency": {plot.UIW_SHARED_MEMORY: (0.5, 1.25, 20), plot.PLAIN_TCP: (7, 9, 4100.5)}}
        folder = tempfile.TemporaryDirectory(prefix="uiw-plot-test.")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_the_script_has_the_file_the_values_and_the_names(self):
        script = plot.script(self.picture, "a file.svg")
        # Each subject has a bar in each of the three groups, the first left of the middle and the second right of it.
        for part in ("set terminal svg", "set output 'a file.svg'\n", "'2 processors, one host; medians of 5 runs'",
                     "$bandwidth0 << END\n64 1.5 1.50\n256 6 6.00\nEND\n", "$bandwidth1 << END\n64 0.25 0.25\nEND\n",
                     "title 'uiw, shared memory'", "title 'plain TCP (iperf3)'", "title 'plain TCP (sockperf)'",
                     "$latency0 << END\n0.79 0.5 0.50\n1.79 1.25 1.25\n2.79 20 20.0\nEND\n",
                     "$latency1 << END\n1.21 7 7.00\n2.21 9 9.00\n3.21 4100.5 4100\nEND\n"):
            self.assertIn(part, script)
        self.assertTrue(script.endswith("unset multiplot\n"))

    def test_a_quote_in_the_name_of_the_file_does_not_end_the_string(self):
        self.assertIn("set output 'it''s; quit'\n", plot.script(self.picture, "it's; quit"))

    def test_curves_without_points_are_left_out_and_so_is_a_half_without_curves(self):
        self.picture["bandwidth"][plot.UIW_SHARED_MEMORY] = []
        script = plot.script(self.picture, "file")
        self.assertNotIn("$bandwidth1", script)
        self.assertIn("$bandwidth0 << END\n64 0.25 0.25\nEND\n", script)
        self.picture.update(bandwidth={plot.PLAIN_TCP: []}, latency={})
        self.assertNotIn("\nplot ", plot.script(self.picture, "file"))

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_gnuplot_draws_both_halves(self):
        file = os.path.join(self.folder, "it's.svg")
        plot.draw(plot.script(self.picture, file))
        svg = pathlib.Path(file).read_text(encoding="utf-8")
        for part in ("message size", "bandwidth, Gb/s", "percentile", "iperf3", "sockperf", "2 processors", "</svg>"):
            self.assertIn(part, svg)
        with self.assertRaisesRegex(Failure, "gnuplot ended with status"):
            plot.draw("plot nothing\n")

    def test_what_cannot_be_written_is_said_before(self):
        for name in (f"{self.folder}/picture.svg", "picture.svg"):
            self.assertEqual(plot.cannot_write(name), "")
        self.assertEqual(plot.cannot_write(self.folder), f"{self.folder} is a directory")
        self.assertEqual(plot.cannot_write(f"{self.folder}/absent/picture.svg"),
                         f"{self.folder}/absent/picture.svg cannot be written: {self.folder}/absent: No such file or directory")


class Report(unittest.TestCase):
    def setUp(self):
        setup = programs.Setup("", "", "uiw_lo", "127.0.0.1", 0, 2, 0)
        self.frame = report.empty_report(setup, 1, 4)

    def row(self, what="iperf3", pairs=((2, 3),), target=1.0, against="iperf3", name="a row"):
        own, reference = plan.Measurement(name, what), plan.Measurement("a reference", against)
        row = report.empty_row(plan.Row("a_row", own, reference, target))
        if pairs:
            report.summarize(row, pairs)
        return row

    def test_a_rate_has_to_reach_its_target_and_a_time_may_not_pass_it(self):
        for what, larger in (("iperf3", True), ("sockperf", False), ("tcp_gigabyte_time", False)):
            met = [self.row(what, [pair])["met"] for pair in ((2, 3), (3, 2), (2, 2))]
            self.assertEqual(met, [larger, not larger, True])

    def test_no_verdict_without_a_ratio_or_a_target(self):
        self.assertIsNone(self.row(pairs=None)["met"])
        self.assertIsNone(self.row(target=None)["met"])

    def test_values_have_their_unit(self):
        for value, unit, text in ((41.249, plan.GBITS, "41.2 Gb/s"), (2.138, plan.MICROSECONDS, "2.14 us"),
                                  (0.2118, plan.SECONDS, "0.212 s"), (1050000, plan.MESSAGES, "1.05 M/s"),
                                  (100000, plan.MESSAGES, "0.10 M/s"), (23641, plan.MESSAGES, "23.6 k/s")):
            self.assertEqual(report.value_text(value, unit), text)

    def test_the_table_and_below_it_what_failed_or_is_missing(self):
        failed = {**self.row("sockperf", None, name="another"), "repeated": "it began badly", "error": "it did not end"}
        rows = [self.row(pairs=[(2, 2.5), (2, 3), (2, 4)]), failed]
        self.assertEqual(
            report.table({**self.frame, "rows": rows, "left_out": ["rows with UCX: it is missing"]}),
            "RDMA over uiw beside plain TCP on device uiw_lo (127.0.0.1), 4 processors; medians of 1 pair measured in turns, "
            "2 s each\n"
            "\n"
            "MEASURE  UIW       AGAINST   MEASURED BY  RATIO  SPREAD        TARGET         RESULT\n"
            "a row    3.0 Gb/s  2.0 Gb/s  a reference  1.50   1.25 to 2.00  at least 1.00  met\n"
            "another  failed    -         a reference  -      -             at most 1.00   -\n"
            "\n"
            "another against a reference: measured again after: it began badly\n"
            "another against a reference: failed: it did not end\n"
            "left out: rows with UCX: it is missing\n")
        text = report.table({**self.frame, "rows": rows[:1], "runs": 5})
        self.assertIn("; medians of 5 pairs measured", text)
        self.assertTrue(text.endswith("met\n"))

    def test_the_json(self):
        row = {**self.row("rdma_reads", [(2, 0.5), (2, 1), (2, 2)], against="rdma_reads"), "repeated": "it began badly"}
        self.assertEqual(
            report.json_line({**self.frame, "rows": [row], "left_out": ["rows with UCX"]}),
            '{"device": "uiw_lo", "address": "127.0.0.1", "processors": 4, "runs": 1, "seconds": 2, "rows": [{"id": "a_row", '
            '"measure": "a row", "unit": "messages/s", "better": "larger", "uiw": 1, "tcp": null, "tcp_measured_by": null, '
            '"against": 2, "against_measured_by": "a reference", "ratio": 0.5, "spread": [0.25, 1.0], "target": 1.0, "met": '
            'false, "repeated": "it began badly", "error": null}], "left_out": ["rows with UCX"]}\n')


if __name__ == "__main__":
    unittest.main()
