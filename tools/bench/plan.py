# SPDX-License-Identifier: MIT
"""What `uiw bench` measures, what each measurement is compared with, and the targets."""
from typing import NamedTuple, Optional

import programs
from programs import SHARED_MEMORY, TCP, Way

GBITS, MICROSECONDS, SECONDS, MESSAGES = "Gb/s", "us", "s", "messages/s"
GROUPS = ("basic", "events", "connections", "server", "pinned")
FEW_PROCESSORS = 4  # Row.target_few applies to machines with fewer processors than this
# The limit of descriptors (RLIMIT_NOFILE) for the rows with 1,000 connections. Each connection has one descriptor, and
# some more for a short time while it is set up.
DESCRIPTORS = 4500
K4, K64, K128, M1 = 4 << 10, 64 << 10, 128 << 10, 1 << 20


class Measurement(NamedTuple):
    """What can be measured as one number."""
    name: str  # as the report shows it
    what: str  # a key of KINDS
    program: Optional[str] = None  # a program of perftest
    size: int = 0  # octets of a message; for iperf3, of a write, or 0 for iperf3's own choice
    way: Way = Way()
    connections: int = 1  # connections of ib_write_bw, or clients of the server


class Row(NamedTuple):
    """A row of the report: a measurement of uiw, and one of plain TCP or of something else that it is compared with."""
    id: str
    own: Measurement
    reference: Measurement
    target: Optional[float] = None  # the ratio to reach: a minimum for rates, a maximum for times
    needs: Optional[str] = None  # beyond the programs that every row needs: ucx, libfabric, hosts, descriptors, processors
    target_few: Optional[float] = None  # the target on few processors (FEW_PROCESSORS), if it differs


def perftest(function, which, **more):
    return lambda setup, m: function(setup, m.program, m.size, m.way, **more)[which]


def connections(which):
    return lambda setup, m: programs.rdma_connections(setup, m.size, m.connections, m.way)[which]


def requests(ends):
    return lambda setup, m: programs.requests(setup, ends, m.size, m.connections, m.way)[0]


def message_time(ends):
    """Microseconds of processor time for each message. A request and its answer are two messages."""
    return lambda setup, m: programs.requests(setup, ends, m.size, m.connections, m.way)[1] / 2


def gigabyte_time(ends):
    """Seconds of processor time for 10^9 octets."""
    return lambda setup, m: message_time(ends)(setup, m) * 1e3 / m.size


# For each kind of measurement its unit, and the function that measures.
KINDS = {
    "iperf3": (GBITS, lambda setup, m: programs.iperf3(setup, m.size)),
    "sockperf": (MICROSECONDS, lambda setup, m: programs.sockperf(setup)[0]),
    "sockperf_blocking": (MICROSECONDS, lambda setup, m: programs.sockperf(setup, events=True)[0]),
    "tcp_sends": (MESSAGES, lambda setup, m: programs.tcp_reference(setup, "sends")),
    "tcp_setup": (MICROSECONDS, lambda setup, m: programs.tcp_reference(setup, "setup")),
    "tcp_answers": (MESSAGES, requests("tcp")),
    "tcp_message_time": (MICROSECONDS, message_time("tcp")),
    "tcp_gigabyte_time": (SECONDS, gigabyte_time("tcp")),
    "ucx_bandwidth": (GBITS, lambda setup, m: programs.ucx_bandwidth(setup, m.size, m.way.stream)),
    "ucx_latency": (MICROSECONDS, lambda setup, m: programs.ucx_latency(setup, m.size, m.way.stream)),
    # fi_pingpong has one message outstanding at a time, so the bandwidth follows from the latency.
    "libfabric_bandwidth": (GBITS, lambda setup, m: m.size * 8 / (programs.libfabric_latency(setup, m.size) * 1e3)),
    "libfabric_latency": (MICROSECONDS, lambda setup, m: programs.libfabric_latency(setup, m.size)),
    "rdma_bandwidth": (GBITS, perftest(programs.rdma_bandwidth, 0)),
    "rdma_messages": (MESSAGES, perftest(programs.rdma_bandwidth, 1)),
    "rdma_latency": (MICROSECONDS, perftest(programs.rdma_latency, 0)),
    "rdma_average_latency": (MICROSECONDS, perftest(programs.rdma_latency, 3)),
    "rdma_event_latency": (MICROSECONDS, perftest(programs.rdma_latency, 0, events=True)),
    "connections_bandwidth": (GBITS, connections(0)),
    "connections_messages": (MESSAGES, connections(1)),
    "rdma_answers": (MESSAGES, requests("events")),
    "rdma_message_time": (MICROSECONDS, message_time("events")),
    "rdma_gigabyte_time": (SECONDS, gigabyte_time("events")),
    "rdma_writes": (MESSAGES, requests("writes")),
    "rdma_pinned_writes": (MESSAGES, requests("pinned")),
    # RDMA Reads and atomic operations of 8 octets, with 16 outstanding.
    "rdma_reads": (MESSAGES, lambda setup, m: programs.rdma_bandwidth(setup, "ib_read_bw", 8, m.way, "-o", 16, "-s", 8)[1]),
    "rdma_fetch_adds": (MESSAGES, lambda setup, m: programs.rdma_bandwidth(setup, "ib_atomic_bw", 8, m.way, "-o", 16, "-A",
                                                                           "FETCH_AND_ADD")[1]),
    "rdma_setup": (MICROSECONDS, lambda setup, m: programs.rdma_setup(setup)),
}
PLAIN_TCP = {"iperf3", "sockperf", "sockperf_blocking", *(kind for kind in KINDS if kind.startswith("tcp_"))}


