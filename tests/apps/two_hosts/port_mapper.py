# SPDX-License-Identifier: MIT
"""RDMA listeners whose TCP port another program has are found from another host: the iWARP port mapper, UDP port 3935,
in the format of rdma-core's iwpmd (iwpmd/iwarp_pm.h), which is written down here once more."""

import os
import pathlib
import socket
import struct
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import check, row
from support.machine import wait_until

MAPPER = 3935
REQUEST, ACCEPT, ACKNOWLEDGEMENT, REJECTION = range(4)
LEFT = {4: "10.77.0.1", 6: "fd77::1"}
RIGHT = {4: "10.77.0.2", 6: "fd77::2"}

# A server of plain TCP: it answers with what it hears, and prints it.
PLAIN = """
import socket, sys
server = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
print("listens", flush=True)
while True:
    client, _ = server.accept()
    with client:
        octets = client.recv(1000)
        print("heard", octets, flush=True)
        client.sendall(octets)
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as client:
    client.sendall(b"plain")
    assert client.recv(1000) == b"plain"
"""
# Asks a mapper: address, octets in hexadecimal; prints what it answers within a second, and from where.
ASK = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as udp:
    udp.settimeout(float(sys.argv[3]))
    udp.sendto(bytes.fromhex(sys.argv[2]), (sys.argv[1], 3935))
    try:
        octets, source = udp.recvfrom(1000)
        print(octets.hex(), source[0])
    except TimeoutError:
        print("nothing")
"""
# A mapper: the TCP port that it names, or a rejection where that is 0, from another address where one is given; prints
# what it hears, and what the other address hears.
MAP = """
import socket, struct, sys, threading
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], 3935))
speaks = udp
if len(sys.argv) > 3:
    speaks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    speaks.bind((sys.argv[3], 3935))
    threading.Thread(target=lambda: print(speaks.recv(1000).hex(), flush=True), daemon=True).start()
print("maps", flush=True)
while True:
    octets, source = udp.recvfrom(1000)
    print(octets.hex(), flush=True)
    if octets[0] >> 4 == 0:
        port = int(sys.argv[2])
        answer = bytearray(octets[:48])
        answer[0] |= 0x10 if port else 0x30
        if port:
            answer[4:6] = struct.pack(">H", port)
        speaks.sendto(answer, source)
"""


def python(bench, code, *words, **more):
    return bench.start([sys.executable, "-c", code, *words], uiw=False, **more)


def plain_server(bench, port, host):
    server = python(bench, PLAIN, port, namespace=host)
    server.wait_output("^listens")
    return server


def names(host, port):
    text = pathlib.Path(f"/proc/{host.pid}/net/unix").read_text(encoding="utf-8", errors="replace")
    return f"@uiw-rdma-port/{port}/" in text


def holds(host):
    """Whether a process of this host answers as port mapper."""
    return any(line.split()[1].endswith(f":{MAPPER:04X}") for table in ("udp", "udp6")
               for line in pathlib.Path(f"/proc/{host.pid}/net/{table}").read_text().splitlines()[1:])


def rdma_server(bench, port, host, address="0.0.0.0", **more):
    server = bench.start(pings.server(port, "-P", host=address), namespace=host, **more)
    wait_until(lambda: names(host, port) or not server.running(), 10, f"RDMA port {port}")
    check(server.running(), f"does not listen: {server.name()}")
    return server


def rdma_client(bench, port, host, address, **more):
    return bench.run(pings.client(port, "-C", 5, "-S", 2000, "-V", host=address), namespace=host, **more)


def message(ip, kind, association, caller, called, time_field=0, version=0):
    """caller, called: address and port."""
    def octets(address):
        packed = socket.inet_pton(socket.AF_INET6 if ip == 6 else socket.AF_INET, address)
        return packed + bytes(16 - len(packed))

    head = struct.pack(">BBHHHQ", version << 6 | kind << 4 | ip, time_field, caller[1] if kind == REQUEST else 0,
                       called[1], caller[1], association)
    whole = head + octets(caller[0]) + octets(called[0])
    return whole + octets(caller[0]) if kind == REQUEST else whole


def ask(bench, host, address, octets, patience=5):
    run = bench.run([sys.executable, "-c", ASK, address, octets.hex(), patience], uiw=False, namespace=host)
    return run.stdout.split()


@row("a listener beside a TCP server is found from another host, and the TCP server does not notice")
def found(bench):
    left, right = bench.two_hosts()
    port = bench.port()
    plain = plain_server(bench, port, left)
    server = rdma_server(bench, port, left, "::")
    wait_until(lambda: holds(left), 10, "the port mapper")
    for ip in (4, 6):
        rdma_client(bench, port, right, LEFT[ip])
        rdma_client(bench, port, right, LEFT[ip], options=("--transport", "roce"))
        bench.run([sys.executable, "-c", CLIENT, LEFT[ip], port], uiw=False, namespace=right)
    heard = [line for line in plain.stdout.splitlines() if line.startswith("heard")]
    check(heard == ["heard b'plain'"] * 2, f"the TCP server has heard {heard}")
    server.kill()
    server.wait(10)
    wait_until(lambda: not holds(left), 10, "the end of the port mapper")
    plain.end()


PLAIN_UDP = """
import socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
    udp.bind(("::", int(sys.argv[1])))
    print("listens", flush=True)
    while True:
        octets, source = udp.recvfrom(1000)
        print("heard", octets, flush=True)
