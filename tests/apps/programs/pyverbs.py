# SPDX-License-Identifier: MIT
"""rdma-core's own Python suite, as Debian's rdma-core and python3-pyverbs bring it: none of its tests fails.

What does not run is listed: SKIPPED has the tests that the suite itself skips, CANNOT_HOLD those that cannot pass
here. The lists are those of versions 44 and 65; another version has other tests, and only their failures count.
"""

import fnmatch
import gzip
import importlib.machinery
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import Skip, check

PYTHON = "/usr/bin/python3"  # Debian's modules are made for Debian's interpreter
FOLDERS = ("/usr/share/doc/rdma-core/tests", "/usr/share/doc/python3-pyverbs/tests")
LISTED_VERSIONS = ("44.", "65.")
DEVICE, ADDRESS = "uiw_v0", "10.78.0.1/24"
BOTH, IWARP, ROCE = ("iwarp", "roce"), ("iwarp",), ("roce",)

# (reason, what the suite says, views, whether always, file.class.test as patterns). Always: each pattern has to skip a
# test, so that no entry outlives its reason. The others depend on the machine.
SKIPPED = (
    ("mlx5's own interfaces", "", BOTH, True, ("test_mlx5_*",)),
    ("EFA's own interfaces", "non EFA device", BOTH, True, ("test_efa_srd.*", "test_efadv.*")),
    ("memory of a GPU", "cuda", BOTH, False, ("*[cC]uda*",)),
    ("dma-buf memory, which the suite takes from a GPU's driver", "dmabuf|/dev/dri", BOTH, False, ("test_mr.DmaBuf*",)),
    ("huge pages, which the machine has to set aside", "huge pages", BOTH, False, ("*_huge_*",)),
    ("XRC, which iWARP does not have", "Create XRCD", IWARP, True, ("test_*xrc_*",)),
    ("raw packets: uiw has no Ethernet frames of its own, and so no steering of flows and no RSS",
     "QP type 8|Raw Packet QP", BOTH, True, ("test_flow.*", "test_rss_traffic.*", "test_qp.QPTest.*_raw_qp*")),
    ("tag matching, which is work of an adapter's hardware", "Extended CQ", BOTH, True, ("test_tag_matching.*",)),
    ("devices that copy what is sent and received into memory of their own", "CC_DMA_BOUNCE", BOTH, False,
     ("test_buf.*_on_bounce_device",)),
    ("datagrams, as below, in buffers that the suite of version 65 has", "QP type 4", IWARP, False, ("test_buf.*_ud_*",)),
    ("a PTP clock of an adapter", "No PHC", BOTH, False, ("test_phc_timestamp.*",)),
    ("device memory that is exported as dma-buf, for which it would have to be the kernel's", "DM dmabuf", BOTH, False,
     ("test_mr.*_dm_export_dmabuf_fd",)),
    ("IB routes of a resolver of the kernel's InfiniBand stack", "active side", BOTH, False,
     ("test_rdmacm.*_resolve_addrinfo",)),
    ("an empty GID: uiw's table is as long as the interface has addresses", "All gid indices", BOTH, True,
     ("test_device.*test_query_gid_ex_bad_flow",)),
    ("datagrams, which iWARP does not have", "AH|QP type 4|UD QP|Extended QP|Multicast|ODP", IWARP, True,
     ("test_addr.AHTest.*", "test_cq.*test_resize_cq", "test_cq_events.*_ud", "test_cqex.*_ud_traffic_*",
      "test_qp.*_ud_qp*", "test_qp.*_illegal_caps_*", "test_qp.*test_query_data_in_order", "test_qpex.*_ud_*",
      "test_qpex.*_bad_flow", "test_relaxed_ordering.*_ud_*", "test_parent_domain.*_ud_traffic", "test_rdmacm.*_multicast_*", "test_odp.*_ud_*")),
)

# (file.class.test, views, reason): tests that are not run.
CANNOT_HOLD = (
    ("test_rdmacm.CMTestCase.test_rdmacm_async_traffic", IWARP,
     "reads back an ACK timeout; iWARP has none, and rdma_cm's modify of such a queue pair names none"),
    ("test_rdmacm.CMTestCase.test_rdmacm_async_traffic_external_qp", IWARP,
     "waits for CONNECT_RESPONSE; with iWARP rdma_cm says ESTABLISHED, for a queue pair of the program too"),
    ("test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic", IWARP, "port space UDP needs UD queue pairs"),
)


def unpacked_suite(bench):
    """The suite in a folder of its own; Debian compresses the longer files. And its version."""
    found = [folder for folder in FOLDERS if os.path.exists(f"{folder}/__init__.py")]
    if not found or not os.path.exists(PYTHON):
        raise Skip("no tests of python3-pyverbs")
    package = bench.command(["dpkg-query", "--show", "--showformat=${Version}", "python3-pyverbs"], status=None)
    if package.status() != 0 or not package.stdout:
        raise Skip("no python3-pyverbs")
    target = os.path.join(bench.tmp, "tests")
    os.mkdir(target)
    for entry in pathlib.Path(found[0]).iterdir():
        if entry.suffix == ".gz":
            pathlib.Path(target, entry.stem).write_bytes(gzip.decompress(entry.read_bytes()))
        elif entry.suffix == ".py":
            shutil.copy(entry, target)
    return target, package.stdout.strip()