def measure(setup, measurement):
    return KINDS[measurement.what][1](setup, measurement)


def unit_of(measurement):
    return KINDS[measurement.what][0]


def text_of(size):
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB" if size >> 10 else f"{size} B"


def id_of(size):
    return text_of(size).replace("iB", "").replace("B", "").replace(" ", "").lower()


def bandwidth(operation, size, way, behind="", before=None):
    name = f"{title(way) if before is None else before}ib_{operation}_bw {text_of(size)}{behind}"
    return Measurement(name, "rdma_bandwidth", f"ib_{operation}_bw", size, way)


def latency(operation, way, behind="", what="rdma_latency", before=None):
    name = f"{title(way) if before is None else before}ib_{operation}_lat 8 B{behind}"
    return Measurement(name, what, f"ib_{operation}_lat", 8, way)


def messages(name, way):
    return Measurement(name, "rdma_messages", "ib_write_bw", 8, way)


def title(way):
    return {"auto": "shared memory: ", "tcp": "TCP: "}[way.stream]


def prefix(way):
    return "shm_" if way.stream == "auto" else ""


STREAM = Measurement("iperf3, one stream", "iperf3")
PING = Measurement("sockperf, one way", "sockperf")
SENDS = Measurement("8-byte sends", "tcp_sends")


def ucx(transport, way, size):
    return Measurement(f"UCX {transport}, tag_{'lat' if size == 8 else 'bw'}",
                       "ucx_latency" if size == 8 else "ucx_bandwidth", size=size, way=way)


def basic_rows():
    for operation in ("write", "read", "send"):
        for size in (K64, M1):
            yield Row(f"shm_{operation}_bw_{id_of(size)}", bandwidth(operation, size, SHARED_MEMORY), STREAM, 1.8)
    yield Row("shm_send_lat_8", latency("send", SHARED_MEMORY), PING, 0.2)
    yield Row("shm_write_lat_8", latency("write", SHARED_MEMORY), PING)
    yield Row("shm_writes_8", messages("shared memory: 8-byte writes, one QP", SHARED_MEMORY), SENDS, 15)
    yield Row("shm_send_lat_8_ucx", latency("send", SHARED_MEMORY), ucx("posix", SHARED_MEMORY, 8), 1.5, "ucx")
    yield Row("shm_send_bw_1m_ucx", bandwidth("send", M1, SHARED_MEMORY), ucx("posix", SHARED_MEMORY, M1), None, "ucx")

    for crc, target in (("off", 1.15), ("on", 1.05)):
        for size in (K64, M1):
            yield Row(f"write_bw_{id_of(size)}{'_crc' if crc == 'on' else ''}",
                      bandwidth("write", size, TCP._replace(crc=crc), f", CRC {crc}"), STREAM, target)
    for operation in ("read", "send"):
        yield Row(f"{operation}_bw_64k", bandwidth(operation, K64, TCP), STREAM, 1.05)
        yield Row(f"{operation}_bw_1m", bandwidth(operation, M1, TCP), STREAM)
    yield Row("send_lat_8", latency("send", TCP), PING, 1.0)
    # Both ends of ib_write_lat spin on memory. On two processors none is left for uiw's progress threads, so the target
    # for few processors is weaker.
    yield Row("write_lat_8", latency("write", TCP), PING, 1.0, target_few=1.8)
    yield Row("writes_8", messages("TCP: 8-byte writes, one QP", TCP), SENDS, 5)
    yield Row("send_lat_8_ucx", latency("send", TCP), ucx("tcp", TCP, 8), 1.0, "ucx")
    yield Row("send_bw_1m_ucx", bandwidth("send", M1, TCP), ucx("tcp", TCP, M1), 2, "ucx")
    yield Row("send_lat_8_libfabric", latency("send", TCP, ", average", "rdma_average_latency"),
              Measurement("libfabric tcp, average", "libfabric_latency", size=8), 1.0, "libfabric")
    # fi_pingpong can measure the bandwidth only with one message outstanding at a time.
    yield Row("send_bw_1m_libfabric", bandwidth("send", M1, TCP),
              Measurement("libfabric tcp, 1 MiB in turns", "libfabric_bandwidth", size=M1), 2, "libfabric")

    for crc, target in (("off", 1.0), ("on", 0.9)):
        yield Row(f"hosts_write_bw_64k{'_crc' if crc == 'on' else ''}",
                  bandwidth("write", K64, Way(crc=crc), f", CRC {crc}", "two hosts: "), STREAM, target, "hosts")
    yield Row("setup_manual", Measurement("queue pair connected without rdma_cm, set-up", "rdma_setup"),
              Measurement("TCP connection, each end", "tcp_setup"))
    # Plain TCP has nothing comparable to an atomic operation, so the reference is an RDMA Read, which takes the same path.
    yield Row("fetch_adds", Measurement("fetch-and-adds, 16 outstanding", "rdma_fetch_adds"),
              Measurement("8-byte reads, 16 outstanding", "rdma_reads"), 0.8)
    yield from rule_rows()


