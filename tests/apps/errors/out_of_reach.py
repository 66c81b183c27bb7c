# SPDX-License-Identifier: MIT
"""Programs that LD_PRELOAD does not reach, places that may not be written, and packages that are not installed."""

import os
import pathlib
import shutil
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import check, describe, one_line, row

NOBODY = 65534
STRANGER = 61234  # who has run nothing here yet, so that there are no files of uiw's that could be used again
I386, X86_64, ARM64 = 3, 62, 183


def private_mounts(script):
    """Words that start a program where the script has changed what is mounted."""
    harness.need_root()
    harness.need_program("unshare", "mount")
    return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-ec", f"{script}; exec \"$@\"", "sh"]


USUAL = {"UIW_RUNTIME_DIR": None, "XDG_RUNTIME_DIR": None}  # the files are put where they are without settings
READ_ONLY_SHM = "mount -t tmpfs -o ro none /dev/shm"
READ_ONLY_TMP = "mount --bind /tmp /tmp; mount -o remount,ro,bind /tmp"


def user(bench, number, *options):
    """Words that start a program as this user, who may not look into everybody's home."""
    harness.need_root()
    harness.need_program("setpriv")
    words = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", *options, "--"]
    if bench.run(["test", "-x", bench.uiw], uiw=False, status=None, wrap=words).status() != 0:
        raise harness.Skip(f"{bench.uiw} is closed to other users")
    return words


def copy_of(bench, program, mode, owner=None, name=None):
    path = os.path.join(bench.tmp, name or program)
    shutil.copy(shutil.which(program), path)
    if owner is not None:
        os.chown(path, *owner)
    os.chmod(path, mode)
    return path


@row("a program of another architecture: status 126, one line, nothing is started")
def other_architecture(bench):
    with open(bench.uiw, "rb") as file:
        own = struct.unpack_from("<H", file.read(20), 18)[0]
    name = {X86_64: "x86-64", ARM64: "arm64"}.get(own, "")
    other, other_name = (ARM64, "arm64") if own != ARM64 else (X86_64, "x86-64")
    for bits, machine, words in ((2, other, (other_name, name, f"a uiw for {other_name}")), (1, I386, ("32-bit", "64-bit"))):
        path = copy_of(bench, "true", 0o755, name=f"alien{bits}")
        with open(path, "r+b") as file:
            file.seek(4)
            file.write(bytes([bits]))
            file.seek(18)
            file.write(struct.pack("<H", machine))
        run = bench.run([path], status=None)
        check(run.status() == 126, f"ended with {describe(run.status())}")
        one_line(run, path, *words)
        check(run.output.count("\n") == 1, "that is not all")
    script = os.path.join(bench.tmp, "script")
    with open(script, "w") as file:
        file.write(f"#!{path}\n")
    os.chmod(script, 0o755)
    run = bench.run([script], status=126)
    one_line(run, path)


@row("set-user-ID, set-group-ID and file capabilities: one line says whose, and the program runs")
def privileged(bench):
    harness.need_root()
    theirs = copy_of(bench, "true", 0o4755, (NOBODY, -1), "user")
    group = copy_of(bench, "true", 0o2755, (-1, NOBODY), "group")
    one_line(bench.run([theirs]), theirs, "set-user-ID", "nobody", "copy")
    one_line(bench.run([group]), group, "set-group-ID", "nogroup", "copy")
    more = {"wrap": user(bench, NOBODY), "env": USUAL}
    if shutil.which("setcap"):
        capable = copy_of(bench, "true", 0o755, name="capable")
        bench.command(["setcap", "cap_net_raw+ep", capable])
        one_line(bench.run([capable], **more), capable, "file capabilities", "copy")
    # Readable by nobody but its owner, as some releases have sudo.
    closed = copy_of(bench, "true", 0o4711, (0, 0), "closed")
    one_line(bench.run([closed], **more), closed, "set-user-ID", "root")


@row("set-user-ID where it gives nothing: LD_PRELOAD works, and uiw says nothing")
def privileged_in_vain(bench):
    more = {"wrap": user(bench, NOBODY), "env": USUAL}
    theirs = copy_of(bench, "ibv_devices", 0o4755, (NOBODY, -1), "theirs")
    roots = copy_of(bench, "ibv_devices", 0o4755, (0, 0), "roots")
    no_suid = private_mounts(f"mount --bind {bench.tmp} {bench.tmp}; mount -o remount,nosuid,bind {bench.tmp}")
    for path, wrap in ((theirs, more["wrap"]), (roots, user(bench, NOBODY, "--no-new-privs")),
                       (roots, no_suid + more["wrap"])):
        listed = bench.run([path], wrap=wrap, env=USUAL)
        check(listed.stderr == "", "it warns")
        check("uiw_lo" in listed.stdout, "no device")


@row("/dev/shm may not be written: /tmp takes its place, and uiw doctor says so")
def no_shm(bench):
    more = {"wrap": private_mounts(READ_ONLY_SHM), "env": USUAL}
    run = bench.run(["ibv_devinfo", "-d", "uiw_lo"], **more)
    check(run.stderr == "" and "PORT_ACTIVE" in run.stdout, "no device")
    pings.pair(bench, "-C", 20, "-V", **more)
    doctor = bench.run([bench.uiw, "doctor"], 60, uiw=False, **more)
    line, = [line for line in doctor.stdout.splitlines() if not line.startswith("ok ") and "processors" not in line]
    for word in ("warn", "/dev/shm", "Read-only file system", "/tmp", "UIW_RUNTIME_DIR"):
        check(word in line, f"'{word}' is not in: {line}")


