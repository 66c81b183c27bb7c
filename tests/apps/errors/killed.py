# SPDX-License-Identifier: MIT
"""kill -9 of either side at several moments: the survivor is told in bounded time, the next run works at once."""

import os
import pathlib
import re
import signal
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest, pings
from support.harness import check, row, wait_until

BOUND = 5  # seconds until the survivor of an established connection has noticed and ended
SETUP_BOUND = 13  # the same where it died while connecting (UIW_STARTUP_TIMEOUT is 10 s)


def next_run(bench, port):
    pings.pair(bench, "-C", 20, "-S", 5000, "-V", port=port, timeout=15)


def after(process, delay):
    while process.running() and time.monotonic() < process.began + delay:
        time.sleep(0.0005)


@row("rping client killed during its transfers: the server sees DISCONNECTED, and ends")
def client_talking(bench):
    port = bench.port()
    for _ in range(5):
        server, _ = pings.serve(bench, "-v", port=port)
        client = bench.start(pings.client(port, "-S", 65535, "-v"))  # without -C it never ends
        wait_until(lambda: os.path.getsize(client.stdout_path) > 1 << 20, 20, "a MiB of pings")
        client.kill()
        server.wait(BOUND)
        check("server DISCONNECT EVENT" in server.stderr, "no DISCONNECTED at the server")
    next_run(bench, port)


@row("rping server killed during its transfers: the client sees DISCONNECTED, and ends")
def server_talking(bench):
    port = bench.port()
    for _ in range(5):
        server, _ = pings.serve(bench, port=port)
        client = bench.start(pings.client(port, "-S", 65535, "-v"))
        wait_until(lambda: os.path.getsize(client.stdout_path) > 1 << 20, 20, "a MiB of pings")
        server.kill()
        client.wait(BOUND)
        check("client DISCONNECT EVENT" in client.stderr, "no DISCONNECTED at the client")
    next_run(bench, port)


DELAYS = [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2]


def moments(bench, port):
    """A server, and a client that was started so many seconds ago. Behind each, the next run works."""
    for delay in DELAYS:
        server, _ = pings.serve(bench, port=port)
        client = bench.start(pings.client(port))
        after(client, delay)
        yield server, client, delay
        next_run(bench, port)


@row("rping client killed at nine moments from its start on")
def client_moments(bench):
    port = bench.port()
    for server, client, delay in moments(bench, port):
        client.kill()
        client.wait(BOUND)
        # Either the server had a connection and ends, or it never had one and serves the next client.
        try:
            wait_until(lambda: not server.running(), 1, "end")
        except harness.Failure:
            follower = bench.start(pings.client(port, "-C", 3))
            harness.wait_until(lambda: not server.running(), SETUP_BOUND, f"the server ends; client died at {delay} s")
            follower.wait(SETUP_BOUND)


@row("rping server killed at nine moments from the client's start on")
def server_moments(bench):
    for server, client, _ in moments(bench, bench.port()):
        server.kill()
        client.wait(SETUP_BOUND)
        check(re.search("DISCONNECT|cma event|rdma_connect|flush|state", client.output),
              f"the client ended with {harness.describe(client.status())} and does not say why")


def perftest_words(program, port, *options):
    return [program, "-R", "-F", "-p", port, *options]


