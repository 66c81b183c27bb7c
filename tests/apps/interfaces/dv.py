# SPDX-License-Identifier: MIT
"""uiwdv.h: what it says, by a program that links libuiw; and that it is C and C++."""

import glob
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row


@row("masked atomics, 8-octet Immediate Data, Send with immediate, queries, foreign objects")
def behaviour(bench):
    for env in ({}, {"UIW_CRC": "on"}, {"UIW_SAME_HOST": "tcp"}):
        run = bench.run([bench.helper("uiw_dv"), "127.0.0.1", bench.port()], env=env, timeout=30)
        check("as uiwdv(7) says" in run.stdout, "it did not finish")


@row("a C program and a C++ program")
def languages(bench):
    for name in ("uiw_uses_uiwdv_c", "uiw_uses_uiwdv_cxx"):
        run = bench.run([bench.helper(name)])
        check(re.search(r"^uiw_lo: uiw \d+\.\d+\.\d+, interface lo, capabilities 0xf$", run.stdout, re.M),
              "uiw_lo is not taken")
        # Without uiw there is no device, and the library sits idle.
        run = bench.run([bench.helper(name)], uiw=False, status=None)
        check("uiw_" not in run.stdout, "a device without uiw")


@row("the example of uiwdv(7), in both views, prints what the page says")
def example(bench):
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/man/uiwdv.7.rst")
    with open(page) as text:
        promised = re.search(r"it prints\s+``([^`]*)``", text.read()).group(1)
    for transport in ("iwarp", "roce"):
        run = bench.run([bench.helper("uiw_uiwdv_example")], options=["--transport", transport])
        check(run.stdout == promised + "\n", f"{transport}: it prints {run.stdout!r}")
    run = bench.run([bench.helper("uiw_uiwdv_example")], uiw=False, status=1)
    check("no device of uiw" in run.stderr, "without uiw it does not say that there is no device")


def dynamic_symbols(bench, path):
    """(name, version) of what a file defines for others, and the names that it needs from others."""
    defined, needed = set(), set()
    for line in bench.command(["readelf", "--dyn-syms", "-W", path]).stdout.splitlines():
        columns = line.split()
        if len(columns) < 8 or columns[4] not in ("GLOBAL", "WEAK"):
            continue
        name, _, version = columns[7].partition("@")
        if columns[6] == "UND":
            needed.add(name)
        elif columns[6] != "ABS":
            defined.add((name, version.lstrip("@")))
    return defined, needed


@row("libuiw exports what uiwdv.h declares and what uiw's own files need, and nothing else")
def exports(bench):
    defined, _ = dynamic_symbols(bench, f"{bench.build}/provider/libuiw.so.1")
    private = {name for name, version in defined if version.startswith("UIW_PRIVATE_")}
    check(len(private) + len([name for name, _ in defined if name.startswith("uiwdv_")]) == len(defined),
          f"symbols without a version of ours: {defined}")
    needed = {"uiw_kernel_abi_v8"}  # the preload library looks it up by name
    for path in (*glob.glob(f"{bench.build}/provider/plugin/libuiw-rdmav*.so"), f"{bench.build}/tools/uiw"):
        needed |= dynamic_symbols(bench, path)[1]
    # Both variants of a constructor or destructor come of one declaration.
    unused = {name for name in private - needed if not re.search(r"[CD][012]E", name)}
    check(not unused, f"exported and not needed: {sorted(unused)}")


@row("every function of the header has a version, and no C++ name needs one")
def versions(bench):
    with open(f"{bench.build}/include/infiniband/uiwdv.h") as header:
        declared = set(re.findall(r"^\w+ (uiwdv_\w+)\(", header.read(), re.M))
    library = f"{bench.build}/provider/libuiw.so.1"
    exported = dict(re.findall(r"\b(uiwdv_\w+)@@(\S+)", bench.command(["readelf", "--dyn-syms", "-W", library]).stdout))
    check(declared and set(exported) == declared, f"declared {sorted(declared)}, exported {sorted(exported)}")
    check(set(exported.values()) == {"UIWDV_1.0"}, f"versions {exported}")


if __name__ == "__main__":
    sys.exit(harness.main())