"""
UDADDY = 7174  # the number of udaddy's service, always


@row("a service of datagrams beside a UDP server is found from another host, and the UDP server does not notice")
def datagrams(bench):
    left, right = bench.two_hosts()
    plain = python(bench, PLAIN_UDP, UDADDY, namespace=left)
    plain.wait_output("^listens")
    roce = {"options": ("--transport", "roce")}
    for words in ((), ("-f", "ipv6", "-b", "::")):
        server = bench.start(["udaddy", *words], namespace=left, **roce)
        wait_until(lambda: holds(left) or not server.running(), 10, "the port mapper")
        check(server.running(), f"does not listen: {server.name()}")
        bench.run(["udaddy", "-s", LEFT[6 if words else 4], *words[:2]], namespace=right, **roce)
        check(server.wait(10) == 0, f"the server ended with {server.status()}")
        wait_until(lambda: not holds(left), 10, "the end of the port mapper")
    check("heard" not in plain.stdout, f"the UDP server has heard {plain.stdout}")
    plain.end()


@row("the holder of the port is killed: the listeners of another process are found all the same")
def taken_over(bench):
    left, right = bench.two_hosts()
    ports = bench.port(), bench.port()
    plain = [plain_server(bench, port, left) for port in ports]
    first = rdma_server(bench, ports[0], left)
    wait_until(lambda: holds(left), 10, "the port mapper")
    second = rdma_server(bench, ports[1], left)
    for port in ports:
        rdma_client(bench, port, right, LEFT[4])
    first.kill()
    first.wait(10)
    wait_until(lambda: holds(left), 10, "the port mapper once more")
    rdma_client(bench, ports[1], right, LEFT[4])
    check(second.running(), "the second server has ended")
    for server in plain:
        server.end()


@row("a caller in the format of iwpmd is answered: accept, reject, and nothing for what is malformed")
def answers(bench):
    left, right = bench.two_hosts()
    port = bench.port()
    plain = plain_server(bench, port, left)
    rdma_server(bench, port, left, "::")
    wait_until(lambda: holds(left), 10, "the port mapper")
    for ip in (4, 6):
        caller, association = (RIGHT[ip], 40001), 0x1122334455667788
        octets, source = ask(bench, right, LEFT[ip], message(ip, REQUEST, association, caller, (LEFT[ip], port)))
        check(source == LEFT[ip], f"the answer comes from {source}")
        mapped = struct.unpack(">H", bytes.fromhex(octets)[4:6])[0]
        check(10000 <= mapped < 20000, f"TCP port {mapped}")
        wanted = message(ip, ACCEPT, association, caller, (LEFT[ip], mapped))
        check(bytes.fromhex(octets) == wanted, f"{octets}, not {wanted.hex()}")
        for called in ((LEFT[ip], port ^ 1), ("10.77.0.9" if ip == 4 else "fd77::9", port)):
            octets, _ = ask(bench, right, LEFT[ip], message(ip, REQUEST, association, caller, called))
            wanted = message(ip, REJECTION, association, caller, called)
            check(bytes.fromhex(octets) == wanted, f"{octets}, not {wanted.hex()}")
    good = message(4, REQUEST, 1, (RIGHT[4], 40001), (LEFT[4], port))
    for octets in (good[:47], good + b"\0", b"", b"\x84" + good[1:], b"\x05" + good[1:],
                   message(4, ACCEPT, 1, (RIGHT[4], 40001), (LEFT[4], port)),
                   message(4, ACKNOWLEDGEMENT, 1, (RIGHT[4], 40001), (LEFT[4], port))):
        check(ask(bench, right, LEFT[4], octets, 0.3) == ["nothing"], f"{octets.hex()} is answered")
    plain.end()


@row("a caller asks in the format of iwpmd, takes the port, and acknowledges; after a rejection it takes the number")
def asks(bench):
    left, right = bench.two_hosts()
    number, port = bench.port(), bench.port()
    pings.serve(bench, "-P", port=port, host=LEFT[4], namespace=left)
    mapper = python(bench, MAP, LEFT[4], port, namespace=left)
    mapper.wait_output("^maps")
    rdma_client(bench, number, right, LEFT[4])
    mapper.wait_output("^24")
    *requests, last = [bytes.fromhex(line) for line in mapper.stdout.split()[1:]]
    association = struct.unpack(">Q", last[8:16])[0]
    # A mapper that takes its time is asked again.
    check(set(requests) == {message(4, REQUEST, association, (RIGHT[4], 0), (LEFT[4], number))}, f"requests: {requests}")
    check(last == message(4, ACKNOWLEDGEMENT, association, (RIGHT[4], 0), (LEFT[4], port)), last.hex())
    mapper.kill()
    mapper.wait(10)
    mapper = python(bench, MAP, LEFT[4], 0, namespace=left)
    mapper.wait_output("^maps")
    rdma_client(bench, port, right, LEFT[4])
    mapper.end()


@row("a mapper that answers from another address of its host, as iwpmd may, is heard, and hears the acknowledgement")
def elsewhere(bench):
    left, right = bench.two_hosts()
    left.ip("address", "add", "10.77.0.9/24", "dev", "v0")
    number, port = bench.port(), bench.port()
    pings.serve(bench, port=port, host=LEFT[4], namespace=left)
    mapper = python(bench, MAP, LEFT[4], port, "10.77.0.9", namespace=left)
    mapper.wait_output("^maps")
    rdma_client(bench, number, right, LEFT[4])
    mapper.wait_output("^24")
    *requests, last = [bytes.fromhex(line) for line in mapper.stdout.split()[1:]]
    # The address that was asked might still answer, until the caller's patience ends.
    check(len(requests) == 4 and len(set(requests)) == 1, f"the mapper has heard {requests}")
    check(last == message(4, ACKNOWLEDGEMENT, struct.unpack(">Q", requests[0][8:16])[0], (RIGHT[4], 0), (LEFT[4], port)),
          f"the mapper has heard {last.hex()} at last")
    mapper.end()


# Answers each request for a mapper with accepts that are not for it: from another port than a mapper's, about another
# caller, and of another association; and from another address, which counts only where the mapper says nothing. They name
# the TCP port that is given. Where one more word is given, the mapper itself rejects the request then.
FALSE = """
import socket, struct, sys
mapper, stranger, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3))
mapper.bind((sys.argv[1], 3935))
stranger.bind((sys.argv[1], 0))
other.bind(("10.77.0.9", 3935))
print("maps", flush=True)
while True:
    octets, source = mapper.recvfrom(1000)
    answer = bytearray(octets[:48])
    answer[0] |= 0x10
    answer[4:6] = struct.pack(">H", int(sys.argv[2]))
    stranger.sendto(answer, source)
    for at in (8, 19):
        answer[at] ^= 1
        mapper.sendto(answer, source)
        answer[at] ^= 1
    if len(sys.argv) > 3:
        other.sendto(answer, source)
        answer[0] |= 0x30
        mapper.sendto(answer, source)
    print("answered", flush=True)