def perftest_killed(bench, program, victim):
    port = bench.port()
    # perftest makes a connection to agree on the test (as it starts), then one for the test.
    for connections, delay in ((1, 0.0), (2, 0.0), (2, 0.5)):
        words = perftest_words(program, port, "-D", 30, "-s", 65536)

        def attempt(words=words, connections=connections):
            server = bench.start(words).wait_listen(port)
            client = bench.start([*words, "127.0.0.1"])
            wait_until(lambda: harness.established(port) >= connections or not client.running(), 10,
                       f"{connections} connections")
            check(client.running(), f"the client ended with {harness.describe(client.status())}")
            return server, client

        server, client = perftest.patient(bench, attempt)
        time.sleep(delay)
        dead, survivor = (server, client) if victim == "server" else (client, server)
        check(client.running() and server.running(), "one ended before it was killed")
        dead.kill()
        killed = time.monotonic()
        # A server that listens for the second connection does not look at the first, and waits for as long as it takes.
        wait_until(lambda: not survivor.running() or time.monotonic() > killed + BOUND
                   and victim == "client" and harness.listening(port), SETUP_BOUND, f"the end of {survivor.name()}")
        if survivor.running():
            print(f"note  waits for the second connection of a dead client: {survivor.name()}", flush=True)
            survivor.end()
        # A client that is refused tries again with ids that it has just destroyed: what comes of that is chance.
        survivor.may_die = survivor.may_die or "Failed to connect RDMA CM events" in survivor.output
        check(survivor.status() >= 0 or survivor.may_die,
              f"the survivor died of {harness.describe(survivor.status())}")
    words = perftest_words(program, port, "-n", 200)
    perftest.patient(bench, lambda: bench.pair(words, [*words, "127.0.0.1"], port))


for _program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat"):
    row(f"{_program}: the client killed; the server ends, the next run works")(
        lambda bench, program=_program: perftest_killed(bench, program, "client"))
    # A client that only polls for its own completions learns of the end by a flush.
    row(f"{_program}: the server killed; the client gets a flush and ends, the next run works")(
        lambda bench, program=_program: perftest_killed(bench, program, "server"))


@row("one of eight clients of a persistent rping killed: the others do not notice")
def one_of_many(bench):
    server, port = pings.serve(bench, "-P")
    victim = pings.start_client(bench, port, "-v", "-S", 10000)
    others = [pings.start_client(bench, port, "-C", 3000, "-S", 10000, "-V") for _ in range(7)]
    victim.kill()
    for client in others:
        client.succeed(30)
    check(server.running(), "the server ended")
    wait_until(lambda: server.stderr.count("DISCONNECT EVENT") == 8, BOUND, "eight DISCONNECTED at the server")


@row("a stopped peer (SIGSTOP, SIGCONT) is not taken for a dead one")
def stopped(bench):
    server, port = pings.serve(bench)
    client = bench.start(pings.client(port, "-v"))

    def said():
        return os.path.getsize(client.stdout_path)

    wait_until(said, 20, "pings")
    server.popen.send_signal(signal.SIGSTOP)
    time.sleep(0.2)  # what was on its way has come
    before = said()
    time.sleep(1)
    check(client.running() and said() == before, "the client did not wait for its stopped peer")
    server.popen.send_signal(signal.SIGCONT)
    wait_until(lambda: said() > before, 20, "more pings")
    check(client.running() and server.running(), "one of them has ended")
    client.kill()
    server.wait(BOUND)


@row("kill -9 leaves nothing behind that hinders the next program")
def nothing_behind(bench):
    folders = ["/tmp", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~"), os.path.expanduser("~/.cache")]
    if os.environ.get("XDG_RUNTIME_DIR"):
        folders.append(os.environ["XDG_RUNTIME_DIR"])

    def ours():
        found = set()
        for folder in folders:
            if os.path.isdir(folder):
                names = {os.path.join(folder, name) for name in os.listdir(folder)
                         if "uiw" in name and not name.startswith(("uiw-apps-", "uiw-capture"))}  # other tests' own
                found |= names | {os.path.join(name, below) for name in names if os.path.isdir(name)
                                  for below in os.listdir(name)}
        return found

    env = {"UIW_RUNTIME_DIR": None, "TMPDIR": None}
    bench.run(["ibv_devinfo"], env=env)  # what uiw keeps for good, if anything, is there now
    before = ours()
    port = bench.port()
    for _ in range(3):
        server, _ = pings.serve(bench, port=port, env=env)
        client = bench.start(pings.client(port, "-v"), env=env)
        wait_until(lambda: os.path.getsize(client.stdout_path) > 0, 20, "pings")
        client.kill()
        server.kill()
        client.wait(5)
        server.wait(5)
    pings.pair(bench, "-C", 5, port=port, env=env)
    fresh = ours() - before
    check(not fresh, f"stayed behind: {sorted(fresh)}")


if __name__ == "__main__":
    sys.exit(harness.main())
