# SPDX-License-Identifier: MIT
"""Measures RDMA over uiw in turns with plain TCP, UCX and libfabric on the same machine. `uiw bench` chooses the device
and runs this program; progress goes to standard error."""
import argparse
import contextlib
import os
import resource
import shutil
import signal
import sys
from statistics import median

import plan
import plot
from processes import PLAIN, Failure, Interrupted, hold_namespace, in_namespace, raise_interrupts, run_program
from programs import IPERF3_MAX_SIZE, SHARED_MEMORY, TCP, Setup, rdma_latency, sockperf
from report import empty_report, empty_row, json_line, summarize, table, value_text

# Packages, each as (name in Debian, name in Fedora), with the programs that are used from them: NEEDED for all rows,
# GNUPLOT for a picture. OPTIONAL is for some rows; each entry has the word in Row.needs (plan.py), the name for
# messages, the program and its package.
NEEDED = {("perftest", "perftest"): ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_write_lat", "ib_atomic_bw"),
          ("iperf3", "iperf3"): ("iperf3",), ("sockperf", "sockperf"): ("sockperf",)}
OPTIONAL = (("ucx", "UCX", "ucx_perftest", ("ucx-utils", "ucx")),
            ("libfabric", "libfabric", "fi_pingpong", ("libfabric-bin", "libfabric")))
GNUPLOT = {("gnuplot-nox", "gnuplot"): ("gnuplot",)}
# The interface and the addresses of the two network namespaces that stand for two hosts. The addresses are for
# documentation (RFC 5737), so no real network has them.
INTERFACE, SERVER_ADDRESS, CLIENT_ADDRESS = "eth0", "192.0.2.1", "192.0.2.2"


def tell(line):
    print(line, file=sys.stderr, flush=True)


def complain(text):
    tell(f"uiw bench: {text}")


def how_to_install(packages):
    debian, fedora = zip(*packages)
    return f"apt-get install {' '.join(debian)} (Fedora: dnf install {' '.join(fedora)})"


def measure_row(row, runs, measure):
    """Measures `runs` pairs, each the reference and then uiw, and takes the ratio within each pair, since the speed of
    a machine that others use too changes from minute to minute. The first pair that fails is measured once more; a
    second failure ends the row."""
    result, pairs = empty_row(row), []
    while len(pairs) < runs:
        which = f"pair {len(pairs) + 1} of {runs}: {row.own.name}"
        try:
            reference, own = measure(row.reference), measure(row.own)
        except Failure as failure:
            tell(f"{which}: failed: {failure}")
            if result["repeated"]:
                result["error"] = str(failure)
                return result
            result["repeated"] = str(failure)
            continue
        pairs.append((reference, own))
        unit = result["unit"]
        tell(f"{which} {value_text(own, unit)}, {row.reference.name} {value_text(reference, unit)}, "
             f"ratio {own / reference:.2f}")
    summarize(result, pairs)
    return result


def join_hosts(setup, stack):
    """`setup` for measurements between two network namespaces that are joined by a veth pair with an MTU of 1500."""
    if os.geteuid() != 0:
        raise Failure("only root may make network namespaces")
    for program in ("ip", "unshare", "nsenter"):
        if not shutil.which(program):
            raise Failure(f"the program {program} is missing")
    paths = [hold_namespace(stack) for _ in range(2)]
    server, client = (path.split("/")[2] for path in paths)
    run_program(["ip", "link", "add", INTERFACE, "mtu", "1500", "netns", server, "type", "veth",
                 "peer", "name", INTERFACE, "mtu", "1500", "netns", client], PLAIN, 1)
    for path, address in zip(paths, (SERVER_ADDRESS, CLIENT_ADDRESS)):
        for words in (["address", "add", f"{address}/24", "dev", INTERFACE], ["link", "set", "dev", INTERFACE, "up"]):
            run_program(["ip", *words], PLAIN, 1, in_namespace(path))
    return setup._replace(device=f"uiw_{INTERFACE}", address=SERVER_ADDRESS, gid_index=0, server_in=in_namespace(paths[0]),
                          client_in=in_namespace(paths[1]))