"""


@row("answers that are no mapper's, or about something else, are ignored: the caller takes the number", rejects=())
@row("an answer from another address does not come before that of the mapper that was asked", rejects=("rejects",))
def false_answers(bench, rejects):
    left, right = bench.two_hosts()
    left.ip("address", "add", "10.77.0.9/24", "dev", "v0")
    number, nobody = bench.port(), bench.port()
    pings.serve(bench, port=number, host=LEFT[4], namespace=left)
    mapper = python(bench, FALSE, LEFT[4], nobody, *rejects, namespace=left)
    mapper.wait_output("^maps")
    rdma_client(bench, number, right, LEFT[4])
    check("answered" in mapper.stdout, "the mapper was not asked")
    mapper.end()


# Two calls, one after the other, of one program, by the rsockets of librdmacm; and what takes them.
TWICE = """
import ctypes, socket, struct, sys
library = ctypes.CDLL("librdmacm.so.1", use_errno=True)
def call(name, *words):
    result = getattr(library, name)(*words)
    assert result >= 0, (name, ctypes.get_errno())
    return result
role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
name = struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(address) + bytes(8)
if role == "server":
    listener = call("rsocket", socket.AF_INET, socket.SOCK_STREAM, 0)
    call("rbind", listener, name, len(name))
    call("rlisten", listener, 5)
    print("listens", flush=True)
