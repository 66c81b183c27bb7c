# SPDX-License-Identifier: MIT
"""What other processes have: rdma resource, rdma statistic, and the counters of ports in sysfs.

Each row has a network namespace of its own, since other tests run programs on uiw meanwhile.
"""

import json
import os
import pathlib
import re
import signal
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest, pings
from support.harness import check, need_program

PORT = "/sys/class/infiniband/uiw_lo/ports/1"
UNIT = 4  # octets of port_xmit_data and port_rcv_data


class Alone:
    """A bench whose programs are in a network namespace of their own; its one interface is lo."""

    def __init__(self, bench):
        self.bench, self.namespace, self.port, self.uiw = bench, bench.namespace(), bench.port, bench.uiw

    def start(self, argv, **more):
        return self.bench.start(argv, namespace=self.namespace, **more)

    def run(self, argv, **more):
        return self.bench.run(argv, namespace=self.namespace, **more)


def row(title):
    return lambda function: harness.add_row(title, lambda bench: function(Alone(bench)))


def rdma(bench, *words, view="iwarp", timeout=20):
    need_program("rdma")
    run = bench.run(["rdma", *words], options=("--transport", view), timeout=timeout)
    check(not run.stderr, f"rdma complains: {run.stderr}")
    return json.loads(run.stdout) if "-j" in words else run.stdout


def resources(bench, kind, *filters, **more):
    return [one for one in rdma(bench, "-j", "resource", "show", kind, *filters, **more) if one]


def counter(bench, name, folder="counters", reader=("cat",)):
    return int(bench.run([*reader, f"{PORT}/{folder}/{name}"]).stdout)


def pair_that_stays(bench):
    """rping with a server that stays, and a client that pings for ever: their processes, once they are connected."""
    server, port = pings.serve(bench)
    client = bench.start(pings.client(port, "-S", 65535))
    server.may_die = client.may_die = True
    wanted = {server.pid, client.pid}
    until = time.monotonic() + 10
    while {one["pid"] for one in resources(bench, "qp") if one["state"] == "RTS"} != wanted:
        check(time.monotonic() < until, "the pair does not connect")
    return server, client, port


@row("rdma resource show qp, cm_id, cq, mr, pd, ctx: what two other processes have")
def shown(bench):
    server, client, port = pair_that_stays(bench)
    pids = {server.pid, client.pid}
    for kind in ("qp", "cq", "mr", "pd", "ctx", "cm_id"):
        found = resources(bench, kind)
        check({one["pid"] for one in found} == pids, f"{kind}: not of those two: {found}")
        check({one["comm"] for one in found} == {"rping"}, f"{kind}: not their names: {found}")
        check({one["ifname"] for one in found} >= {"uiw_lo"}, f"{kind}: not of the device: {found}")
        number = "lqpn" if kind == "qp" else kind.replace("_", "-") + "n"
        check(len({one[number] for one in found}) == len(found), f"{kind}: a number twice: {found}")
    for one in resources(bench, "qp"):
        check((one["port"], one["type"], one["state"]) == (1, "RC", "RTS"), f"queue pair: {one}")
        check(one["pdn"] in [pd["pdn"] for pd in resources(bench, "pd")], f"a domain that is not there: {one}")
    ids = resources(bench, "cm_id", "dev", "uiw_lo")
    connected = [one for one in ids if one["state"] == "CONNECT"]
    check({one["pid"] for one in connected} == pids, f"not connected: {ids}")
    check({one["lqpn"] for one in connected} == {one["lqpn"] for one in resources(bench, "qp")}, f"queue pairs: {ids}")
    for one in connected:
        ends = [one["src-addr"].rsplit(":", 1), one["dst-addr"].rsplit(":", 1)]
        check(all(host == "127.0.0.1" for host, _ in ends) and str(port) in dict(map(reversed, ends)), f"ends: {one}")
        check(one["ps"] == "TCP", f"port space: {one}")
    check([one["pid"] for one in ids if one["state"] == "LISTEN"] == [server.pid], f"the listener: {ids}")
    regions = resources(bench, "mr")
    check(any(one["mrlen"] == 65535 for one in regions), f"the lengths of regions: {regions}")
    text = rdma(bench, "resource", "show", "qp")
    check(len(re.findall(r"^link uiw_lo/1 lqpn \d+ .*type RC state RTS .*comm rping", text, re.M)) == 2, "as text")


