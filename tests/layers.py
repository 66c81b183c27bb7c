# SPDX-License-Identifier: MIT
"""The layers' rules: who includes whom, who knows sockets and threads, the licence line of every source file, and the sizes
that sizes.py knows.

usage: python3 tests/layers.py [SOURCE-DIRECTORY]
"""
import pathlib
import re
import sys

import sizes

# Each may include itself and what stands before it.
LAYERS = ["mpa", "ddp", "rdmap", "provider", "kernel-abi", "tools"]
PROTOCOL = {"mpa", "ddp", "rdmap"}
SOCKET_HEADERS = {"arpa/inet.h", "netdb.h", "netinet/in.h", "netinet/ip.h", "netinet/tcp.h", "poll.h", "sys/epoll.h",
                  "sys/poll.h", "sys/select.h", "sys/socket.h", "sys/un.h"}
THREAD_HEADERS = {"thread", "pthread.h", "threads.h", "future", "condition_variable", "semaphore"}
LICENCE = "SPDX-License-Identifier: MIT"
SOURCES = {".cc", ".h", ".c", ".py", ".cmake", ".map", ".supp", ".sh"}
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
                if layer not in PROTOCOL or quoted:
                    continue
                if header in SOCKET_HEADERS and not (layer == "mpa" and path.stem == "tcp_stream"):
                    yield f"{place}: a protocol layer knows sockets: {header}"
                if header in THREAD_HEADERS:
                    yield f"{place}: a protocol layer knows threads: {header}"
                if header.startswith("infiniband/"):
                    yield f"{place}: a protocol layer knows verbs: {header}"


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


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    faults = [*layer_faults(root), *licence_faults(root), *sizes.size_faults(root)]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "the layers are as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
