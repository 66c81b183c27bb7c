# SPDX-License-Identifier: MIT
"""The same program on the kernel's rxe and siw and on uiw: what uiw_observe prints there is compared.

uiw's RoCE view is compared with rxe, its iWARP view with siw. Each line that differs has to stand in docs/differences.md
with its reason, and each line of that has to be true. A row of a table there:

| observation | what the kernel's provider does | what uiw does | why |

In the first three columns * stands for anything. Of several rows that fit an observation the first one counts. A reason
that begins with "sometimes" is of a row that is not always so."""

import collections
import fnmatch
import pathlib
import re
import subprocess

SUBJECTS = ("objects", "posts", "steps", "work")
VIEWS = {"rxe": ("roce", "10.71.0"), "siw": ("iwarp", "10.72.0")}
TABLES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "differences.md"

Row = collections.namedtuple("Row", "observation kernel uiw why")


def observed(output):
    return dict(line.rsplit(" = ", 1) for line in output.splitlines())


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


def of_kernel(guest, build, provider, subject):
    done = guest.run(f"{build}/tests/kernel/uiw_observe {subject} {VIEWS[provider][1]}.2")
    if done.status != 0:
        raise RuntimeError(f"{provider}, {subject}: exit status {done.status}\n{done.output[-500:]}{done.errors}")
    return observed(done.output)


def of_uiw(guest, build, provider, subject):
    view, network = VIEWS[provider]
    done = guest.on_host([f"{build}/tools/uiw", "run", "--transport", view, "--",
                          f"{build}/tests/kernel/uiw_observe", subject, f"{network}.1"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = done.communicate(timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"uiw as {view}, {subject}: exit status {done.returncode}\n{output[-500:]}{errors}")
    return observed(output)


def compare(guest, build, provider, say):
    """Whether all differences are known, and how many observations were compared."""
    table = rows(provider)
    used = set()
    good = True
    count = 0
    for subject in SUBJECTS:
        kernel, own = (of(guest, build, provider, subject) for of in (of_kernel, of_uiw))
        count += len(own)
        for observation in dict.fromkeys([*kernel, *own]):
            theirs, ours = (lines.get(observation, "-") for lines in (kernel, own))
            if theirs == ours:
                continue
            row = next((row for row in table if fits(observation, row.observation) and fits(theirs, row.kernel)
                        and fits(ours, row.uiw)), None)
            if row is None:
                say(f"{observation}: {provider} {theirs}, uiw {ours}")
                good = False
            else:
                used.add(row)
    for row in table:
        if row not in used and not row.why.startswith("sometimes"):
            say(f"{TABLES.name} says of {provider}, and it is not so: {row.observation}: {row.kernel}, {row.uiw}")
            good = False
    return good, count
