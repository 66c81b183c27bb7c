# SPDX-License-Identifier: MIT
"""How many instructions each post and each poll takes (valgrind's callgrind, messages.cc), compared with counts.txt: none
may have grown by more than a twentieth. `--setting WRITE=yes` writes counts.txt anew.

The counts depend on the compiler and, where memory is copied, on libc, so counts.txt says of which it is; elsewhere the row
is skipped."""

import pathlib
import platform
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import Skip, check, need_program, row

COUNTS = pathlib.Path(__file__).parent / "counts.txt"
CONFIGURATIONS = [(way, rule) for way in ("auto", "tcp") for rule in ("local", "remote")]
MOST = 1.05

HEADING = """\
# SPDX-License-Identifier: MIT
# Instructions of one call on average, as callgrind counts them; instructions.py compares. They are those of
# {compiler}.
#
# For each kind of work and number of connections: shared memory with the local and the remote completion rule, then TCP
# with both. The kernel's instructions are not counted. "polled by the target" are all its polls for one message.
"""


def counted(folder):
    """What callgrind has counted, by the lines of counts.txt. It has written a file for each count."""
    counts = {}
    for file in folder.iterdir():
        text = file.read_text(errors="replace")
        title = re.search(r"^desc: Trigger: Client Request: (.*); (\d+)$", text, re.M)
        if title:
            counts[title.group(1)] = round(int(re.search(r"^totals: (\d+)", text, re.M).group(1)) / int(title.group(2)))
    return counts


def count(bench):
    """For each line of counts.txt, the counts in the order of CONFIGURATIONS."""
    lines = {}
    for way, rule in CONFIGURATIONS:
        folder = pathlib.Path(bench.tmp, f"{way}-{rule}")
        folder.mkdir()
        bench.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={folder}/counts",
                   bench.helper("uiw_messages"), "127.0.0.1"], options=("--same-host", way, "--completion", rule), timeout=100)
        for line, instructions in counted(folder).items():
            lines.setdefault(line, []).append(instructions)
    check(lines and all(len(counts) == len(CONFIGURATIONS) for counts in lines.values()), "callgrind has counted nothing")
    return lines


def compiler(bench):
    cache = pathlib.Path(bench.build, "CMakeCache.txt").read_text()
    build_type = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.M).group(1)
    described = next(pathlib.Path(bench.build, "CMakeFiles").glob("*/CMakeCXXCompiler.cmake")).read_text()
    name, version = (re.search(rf'set\(CMAKE_CXX_COMPILER_{what} "([^"]*)"', described).group(1) for what in ("ID", "VERSION"))
    libc = " ".join(platform.libc_ver())
    return f"{name} {version.split('.')[0]} for {platform.machine()}, {build_type}, {libc}"


def text_of(lines, by):
    table = HEADING.format(compiler=by)
    for line in sorted(lines):
        kind, call, connections = line.split("; ")
        of = f"{connections} connection{'' if connections == '1' else 's'}"
        table += f"{kind:26} {call:24} {of:16}" + "".join(f"{each:7}" for each in lines[line]) + "\n"
    return table


def read(text):
    found = re.findall(r"^([^#\s].*?)  +(\S.*?)  +(\d+) connections? +(\d+) +(\d+) +(\d+) +(\d+)$", text, re.M)
    return {"; ".join(words[:3]): [int(word) for word in words[3:]] for words in found}


@row("no post and no poll takes more instructions than before")
def compare(bench):
    need_program("valgrind")
    by = compiler(bench)
    known = COUNTS.read_text() if COUNTS.exists() else ""
    writes = bench.settings.pop("WRITE", "") == "yes"
    if not writes and f"# {by}.\n" not in known:
        raise Skip(f"counts.txt is not of {by}")
    now = count(bench)
    if writes:
        COUNTS.write_text(text_of(now, by))
        return
    before = read(known)
    check(set(before) == set(now), "counts.txt has other lines; write it anew with --setting WRITE=yes")
    grown = [f"{line}, {'/'.join(configuration)}: {new}, and {old} before" for line in now
             for configuration, new, old in zip(CONFIGURATIONS, now[line], before[line]) if new > old * MOST]
    check(not grown, "more instructions than in counts.txt:\n  " + "\n  ".join(grown))


if __name__ == "__main__":
    sys.exit(harness.main())
