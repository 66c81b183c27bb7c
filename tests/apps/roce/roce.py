# SPDX-License-Identifier: MIT
"""uiw run --transport roce: stock programs see adapters for RoCE v2, and go RoCE's way with rdma_cm."""

import importlib
import ipaddress
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness, perftest, pings
from support.harness import add_row, check, row
from two_hosts import hosts

devices = harness.borrow(
    lambda: importlib.import_module("programs.devices"),
    "ibv_devices: one device for each interface that has an address, GUIDs differ and fit the MAC",
    "ibv_devinfo -v: GIDs fit the addresses; MTU, speed and limits make sense", "uiw devices: the same devices")


def gid_lines(run):
    """device -> GIDs in the order of their indices, as uiw_views tells them."""
    found = {}
    for name, index, gid in re.findall(r"^(uiw_\S+) (\d+) (\S+)$", run.stdout, re.M):
        check(int(index) == len(found.setdefault(name, [])), f"{name} counts {index} too early or late")
        found[name].append(ipaddress.IPv6Address(gid))
    return found


@row("ibv_devinfo: InfiniBand, Ethernet, RoCE v2")
def devinfo(bench):
    text = bench.run(["ibv_devinfo", "-v"]).stdout
    found = devices.parse_devinfo(text)
    check(set(found) == {f"uiw_{name}" for name in devices.interfaces()}, f"devices {sorted(found)}")
    for name, value in found.items():
        check(value["transport"].startswith("InfiniBand (0)"), f"{name}: transport {value['transport']}")
        check(value["state"].startswith("PORT_ACTIVE"), f"{name}: state {value['state']}")
        check(value["link_layer"] == "Ethernet", f"{name}: link layer {value['link_layer']}")
        check(int(value["max_ah"]) > 0, f"{name}: max_ah {value['max_ah']}")
    lines = re.findall(r"GID\[.*", text)
    check(lines and all(line.endswith(", RoCE v2") for line in lines), f"GIDs: {lines}")


@row("the option of uiw run and the variable do the same")
def option(bench):
    for more, transport in (({"options": ("--transport", "iwarp")}, "iWARP (1)"), ({}, "InfiniBand (0)"),
                            ({"env": {"UIW_TRANSPORT": None}}, "iWARP (1)"),
                            ({"env": {"UIW_TRANSPORT": None}, "options": ("--transport", "roce")}, "InfiniBand (0)")):
        value = devices.parse_devinfo(bench.run(["ibv_devinfo", "-d", "uiw_lo"], **more).stdout)["uiw_lo"]
        check(value["transport"].startswith(transport), f"{more} gives {value['transport']}")


def gid_table(bench, view):
    """Several addresses on an interface: one table, whichever way it is asked for."""
    left, _ = bench.two_hosts()
    for address in ("10.77.0.101/24", "10.78.0.1/16", "fd77::101/64", "fe80::77/64"):
        left.ip("address", "add", address, "dev", "v0", *(("nodad",) if ":" in address else ()))
    more = {"namespace": left, "env": {"UIW_TRANSPORT": view}}
    table = gid_lines(cases.run(bench, "uiw_views", "gids", **more))["uiw_v0"]
    shown = devices.parse_devinfo(bench.run(["ibv_devinfo", "-v", "-d", "uiw_v0"], **more).stdout)["uiw_v0"]["gids"]
    check(shown == table, f"ibv_devinfo shows {shown}, programs see {table}")
    wanted = [devices.gid_of(ipaddress.ip_address(text)) for text in
              ("10.77.0.1", "10.77.0.101", "10.78.0.1", "fd77::1", "fd77::101", "fe80::77")]
    check(set(wanted) <= set(table) and len(set(table)) == len(table), f"GIDs {table}")
    check([gid.is_link_local for gid in table] == sorted((gid.is_link_local for gid in table), reverse=True),
          f"link-local GIDs do not come first: {table}")


for _view in ("iwarp", "roce"):
    add_row(f"GID table with several addresses, --transport {_view}", lambda bench, v=_view: gid_table(bench, v))
    add_row(f"GID tables of this host, --transport {_view}",
            lambda bench, v=_view: cases.run(bench, "uiw_views", "gids", env={"UIW_TRANSPORT": v}))
add_row("datagrams with each GID of each device", lambda bench: cases.run(bench, "uiw_views", "datagrams"))
for _name in ("device", "required", "own_steps", "retries", "ack_timeout", "path_and_ece", "rejected", "ended_first", "delivered",
              "manager_alone", "manager_alone_ends", "time_wait"):
    for _address in ("127.0.0.1", "::1"):
        add_row(f"{_name}, {_address}",
                lambda bench, n=_name, a=_address: cases.run(bench, "uiw_views", n, address=a))

@row("a source port of the program's own is free at once after a disconnect, where TCP keeps it for a minute")
def source_port_again(bench):
    host, _ = bench.two_hosts()
    # With time stamps TCP may reuse the addresses of a connection that it still keeps.
    bench.command(host.wrap(["sysctl", "-qw", "net.ipv4.tcp_timestamps=0"]))
    for address in ("127.0.0.1", "::1"):
        cases.run(bench, "uiw_views", "source_port_again", address=address, namespace=host)


def world(bench, view):
    left, _ = bench.two_hosts()
    cases.run(bench, "uiw_views", "world", namespace=left, env={"UIW_TRANSPORT": view})


for _view in ("iwarp", "roce"):
    add_row(f"an open device sees its interface go down and up, and addresses come and go, --transport {_view}",
            lambda bench, v=_view: world(bench, v))


