# SPDX-License-Identifier: MIT
"""Bad input: a clear message or the documented errno, nothing lost, no crash."""

import os
import pathlib
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness, pings
from support.harness import check, describe, row


def refused(bench, argv, *words, lines=None, timeout=20, **more):
    """argv must end with a failure of its own (no signal), and say each of the words."""
    run = bench.run(argv, status=None, timeout=timeout, **more)
    check(run.status() > 0, f"ended with {describe(run.status())}: {run.name()}")
    for word in words:
        check(word.lower() in run.output.lower(), f"'{word}' is not in what it says")
    if lines is not None:
        said = [line for line in run.output.splitlines() if line.strip()]
        check(len(said) == lines, f"{len(said)} lines, not {lines}")
    return run


def tool(bench, *words, say=(), **more):
    return refused(bench, [bench.uiw, *words], *say, uiw=False, **more)


@row("uiw: unknown subcommands and options, missing arguments")
def wrong_options(bench):
    tool(bench, "nosuch")
    tool(bench, "--nosuch", say=("nosuch",))
    tool(bench, "run")
    tool(bench, "run", "--nosuch", "true", say=("nosuch",))
    tool(bench, "devices", "--nosuch", say=("nosuch",))
    tool(bench, "doctor", "--nosuch", say=("nosuch",))


@row("uiw --help and uiw run --help: status 0; every setting is named")
def wanted_help(bench):
    bench.run([bench.uiw, "--help"], uiw=False)
    text = bench.run([bench.uiw, "run", "--help"], uiw=False).stdout
    for name in ("crc", "completion", "devices", "mulpdu", "startup-timeout", "mpa-revision", "runtime-dir"):
        check(f"--{name}" in text or f"UIW_{name.upper().replace('-', '_')}" in text, f"no word of {name}")


@row("uiw run: a program that is missing, that is no program, a missing library: one line")
def missing_program(bench):
    tool(bench, "run", "--", "/nonexistent/program", say=("/nonexistent/program",), lines=1)
    tool(bench, "run", "--", "no-such-program-anywhere", say=("no-such-program-anywhere",), lines=1)
    path = os.path.join(bench.tmp, "plain")
    with open(path, "w") as file:
        file.write("no program\n")
    tool(bench, "run", "--", path, say=("plain",), lines=1)
    tool(bench, "run", "--", bench.tmp, say=(os.path.basename(bench.tmp),), lines=1)


@row("uiw run: options after -- are the program's own")
def separator(bench):
    check(bench.run(["echo", "--crc", "-x"]).stdout == "--crc -x\n", "options were taken from the program")
    check(bench.run([bench.uiw, "run", "echo", "--crc", "--help"], uiw=False).stdout == "--crc --help\n",
          "options were taken from the program, without --")


BAD_VALUES = [("UIW_CRC", "maybe"), ("UIW_CRC", ""), ("UIW_MULPDU", "-1"), ("UIW_MULPDU", "99999999"),
              ("UIW_COMPLETION", "both"), ("UIW_COMPLETION", "on"),
              ("UIW_MULPDU", "12x"), ("UIW_STARTUP_TIMEOUT", "soon"), ("UIW_STARTUP_TIMEOUT", "-5"),
              ("UIW_MPA_REVISION", "7"), ("UIW_MPA_REVISION", "two"), ("UIW_MULPDU", "18446744073709551617"),
              ("UIW_TRANSPORT", "RoCE")]


@row("UIW_* values that are wrong: the message names variable and value; no device is offered")
def bad_values(bench):
    for variable, value in BAD_VALUES:
        if value == "":
            continue
        run = bench.run(["ibv_devinfo"], uiw=False, status=None, env={variable: value, "LD_PRELOAD": bench.preload})
        check(run.status() > 0, f"{variable}={value}: {describe(run.status())}")
        check(variable in run.stderr and value in run.stderr, f"{variable}={value}: the message does not say so")
        tool(bench, "run", "ibv_devinfo", env={variable: value}, say=(variable, value))


@row("the same values as options of uiw run: refused before the program starts")
def bad_option_values(bench):
    for variable, value in BAD_VALUES:
        option = "--" + variable[4:].lower().replace("_", "-")
        run = tool(bench, "run", f"{option}={value}", "--", "echo", "started")
        check("started" not in run.stdout, f"{option}={value}: the program started")


@row("UIW_* variables that do not exist")
def unknown_variable(bench):
    run = bench.run(["ibv_devinfo"], uiw=False, status=None, env={"UIW_CRCS": "on", "LD_PRELOAD": bench.preload})
    check(run.status() > 0 and "UIW_CRCS" in run.stderr, "an unknown variable passes")
    tool(bench, "run", "ibv_devinfo", env={"UIW_CRCS": "on"}, say=("UIW_CRCS",))


