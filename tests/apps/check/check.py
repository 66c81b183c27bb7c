# SPDX-License-Identifier: MIT
"""`uiw run --check`: each fault of uiw_misuse is found, at the lines that are marked in its source, and the program that
is nearly the same and right has none; what the options do; and stock programs."""

import json
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness, perftest, pings
from support.harness import add_row, check, row

SOURCES = sorted(pathlib.Path(__file__).parent.glob("misuse*.cc"))
SUPPRESSIONS = pathlib.Path(__file__).resolve().parents[3] / "tools/check/stock-programs.supp"
STATUS = 9

# The faults of the cases whose names are not that of a fault.
FAULTS = {"unsignaled": "source-changed", "posted-again": "source-changed", "batched": "source-changed",
          "receives-overlap": "memory-overlap", "receive-over-source": "memory-overlap",
          "reads-overlap": "memory-overlap", "destroyed-twice": "use-after-destroy",
          "not-acknowledged": "event-not-acknowledged", "message-written": "sink-written", "read-written": "sink-written",
          "atomic-written": "sink-written", "answer-changed": "sink-written", "target-written": "sink-written", "unmapped": "memory-unmapped",
          "read-only": "memory-unmapped", "range-refused": "peer-refused", "right-refused": "peer-refused",
          "gone-refused": "peer-refused", "seldom-signaled": "send-queue-stuck", "cache": "region-in-use",
          "reconnected": "receive-missing", "used-by-another": "use-after-destroy", "head-pointer": "source-changed"}
# Where the mark is not the case's name.
MARKS = {"range-refused": "refused", "right-refused": "refused", "gone-refused": "refused-gone"}
# What comes with it if the threads meet so.
PERHAPS = {"used-by-another": {"destroyed-in-use"}}
# What comes with it: the completion of what was posted again has changed, too; and who has made a request that is
# refused is told.
ALSO = {"posted-again": {"source-changed"}, "seldom-signaled": {"send-queue-stuck"},
        "head-pointer": {"source-changed"}, "range-refused": {"access-refused"},
        "right-refused": {"access-refused"}, "gone-refused": {"access-refused"}}


def marked(mark):
    """The source and the number of its line with this mark, or None."""
    for source in SOURCES:
        for number, line in enumerate(source.read_text().splitlines(), 1):
            if re.search(rf"// .*\b{mark}(?![\w-])", line):
                return source.name, number
    return None


