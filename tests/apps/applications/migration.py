# SPDX-License-Identifier: MIT
"""QEMU moves a running virtual machine to another host by RDMA."""

import json
import os
import pathlib
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check, wait_until


class Machine:
    """A virtual machine of QEMU's, with a monitor (QMP)."""

    def __init__(self, bench, namespace, view, *options):
        path = os.path.join(bench.tmp, f"{namespace.name}.qmp")
        self.process = bench.start(["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-accel",
                                    "tcg", "-m", "128", "-qmp", f"unix:{path},server=on,wait=off", *options],
                                   namespace=namespace, env={"UIW_TRANSPORT": view})
        connection = socket.socket(socket.AF_UNIX)
        wait_until(lambda: connection.connect_ex(path) == 0, 20, "the monitor")
        connection.settimeout(30)
        self.lines = connection.makefile("rw")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.lines.flush()
        while True:
            answer = json.loads(self.lines.readline())
            check("error" not in answer, f"{command}: {answer}")
            if "return" in answer:
                return answer["return"]

    def end(self):
        self.ask("quit")
        self.process.succeed(20)


def migrate(bench, view, pinned):
    harness.need_program("qemu-system-x86_64")
    left, right = bench.two_hosts()
    there, here = Machine(bench, left, view, "-incoming", "defer"), Machine(bench, right, view)
    for machine in (there, here):
        machine.ask("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": pinned}])
    where = f"rdma:10.77.0.1:{bench.port()}"
    there.ask("migrate-incoming", uri=where)
    here.ask("migrate", uri=where)
    wait_until(lambda: here.ask("query-migrate").get("status") in ("completed", "failed"), 60, "the migration's end")
    answer = here.ask("query-migrate")
    check(answer["status"] == "completed", str(answer))
    wait_until(lambda: there.ask("query-status")["status"] == "running", 20, "the machine runs there")
    here.end()
    there.end()


for _view in ("iwarp", "roce"):
    add_row(f"all memory is registered, {_view}", lambda bench, view=_view: migrate(bench, view, True))
add_row("memory is registered as it goes, roce", lambda bench: migrate(bench, "roce", False))

if __name__ == "__main__":
    sys.exit(harness.main())