def many_descriptors():
    """Raises the limit of descriptors to what the rows of 1,000 connections need; the programs inherit it. False if it
    cannot be raised that far."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < plan.DESCRIPTORS:
        return False
    if soft != resource.RLIM_INFINITY and soft < plan.DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (plan.DESCRIPTORS, hard))
    return True


def find_available(groups, setup, processors, stack, left_out):
    """Which of the needs of rows (Row.needs) are met here, and the setup for two hosts, or None. Adds to `left_out` a
    line for each need that is not met."""
    available, hosts = {"ucx", "libfabric", "hosts", "descriptors", "processors"}, None
    if "basic" in groups:
        for need, name, program, package in OPTIONAL:
            if not shutil.which(program):
                available.remove(need)
                left_out.append(f"rows with {name}: {program} is missing; install it: {how_to_install([package])}")
        try:
            hosts = join_hosts(setup, stack)
        except Failure as failure:
            available.remove("hosts")
            left_out.append(f"rows between two hosts: {failure}")
    if "connections" in groups and not many_descriptors():
        available.remove("descriptors")
        left_out.append(f"rows with 1000 connections: a process needs {plan.DESCRIPTORS} descriptors and may not have them "
                        "(ulimit -n)")
    if "pinned" in groups and processors < 2:
        available.remove("processors")
        left_out.append("rows with pinned ends: there is one processor only")
    return available, hosts


def measure_rows(setup, runs, groups, processors):
    report = empty_report(setup, runs, processors)
    with contextlib.ExitStack() as stack:
        available, hosts = find_available(groups, setup, processors, stack, report["left_out"])
        for row in plan.make_plan(groups, processors, available):
            where = hosts if row.needs == "hosts" else setup
            report["rows"].append(measure_row(row, runs, lambda each, where=where: plan.measure(where, each)))
    return report


def measure_twice(what, measure, show, errors):
    """Returns the measured value. Measures once more after a failure; after a second failure adds a line to `errors`
    and returns None."""
    for last in (False, True):
        try:
            value = measure()
        except Failure as failure:
            tell(f"{what}: failed: {failure}")
            if last:
                errors.append(f"{what}: {failure}")
        else:
            tell(f"{what}: {show(value)}")
            return value
    return None


def measure_bandwidths(setup, runs, errors):
    """For each subject, points (message size, Gb/s). All are two-sided: the receiver takes part."""
    sources = {
        plot.UIW_SHARED_MEMORY: plan.bandwidth("send", 0, SHARED_MEMORY)._replace(name="ib_send_bw over shared memory"),
        plot.UIW_TCP: plan.bandwidth("send", 0, TCP)._replace(name="ib_send_bw over TCP"),
        plot.PLAIN_TCP: plan.Measurement("plain TCP", "iperf3")}
    if shutil.which("ucx_perftest"):
        sources[plot.UCX] = plan.ucx("posix", SHARED_MEMORY, 0)
    curves = {subject: [] for subject in sources}
    for size in (64 * 4**step for step in range(9)):  # 64 octets to 4 MiB
        samples = {subject: [] for subject in sources}
        for _ in range(runs):
            for subject, source in sources.items():
                if source.what != "iperf3" or size <= IPERF3_MAX_SIZE:
                    samples[subject].append(measure_twice(
                        f"{source.name}, {size} octets", lambda source=source: plan.measure(setup, source._replace(size=size)),
                        lambda value: value_text(value, plan.GBITS), errors))
        for subject, values in samples.items():
            values = [value for value in values if value is not None]
            curves[subject] += [(size, median(values))] if values else []
    return curves


def measure_latencies(setup, runs, errors):
    """For each subject, the 50th, 99th and 99.9th percentile, in microseconds."""
    sources = {
        plot.UIW_SHARED_MEMORY: ("ib_send_lat over shared memory",
                                 lambda: rdma_latency(setup, "ib_send_lat", 8, SHARED_MEMORY)[:3]),
        plot.UIW_TCP: ("ib_send_lat over TCP", lambda: rdma_latency(setup, "ib_send_lat", 8, TCP)[:3]),
        plot.PLAIN_TCP: ("sockperf", lambda: sockperf(setup))}
    samples = {subject: [] for subject in sources}
    for _ in range(runs):
        for subject, (name, measure) in sources.items():
            value = measure_twice(name, measure, lambda value: value_text(value[0], plan.MICROSECONDS), errors)
            samples[subject] += [value] if value else []
    return {subject: [median(column) for column in zip(*values)] for subject, values in samples.items() if values}


def draw(setup, runs, processors, file):
    """Measures and draws. False if the picture could not be made or is incomplete."""
    errors = []
    picture = {"processors": processors, "runs": runs, "bandwidth": measure_bandwidths(setup, runs, errors),
               "latency": measure_latencies(setup, runs, errors)}
    try:
        plot.draw(plot.script(picture, file))
    except Failure as failure:
        complain(f"no picture: {failure}")
        return False
    for error in errors:
        complain(f"missing in {file}: {error}")
    return not errors


def obstacle(picture):
    """Why nothing can be measured, in one line; empty if it can be."""
    needed = {**NEEDED, **(GNUPLOT if picture else {})}
    missing = [package for package, programs in needed.items() if not all(map(shutil.which, programs))]
    if missing:
        return f"programs are missing; install them: {how_to_install(missing)}"
    return plot.cannot_write(picture) if picture else ""


def bench(options):
    runs, seconds = (1, 1) if options.quick else (options.runs, options.duration)
    setup = Setup(options.helpers, options.preload, options.device, options.address, options.gid_index, seconds,
                  10000 if options.quick else 40000 * seconds)
    processors = len(os.sched_getaffinity(0))
    report = measure_rows(setup, runs, plan.GROUPS if options.rows == "all" else [options.rows], processors)
    drawn = not options.plot or draw(setup, runs, processors, options.plot)
    print(json_line(report) if options.json else table(report), end="", flush=True)
    return 0 if drawn and not any(row["error"] for row in report["rows"]) else 1


def main():
    parser = argparse.ArgumentParser(description="Is run by `uiw bench`, which has checked the options.")
    for name in ("helpers", "preload", "device", "address", "rows", "plot"):
        parser.add_argument(f"--{name}")
    for name in ("gid-index", "runs", "duration"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("json", "quick"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    why = obstacle(options.plot)
    if why:
        complain(why)
        return 1
    raise_interrupts()
    try:
        return bench(options)
    except Interrupted as interrupted:
        number = interrupted.args[0]
        complain("interrupted; all programs it started have ended")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # ends this program by the signal, so that the shell sees it
        return 128 + number


if __name__ == "__main__":
    sys.exit(main())
