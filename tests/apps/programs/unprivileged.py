# SPDX-License-Identifier: MIT
"""The programs as a user without privileges, in a directory that cannot be written, with an empty environment."""

import os
import pathlib
import stat
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest, pings
from support.harness import check, row

NOBODY = 65534


def barred(bench):
    """Words that start a program as nobody with nothing in its environment, and a directory nobody can write."""
    folder = os.path.join(bench.tmp, "readonly")
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o555)
    words = ["env", "-i", "PATH=/usr/bin:/bin"]
    if os.geteuid() == 0:
        path = bench.uiw
        while path != "/":
            if not os.stat(path).st_mode & stat.S_IXOTH:
                raise harness.Skip(f"{path} is closed to other users")
            path = os.path.dirname(path)
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all",
                 "--no-new-privs", "--", *words]
    return {"wrap": words, "cwd": folder}


@row("uiw bench as user nobody: no privileges, no writable directory, no environment")
def bench_itself(bench):
    script = "id -u; echo $HOME; touch here 2>/dev/null && echo WRITABLE; grep CapEff /proc/self/status"
    shown = bench.run(["sh", "-c", script], uiw=False, **barred(bench)).stdout.splitlines()
    check(shown[0] != "0" and shown[1] == "" and "WRITABLE" not in shown, f"not so: {shown}")
    check(int(shown[-1].split()[1], 16) == 0, f"capabilities: {shown[-1]}")


@row("ibv_devinfo -v")
def devinfo(bench):
    check("PORT_ACTIVE" in bench.run(["ibv_devinfo", "-v"], **barred(bench)).stdout, "no active port")


@row("rping")
def rping(bench):
    pings.pair(bench, "-C", 200, "-S", 30000, "-V", **barred(bench))


@row("rping between root and nobody")
def rping_mixed(bench):
    harness.need_root()
    for end in ("client_more", "server_more"):
        pings.pair(bench, "-C", 50, "-V", **{end: barred(bench)})


@row("rstream")
def rstream(bench):
    port = bench.port()
    bench.pair(["rstream", "-b", "127.0.0.1", "-p", port, "-S", 65536],
               ["rstream", "-s", "127.0.0.1", "-p", port, "-S", 65536], port, **barred(bench))


for _program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat"):
    row(_program + " -R")(
        lambda bench, program=_program: perftest.one(bench, program, "-n", 500, **barred(bench)))


@row("a port below 1024: EACCES, said by the program")
def low_port(bench):
    harness.need_root()
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as start:
        if int(start.read()) < 1024:
            raise harness.Skip("low ports are open to all here")
    refused = bench.run(pings.server(1017), status=None, timeout=15,
                        **barred(bench))
    # The exit status may be that of another thread of rping (see Process.status()).
    check("rdma_bind_addr: Permission denied" in refused.output, "no 'Permission denied'")


if __name__ == "__main__":
    sys.exit(harness.main())