@row("rdma resource: the summary counts, filters choose, and one object is asked for by its number")
def filters(bench):
    server, client, _ = pair_that_stays(bench)
    summary = {one["ifname"]: one for one in rdma(bench, "-j", "resource", "show")}
    check(set(summary) == {"uiw_lo"}, f"not those: {summary}")
    lo = summary["uiw_lo"]
    check((lo["qp"], lo["ctx"] >= 2, lo["pd"] >= 2, lo["srq"]) == (2, True, True, 0), f"the summary: {lo}")
    one = resources(bench, "qp", "link", "uiw_lo/1", "pid", server.pid)
    check(len(one) == 1 and one[0]["pid"] == server.pid, f"not by its PID: {one}")
    again = resources(bench, "qp", "link", "uiw_lo/1", "lqpn", one[0]["lqpn"])
    check(again == one, f"not by its number: {again}")
    for kind, number in (("mr", "mrn"), ("cq", "cqn"), ("pd", "pdn"), ("ctx", "ctxn"), ("cm_id", "cm-idn")):
        wanted = [region for region in resources(bench, kind) if region["pid"] == client.pid][-1]
        where = ("link", f"{wanted['ifname']}/1") if kind == "cm_id" else ("dev", wanted["ifname"])
        check(resources(bench, kind, *where, number, wanted[number]) == [wanted], f"{kind}: not by its number")


@row("a process that is killed vanishes, with what it had")
def killed(bench):
    server, client, _ = pair_that_stays(bench)
    os.kill(client.pid, signal.SIGKILL)
    client.wait(10)
    server.wait(10)
    for kind in ("qp", "ctx"):
        check(resources(bench, kind) == [], f"{kind}: something is left")


