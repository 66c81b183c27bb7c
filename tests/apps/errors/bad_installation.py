# SPDX-License-Identifier: MIT
"""Installations that are incomplete or mixed: one line says what is wrong and what to do, and nothing crashes."""

import glob
import json
import os
import pathlib
import re
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, describe, one_line, row

ABIS = (34, 57, 59, 64, 65)
STUB = """
#include <dirent.h>
void verbs_register_driver_99(const void* ops) { (void)ops; }
void* ibv_get_device_list(int* count) { (void)count; DIR* d = opendir("/sys/class/infiniband_verbs"); if (d) closedir(d); return 0; }
"""


class Installation:
    """A copy of uiw under a prefix of its own."""

    def __init__(self, bench, name="prefix"):
        self.bench = bench
        self.prefix = os.path.join(bench.tmp, name)
        bench.run(["cmake", "--install", bench.build, "--prefix", self.prefix], 60, uiw=False)
        self.uiw = f"{self.prefix}/bin/uiw"
        self.preload, = glob.glob(f"{self.prefix}/lib*/**/libuiw-preload.so", recursive=True)
        self.folder = os.path.dirname(self.preload)
        self.library = f"{self.folder}/libuiw.so.1"
        self.plugins = f"{self.folder}/libibverbs"
        self.driver = f"{self.prefix}/etc/libibverbs.d/uiw.driver"
        self.version = bench.command([self.uiw, "--version"]).stdout.split()[1]

    def plugin(self, abi):
        return f"{self.plugins}/libuiw-rdmav{abi}.so"

    def doctor(self, **more):
        """What `uiw doctor` finds: subject -> (verdict, text and advice)."""
        run = self.bench.run([self.uiw, "doctor", "--json"], 60, status=None, uiw=False, **more)
        findings = json.loads(run.stdout)["findings"]
        return {finding["subject"]: (finding["verdict"].lower(), f"{finding['text']}; {finding['advice']}")
                for finding in findings}

    def abi(self):
        """The private ABI of the libibverbs that programs load here."""
        return int(re.search(r"provider ABI (\d+)", self.doctor()["libibverbs"][1]).group(1))

    def run(self, *words, status=None, **more):
        return self.bench.run([self.uiw, "run", *words], status=status, uiw=False, **more)

    def become(self, version, *files):
        """Changes the version that these files name, all but the command's where none is given."""
        old, new = (f"UIW_PRIVATE_{text}".encode() for text in (self.version, version))
        check(len(old) == len(new), f"versions of other lengths: {old} {new}")
        for path in files or [self.preload, self.library, *map(self.plugin, ABIS)]:
            with open(path, "rb") as file:
                content = file.read()
            check(old in content, f"{path} does not name its version")
            with open(path, "wb") as file:
                file.write(content.replace(old, new).replace(elf_hash(old), elf_hash(new)))


def elf_hash(name):
    """The hash of a version's name, as it stands in an object."""
    value = 0
    for octet in name:
        value = (value << 4) + octet
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return struct.pack("<I", value)


def refused(run, status, *words):
    """uiw does not start the program, and says so in the only line that there is."""
    check(run.status() == status, f"ended with {describe(run.status())}")
    check(one_line(run, *words) == run.output.strip(), "that is not all")


def found(findings, subject, verdict, *words):
    check(findings[subject][0] == verdict, f"doctor: {subject}: {findings[subject]}")
    for word in words:
        check(str(word) in findings[subject][1], f"'{word}' is not in: {findings[subject][1]}")


@row("no plugin for the private ABI of libibverbs: the ABI, the folder, the ABIs that there are")
def no_plugin(bench):
    here = Installation(bench)
    abi = here.abi()
    os.remove(here.plugin(abi))
    there = ", ".join(str(other) for other in ABIS if other != abi)
    run = here.run("ibv_devinfo")
    check(run.status() > 0, f"ended with {describe(run.status())}")
    one_line(run, f"libuiw-rdmav{abi}.so", f"private ABI {abi}", here.plugins, there.replace(", 65", " and 65"), "install")
    found(here.doctor(), "plugin", "fail", f"libuiw-rdmav{abi}.so", here.plugins, "Debian: ibverbs-provider-uiw",
          "Fedora: libibverbs-provider-uiw")
    for abi in ABIS:
        if os.path.exists(here.plugin(abi)):
            os.remove(here.plugin(abi))
    one_line(here.run("ibv_devinfo"), "no plugin", here.plugins, "install")