def reports(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def lines_of(call):
    names = {source.name for source in SOURCES}
    return [(pathlib.Path(place["file"]).name, place["line"]) for place in call["stack"]
            if pathlib.Path(place["file"]).name in names]


def checked(bench, name, status, *options):
    file = pathlib.Path(bench.tmp, f"report{len(bench.processes)}")
    cases.run(bench, "uiw_misuse", name, 30, status=status,
              options=("--check", "--check-exit", STATUS, "--check-report", file, *options))
    return reports(file)


def found(bench, name):
    mark = MARKS.get(name, name)
    at, other = marked(f"AT {mark}"), marked(f"OTHER {mark}")
    for _ in range(3):
        # The child that has the fault ends by itself; its parent has none.
        faults = checked(bench, name, 0 if name == "child-of-fork" else STATUS)
        fault = FAULTS.get(name, name)
        faults = [one for one in faults if one["fault"] not in PERHAPS.get(name, ())]
        check({one["fault"] for one in faults} == {fault} | ALSO.get(name, set()), f"found: {faults}")
        check(len(faults) == 1 or name in ALSO, f"more than one: {faults}")
        first = next(one for one in faults if one["fault"] == fault)
        check(at in lines_of(first["at"])[:1], f"not at {at}: {first['at']}")
        check(other is None or other in lines_of(first["other"]), f"not in conflict with {other}: {first['other']}")
        for one in faults:
            line = marked(f"AT {one['fault']}")
            check(one["fault"] == fault or line in lines_of(one["at"])[:1], f"not at {line}: {one['at']}")


def nothing(bench, name):
    faults = checked(bench, name, 0)
    check(not faults, f"found: {faults}")


def warned(bench, name, right):
    """`--check=all`. How the two queue pairs are connected is not portable either, and not what is looked for."""
    base = name.removesuffix("_right")
    at = marked(f"AT {base}")
    fault = "unsignaled-end" if base == "portable-end" else "not-portable"
    view = {"portable-read": "iwarp", "portable-words": "roce"}.get(base)
    options = ("--check=all", *(("--transport", view) if view else ()))
    faults = checked(bench, name, None, *options)
    call = "other" if base == "portable-end" else "at"
    places = [lines_of(one[call])[:1] for one in faults if one["fault"] == fault]
    if right:
        check([at] not in places, f"found: {faults}")
    else:
        check([at] in places, f"not at {at}: {faults}")
        check(not any(one["fault"] in ("not-portable", "unsignaled-end") for one in checked(bench, name, None)),
              "a warning without --check=all")


for _name in (name for name in cases.names("uiw_misuse") if name.startswith("portable-")):
    add_row(f"--check=all, {_name}", lambda bench, name=_name: warned(bench, name, name.endswith("_right")))

for _name in (name for name in cases.names("uiw_misuse") if not name.startswith(("portable-", "order-"))):
    _right = _name.endswith("_right")
    add_row(f"{_name.removesuffix('_right')}: {'the right program has no fault' if _right else 'found'}",
            lambda bench, name=_name, right=_right: (nothing if right else found)(bench, name))


# ---- The options ----

def misuse(bench, name, *options, status=None):
    return bench.run([bench.helper("uiw_misuse"), "127.0.0.1", bench.port(), name], options=options, status=status)


@row("--check=order: a program that counts on the order of a Write's octets fails, and with any other value it does not")
def order(bench):
    def seen(name, *options):
        return int(re.search(r"(\d+) messages were seen", misuse(bench, name, *options, status=0).stdout)[1])
    check(seen("order-seen-whole", "--check") == 0, "in part, though they are placed in order")
    # Whether the reader comes in between is the scheduler's choice, so it looks until it has.
    check(seen("order-seen-in-part", "--check=order", "--check-seed", 1) == 1, "never in part")


@row("--check=order: a program that counts on the order of two queue pairs' Writes fails, and one that waits does not")
def pointers(bench):
    def early(name, *options):
        output = misuse(bench, name, "--check=order", *options, status=0).stdout
        return int(re.search(r"(\d+) entries were not there", output)[1])
    for seed in range(1, 4):
        check(early("order-pointer-first", "--check-seed", seed) > 0, "always there")
        check(early("order-pointer-first_right", "--check-seed", seed) == 0, "not there")


@row("--check=order: who reads a message after it has posted the receive again finds it gone")
def early(bench):
    for value, what in (("on", "there"), ("order", "gone")):
        output = misuse(bench, "order-posted-early", f"--check={value}").stdout
        check(f"the message is {what}" in output and "as documented" in output, output)


@row("the report on standard error says what, where and what to do")
def words(bench):
    output = misuse(bench, "source-changed", "--check", status=0).stderr
    for text in ("source-changed: the 64 octets at 0x", "of a Write (wr_id 0x4d) of queue pair 0x",
                 f"its completion was polled in apps::source_changed_of() at misuse.cc:{marked('AT source-changed')[1]}",
                 f"posted in apps::source_changed_of() at misuse.cc:{marked('OTHER source-changed')[1]}",
                 "Leave the memory of work alone", "1 fault"):
        check(text in output, f"no '{text}' in: {output}")


@row("without --check nothing is reported")
def off(bench):
    output = misuse(bench, "source-changed", "--check-exit", STATUS, status=0).stderr
    check("uiw check" not in output, output)


@row("--check-exit is the exit status of a program with a fault, and of no other")
def exit_status(bench):
    misuse(bench, "leak", "--check", "--check-exit", 33, status=33)
    misuse(bench, "leak_right", "--check", "--check-exit", 33, status=0)
    misuse(bench, "leak", "--check=off", "--check-exit", 33, status=0)


def suppressed(bench, text, name="leak"):
    file = pathlib.Path(bench.tmp, "suppressions")
    file.write_text(text)
    return misuse(bench, name, "--check", "--check-exit", STATUS, "--check-suppress", file)


@row("--check-suppress: by the name of the fault, a function, a source file or a module")
def suppressions(bench):
    for text in ("leak\n", "# known\n\nleak apps::leak_of\n", "leak */misuse.cc # all of it\n", "leak *uiw_misuse\n"):
        run = suppressed(bench, text)
        check(run.status() == 0 and "1 suppressed" in run.stderr and "not destroyed" not in run.stderr, run.stderr)
    for text in ("cq-overrun\n", "leak apps::other\n"):
        check(suppressed(bench, text).status() == STATUS, f"suppressed by {text}")


@row("bad input: exit status 2 before the program starts, and one line that says why")
def bad_input(bench):
    unknown = suppressed(bench, "leak\nleek\n")
    check(unknown.status() == 2 and "suppressions:2: there is no fault 'leek'" in unknown.stderr, unknown.stderr)
    more = suppressed(bench, "leak one two\n")
    check(more.status() == 2 and "'two' is too much" in more.stderr, more.stderr)
    for option in ("--check-report", "--check-suppress"):
        absent = misuse(bench, "leak", "--check", option, "/nowhere/file")
        check(absent.status() == 2 and "/nowhere/file" in absent.stderr, absent.stderr)
    for run in (unknown, more, absent):
        check(len(run.stderr.splitlines()) == 1 and not run.stdout, run.stderr + run.stdout)


# ---- Two processes ----

for _case, _reason in (("write_out_of_bounds", "the region with this key has 1048576 octets at 0x"),
                       ("write_region_rights", "the region with this key is not registered for remote write"),
                       ("write_bad_rkey", "no region has this key, perhaps a window; the nearest region that is registered now has key 0x"),
                       ("read_region_rights", "the region with this key is not registered for remote read")):
    def _refused(bench, case=_case, reason=_reason):
        listens, calls = cases.pair(bench, "uiw_statuses", case, UIW_CHECK="on")
        for end, fault in ((listens, "peer-refused"), (calls, "access-refused")):
            check(re.search(rf"uiw check: {fault}: .*{reason}", end.stderr), f"no {fault} with '{reason}': {end.stderr}")

    add_row(f"refused by another process: both ends know why, {_case}", _refused)


# ---- Stock programs ----

KNOWN = ("--check", "--check-exit", STATUS, "--check-suppress", SUPPRESSIONS)


def stock(bench, words, more=()):
    def attempt():
        port = bench.port()
        return bench.pair([*words, "-p", port], [*words, "-p", port, *more, "127.0.0.1"], port, options=KNOWN, timeout=60)

    for end in perftest.patient(bench, attempt):
        check(re.search(r"uiw check: process \d+: 0 faults", end.stderr), end.stderr)


for _words in (["ibv_rc_pingpong", "-g", 0, "-n", 200], ["ibv_rc_pingpong", "-g", 0, "-n", 200, "-t"], ["ibv_rc_pingpong", "-g", 0, "-n", 200, "-e"],
               ["ibv_srq_pingpong", "-g", 0, "-n", 400], ["ib_send_bw", "-R", "-F", "-n", 2000],
               ["ib_write_bw", "-R", "-F", "-n", 2000, "-q", 4], ["ib_write_lat", "-F", "-n", 500],
               ["ib_read_bw", "-R", "-F", "-n", 500], ["ib_atomic_lat", "-F", "-n", 200],
               ["ib_send_lat", "-R", "-F", "-n", 500]):
    add_row(f"no fault but known ones: {' '.join(str(word) for word in _words)}",
            lambda bench, words=_words: stock(bench, words))


@row("no fault: rping, both ends")
def rping(bench):
    server, port = pings.serve(bench, "-C", 50, options=("--check", "--check-exit", STATUS))
    client = bench.start(pings.client(port, "-C", 50, "-V"), options=("--check", "--check-exit", STATUS))
    for end in (client, server):
        check(end.wait(20) == 0 and "0 faults" in end.stderr, end.stderr)


@row("no fault: rstream, whose work librdmacm posts")
def rstream(bench):
    port = bench.port()
    options = ("--check", "--check-exit", STATUS)
    words = ["rstream", "-p", port, "-S", 4096, "-C", 200]
    for end in bench.pair(words, [*words, "-s", "127.0.0.1"], port, options=options):
        check("0 faults" in end.stderr, end.stderr)


if __name__ == "__main__":
    sys.exit(harness.main())
