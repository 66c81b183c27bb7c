# SPDX-License-Identifier: MIT
"""rdma_cm's port space UDP in the RoCE view: services of datagrams are found, and answer or reject; multicast."""

import pathlib
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, machine, perftest
from support.harness import add_row, check, row

UDADDY = 7174  # the port that udaddy has, always
MCKEY = ("stdbuf", "-oL", "mckey")  # so that it says at once that it has joined
UNREACHABLE = "RDMA_CM_EVENT_UNREACHABLE, error: 1"


def listens(pid="self"):
    """Whether a process of this network namespace has udaddy's number."""
    text = pathlib.Path(f"/proc/{pid}/net/unix").read_text(encoding="utf-8", errors="replace")
    return f"@uiw-rdma-service/{UDADDY}/" in text


def udaddy(bench, *options, server=("udaddy",), client=("udaddy", "-s", "127.0.0.1"), **more):
    first = bench.start([*server, *options], **more)
    machine.wait_until(lambda: listens(first.pid) or not first.running(), 10, "udaddy's number")
    second = bench.run([*client, *options], timeout=40, **more)
    check(first.wait(10) == 0, f"the server ended with {first.status()}")
    for process in (first, second):
        check("data transfers complete" in process.output, f"no data transfers: {process.name()}")


for _words in ((), ("-c", "10", "-C", "100"), ("-C", "1000", "-S", "4096"), ("-c", "3", "-C", "5", "-S", "1")):
    add_row(" ".join(("udaddy", *_words)), lambda bench, words=_words: udaddy(bench, *words))
add_row("udaddy, IPv6", lambda bench: udaddy(bench, server=("udaddy", "-b", "::1", "-f", "ipv6"),
                                             client=("udaddy", "-s", "::1", "-f", "ipv6")))
add_row("udaddy, the server at one address", lambda bench: udaddy(bench, server=("udaddy", "-b", "127.0.0.1")))


@row("udaddy without a server: unreachable at once")
def nobody(bench):
    client = bench.run(["udaddy", "-s", "127.0.0.1"], status=None, timeout=10)
    check(client.status() > 0 and UNREACHABLE in client.output, f"{client.status()}: {client.output}")


@row("what a service says when it accepts and when it rejects; a join, to send only too, and how it is left")
def said(bench):
    check("as it should be" in bench.run([bench.helper("uiw_services")]).stdout, "not all of it")


@row("a UDP server has the number: udaddy's ends find each other, and it hears its own clients alone")
def beside_udp(bench):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        plain.bind(("0.0.0.0", UDADDY))
        plain.settimeout(10)
        udaddy(bench)
        client.sendto(b"plain", ("127.0.0.1", UDADDY))
        check(plain.recv(1000) == b"plain", "the UDP server has heard a look-up")


@row("a second service of one number is refused, and a killed one leaves the number")
def second(bench):
    first = bench.start(["udaddy"])
    machine.wait_until(listens, 10, "udaddy's number")
    refused = bench.run(["udaddy"], status=None, timeout=10)
    check(refused.status() and "Cannot assign requested address" in refused.output, f"two services: {refused.output}")
    first.kill()
    first.wait(10)
    udaddy(bench)


@row("the iWARP view has no datagrams: udaddy is refused")
def iwarp(bench):
    client = bench.run(["udaddy", "-s", "127.0.0.1"], status=None, timeout=20, env={"UIW_TRANSPORT": "iwarp"})
    check(client.status() > 0, "udaddy gets a queue pair for datagrams")


# No more messages than the 512 receives that perftest posts: a datagram that finds none is lost, and it waits for ever then.
for _program in ("ib_send_bw", "ib_send_lat"):
    for _words in (("-n", 500), ("-n", 500, "-s", 1), ("-n", 100, "-e")):
        add_row(" ".join(str(word) for word in (_program, "-c", "UD", "-R", *_words)),
                lambda bench, program=_program, words=_words: perftest.one(
                    bench, program, "-c", "UD", *words))



def mckey(bench, group, address, *options, receivers=1, **more):
    """Receivers that have joined, and a sender, which pauses for a few seconds before it sends."""
    words = [*MCKEY, "-m", group, "-b", address, *options]
    heard = [bench.start(words, **more) for _ in range(receivers)]
    for process in heard:
        process.wait_output("^mckey: joined dgid: ")
    sender = bench.run([*words, "-s"], timeout=30, **more)
    for process in heard:
        check(process.wait(10) == 0, f"a receiver ended with {process.status()}: {process.output}")
        check("data transfers complete" in process.output, f"no data: {process.output}")
    check("data transfers complete" in sender.output, f"no data: {sender.output}")


add_row("mckey", lambda bench: mckey(bench, "239.1.2.3", "127.0.0.1"))
add_row("mckey: two receivers, messages of 1024 octets",
        lambda bench: mckey(bench, "239.1.2.4", "127.0.0.1", "-C", "50", "-S", "1024", receivers=2))


@row("mckey on a port of one's own for groups, which others do not hear")
def mckey_port(bench):
    group, address = "239.1.2.5", "127.0.0.1"
    deaf = bench.start([*MCKEY, "-m", group, "-b", address])
    deaf.wait_output("^mckey: joined dgid: ")
    mckey(bench, group, address, options=("--multicast-port", bench.port()))
    check(deaf.running(), "a receiver on another port has heard the messages")
    deaf.end()


@row("mckey, IPv6")
def mckey_ipv6(bench):
    left, _ = bench.two_hosts()
    mckey(bench, "ff0e::1:2", "fd77::1", namespace=left)


@row("mckey, two hosts")
def mckey_two_hosts(bench):
    left, right = bench.two_hosts()
    receiver = bench.start([*MCKEY, "-m", "239.1.2.3", "-b", "10.77.0.2"], namespace=right)
    receiver.wait_output("^mckey: joined dgid: ")
    bench.run(["mckey", "-s", "-m", "239.1.2.3", "-b", "10.77.0.1"], timeout=30, namespace=left)
    check(receiver.wait(10) == 0, f"the receiver ended with {receiver.status()}")


@row("mckey in the iWARP view is refused")
def mckey_iwarp(bench):
    client = bench.run(["mckey", "-m", "239.1.2.3", "-b", "127.0.0.1"], status=None, timeout=20,
                       env={"UIW_TRANSPORT": "iwarp"})
    check(client.status() > 0, "mckey joins a group")


# Few octets, which the socket can hold until the receiver has its turn: perftest waits for ever for one that is lost.
add_row("ib_send_bw -c UD --mcg", lambda bench: perftest.one(
    bench, "ib_send_bw", "-c", "UD", "-g", "-n", 100, "-s", 64, "-M", "0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:9",
    way=("-d", "uiw_lo", "-x", 0)))

if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
