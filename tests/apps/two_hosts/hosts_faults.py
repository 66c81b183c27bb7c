# SPDX-License-Identifier: MIT
"""Two hosts over lines with faults: what arrives is right, however the line treats it, or the connection ends and says why."""

import importlib
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import check, row
from two_hosts import hosts, hosts_loss

pingpong = harness.borrow(lambda: importlib.import_module("programs.pingpong"))

ADDRESS = "10.77.0.1"
LONG = 60  # seconds that a program may take
# Title -> delay in seconds, loss, other faults; how many octets and how many turns it can take in some seconds.
LINES = {
    "2 % loss": ((0.001, 0.02, {}), 65535, 40),
    "10 % of frames overtaken": ((0.001, 0, {"reorder": 0.1}), 65535, 100),
    "10 % of frames twice": ((0.001, 0, {"duplicate": 0.1}), 65535, 100),
    "a bit changed in 1 % of frames": ((0.001, 0, {"flip": 0.01}), 65535, 40),
    "all faults that TCP makes good": ((0.001, 0.005, {"reorder": 0.02, "duplicate": 0.02, "flip": 0.005}), 65535, 40),
    "1 Mb/s": ((0.001, 0, {"rate": 1e6}), 20000, 4),
    "500 ms each way": ((0.5, 0, {}), 20000, 2),
}


def rping(bench, left, right, size, turns, address=ADDRESS, **more):
    """A pair of programs that compare each octet."""
    return pings.pair(bench, "-C", turns, "-S", size, "-V", host=address, timeout=LONG, server_more={"namespace": left},
                      client_more={"namespace": right}, **more)


def copied(bench, left, right, size, turns):
    hosts.copied(bench, {"namespace": left}, {"namespace": right}, size * turns, LONG)


def by_hand(bench, left, right, size, turns):
    pingpong.talk(bench, pingpong.RC, "-c", "-s", size, device="uiw_v0", gid=1, iterations=turns, address=ADDRESS,
                  timeout=LONG, server_more={"namespace": left}, client_more={"namespace": right})


for _title, (_line, _size, _turns) in LINES.items():
    for _program, _function in (("rping -V", rping), ("rcopy", copied), ("ibv_rc_pingpong -c", by_hand)):

        def run(bench, line=_line, size=_size, turns=_turns, function=_function):
            seconds, loss, faults = line
            function(bench, *hosts_loss.line(bench, seconds, loss, **faults), size, turns)

        harness.add_row(f"{_program}, {_title}", run)


@row("an exchange of words that TCP's checksum does not find: the CRC ends the connection, and nothing wrong arrives")
def exchanged(bench):
    left, right = hosts_loss.line(bench, 0.001, 0, exchange=0.02)
    log = os.path.join(bench.tmp, "log")
    server, port = pings.serve(bench, "-v", host=ADDRESS, namespace=left, env={"UIW_LOG": log})
    client = bench.start(pings.client(port, "-v", "-V", "-S", 65535, host=ADDRESS), namespace=right, env={"UIW_LOG": log})
    client.wait(LONG)
    server.wait(LONG)
    with open(log, errors="replace") as text:
        said = text.read()
    check("MPA CRC of an FPDU is wrong" in said, f"no end by a CRC: {said[-1000:]}")
    check("mismatch" not in client.output + server.output, "wrong octets have arrived")


def interrupted(bench, taken, given_back):
    """A connection that is in use while the line of one of the two hosts is away for a while."""
    left, right = hosts_loss.line(bench, 0.001, 0)
    ends = {"server": left, "client": right}
    server, port = pings.serve(bench, "-v", "-S", 20000, host=ADDRESS, namespace=left)
    client = bench.start(pings.client(port, "-v", "-V", "-S", 20000, host=ADDRESS), namespace=right)

    def said():
        return os.path.getsize(client.stdout_path)

    def resends():
        """Whether TCP has tried again what it could not send, or what was not acknowledged: timer:(WHICH,TIME,HOW OFTEN).
        Where all that was sent is acknowledged and the next segment finds no route, the timer is `persist`, else `on`."""
        return any(re.search(r"timer:[(](on|persist),[^,]*,[1-9]", bench.command(host.wrap(["ss", "-Htno"])).stdout)
                   for host in ends.values())

    harness.wait_until(lambda: said() > 0, 20, "pings")
    taken(ends)
    harness.wait_until(resends, 20, "the pings to stop")
    given_back(ends)
    before = said()
    harness.wait_until(lambda: said() > before + 100_000 or not client.running(), LONG,
                       "pings once the line is back, or the end")
    check(client.running() and server.running(), "the connection has not outlived the interruption")
    check("mismatch" not in client.output, "wrong octets have arrived")


for _side, _address in (("server", "10.77.0.1"), ("client", "10.77.0.2")):

    def _address_away(ends, side=_side, address=_address):
        ends[side].ip("address", "del", f"{address}/24", "dev", "v0")

    def _address_back(ends, side=_side, address=_address):
        ends[side].ip("address", "add", f"{address}/24", "dev", "v0")

    def _link_down(ends, side=_side):
        ends[side].ip("link", "set", "v0", "down")

    def _link_up(ends, side=_side):
        ends[side].ip("link", "set", "v0", "up")

    for _what, _taken, _back in (("the address is removed, and added again", _address_away, _address_back),
                                 ("the interface goes down, and up again", _link_down, _link_up)):
        harness.add_row(f"{_what} at the {_side}: a connection in use stops, and goes on",
                        lambda bench, taken=_taken, back=_back: interrupted(bench, taken, back))


if __name__ == "__main__":
    sys.exit(harness.main())