def run_suite(bench, view, left_out=(), only=""):
    """What became of each test: name -> [outcome, why]."""
    folder, version = unpacked_suite(bench)
    host = bench.namespace()
    host.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    host.ip("link", "set", "v0", "addrgenmode", "none")
    host.ip("address", "add", ADDRESS, "dev", "v0")
    host.ip("-6", "address", "add", "fe80::1/64", "dev", "v0", "nodad")
    host.ip("link", "set", "v1", "up")
    host.ip("link", "set", "v0", "up")
    results = os.path.join(bench.tmp, "results.json")
    # test_rdmacm_async_write writes to its peer, and has the peer look as soon as the Write has completed. RFC 5040
    # promises no writer that the peer has it then. The completion rule remote does; it is the RoCE view's default.
    rule = ("--completion", "remote") if view == "iwarp" else ()
    bench.run([PYTHON, "-B", os.path.abspath(__file__), "--suite", folder, results, only, *left_out], timeout=100,
              namespace=host, options=("--transport", view, *rule))
    return json.loads(pathlib.Path(results).read_text(encoding="utf-8")), version


def group_patterns(view):
    return [(says, always, pattern) for _, says, views, always, patterns in SKIPPED if view in views
            for pattern in patterns]


def check_skips(results, view, all_of_list):
    skipped = {name: why for name, (outcome, why) in results.items() if outcome == "skipped"}
    unused = {pattern for _, always, pattern in group_patterns(view) if always}
    strangers = []
    for name, why in skipped.items():
        fitting = [pattern for says, _, pattern in group_patterns(view)
                   if fnmatch.fnmatchcase(name, pattern) and re.search(says, why)]
        unused.difference_update(fitting)
        if not fitting:
            strangers.append(f"{name}: {why}")
    check(not strangers, "skipped, and not in the list:\n" + "\n".join(strangers))
    check(not all_of_list or not unused, f"in the list, and nothing of it is skipped: {sorted(unused)}")


def whole_suite(bench, view):
    results, version = run_suite(bench, view, [name for name, views, _ in CANNOT_HOLD if view in views])
    failed = [f"{name}: {why}" for name, (outcome, why) in results.items() if outcome == "failed"]
    check(not failed, "failed:\n" + "\n".join(failed))
    passed = sum(outcome == "passed" for outcome, _ in results.values())
    check(passed > 80, f"only {passed} of {len(results)} tests passed")
    if version.startswith(LISTED_VERSIONS):
        check_skips(results, view, all_of_list=version.startswith(LISTED_VERSIONS[0]))


for VIEW in BOTH:
    harness.row(f"no test fails, and what is skipped is listed ({VIEW})", view=VIEW)(whole_suite)


def passes(bench, view, name):
    results, _ = run_suite(bench, view, only=name)
    check([outcome for outcome, _ in results.values()] == ["passed"], f"{results}")


for NAME, VIEWS, REASON in CANNOT_HOLD:
    for VIEW in VIEWS:
        harness.known(f"{NAME} ({VIEW})", REASON, lambda bench, view=VIEW, name=NAME: passes(bench, view, name))


# ---- the suite, in a process of its own under uiw --------------------------------------------------------------------

class Results(unittest.TextTestResult):
    """Keeps what became of each test, also of those that are skipped or fail before they begin."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.found = {}

    def keep(self, test, outcome, why=""):
        self.found[short_name(test)] = (outcome, why)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.keep(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.keep(test, "skipped", reason)

    def addError(self, test, err):
        super().addError(test, err)
        self.keep(test, "failed", f"{err[0].__name__}: {err[1]}"[:500])

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.keep(subtest, "failed", f"{err[0].__name__}: {err[1]}"[:500])


def short_name(test):
    return test.id().removeprefix("tests.")


def flat(suite):
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from flat(entry)
        else:
            yield entry


def suite_main(folder, results, only, left_out):
    multiprocessing.set_start_method("fork")  # as the suite expects; another is the default since Python 3.14
    sys.path[0] = folder  # in place of this file's own, in which it would be taken for the package pyverbs
    sys.argv[1:] = ["--dev", DEVICE]
    tests = importlib.machinery.SourceFileLoader("tests", f"{folder}/__init__.py").load_module()
    tests.parser.parse_args()
    chosen = unittest.TestSuite(test for test in flat(unittest.defaultTestLoader.loadTestsFromModule(tests))
                                if short_name(test) not in left_out and only in ("", short_name(test)))
    found = unittest.TextTestRunner(verbosity=2, resultclass=Results).run(chosen).found
    pathlib.Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--suite"]:
        suite_main(*sys.argv[2:5], sys.argv[5:])
    else:
        sys.exit(harness.main())