def rule_rows():
    """Connections without rdma_cm under both completion rules, to show what the rule `remote` costs."""
    remote, local = Way(manual="remote"), Way(manual="local")
    before, behind = "without rdma_cm: ", ", completed by the peer"
    for id, own, target in (
            ("write_bw_64k", bandwidth("write", K64, remote, behind, before), 0.95),
            ("send_bw_64k", bandwidth("send", K64, remote, behind, before), 0.95),
            ("writes_8", messages(f"{before}8-byte writes{behind}", remote), 0.95),
            ("send_lat_8", latency("send", remote, behind, before=before), 1.1),
            ("write_lat_8", latency("write", remote, behind, before=before), 1.1)):
        yield Row(f"{id}_remote", own, own._replace(name="the same, completed locally", way=local), target)


def event_rows():
    blocking = Measurement("sockperf, blocking, one way", "sockperf_blocking")
    for way, target in ((SHARED_MEMORY, 0.8), (TCP, 1.15)):
        own = Measurement(f"{title(way)}ib_send_lat -e 8 B", "rdma_event_latency", "ib_send_lat", 8, way)
        yield Row(f"{prefix(way)}event_lat_8", own, blocking, target)
        yield Row(f"{prefix(way)}event_lat_8_manual",
                  own._replace(name=own.name + ", without rdma_cm", way=way._replace(manual="remote")), blocking, target)


def connection_rows():
    for way, target in ((SHARED_MEMORY, 0.8), (TCP, 0.5)):
        for what, id, size in (("messages", "writes_8", 8), ("bandwidth", "write_bw_64k", K64)):
            for count in (8, 64, 256, 1000):
                own = Measurement(f"{title(way)}ib_write_bw {text_of(size)}, {count} connections", f"connections_{what}",
                                  "ib_write_bw", size, way, count)
                yield Row(f"{prefix(way)}{id}_{count}_connections", own,
                          own._replace(name="the same, one connection", connections=1), target if size == 8 else 0.8,
                          "descriptors" if count == 1000 else None)


def beside_tcp(id, what, name, size, clients, way, target):
    reference = Measurement("plain TCP, the same", f"tcp_{what}", size=size, connections=clients)
    own = Measurement(title(way) + name, f"rdma_{what}", size=size, way=way, connections=clients)
    return Row(prefix(way) + id, own, reference, target)


def server_rows():
    for way, targets in ((SHARED_MEMORY, (1.2, 1.5)), (TCP, (1.0, 1.0))):
        for size, target in zip((64, K64), targets):
            for count in (1, 8, 50):
                clients = "client" if count == 1 else "clients"
                yield beside_tcp(f"server_{id_of(size)}_{count}_{clients}", "answers",
                                 f"epoll server, {text_of(size)}, {count} {clients}", size, count, way, target)
    for way in (SHARED_MEMORY, TCP):
        yield beside_tcp("message_time_64", "message_time", "processor time, message of 64 B", 64, 8, way, 1.3)
        yield beside_tcp("gigabyte_time_64k", "gigabyte_time", "processor time, 1 GB by 64 KiB", K64, 8, way, None)


def pinned_rows():
    for way in (SHARED_MEMORY, TCP):
        for size in (K128, K4):
            own = Measurement(f"{title(way)}answers by Write, {text_of(size)}, ends pinned", "rdma_pinned_writes",
                              size=size, way=way)
            yield Row(f"{prefix(way)}pinned_writes_{id_of(size)}", own,
                      own._replace(name="the same, not pinned", what="rdma_writes"), 1.0, "processors")


def make_plan(groups, processors, available):
    """The rows of these groups in the order in which they are measured, without those whose needs are not available, and
    with the targets for this number of processors."""
    rows = {"basic": basic_rows, "events": event_rows, "connections": connection_rows, "server": server_rows,
            "pinned": pinned_rows}
    return [row._replace(target=row.target_few) if row.target_few and processors < FEW_PROCESSORS else row
            for group in GROUPS if group in groups for row in rows[group]() if row.needs in {None, *available}]
