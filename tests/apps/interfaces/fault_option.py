# SPDX-License-Identifier: MIT
"""`uiw run --fault SPEC`: stock programs meet what an adapter does rarely, and say so."""

import os
import pathlib
import re
import signal
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest, pings
from support.harness import add_row, check, row, wait_until


def pair(bench, spec, server, client, at="client", timeout=20, both=True):
    """Two stock programs, of which one has the fault. Returns both once that one has ended, and with `both` the other one
    too; and what the log of that one says of faults."""
    port = bench.port()
    log = os.path.join(bench.tmp, f"log{len(bench.processes)}")
    faulty = {"options": ("--fault", spec, "--log", log)}
    first = bench.start([*server, "-p", port], **(faulty if at == "server" else {}))
    first.wait_listen(port)
    second = bench.start([*client, "-p", port, "127.0.0.1"], **(faulty if at == "client" else {}))
    first.may_die = second.may_die = True
    victim, other = (first, second) if at == "server" else (second, first)
    victim.wait(timeout)
    if both:
        other.wait(timeout)
    else:
        other.end()
    text = pathlib.Path(log).read_text() if os.path.exists(log) else ""
    return first, second, re.findall(r"uiw: (fault [^\n]*)", text)


SEND_BW = ["ib_send_bw", "-R", "-F", "-n", 500]
STATUSES = {"RNR_RETRY_EXC_ERR": "RNR retry counter exceeded", "REM_ACCESS_ERR": "remote access error",
            "RETRY_EXC_ERR": "transport retry counter exceeded", "LOC_PROT_ERR": "local protection error"}


def status(bench, name):
    server, client, faults = pair(bench, f"send={name}@100", SEND_BW, SEND_BW)
    check(client.status() != 0 and server.status() != 0, f"ended with {client.status()} and {server.status()}")
    number = {"RNR_RETRY_EXC_ERR": 13, "REM_ACCESS_ERR": 10, "RETRY_EXC_ERR": 12, "LOC_PROT_ERR": 4}[name]
    check(re.search(rf"[Ss]tatus[: ]*{number}\b|{STATUSES[name]}", client.output), client.output[-500:])
    check(faults == [f"fault send={name}@100: at operation 100"], str(faults))


for _name in STATUSES:
    add_row(f"ib_send_bw: a send completes with {_name}",
            lambda bench, name=_name: perftest.patient(bench, lambda: status(bench, name)))


@row("ibv_rc_pingpong: a receive completes with LOC_LEN_ERR")
def receive(bench):
    words = ["ibv_rc_pingpong", "-g", 0, "-n", 1000]
    # The other end has no send outstanding, so as with any adapter without a connection manager it learns nothing.
    server, _, faults = pair(bench, "recv=LOC_LEN_ERR@300", words, words, at="server", both=False)
    check("Failed status local length error (1)" in server.output, server.output)
    check(faults == ["fault recv=LOC_LEN_ERR@300: at operation 300"], str(faults))


@row("rping: the connection is lost")
def disconnect(bench):
    server, port = pings.serve(bench)
    client = bench.start(pings.client(port, "-C", 100000), options=("--fault", "disconnect@200"))
    for process in (client, server):
        process.may_die = True
        process.wait(20)
    check("DISCONNECT EVENT" in client.output, client.output)
    check("DISCONNECT EVENT" in server.output, server.output)


CALLS = {
    "reg_mr=ENOMEM": (SEND_BW, "Couldn't allocate MR"),
    "create_cq=ENOMEM": (SEND_BW, "Couldn't create CQ"),
    "create_qp=ENOMEM": (SEND_BW, "Unable to create QP"),
    "alloc_pd=ENOMEM": (SEND_BW, "rdma_resolve_addr failed"),
    "post_send=ENOMEM@50": (SEND_BW, "Couldn't post send"),
    "post_send=EAGAIN@50+": (SEND_BW, "Couldn't post send"),
    # perftest's programs have polled more or less often by then while they exchange their parameters.
    "poll_cq=EIO@40": (["ibv_rc_pingpong", "-g", 0, "-n", 1000], "poll CQ failed"),
    "post_recv=ENOMEM@2": (["ib_send_lat", "-R", "-F", "-n", 100], "ibv_post_recv failed|post recv"),
}