@row("no place may be written: no device, the program's errno is that of a host without RDMA, one line")
def no_place(bench):
    more = {"wrap": private_mounts(f"{READ_ONLY_SHM}; {READ_ONLY_TMP}") + user(bench, STRANGER), "env": USUAL}
    words = "/dev/shm (Read-only file system)", "/tmp (Read-only file system)", "UIW_RUNTIME_DIR"
    run = bench.run(["ibv_devinfo"], status=255, **more)
    one_line(run, *words)
    run = bench.run(["rping", "-c", "-a", "127.0.0.1"], status=None, **more)
    check(0 < run.status() < 128, f"ended with {describe(run.status())}")
    one_line(run, *words)
    check("No such device" in run.output or "No RDMA devices" in run.output, "no clear errno")
    doctor = bench.run([bench.uiw, "doctor"], 60, uiw=False, status=1, **more)
    line, = [line for line in doctor.stdout.splitlines() if line.startswith("FAIL  runtime directory")]
    for word in words:
        check(word in line, f"'{word}' is not in: {line}")


# Executes a program for which one system call, by its number, fails with EPERM.
FILTER = """if True:
    import ctypes, os, struct, sys
    steps = ((0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))
    steps = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((38, 1, 0, 0, 0), (22, 2, program, 0, 0)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        if libc.prctl(*words):
            sys.exit(f"prctl: {ctypes.get_errno()}")
    os.execvp(sys.argv[2], sys.argv[2:])
    """
GETRANDOM = {X86_64: 318, ARM64: 278}


@row("a filter of system calls that refuses getrandom: programs run, with their devices and connections")
def no_random(bench):
    with open(bench.uiw, "rb") as file:
        machine = struct.unpack_from("<H", file.read(20), 18)[0]
    more = {"wrap": [sys.executable, "-c", FILTER, str(GETRANDOM[machine])]}
    check("uiw_lo" in bench.run([bench.uiw, "devices"], uiw=False, **more).stdout, "uiw devices shows none")
    pings.pair(bench, "-C", 20, "-V", **more)


@row("RLIMIT_FSIZE 0: no device where the sysfs tree is not there yet, one line; else all works, and no signal comes")
def no_file(bench):
    where = os.path.join(bench.tmp, "run")
    os.mkdir(where)
    # Through pipes, since standard output and error of the tests are files.
    script = "(ulimit -f 0; {} run {}; echo $?) 2>&1 | cat"
    more = {"uiw": False, "env": {"UIW_RUNTIME_DIR": where}}
    found = bench.run(["sh", "-c", script.format(bench.uiw, "ibv_devices")], **more).stdout
    check(found.endswith("\n1\n") and "uiw_lo" not in found, found)
    said = [line for line in found.splitlines() if line.startswith("uiw: ")]
    check(len(said) == 1 and f"{where} (File too large)" in said[0], f"not one line: {said}")
    bench.run(["ibv_devices"], env={"UIW_RUNTIME_DIR": where})
    found = bench.run(["sh", "-c", script.format(bench.uiw, f"--log {bench.tmp}/log ibv_devinfo")], **more).stdout
    check(found.endswith("\n0\n") and "PORT_ACTIVE" in found, found)
    check(f"uiw: the log {bench.tmp}/log cannot be written: File too large" in found, found)


@row("a bare system: uiw doctor names the packages of Debian and of Fedora")
def bare_system(bench):
    libraries = bench.run(["sh", "-c", "ldconfig -p | sed -n 's/.*lib\\(ibverbs\\|rdmacm\\)[.]so[.]1.*=> //p'"],
                          uiw=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}).stdout.split()
    check(len(libraries) >= 2, f"not found: {libraries}")
    hide = "; ".join(f"mount --bind /dev/null $(readlink -f {path})" for path in libraries)
    doctor = bench.run([bench.uiw, "doctor"], 60, uiw=False, status=1, 
                       wrap=private_mounts(hide) + ["env", f"PATH={bench.tmp}"])
    for subject, verdict, *packages in (("libibverbs", "FAIL", "libibverbs1", "dnf install libibverbs"),
                                        ("librdmacm", "warn", "librdmacm1", "dnf install librdmacm"),
                                        ("programs", "ok", "ibverbs-utils", "rdmacm-utils", "perftest", "libibverbs-utils",
                                         "librdmacm-utils")):
        line, = [line for line in doctor.stdout.splitlines() if f" {subject}: " in line]
        check(line.startswith(verdict), f"not {verdict}: {line}")
        for package in packages:
            check(package in line, f"'{package}' is not in: {line}")
    run = bench.run([bench.uiw, "bench"], uiw=False, status=1, wrap=["env", f"PATH={bench.tmp}"])
    one_line(run, "python3 is missing; install it: apt-get install python3 (Fedora: dnf install python3)")
    os.symlink(sys.executable, f"{bench.tmp}/python3")
    run = bench.run([bench.uiw, "bench"], uiw=False, status=1, wrap=["env", f"PATH={bench.tmp}"])
    one_line(run, "apt-get install perftest iperf3 sockperf", "dnf install perftest iperf3 sockperf")
    check("gnuplot" not in run.output, "gnuplot is asked for without a picture")
    run = bench.run([bench.uiw, "bench", "--plot", "picture.svg"], uiw=False, status=1, wrap=["env", f"PATH={bench.tmp}"])
    one_line(run, "sockperf gnuplot-nox (", "sockperf gnuplot)")


if __name__ == "__main__":
    sys.exit(harness.main())
