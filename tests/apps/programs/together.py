# SPDX-License-Identifier: MIT
"""Two programs at a time on one host: different programs, one program twice, one name for both ends."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest, pings
from support.harness import check, row


def begin(bench, server, client, port, **more):
    bench.start(server, **more).wait_listen(port)
    return bench.start(client, **more)


@row("ib_write_bw, ib_send_bw and rping at a time")
def three(bench):

    def attempt():
        clients = []
        for program in ("ib_write_bw", "ib_send_bw"):
            port = bench.port()
            words = [program, "-R", "-F", "-p", port, "-D", 2]
            clients.append(begin(bench, words, [*words, "127.0.0.1"], port))
        port = bench.port()
        clients.append(begin(bench, pings.server(port), pings.client(port, "-C", 500, "-S", 20000, "-V"), port))
        for client in clients:
            client.succeed(20)
            check("mismatch" not in client.output, "other data")

    perftest.patient(bench, attempt)


@row("ib_read_bw twice at a time, with one runtime directory and with none set")
def twice(bench):
    for env in ({}, {"UIW_RUNTIME_DIR": None}):

        def attempt(env=env):
            clients = []
            for _ in range(2):
                port = bench.port()
                words = ["ib_read_bw", "-R", "-F", "-p", port, "-n", 1000]
                clients.append(begin(bench, words, [*words, "127.0.0.1"], port, env=env))
            for client in clients:
                client.succeed(20)

        perftest.patient(bench, attempt)


@row("twelve ibv_devinfo start at once on an empty runtime directory")
def start_at_once(bench):
    for programs in [[bench.start(["ibv_devinfo"]) for _ in range(12)]]:
        for program in programs:
            program.succeed(30)
            check("PORT_ACTIVE" in program.stdout, "no active port")


@row("one server process, clients of two kinds in turn")
def mixed_clients(bench):
    _, port = pings.serve(bench, "-P")
    clients = [pings.start_client(bench, port, "-C", count, "-S", size, "-V") for count, size in ((3000, 100), (500, 65535))]
    for client in clients:
        client.succeed(30)


if __name__ == "__main__":
    sys.exit(harness.main())