def call(bench, spec):
    words, message = CALLS[spec]
    # A server whose client has never called waits for ever.
    _, client, faults = pair(bench, spec, words, words, both=False)
    check(client.status() not in (0, None), f"ended with {client.status()}")
    check(re.search(message, client.output), client.output[-800:])
    check(len(faults) == 1 and faults[0].startswith(f"fault {spec}: at operation "), str(faults))


for _spec in CALLS:
    add_row(f"{CALLS[_spec][0][0]}: {_spec}",
            lambda bench, spec=_spec: perftest.patient(bench, lambda: call(bench, spec)))


@row("ibv_devinfo: the device cannot be opened, and its port cannot be queried")
def devices(bench):
    ended = bench.run(["ibv_devinfo", "-d", "uiw_lo"], status=None, options=("--fault", "open_device=ENODEV"))
    check(ended.status() != 0 and "Failed to open device" in ended.output, ended.output)
    ended = bench.run(["ibv_devinfo", "-d", "uiw_lo"], status=None, options=("--fault", "query_port=EIO"))
    check("Failed to query port 1 props" in ended.output, ended.output)


@row("ibv_asyncwatch: events at signals")
def events(bench):
    spec = "event=PORT_ERR@USR1,event=PORT_ACTIVE@USR2,event=DEVICE_FATAL@HUP"
    watch = bench.start(["ibv_asyncwatch", "-d", "uiw_lo"], options=("--fault", spec))
    watch.may_die = True
    wait_until(lambda: "async event" in watch.output.lower() or "asynchronous" in watch.output.lower(), 20,
               "ibv_asyncwatch begins")
    for number, text in ((signal.SIGUSR1, r"port error \(10\)|PORT_ERR"), (signal.SIGUSR2, r"port active \(9\)|PORT_ACTIVE"),
                         (signal.SIGHUP, r"local catastrophic error \(8\)|DEVICE_FATAL")):
        watch.kill(number)
        wait_until(lambda text=text: re.search(text, watch.output, re.I), 20, text)
    watch.end()


@row("ibv_rc_pingpong: the device fails after 300 completions")
def device_fatal(bench):
    words = ["ibv_rc_pingpong", "-g", 0, "-n", 100000]
    _, client, faults = pair(bench, "event=DEVICE_FATAL@300", words, words, both=False)
    check("Failed status Work Request Flushed Error (5)" in client.output, client.output)
    check(faults == ["fault event=DEVICE_FATAL@300: at operation 300"], str(faults))


@row("a port that is down is queried as such, until it is up again")
def port(bench):
    query = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "pyverbs_port.py")
    if not os.path.exists("/usr/lib/python3/dist-packages/pyverbs"):
        raise harness.Skip("no python3-pyverbs")
    ended = bench.run(["/usr/bin/python3", "-B", query],
                      options=("--fault", "event=PORT_ERR@USR1,event=PORT_ACTIVE@USR2"))
    check(ended.stdout.split() == ["ACTIVE", "DOWN", "ACTIVE"], ended.output)


def at_signal(bench, words, fault, number, both):
    """A program that goes on until it has the signal: its output then, and that of its peer."""
    port, log = bench.port(), os.path.join(bench.tmp, "log")
    server = bench.start([*words("-s"), "-p", port])
    server.wait_listen(port)
    client = bench.start([*words("-c"), "-p", port], options=("--fault", fault, "--log", log))
    # Until then the client may not have asked for the signal.
    wait_until(lambda: os.path.exists(log) and "connected" in pathlib.Path(log).read_text(), 20, "a connection")
    client.may_die = server.may_die = True
    client.kill(number)
    client.wait(20)
    if both:
        server.wait(20)
    else:
        server.end()
    return client.output, server.output


@row("ibv_rc_pingpong: a send fails at a signal")
def send_at_signal(bench):
    client, _ = at_signal(bench, lambda end: ["ibv_rc_pingpong", "-g", 0, "-n", 100_000_000, *["127.0.0.1"] * (end == "-c")],
                          "send=REM_OP_ERR@USR1", signal.SIGUSR1, False)
    check("remote operation error (11)" in client, client)


