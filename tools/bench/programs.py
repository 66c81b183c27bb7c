# SPDX-License-Identifier: MIT
"""Which benchmark programs are run for each result, with which arguments, and how their output is parsed.

The formats are those of perftest 4.5 (perftest_parameters.h, REPORT_FMT and REPORT_FMT_LAT), iperf3 3.12, sockperf 3.7,
UCX 1.13 with -f and -v, and libfabric 1.17. The parsers return None for text without a result.
"""
import os
import re
from typing import NamedTuple, Optional, Sequence

from processes import PLAIN, Failure, free_port, run_pair, run_program

IPERF3_MAX_SIZE = 1 << 20


class Setup(NamedTuple):
    """Where and how long measurements run."""
    helpers: str    # the directory of uiw-setup, uiw-tcp and uiw-requests
    preload: str    # LD_PRELOAD of programs that run over uiw
    device: str     # "uiw_lo"
    address: str    # an IPv4 address of that device; clients connect to it
    gid_index: int  # the index of the GID of `address`
    seconds: int    # the duration of each measurement
    iterations: int  # round trips of a ping-pong program that takes a number, not a time
    # The words before the command line of each end (nsenter), if the ends run in network namespaces of their own.
    server_in: Sequence[str] = ()
    client_in: Sequence[str] = ()


class Way(NamedTuple):
    """How the two ends of an RDMA connection connect."""
    crc: str = "auto"
    stream: Optional[str] = None  # --same-host: tcp, or auto, which is shared memory within a host
    manual: Optional[str] = None  # the completion rule of a connection without rdma_cm: local or remote


SHARED_MEMORY, TCP = Way(stream="auto"), Way(stream="tcp")


def numbers_of(line):
    """The numbers of a line that has only numbers; none for other lines."""
    try:
        return [float(word) for word in line.split()]
    except ValueError:
        return []


def perftest_row(text, size, columns):
    """The numbers of the last line that has at least `columns` of them and begins with the message size."""
    rows = [row for row in map(numbers_of, text.splitlines()) if len(row) >= columns and row[0] == size]
    return rows[-1] if rows else None


def parse_bandwidth(text, size):
    """Gb/s and messages a second, from the output of an ib_*_bw with --report_gbits."""
    row = perftest_row(text, size, 5)
    return (row[3], row[4] * 1e6) if row and row[3] > 0 else None


def parse_latency(text, size):
    """The 50th, 99th and 99.9th percentile and the average, in microseconds one way, from the output of an ib_*_lat
    that ran for a number of iterations."""
    row = perftest_row(text, size, 9)
    return (row[4], row[7], row[8], row[5]) if row and row[4] > 0 else None


def parse_helper(text, *behind):
    """The number at the beginning of the output of a program of uiw, and the numbers behind these words."""
    found = [re.search(re.escape(words) + r"\s*([\d.]+)", text) for words in behind]
    found.insert(0, re.match(r"\s*([\d.]+)", text))
    values = [float(each[1]) for each in found if each]
    return values if len(values) == len(found) and all(value > 0 for value in values) else None


def parse_iperf3(text):
    """Received bits a second, in Gb/s. Warnings may stand before the JSON."""
    found = re.search(r'.*"sum_received".*?"bits_per_second":\s*([\d.e+]+)', text, re.S)
    return float(found[1]) / 1e9 or None if found else None


def parse_sockperf(text):
    """The 50th, 99th and 99.9th percentile, in microseconds one way."""
    found = [re.search(rf"percentile {which} = +([\d.]+)", text) for which in (r"50\.000", r"99\.000", r"99\.900")]
    values = [float(each[1]) for each in found if each]
    return values if len(values) == 3 and values[0] > 0 else None


def parse_ucx(text):
    """Gb/s overall, and the median in microseconds one way.

    The last line has the iterations; the median, average and overall time; the average and overall bandwidth, in units
    of 2^20 octets a second; and the average and overall message rate. A long test also prints such lines before its
    end, which begin with the thread."""
    rows = [numbers_of(line.replace(",", " ")) for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 8 and row[5] > 0]
    return (rows[-1][5] * 8 * 2**20 / 1e9, rows[-1][1]) if rows else None


def parse_fi_pingpong(text):
    """"usec/xfer" of the last row, the average time one way. Size, sent, acknowledged, total and time have units behind their
    numbers; MB/sec, usec/xfer and Mxfers/sec none."""
    rows = [line.split() for line in text.splitlines()]
    times = [numbers_of(" ".join(cells[5:])) for cells in rows if len(cells) == 8]
    times = [row[1] for row in times if row and row[1] > 0]
    return times[-1] if times else None


def result_of(program, result):
    if result is None:
        raise Failure(f"{program} printed no result")
    return result


def rdma_environment(setup, way=Way()):
    environment = {"LD_PRELOAD": setup.preload, "UIW_CRC": way.crc, "LC_ALL": "C"}
    if way.stream:
        environment["UIW_SAME_HOST"] = way.stream
    if way.manual:  # in the iWARP view ib_send_bw without rdma_cm cannot free its protection domain at its end
        environment.update(UIW_COMPLETION=way.manual, UIW_TRANSPORT="roce")
    return environment


def perftest(setup, program, options, way, duration):
    port = free_port()
    connection = ["-x", str(setup.gid_index)] if way.manual else ["-R"]
    words = [program, "-F", "-d", setup.device, "-p", port, *connection, *map(str, options)]
    return run_pair(setup, words, [*words, setup.address], port, rdma_environment(setup, way), duration)