@row("peers that cannot be reached: the step to RTR, ibv_create_ah and rdma_resolve_addr say so")
def unreachable(bench):
    left, _ = bench.two_hosts()
    absent, elsewhere = "10.77.0.99", "198.51.100.1"
    cases.run(bench, "uiw_views", "steps_to_nobody", address=absent, namespace=left)
    cases.run(bench, "uiw_views", "steps_without_route", address=elsewhere, namespace=left)
    for view in ("iwarp", "roce"):
        cases.run(bench, "uiw_views", "resolves_to_nobody", address=absent, namespace=left,
                  env={"UIW_TRANSPORT": view})


@row("rdma_resolve_addr waits for a neighbour that answers later")
def late(bench):
    left, right = bench.two_hosts()
    program = bench.start([bench.helper("uiw_views"), "10.77.0.99", bench.port(), "resolves_late"], namespace=left)
    harness.wait_until(lambda: "under way" in program.stdout, 20, "the program to wait for its neighbour")
    right.ip("address", "add", "10.77.0.99/24", "dev", "v0")
    check(program.wait(30) == 0 and "as documented" in program.stdout, "the address is not resolved")


harness.borrow(lambda: importlib.import_module("programs.rping"),
               "-C 1000 -S 65535 -V, IPv4", "-C 1000 -S 65535 -V, IPv6",
               "-q: a QP that the program itself brings to RTS",
               "wildcard server on [::] serves IPv4 and IPv6 clients",
               "-P: one server, eight clients in turn and eight at a time",
               "-d -v: the debug output names each step", "no listener: refused at once, with an event")
harness.borrow(lambda: importlib.import_module("programs.connections"),
               "ucmatose", "ucmatose, IPv6", "ucmatose -c 100 -C 100 -S 65536",
               "ucmatose -c 500 -C 0: many connections, no data", "ucmatose -m: ids migrate to another channel",
               "ucmatose -t and -a: options of an id", "cmtime -c 1000: so many callers at once, and none is refused",
               "rdma_server and rdma_client", "rdma_server and rdma_client, IPv6", "rdma_xserver and rdma_xclient",
               "rdma_xserver and rdma_xclient, -c r")
harness.borrow(lambda: importlib.import_module("programs.rsockets"),
               "rstream -S, -C, -I", "rstream, IPv6", "rstream -T b", "rstream -T n", "rstream -T v",
               "rstream -B 4096: small buffers", "riostream -T v", "riostream, IPv6",
               "librspreload under uiw run: an ordinary sockets program over RDMA",
               "rcopy of one byte, of 4095 and of 65537 bytes, one server")
harness.borrow(lambda: hosts.rows(lambda bench: bench.two_hosts(), "two hosts", 4),
               "ibv_devinfo, two hosts", "rping, two hosts", "rping, IPv6, two hosts", "ucmatose, two hosts",
               "rstream, IPv6, two hosts", "ib_write_bw -R -s 65536 -n 250, two hosts",
               "ib_read_bw -R -s 65536 -b -q 4 -n 125, two hosts", "patterns, two hosts")

for _verb in ("send", "write", "read", "atomic"):
    for _kind in ("bw", "lat"):
        add_row(f"ib_{_verb}_{_kind} -R",
                lambda bench, program=f"ib_{_verb}_{_kind}": perftest.one(bench, program, "-n", 1000))
    add_row(f"ib_{_verb}_bw -R -b -q 4",
            lambda bench, program=f"ib_{_verb}_bw": perftest.one(bench, program, "-b", "-q", 4, "-n", 200))
    if _verb != "atomic":
        add_row(f"ib_{_verb}_bw -R -a",
                lambda bench, program=f"ib_{_verb}_bw": perftest.every_size(bench, program, "-n", 20, timeout=45))


@row("UIW_MTU: datagrams that are longer than the interface's MTU go in IP fragments")
def fragments(bench):
    left, right = bench.two_hosts()
    for mtu, size in ((4096, 4096), (2048, 2048), (512, 512)):
        env = {"UIW_MTU": str(mtu)}
        text = bench.run(["ibv_devinfo"], namespace=left, env=env).stdout
        check(f"active_mtu:\t\t{mtu} " in text, f"another MTU than {mtu}: {text}")
        for program, more in (("ib_send_lat", ()), ("ib_send_bw", ("-l", 8, "-t", 64, "-r", 256))):
            port = bench.port()
            words = [program, "-c", "UD", "-d", "uiw_v0", "-x", 1, "-p", port, "-s", size, "-n", 64, "-F", *more]
            bench.pair(words, [*words, "10.77.0.1"], port, timeout=30, server_more={"namespace": left, "env": env},
                       client_more={"namespace": right, "env": env})
        cases.run(bench, "uiw_views", "datagrams", namespace=left, env=env)


@row("datagrams of a host where a socket has a flow label for itself go without one")
def label_taken(bench):
    cases.run(bench, "uiw_views", "label_taken", namespace=bench.two_hosts()[0])


def mixed(bench, server, client):
    """The wire is the same: either end may have either view."""
    pings.pair(bench, "-C", 100, "-S", 65535, "-V", server_more={"env": {"UIW_TRANSPORT": server}},
               client_more={"env": {"UIW_TRANSPORT": client}})


for _server, _client in (("iwarp", "roce"), ("roce", "iwarp")):
    add_row(f"rping, server {_server}, client {_client}",
            lambda bench, one=_server, other=_client: mixed(bench, one, other))
add_row("MPA revision 1: the peer names no depths",
        lambda bench: perftest.one(bench, "ib_read_bw", "-n", 500, env={"UIW_MPA_REVISION": "1"}))


if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