@row("rping: a connection is lost at a signal")
def lost_at_signal(bench):
    for said in at_signal(bench, lambda end: ["rping", end, "-a", "127.0.0.1"], "disconnect@USR2", signal.SIGUSR2, True):
        check("DISCONNECT EVENT" in said, said)


@row("an event is lost: the program waits, and its peer for it")
def lost_event(bench):
    def states():
        texts = [pathlib.Path(f"/proc/{process.pid}/status").read_text() for process in (server, client)]
        return [re.findall(r"^(?:State|.*ctxt_switches).*", text, re.M) for text in texts]

    port, log = bench.port(), os.path.join(bench.tmp, "lost")
    words = ["ibv_rc_pingpong", "-g", 0, "-e", "-n", 1000, "-p", port]
    server = bench.start(words)
    server.wait_listen(port)
    client = bench.start([*words, "127.0.0.1"], options=("--fault", "lost_event@100", "--log", log))
    wait_until(lambda: os.path.exists(log) and "fault lost_event@100: at operation 100" in pathlib.Path(log).read_text(), 20,
               "the fault")
    seen = []

    def is_still():
        seen.append(states())
        return len(seen) > 1 and seen[-1] == seen[-2] and all("State:\tS (sleeping)" in state for state in seen[-1])

    wait_until(is_still, 20, "both programs wait")
    check(client.status() is None and server.status() is None, client.output + server.output)
    client.end()
    server.end()


DELAY = "delay=30ms@every:20"


@row("completions are delayed: a program that polls goes on")
def delay_polled(bench):
    def attempt():
        words = ["ib_send_lat", "-R", "-F", "-n", 60]
        server, client, faults = pair(bench, DELAY, words, words, timeout=40)
        check(server.status() == 0 and client.status() == 0, client.output[-500:] + server.output[-500:])
        check(len(faults) >= 3, str(faults))
        return client

    client = perftest.patient(bench, attempt)
    slowest = max(float(word) for word in re.findall(r"\s(\d+[.]\d+)", client.output))
    check(slowest > 10_000, f"the slowest took {slowest} us")


@row("completions are delayed: a program that waits for events goes on")
def delay_awaited(bench):
    # Not with perftest: at each event of the channel of both queues it looks once at the queue that it expects one of, and
    # sends on where that was the other one.
    words = ["ibv_rc_pingpong", "-g", 0, "-e", "-n", 100]
    server, client, faults = pair(bench, DELAY, words, words, timeout=40)
    check(server.status() == 0 and client.status() == 0, client.output[-500:] + server.output[-500:])
    check(len(faults) >= 9, str(faults))
    took = re.search(r"100 iters in ([\d.]+) seconds", client.output)
    check(took and float(took[1]) > 0.1, client.output)


@row("at random: the same seed gives the same faults, another one others")
def random(bench):
    def attempt(spec):
        words = ["ib_write_bw", "-R", "-F", "-n", 400]
        _, client, faults = pair(bench, spec, words, words)
        check(not perftest.called_too_soon(client), client.output)
        return faults

    def run(spec):
        return perftest.patient(bench, lambda: attempt(spec))

    spec = "send=REM_OP_ERR@random:150,seed="
    found = {seed: run(spec + str(seed)) for seed in (1, 2, 3)}
    for seed in (1, 2, 3):
        check(run(spec + str(seed)) == found[seed], f"seed {seed}: {found[seed]}, and then something else")
    check(len({str(faults) for faults in found.values()}) > 1, str(found))
    words = ["ibv_rc_pingpong", "-g", 0, "-n", 1000]
    runs = [pair(bench, "recv=LOC_PROT_ERR@random:200,seed=4", words, words, both=False)[2] for _ in range(2)]
    check(len(runs[0]) == 1 and runs[0] == runs[1], str(runs))


@row("every rule is checked before the program starts")
def wrong(bench):
    for spec, why in (("send=NONSENSE", "'send=NONSENSE' has no status"), ("regmr=ENOMEM", "'regmr=ENOMEM' is no fault"),
                      ("disconnect@soon", "'disconnect@soon' has something else")):
        ended = bench.run(["true"], status=None, options=("--fault", spec))
        check(ended.status() not in (0, None) and why in ended.stderr, f"{ended.status()}: {ended.stderr}")


if __name__ == "__main__":
    sys.exit(harness.main())