def rdma_bandwidth(setup, program, size, way, *options):
    """Gb/s and messages a second, with messages of `size` octets. With margin 0 (-f) the whole time counts, as for iperf3."""
    options = ["-D", setup.seconds, "-f", 0, "--report_gbits", *(options or ("-s", size))]
    return result_of(program, parse_bandwidth(perftest(setup, program, options, way, setup.seconds), size))


def rdma_connections(setup, size, connections, way):
    """Gb/s and messages a second of ib_write_bw over so many connections at a time. It runs for a number of Writes, not
    for a time, since the first Writes of a thousand connections alone may take longer than a second."""
    # perftest asks for a completion of every hundredth Write and of the last, and counts each completion as a hundred
    # Writes. If the number of Writes is above 100 and not a multiple of 100, it stops polling too early, and then waits
    # for ever for room to send.
    writes = (3000000 if size <= 4096 else 51200) // connections * setup.seconds
    writes -= writes % 100 if writes > 100 else 0
    # Without -N perftest searches the times of all pairs of Writes for the highest bandwidth, which takes minutes.
    options = ["-s", size, "-q", connections, "-n", writes, "-N", "--report_gbits"]
    text = perftest(setup, "ib_write_bw", options, way, 10 + 5 * setup.seconds)
    return result_of("ib_write_bw", parse_bandwidth(text, size))


def rdma_latency(setup, program, size, way, events=False):
    """The result of parse_latency(). Both ends poll, or with `events` block until a completion event comes."""
    options = ["-s", size, "-n", setup.iterations, *(["-e"] if events else [])]
    duration = 1 + setup.iterations // 10000  # enough even if a round trip takes 100 us
    return result_of(program, parse_latency(perftest(setup, program, options, way, duration), size))


def helper(setup, environment, *behind):
    """A function that runs a measuring program of uiw and returns what parse_helper() finds in its output."""
    def run(name, *arguments):
        words = [os.path.join(setup.helpers, name), *map(str, arguments), str(setup.seconds)]
        return result_of(name, parse_helper(run_program(words, environment, setup.seconds), *behind))
    return run


def rdma_setup(setup):
    """Microseconds until a queue pair of a manual connection has sent and received a message."""
    return helper(setup, rdma_environment(setup))("uiw-setup", setup.address)[0]


def tcp_reference(setup, what):
    return helper(setup, PLAIN)("uiw-tcp", what, setup.address)[0]


def requests(setup, ends, size, clients, way):
    """Answers a second, and microseconds of processor time for each; bench/requests/requests.cc says what the ends do."""
    environment = PLAIN if ends == "tcp" else rdma_environment(setup, way)
    return helper(setup, environment, "answers a second,")("uiw-requests", ends, setup.address, size, clients)


def iperf3(setup, size=0):
    """Gb/s of one stream, written `size` octets at a time; 0: as much at a time as iperf3 does by itself."""
    port = free_port()
    server = ["iperf3", "--server", "--one-off", "--bind", setup.address, "--port", port]
    client = ["iperf3", "--client", setup.address, "--port", port, "--time", str(setup.seconds), "--json"]
    client += ["--length", str(size)] if size else []
    return result_of("iperf3", parse_iperf3(run_pair(setup, server, client, port, PLAIN, setup.seconds)))


def sockperf(setup, events=False):
    port = free_port()
    options = ["--tcp", "-i", setup.address, "-p", port, *([] if events else ["--nonblocked"])]
    client = ["sockperf", "ping-pong", *options, "-t", str(setup.seconds)]
    text = run_pair(setup, ["sockperf", "server", *options], client, port, PLAIN, setup.seconds, server_ends=False)
    return result_of("sockperf", parse_sockperf(text))


def ucx(setup, test, size, stream, messages):
    """UCX's messages with tags, over its transport posix or tcp: the result of parse_ucx()."""
    port = free_port()
    # With -f and -v ucx_perftest prints only the final numbers, separated by commas.
    words = ["ucx_perftest", "-p", port, "-t", test, "-s", size, "-n", messages, "-w", messages // 10, "-f", "-v"]
    words = list(map(str, words))
    environment = {**PLAIN, "UCX_TLS": "tcp" if stream == "tcp" else "posix"}
    duration = 10 * setup.seconds  # the number of messages suits a fast machine; a slow one takes longer
    return result_of("ucx_perftest", parse_ucx(run_pair(setup, words, [*words, setup.address], port, environment, duration)))


def ucx_bandwidth(setup, size, stream):
    # ucx_perftest takes a number of messages, not a time. This number takes about a second at 2 GiB/s or, for small
    # messages, at a million a second.
    return ucx(setup, "tag_bw", size, stream, min((2 << 30) // size, 1000000) * setup.seconds)[0]


def ucx_latency(setup, size, stream):
    return ucx(setup, "tag_lat", size, stream, setup.iterations)[1]


def libfabric_latency(setup, size):
    """libfabric's provider tcp, in a ping-pong: microseconds one way, on average."""
    port = free_port()
    # This number of iterations takes about a second, for messages of 8 octets as well as of 1 MiB.
    iterations = setup.iterations // 20 if size > 4096 else setup.iterations
    options = ["-p", "tcp", "-e", "msg", "-S", str(size), "-I", str(iterations)]
    text = run_pair(setup, ["fi_pingpong", "-B", port, *options], ["fi_pingpong", "-P", port, *options, setup.address],
                    port, PLAIN, 1 + setup.iterations // 2000)
    return result_of("fi_pingpong", parse_fi_pingpong(text))
