# SPDX-License-Identifier: MIT
"""The layers' rules: which layer and which room includes which, who knows sockets and threads, the licence line of every
source file, and how long a file is. clang-tidy (.clang-tidy) has the lines of a function.

usage: python3 tests/tree/layers.py [SOURCE-DIRECTORY]
"""
import pathlib
import re
import sys

# Each may include itself and what stands before it.
LAYERS = ["base", "mpa", "ddp", "rdmap", "provider", "kernel-abi", "tools"]
PROTOCOL = {"mpa", "ddp", "rdmap"}
BELOW_VERBS = {"base", *PROTOCOL}
SOCKET_HEADERS = {"arpa/inet.h", "netdb.h", "netinet/in.h", "netinet/ip.h", "netinet/tcp.h", "poll.h", "sys/epoll.h",
                  "sys/poll.h", "sys/select.h", "sys/socket.h", "sys/un.h"}
THREAD_HEADERS = {"thread", "pthread.h", "threads.h", "future", "condition_variable", "semaphore"}
# The rooms of the large layers, from the lowest to the topmost: each may include itself, those of its layer that its row
# names, and any of a lower layer. A row names only rooms above it in this table, so that there are no cycles. A folder
# without a row belongs to the room around it. docs/architecture.md has the picture.
ROOMS = {
    "provider/process": ("", "what every room needs: settings, the log, devices, what a fork leaves, the event loop of its thread"),
    "provider/check": ("process", "what a program does wrong; whether to look is a setting, and it knows verbs by their header"),
    "provider/memory": ("process", "how much may be registered; what is registered stands in the list of objects"),
    "provider/progress": ("process", "doorbells and the counters of ports; it knows queue pairs as Driven"),
    "provider/connection": ("process progress", "the engine drives its socket, and says when something is sent"),
    "provider/capture": ("process", "where captures go is a setting; it knows connections as an mpa::StreamTap"),
    "provider/connect": ("process connection capture", "a call ends in a connection; it knows queue pairs as Attachable"),
    "provider/inventory": ("process connect", "who may ask is found out as for connections; what there is, others fill in"),
    "provider/connect/manual": ("process connect", "its calls and listeners are those of connect"),
    "provider/datagram": ("process progress connect",
                          "a datagram's ports are those of queue pair numbers; the engine drives its sockets"),
    "provider/verbs": ("process check memory progress connection connect inventory connect/manual datagram",
                       "queue pairs and contexts put all of them together, and so does a fork; those of a program that "
                       "is checked say when a message comes and who waits"),
    "provider/plugin": ("process check memory progress verbs", "turns the calls of libibverbs into those of verbs"),
    "kernel-abi/interposer": ("", "an object of its own, with libc alone; entry.h is what it shares with libuiw.so.1"),
    "kernel-abi/caller": ("", "what every command needs: the caller's memory and cancellation"),
    "kernel-abi/sysfs": ("interposer", "files about devices, which the interposer finds by their path and number"),
    "kernel-abi/netlink": ("caller sysfs", "answers requests of the caller about the devices that sysfs shows"),
    "kernel-abi/uverbs": ("interposer caller", "commands come by the table of entry.h"),
    "kernel-abi/rdma_cm": ("interposer caller", "commands come by the table of entry.h"),
    "kernel-abi": ("interposer caller sysfs netlink uverbs rdma_cm", "entry.cc leads each call to its room"),
}
# Headers that belong to no room of theirs.
COMMON = {"provider/export.h", "provider/version.h", "provider/include/infiniband/uiwdv.h",
          "provider/plugin/abi/releases.def"}
LICENCE = "SPDX-License-Identifier: MIT"
SOURCES = {".cc", ".h", ".c", ".py", ".cmake", ".map", ".supp", ".sh", ".lua"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1) == '"', found.group(2)


