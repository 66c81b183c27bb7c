# SPDX-License-Identifier: MIT
"""How much memory idle connections take, whose queue pairs have 16 sends and 16 receives: through shared memory, and through
TCP, whose sockets are the kernel's and do not count.

`--setting IDLE_CONNECTIONS=10000` makes so many in place of 1000; that takes 20500 descriptors (prlimit --nofile)."""

import pathlib
import re
import resource
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

# KiB that a process may take for each connection. Less than 8 by TCP is the aim, and 7.8 is usual; how the heap falls to
# pieces while many threads connect at once makes some per cent.
MOST_SHARED, MOST_TCP = 16, 8.5
MOST_USED = 2  # more: a queue pair keeps memory for as many sends and receives as it has had at a time
PROGRAMS_OWN = 250  # descriptors: those of the program, and of the connections that it makes first
LINE = re.compile(r"^a connection: (\S+) KiB at one end, (\S+) KiB at the other, (\S+) KiB that both share\n"
                  r"page tables: .*; descriptors: (\S+) and (\S+)$", re.M)


def measure(bench, way, messages, octets, receives):
    """For each connection: the KiB of the process that has more, and of shared memory, each page once; and descriptors."""
    count = int(bench.settings.get("IDLE_CONNECTIONS", 1000))
    # While it is set up, a connection in shared memory needs another one.
    needed = (count + PROGRAMS_OWN) * (2 if way == "auto" else 1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        raise harness.Skip(f"{count} connections need {needed} descriptors, and {most} are allowed (ulimit -Hn)")
    ended = bench.run([bench.helper("uiw_idle_connections"), "127.0.0.1", count, messages, octets, receives],
                      timeout=60 + count // 20, options=("--same-host", way))
    check("as documented" in ended.stdout, "it did not finish")
    found = LINE.search(ended.stdout)
    check(found, "it does not say how much")
    print("      " + found.group().replace("\n", "; "))
    one, other, shared, *descriptors = (float(word) for word in found.groups())
    return max(one, other), shared, max(descriptors)


def through_shared_memory(bench, more, *what):
    own, shared, descriptors = measure(bench, "auto", *what)
    check(shared >= 4, f"{shared} KiB: this is not shared memory")
    check(descriptors < 1.5, f"{descriptors} descriptors: more than that of its TCP connection")
    # Of memory that two processes share, half is each one's, as in Pss.
    most = MOST_SHARED + more
    check(own + shared / 2 < most, f"{own} KiB, and {shared} KiB shared with the peer: not less than {most}")


def through_tcp(bench, more, *what):
    own, shared, descriptors = measure(bench, "tcp", *what)
    check(shared < 0.1 and descriptors < 1.5, f"{shared} KiB, {descriptors} descriptors: this is not TCP")
    check(own < MOST_TCP + more, f"{own} KiB: not less than {MOST_TCP + more}")


for _title, _function in (("shared memory", through_shared_memory), ("TCP", through_tcp)):
    for _what, *_arguments in (("nothing has been sent", 0, 0, 1, 0),
                               ("after a short message each way", 0, 1, 1, 0),
                               ("after 64 KiB each way, and 16 receives are posted", MOST_USED, 4, 16384, 16)):
        add_row(f"{_title}: {_what}", lambda bench, f=_function, a=tuple(_arguments): f(bench, *a))


if __name__ == "__main__":
    sys.exit(harness.main())
