# SPDX-License-Identifier: MIT
"""The same program on the kernel's rxe and siw and on uiw: what uiw_observe prints there is compared.

uiw's RoCE view is compared with rxe, its iWARP view with siw. Each line that differs has to stand in docs/differences.md
with its reason, and each line of that has to be true. A row of a table there:

| observation | what the kernel's provider does | what uiw does | why |

In the first three columns * stands for anything. Of several rows that fit an observation the first one counts. A reason
that begins with "sometimes" is of a row that is not always so."""

import collections
import concurrent.futures
import fnmatch
import pathlib
import re

from places import Kernel, Uiw

# Of one process. The last one takes the interface down for a while.
SUBJECTS = ("connections", "datagrams", "events", "lifetimes", "objects", "posts", "steps", "windows", "interface")
PROGRAM = "tests/kernel/uiw_observe"
TABLES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "differences.md"

Row = collections.namedtuple("Row", "observation kernel uiw why")


def rows(provider):
    """Those of the table under the heading with the provider's name."""
    found = []
    heading = ""
    for line in TABLES.read_text().splitlines():
        if line.startswith("#"):
            heading = line
        elif line.startswith("| ") and f"`{provider}`" in heading and line.startswith("| `"):
            found.append(Row(*(re.sub(r"^`(.*)`$", r"\1", cell.strip()) for cell in line.strip("| ").split(" | "))))
    return found


def fits(text, pattern):
    """fnmatch(), where nothing but * is special."""
    return fnmatch.fnmatchcase(text, re.sub(r"([\[?])", r"[\1]", pattern))


def finish(place, begun, subject):
    status, output = place.finish(begun)
    if status != 0:
        raise RuntimeError(f"{place.name}, {subject}: exit status {status}\n{output[-1000:]}")
    lines = [line.rsplit(" = ", 1) for line in output.splitlines()]
    if not all(len(line) == 2 for line in lines):
        raise RuntimeError(f"{place.name}, {subject}: not all lines are observations\n{output[-1000:]}")
    return dict(lines)


def observe_alone(place, program):
    lines = {}
    for subject in SUBJECTS:
        lines.update(finish(place, place.begin(program, subject, place.address), subject))
    return lines


def observe_two(caller, called, program):
    """What the process that calls has seen, and that which is called."""
    begun = called.begin(program, "called", called.address)
    try:
        called.await_said(begun, "listens")
        calls = finish(caller, caller.begin(program, "calls", caller.address, called.address), "calls")
    except RuntimeError:
        called.kill("uiw_observe")
        raise
    return calls, finish(called, begun, "called")


class Table:
    """The rows of docs/differences.md for a provider, and which of them have been needed."""

    def __init__(self, name, say):
        self.name, self.say = name, say
        self.rows, self.used = rows(name), set()
        self.good = True
        self.count = 0

    def compare(self, theirs, ours):
        self.count += len(ours)
        for observation in dict.fromkeys([*theirs, *ours]):
            there, here = (lines.get(observation, "-") for lines in (theirs, ours))
            if there == here:
                continue
            row = next((row for row in self.rows if fits(observation, row.observation) and fits(there, row.kernel)
                        and fits(here, row.uiw)), None)
            if row is None:
                self.say(f"{observation}: {self.name} {there}, uiw {here}")
                self.good = False
            else:
                self.used.add(row)

    def judge(self):
        """Whether all differences are known, and how many observations were compared."""
        for row in self.rows:
            if row not in self.used and not row.why.startswith("sometimes"):
                self.say(f"{TABLES.name} says of {self.name}, and it is not so: {row.observation}: {row.kernel}, {row.uiw}")
                self.good = False
        return self.good, self.count


def compare(guest, build, provider, say):
    kernel, uiw = Kernel(guest, provider), Uiw(guest, provider, build)
    program = build / PROGRAM
    table = Table(provider, say)
    with concurrent.futures.ThreadPoolExecutor() as both:  # most of the time they wait for what does not come
        theirs, ours = both.map(lambda place: observe_alone(place, program), (kernel, uiw))
    table.compare(theirs, ours)
    for theirs, ours in zip(observe_two(kernel, kernel, program), observe_two(uiw, uiw, program)):
        table.compare(theirs, ours)
    return table.judge()


def compare_on_wire(guest, build, provider, say):
    """Each end of a connection between the kernel's provider and uiw sees what it sees with a peer of its own kind."""
    kernel, uiw = Kernel(guest, provider), Uiw(guest, provider, build)
    program = build / PROGRAM
    table = Table(f"{provider} and uiw", say)
    alone = {place: observe_two(place, place, program) for place in (kernel, uiw)}
    for caller, called in ((uiw, kernel), (kernel, uiw)):
        calls, answers = observe_two(caller, called, program)
        table.compare(alone[caller][0], calls)
        table.compare(alone[called][1], answers)
    return table.judge()