def layer_faults(root):
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in (".cc", ".h", ".c"):
                continue
            name = path.relative_to(root)
            for number, quoted, header in includes(path):
                place = f"{name}:{number}"
                owner = header.split("/")[0] if "/" in header else None
                if owner in LAYERS and LAYERS.index(owner) > LAYERS.index(layer):
                    yield f"{place}: {layer} includes upward: {header}"
                if quoted and owner in (None, "tests"):
                    yield f"{place}: not named from the root, or of the tests: {header}"
                if layer not in BELOW_VERBS or quoted:
                    continue
                if header.startswith("infiniband/"):
                    yield f"{place}: {layer} knows verbs: {header}"
                if layer in PROTOCOL and header in SOCKET_HEADERS:
                    yield f"{place}: a protocol layer knows sockets: {header}"
                if layer in PROTOCOL and header in THREAD_HEADERS:
                    yield f"{place}: a protocol layer knows threads: {header}"


def room_of(file):
    """The innermost room that a path from the root lies in; None where there is none."""
    folders = (str(folder) for folder in pathlib.PurePosixPath(file).parents)
    return next((folder for folder in folders if folder in ROOMS), None)


def table_faults(root):
    rooms = list(ROOMS)
    for place, room in enumerate(rooms):
        layer = room.split("/")[0]
        if not (root / room).is_dir():
            yield f"tests/tree/layers.py:1: there is no room {room}"
        for name in ROOMS[room][0].split():
            if f"{layer}/{name}" not in rooms[:place]:
                yield f"tests/tree/layers.py:1: {room} may include {name}, which is no room above it in the table"


def room_faults(root):
    layers = {room.split("/")[0] for room in ROOMS}
    for path in sorted(path for layer in layers for path in (root / layer).rglob("*")):
        if path.suffix not in (".cc", ".h", ".c"):
            continue
        name = path.relative_to(root).as_posix()
        layer, room = name.split("/")[0], room_of(name)
        if room is None and name not in COMMON:
            yield f"{name}:1: stands in no room that tests/tree/layers.py knows"
            continue
        allowed = {room, *(f"{layer}/{other}" for other in ROOMS[room][0].split())} if room else set()
        for number, quoted, header in includes(path):
            if not quoted or not header.startswith(f"{layer}/") or header in COMMON or room_of(header) in allowed:
                continue
            which = room_of(header) or "what stands in no room"
            yield f"{name}:{number}: {room or 'a common header'} may not include {which}: {header}"


def licence_faults(root):
    for path in [root / "CMakeLists.txt", *sorted(root.glob("cmake/*"))] + [
        path for folder in [*LAYERS, "tests"] for path in sorted((root / folder).rglob("*"))
    ]:
        if not path.is_file() or "__pycache__" in path.parts or "corpus" in path.parts:
            continue
        if path.suffix == "":
            # Scripts without a suffix have an interpreter line.
            with path.open("rb") as file:
                if file.read(2) != b"#!":
                    continue
        elif path.suffix not in SOURCES and path.name != "CMakeLists.txt":
            continue
        lines = path.read_text().splitlines() or [""]
        if lines[0].startswith("#!"):
            lines = lines[1:] or [""]
        if LICENCE not in lines[0]:
            yield f"{path.relative_to(root)}:1: does not start with {LICENCE}"


# An alarm: a longer file has probably become two things. An exception has its reason beside it: "path": "why".
FILE_LINES = 800
LONGER = {}


def length_faults(root):
    for folder in [*LAYERS, "tests"]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".cc", ".h", ".c", ".py"} or "__pycache__" in path.parts:
                continue
            name, lines = str(path.relative_to(root)), path.read_text().count("\n")
            if (lines > FILE_LINES) != (name in LONGER):
                yield f"{name}: {lines} lines; of more than {FILE_LINES} LONGER has the reason, and of no others"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    faults = [*layer_faults(root), *table_faults(root), *room_faults(root), *licence_faults(root), *length_faults(root)]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "the layers are as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