@row("a libibverbs whose private ABI no plugin is for: its number, and how to have one added")
def unknown_abi(bench):
    harness.need_program("cc")
    here = Installation(bench)
    for name, text in (("stub.c", STUB), ("stub.map", "IBVERBS_PRIVATE_99 { verbs_register_driver_99; };\n")):
        with open(f"{bench.tmp}/{name}", "w") as file:
            file.write(text)
    folder = f"{bench.tmp}/rdma-core"
    os.mkdir(folder)
    bench.command(["cc", "-shared", "-fPIC", "-o", f"{folder}/libibverbs.so.1", f"{bench.tmp}/stub.c",
                   f"-Wl,--version-script={bench.tmp}/stub.map", "-Wl,-soname=libibverbs.so.1"])
    env = {"LD_LIBRARY_PATH": folder}
    program = "import ctypes; ctypes.CDLL('libibverbs.so.1').ibv_get_device_list(None)"
    run = here.run(sys.executable, "-c", program, status=0, env=env)
    one_line(run, "private ABI 99", "34, 57, 59, 64 and 65", here.plugins, "new-rdma-core")
    found(here.doctor(env=env), "libibverbs", "fail", "provider ABI 99", "new-rdma-core")


@row("a plugin of another version: both files and versions, before the loader complains")
def other_plugin(bench):
    here = Installation(bench)
    abi = here.abi()
    here.become("0.0.9", here.plugin(abi))
    run = here.run("ibv_devinfo")
    line = one_line(run, here.plugin(abi), "0.0.9", here.preload, here.version, "install uiw again")
    check("not found" not in line, "that is the loader's message")
    found(here.doctor(), "plugin", "fail", here.plugin(abi), "0.0.9", here.library, here.version, "install uiw again")


@row("a preload library of another version: status 125, both files and versions")
def other_preload(bench):
    here = Installation(bench)
    here.become("0.0.9", here.preload)
    words = here.preload, "0.0.9", here.library, here.version, "install uiw again"
    refused(here.run("echo", "started"), 125, *words)
    found(here.doctor(), "preload library", "fail", *words)


@row("a libuiw.so.1 of another version beside the preload library: both files and versions")
def other_library(bench):
    here = Installation(bench)
    here.become("0.0.9", here.library)
    run = bench.run(["ibv_devinfo"], status=None, uiw=False, env={"LD_PRELOAD": here.preload})
    one_line(run, here.library, "0.0.9", here.preload, here.version, "install uiw again")


@row("a program that is linked to the libuiw.so.1 of another version: which of the two to remove")
def linked_to_other(bench):
    here, old = Installation(bench), Installation(bench, "old")
    old.become("0.0.9")
    run = here.run("env", f"LD_LIBRARY_PATH={old.folder}", bench.helper("uiw_uses_uiwdv_c"))
    check(run.status() > 0, f"ended with {describe(run.status())}")
    one_line(run, old.library, "0.0.9", here.preload, here.version, f"remove the older one, {old.library}")
    twin = Installation(bench, "twin")
    run = here.run("env", f"LD_LIBRARY_PATH={twin.folder}", bench.helper("uiw_uses_uiwdv_c"), status=0)
    check(run.stderr == "" and "uiw_lo: uiw " in run.stdout, "two copies of one version do not do")


@row("a command that finds the libuiw.so.1 of another version: the loader's line names it, nothing is started")
def command_of_other(bench):
    here, old = Installation(bench), Installation(bench, "old")
    old.become("0.0.9")
    run = here.run("echo", "started", status=1, env={"LD_LIBRARY_PATH": old.folder})
    check(run.stdout == "" and run.stderr.count("\n") == 1, "that is not all")
    check(old.library in run.stderr and f"UIW_PRIVATE_{here.version}" in run.stderr, run.stderr)