@row("a process that is stopped is left out, and delays by less than a second")
def stopped(bench):
    server, client, _ = pair_that_stays(bench)
    os.kill(client.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        rdma(bench, "-j", "dev")
        usual = time.monotonic() - begun
        begun = time.monotonic()
        found = resources(bench, "ctx")
        took = time.monotonic() - begun
        check({one["pid"] for one in found} == {server.pid}, f"not the one that runs: {found}")
        check(took - usual < 1, f"it took {took:.2f} s, and {usual:.2f} s without a question")
    finally:
        os.kill(client.pid, signal.SIGCONT)


@row("another user sees none of it")
def stranger(bench):
    harness.need_root()
    pair_that_stays(bench)
    folder = pathlib.Path(bench.bench.tmp, "of-4242")
    folder.mkdir()
    for path in (folder, *folder.parents[:1]):
        path.chmod(0o711)
    os.chown(folder, 4242, 4242)
    run = bench.run(["rdma", "-j", "resource", "show", "qp"], env={"UIW_RUNTIME_DIR": str(folder)},
                    wrap=["setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"])
    check([one for one in json.loads(run.stdout) if one] == [], f"it sees {run.stdout}")


# ---- counters ----------------------------------------------------------------------------------------------------

SEES = """
import os, sys
folder = sys.argv[1]
for name in sorted(os.listdir(folder)):
    with open(f"{folder}/{name}") as file:
        print(name, file.read().strip())
"""


def all_counters(bench, folder):
    lines = bench.run([sys.executable, "-c", SEES, f"{PORT}/{folder}"]).stdout.splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


@row("counters have the names that every adapter has, and are zero while nobody uses uiw")
def names(bench):
    usual = {"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_discards",
             "port_rcv_errors", "symbol_error", "link_downed", "link_error_recovery", "port_xmit_wait",
             "excessive_buffer_overrun_errors", "local_link_integrity_errors", "VL15_dropped"}
    found = all_counters(bench, "counters")
    check(usual <= set(found), f"not there: {usual - set(found)}")
    check(set(found.values()) == {0}, f"not zero: {found}")
    hardware = all_counters(bench, "hw_counters")
    check({"lifespan", "connections_established", "datagrams_no_receive"} <= set(hardware), f"not there: {hardware}")
    check(set(hardware.values()) == {0}, f"not zero: {hardware}")


@row("counters say at each open what all living processes have sent and received")
def grow(bench):
    server, client, _ = pair_that_stays(bench)
    check(counter(bench, "connections_established", "hw_counters") == 2, "two ends, and another number of connections")
    before = [counter(bench, name) for name in ("port_xmit_data", "port_xmit_packets")]
    time.sleep(0.3)
    os.kill(client.pid, signal.SIGSTOP)  # it is not asked, and the server has nothing more to do
    check(counter(bench, "connections_established", "hw_counters") == 1, "the one that is stopped is counted")
    os.kill(client.pid, signal.SIGCONT)
    after = [counter(bench, name) for name in ("port_xmit_data", "port_xmit_packets")]
    check(all(later > first for first, later in zip(before, after)), f"not more: {before}, {after}")
    server.may_die = client.may_die = True


@row("perftest's octets are in port_xmit_data and port_rcv_data")
def octets_of_perftest(bench):
    need_program("ib_write_bw")
    perftest.patient(bench.bench, lambda: grow_with_perftest(bench))


def grow_with_perftest(bench):
    port = bench.port()
    words = ["ib_write_bw", "-R", "-F", "-p", port, "-d", "uiw_lo", "-s", 65536, "--run_infinitely", "-D", 1]
    server = bench.start(words).wait_listen(port)
    client = bench.start([*words, "127.0.0.1"])
    server.may_die = client.may_die = True
    until = time.monotonic() + 10
    while len([one for one in resources(bench, "qp") if one["state"] == "RTS"]) < 2:
        check(time.monotonic() < until, "the pair does not connect")
    first = counter(bench, "port_xmit_data")
    client.wait_output(r"65536 .*\n.*65536 ", 10)
    second = counter(bench, "port_xmit_data")
    reported = [float(line.split()[3]) for line in re.findall(r"^ *65536 .*", client.stdout, re.M)]
    check(reported, "perftest has said nothing")
    check((second - first) * UNIT > 1e6, f"it moved only {(second - first) * UNIT} octets")


@row("connections that have ended stay counted while their process lives: as many octets as were moved")
def ended(bench):
    _, port = pings.serve(bench, "-P")
    times, size = 200, 60000
    bench.run(pings.client(port, "-C", times, "-S", size))
    until = time.monotonic() + 10
    while resources(bench, "qp"):
        check(time.monotonic() < until, "the server keeps its queue pair")
    check(counter(bench, "connections_established", "hw_counters") == 1, "not the one of the server")
    for name in ("port_xmit_data", "port_rcv_data"):  # the server reads each ping, and writes it back
        octets = counter(bench, name) * UNIT
        check(times * size <= octets <= times * size * 1.1, f"{name}: {octets} octets, for {times} of {size}")


@row("rdma statistic show: the counters of each link; rdma statistic qp show: nothing")
def statistic(bench):
    pair_that_stays(bench)
    shown = {(one["ifname"], one["port"]): one for one in rdma(bench, "-j", "statistic", "show")}
    check(set(shown) == {("uiw_lo", 1)}, f"not those links: {shown}")
    check(shown["uiw_lo", 1]["connections_established"] == 2, f"the connections: {shown}")
    one = rdma(bench, "-j", "statistic", "show", "link", "uiw_lo/1")
    check(len(one) == 1 and one[0]["rcvd_pkts"] > 0, f"one link: {one}")
    check(set(one[0]) - {"ifname", "port"} == set(all_counters(bench, "hw_counters")) - {"lifespan"}, f"names: {one}")
    check([one for one in rdma(bench, "-j", "statistic", "qp", "show") if one] == [], "a queue pair has counters")


@row("uiw devices --sysfs writes what the counters say then; grep -r finds them under uiw")
def snapshot(bench):
    pair_that_stays(bench)
    folder = bench.run([bench.uiw, "devices", "--sysfs"], uiw=False).stdout.strip()
    there = pathlib.Path(folder, "class/infiniband/uiw_lo/ports/1/hw_counters/connections_established")
    check(there.read_text() == "2\n", f"the file says {there.read_text()}")
    found = bench.run(["grep", "-r", ".", f"{PORT}/hw_counters"]).stdout
    check("hw_counters/connections_established:2\n" in found, f"grep finds {found}")


@row("the child of a fork does not answer for its parent")
def fork(bench):
    code = """
import ctypes, os, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])
child = os.fork()
if child == 0:
    print("child", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""
    reads, writes = os.pipe()
    process = bench.start([sys.executable, "-c", code], stdin=reads)
    os.close(reads)
    process.wait_output("child", 10)
    found = resources(bench, "ctx")
    check([one["pid"] for one in found] == [process.pid], f"not the parent alone: {found}")
    os.close(writes)
    process.succeed(10)


if __name__ == "__main__":
    sys.exit(harness.main())