for _ in range(2):
    if role == "server":
        end = call("raccept", listener, None, None)
    else:
        end = call("rsocket", socket.AF_INET, socket.SOCK_STREAM, 0)
        call("rconnect", end, name, len(name))
    call("rshutdown", end, socket.SHUT_RDWR)
    call("rclose", end)
"""


@row("a mapper that is silent is asked four times within half a second, by the first call alone")
def silent(bench):
    left, right = bench.two_hosts()
    port = bench.port()
    server = bench.start([sys.executable, "-c", TWICE, "server", LEFT[4], port], namespace=left)
    server.wait_output("^listens")
    deaf = python(bench, "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
                         "s.bind((sys.argv[1], 3935)); print('deaf', flush=True)\n"
                         "while True: print(s.recv(1000).hex(), flush=True)", LEFT[4], namespace=left)
    deaf.wait_output("^deaf")
    begun = time.monotonic()
    bench.run([sys.executable, "-c", TWICE, "client", LEFT[4], port], namespace=right)
    took = time.monotonic() - begun
    server.succeed(10)
    check(took > 0.4, f"the mapper was not waited for: {took:.2f} s")
    wait_until(lambda: len(deaf.stdout.split()) >= 5, 10, "four requests")
    requests = deaf.stdout.split()[1:]
    check(len(requests) == 4 and len(set(requests)) == 1, f"the mapper has heard {requests}")
    deaf.end()


# Requests for one number after another, each with an association of its own, for so many seconds.
FLOOD = """
import socket, struct, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
octets = bytearray.fromhex(sys.argv[2])
end, sent = time.monotonic() + float(sys.argv[3]), 0
print("floods", flush=True)
while time.monotonic() < end:
    octets[4:6] = struct.pack(">H", 20000 + sent % 10000)
    octets[8:16] = struct.pack(">Q", sent)
    udp.sendto(octets, (sys.argv[1], 3935))
    sent += 1
print(sent, flush=True)
"""


@row("a flood of requests does not grow the holder, nor keep callers of its own host out; afterwards all is as before")
def flood(bench):
    left, right = bench.two_hosts()
    port = bench.port()
    plain = plain_server(bench, port, left)
    server = rdma_server(bench, port, left)
    wait_until(lambda: holds(left), 10, "the port mapper")
    rdma_client(bench, port, right, LEFT[4])
    rdma_client(bench, port, left, LEFT[4])

    def held():
        """Descriptors, and KiB of memory."""
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        return len(os.listdir(f"/proc/{server.pid}/fd")), int(status.split("VmRSS:")[1].split()[0])

    before = held()
    flooding = python(bench, FLOOD, LEFT[4], message(4, REQUEST, 1, (RIGHT[4], 40001), (LEFT[4], port)).hex(), 2,
                      namespace=right)
    flooding.wait_output("^floods")
    rdma_client(bench, port, left, LEFT[4])
    check(flooding.wait(10) == 0, "the flood has failed")
    sent = int(flooding.stdout.split()[1])
    check(sent > 2000, f"{sent} requests are no flood")
    rdma_client(bench, port, right, LEFT[4])
    after = held()
    check(after[0] <= before[0] + 4, f"{before[0]} descriptors have become {after[0]}")
    check(after[1] < before[1] + 8192, f"{before[1]} KiB have become {after[1]}")
    plain.end()


@row("another program has the mapper's port: EADDRINUSE where it is needed, with the reason in the log")
def stranger(bench):
    left, _ = bench.two_hosts()
    port = bench.port()
    plain = plain_server(bench, port, left)
    mapper = python(bench, MAP, "0.0.0.0", 0, namespace=left)
    mapper.wait_output("^maps")
    path = os.path.join(bench.tmp, "log")
    run = bench.run(pings.server(port, host=LEFT[4]), status=None, namespace=left, options=("--log", path))
    check(run.status() and "Address already in use" in run.output, f"listens: {run.output}")
    check("UDP port 3935 belongs to another program" in pathlib.Path(path).read_text(), "the log does not say why")
    rdma_server(bench, port, left, "127.0.0.1")  # which other hosts cannot reach
    mapper.end()
    plain.end()


if __name__ == "__main__":
    sys.exit(harness.main())
