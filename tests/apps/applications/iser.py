# SPDX-License-Identifier: MIT
"""iSER, iSCSI over RDMA, without the kernel: tgt's target and libiscsi's tools."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

TARGET, INITIATOR = "iqn.2001-04.test.uiw:disk", "iqn.2001-04.test.uiw:host"
URL = f"iser://10.77.0.1:3260/{TARGET}/1"
TESTS = ("Read10.Simple", "WriteVerify10.Simple", "Write10.Simple")


def disk(bench, view):
    for program in ("tgtd", "iscsi-inq"):
        harness.need_program(program)
    left, right = bench.two_hosts()
    bench.command(left.wrap(["sh", "-c", "mount -t tmpfs none /run && mkdir /run/tgtd"]))  # for its sockets
    path = os.path.join(bench.tmp, "disk")
    with open(path, "wb") as file:
        file.truncate(16 << 20)
    env = {"UIW_TRANSPORT": view}
    # It listens on port 3260 with TCP and with RDMA.
    target = bench.start(["tgtd", "-f", "--iser", "pool_sz_mb=64"], namespace=left, env=env)
    target.wait_listen(3260)

    def admin(*words):
        return bench.command(left.wrap(["tgtadm", *words]))

    admin("--lld", "iser", "--mode", "target", "--op", "new", "--tid", "1", "--targetname", TARGET)
    admin("--lld", "iser", "--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", path)
    for who in (("-I", "ALL"), ("-Q", INITIATOR)):  # tgt 1.0.85 wants both
        admin("--lld", "iser", "--mode", "target", "--op", "bind", "--tid", "1", *who)

    def initiator(program, *words):
        return bench.run([program, "-i", INITIATOR, *words, URL], timeout=60, namespace=right, env=env).stdout

    check("VIRTUAL-DISK" in initiator("iscsi-inq"), "it is not tgt's disk")
    for test in TESTS:
        text = initiator("iscsi-test-cu", "--dataloss", "--test", f"ALL.{test}")
        check("...passed" in text and "FAILED" not in text, f"{test}: {text}")
    with open(path, "rb") as file:
        check(file.read(256 * 512) == b"\xa6" * (256 * 512), "the disk has not what Write10.Simple writes")
    initiator("iscsi-perf", "-t", 1)
    if view == "iwarp":  # which has no event by which the target forgets its connections
        target.end()
        return
    harness.wait_until(lambda: "nexus:" not in admin("--lld", "iser", "--mode", "target", "--op", "show").stdout, 15,
                       "the target to forget its connections")
    admin("--mode", "target", "--op", "delete", "--tid", "1")
    admin("--mode", "system", "--op", "delete")
    check(target.wait(20) == 0, "the target does not end well")


for _view in ("iwarp", "roce"):
    add_row(f"tgtd and libiscsi's tools, {_view}", lambda bench, view=_view: disk(bench, view))

if __name__ == "__main__":
    sys.exit(harness.main())