@row("two installations, one of them in LD_PRELOAD: the one of the command is used alone")
def two_installations(bench):
    here, old, twin = (Installation(bench, name) for name in ("prefix", "old", "twin"))
    old.become("0.0.9")
    mixed = {"LD_PRELOAD": f"{old.preload}:libm.so.6"}
    run = here.run("ibv_devices", status=0, env=mixed)
    one_line(run, "warning", old.preload, "0.0.9", here.preload, here.version, f"remove {old.preload}")
    check("uiw_lo" in run.stdout, "no device")
    maps = here.run("cat", "/proc/self/maps", status=0, env=mixed).stdout
    check(here.preload in maps and old.preload not in maps, "both are loaded")
    check("libm.so.6" in maps, "what else was in LD_PRELOAD is lost")
    found(here.doctor(env=mixed), "preload library", "warn", old.preload, here.preload, "remove")
    # Twice the same version does no harm.
    run = here.run("ibv_devices", status=0, env={"LD_PRELOAD": twin.preload})
    check(run.stderr == "" and "uiw_lo" in run.stdout, "it says something")


@row("uiw.driver names a plugin that does not exist, or one of another version")
def stale_driver(bench):
    here, old = Installation(bench), Installation(bench, "old")
    old.become("0.0.9")
    check(here.run("ibv_devices", status=0).stderr == "", "it says something")
    found(here.doctor(), "driver file", "ok", here.driver)
    for named, *words in ((f"{bench.tmp}/gone/libuiw", "gone/libuiw-rdmav"), (f"{old.plugins}/libuiw", old.plugins, "0.0.9")):
        with open(here.driver, "w") as file:
            file.write(f"driver {named}\n")
        run = here.run("ibv_devices", status=0)
        one_line(run, "warning", here.driver, *words, "remove")
        check("uiw_lo" in run.stdout, "no device")
        found(here.doctor(), "driver file", "warn", here.driver, *words, "remove")


@row("uiw.driver in /etc/libibverbs.d is of an installation that is gone, or of another one")
def stale_system_driver(bench):
    harness.need_root()
    harness.need_program("unshare")
    here, twin = Installation(bench), Installation(bench, "twin")

    def system(text):
        return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c",
                "mount -t tmpfs none /etc/libibverbs.d && echo \"$1\" >/etc/libibverbs.d/uiw.driver && shift && exec \"$@\"",
                "sh", text]

    gone = system("driver /nonexistent/libuiw")
    one_line(here.run("ibv_devices", status=0, wrap=gone), "warning", "/etc/libibverbs.d/uiw.driver", "/nonexistent/libuiw",
             "remove")
    found(here.doctor(wrap=gone), "driver file", "warn", "/etc/libibverbs.d/uiw.driver")
    # Programs come to no harm by this one.
    other = system(f"driver {twin.plugins}/libuiw")
    check(here.run("ibv_devices", status=0, wrap=other).stderr == "", "it says something")
    found(here.doctor(wrap=other), "driver file", "warn", "/etc/libibverbs.d/uiw.driver", twin.plugins, "remove")


@row("links that lead nowhere: the plugin, the preload library, libuiw.so.1")
def broken_links(bench):
    here = Installation(bench)
    abi = here.abi()

    def broken(path):
        os.rename(path, path + ".kept")
        os.symlink("/nonexistent/there", path)

    broken(here.plugin(abi))
    one_line(here.run("ibv_devinfo"), here.plugin(abi), "/nonexistent/there", "install uiw again")
    found(here.doctor(), "plugin", "fail", here.plugin(abi), "/nonexistent/there", "install uiw again")
    os.rename(here.plugin(abi) + ".kept", here.plugin(abi))
    broken(here.preload)
    refused(here.run("echo"), 125, here.preload, "/nonexistent/there", "install uiw again")
    found(here.doctor(), "preload library", "fail", here.preload, "/nonexistent/there", "install uiw again")
    os.rename(here.preload + ".kept", here.preload)
    os.remove(here.library)
    os.symlink("libuiw.so.1.9.9", here.library)
    run = bench.run(["ibv_devinfo"], status=None, uiw=False, env={"LD_PRELOAD": here.preload})
    one_line(run, here.library, "libuiw.so.1.9.9", "install uiw again")
    # The command itself is linked to it: the loader's line names it.
    run = here.run("echo")
    check(run.status() == 127 and "libuiw.so.1" in run.stderr and run.stderr.count("\n") == 1, run.stderr)


if __name__ == "__main__":
    sys.exit(harness.main())