@row("a wrong value does not harm a program that does no RDMA")
def harmless(bench):
    run = bench.run(["echo", "fine"], uiw=False, env={"UIW_CRC": "maybe", "LD_PRELOAD": bench.preload})
    check(run.stdout == "fine\n" and run.stderr == "", "it says something else")


@row("no usable interface: UIW_DEVICES names none")
def no_interface(bench):
    env = {"UIW_DEVICES": "nonexistent"}
    refused(bench, ["ibv_devinfo"], env=env)
    refused(bench, pings.server(bench.port()), env=env)
    refused(bench, pings.client(bench.port()), env=env)
    refused(bench, ["ib_send_bw", "-R", "-p", bench.port()], env=env)
    # As on a host without RDMA: libibverbs finds no class directory, and ibv_devices says so.
    listed = bench.run(["ibv_devices"], status=None, env=env)
    check("uiw_" not in listed.stdout, "a device is shown")


@row("no interface that is up, and none with an address")
def bare_namespace(bench):
    bare = bench.namespace("bare")
    bare.ip("link", "set", "lo", "down")
    shown = bench.run(["ibv_devinfo"], namespace=bare).stdout
    check("PORT_DOWN" in shown and "PORT_ACTIVE" not in shown, f"an interface that is down: {shown}")
    doctor = bench.run([bench.uiw, "doctor"], uiw=False, status=None, namespace=bare, timeout=60)
    check(doctor.status() > 0 and doctor.output.strip(), "uiw doctor finds nothing wrong")
    bare.ip("address", "flush", "dev", "lo")
    refused(bench, ["ibv_devinfo"], namespace=bare)
    refused(bench, pings.server(20000), namespace=bare)


@row("UIW_RUNTIME_DIR cannot be used: a message, no crash")
def runtime_dir(bench):
    path = os.path.join(bench.tmp, "file")
    with open(path, "w"):
        pass
    for folder in (path, "/proc/nonexistent", os.path.join(path, "below")):
        run = refused(bench, ["ibv_devinfo"], env={"UIW_RUNTIME_DIR": folder})
        check(folder in run.stderr or "UIW_RUNTIME_DIR" in run.stderr, f"{folder}: no clear message")


@row("port in use: by another listener of uiw's")
def port_in_use(bench):
    _, port = pings.serve(bench, "-P")
    refused(bench, pings.server(port), "Address already in use")
    refused(bench, ["ib_send_bw", "-R", "-p", port, "--source_ip", "127.0.0.1"])
    refused(bench, ["rdma_server", "-s", "127.0.0.1", "-p", port], "Address already in use")
    bench.run(pings.client(port, "-C", 3))


@row("a peer that does not speak iWARP: refused or dropped in bounded time, the server goes on")
def stranger(bench):
    brief = {"UIW_STARTUP_TIMEOUT": "3000"}
    server, port = pings.serve(bench, "-P", env=brief)
    held = []
    speeches = [b"", b"GET / HTTP/1.0\r\n\r\n", b"\0" * 5000, b"MPA ID Req Frame",
                b"MPA ID Req Frame\x40\x01\xff\xff", b"MPA ID Req Frame\xff\xff\xff\xff" + b"x" * 600,
                b"MPA ID Rep Frame\x00\x01\x00\x00", b"MPA ID Req Frame\x40\x63\x00\x00", os.urandom(3000)]
    for speech in speeches:
        caller = socket.create_connection(("127.0.0.1", port), timeout=8)
        caller.sendall(speech)
        held.append(caller)
        bench.run(pings.client(port, "-C", 3, "-V"), timeout=15)
        check(server.running(), f"the server ended at {speech[:24]!r}")
    for caller in held:
        try:
            while caller.recv(4096):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            check(False, "a caller that says nothing is held for more than 8 s")
        caller.close()
    # The other way round: the listener accepts TCP and never speaks iWARP.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        caller = bench.start(pings.client(silent.getsockname()[1]), env=brief)
        check(caller.wait(8) > 0, "a connection to a silent listener succeeds")


@row("rping -S 65536 and other sizes that it refuses itself")
def sizes(bench):
    for size in (0, 1, 65536):
        run = refused(bench, pings.client(bench.port(), "-S", size))
        check("Invalid size" in run.stderr, "not refused by rping itself")


if __name__ == "__main__":
    cases.add_rows("uiw_bad_input", prefix="verbs: ", timeout=90)
    sys.exit(harness.main())
