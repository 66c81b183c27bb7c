# SPDX-License-Identifier: MIT
"""RDMA listeners have a port space of their own: TCP may have the same number for another socket."""

import os
import pathlib
import socket
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness, pings
from support.harness import add_row, check, row

NOBODY = 65534


class PlainServer:
    """A server of plain TCP, which answers every client with what it says, and counts what it got."""

    def __init__(self, port, family=socket.AF_INET, host="127.0.0.1"):
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((host, port))
        self.socket.listen()
        self.heard = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            with client:
                self.heard.append(client.recv(1000))
                client.sendall(self.heard[-1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def plain_client(port, host="127.0.0.1"):
    with socket.create_connection((host, port), 10) as client:
        client.sendall(b"plain")
        return client.recv(1000)


def listens(port):
    """Whether a process has this number as an RDMA port."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as names:
        return any(f"@uiw-rdma-port/{port}/" in line for line in names)


def server(bench, port, *options, host="127.0.0.1", **more):
    started = bench.start(pings.server(port, *options, host=host), **more)
    end = time.monotonic() + 20
    while not listens(port):
        check(started.running() and time.monotonic() < end, f"does not listen: {started.name()}")
        time.sleep(0.005)
    return started


def client(bench, port, host="127.0.0.1", status=0, **more):
    return bench.run(pings.client(port, "-C", 10, "-S", 2000, "-V", host=host), status=status, **more)


@row("a TCP server has the number: RDMA and TCP clients find theirs, and neither server hears the other's")
def both(bench):
    port = bench.port()
    with PlainServer(port) as plain:
        started = server(bench, port, "-P")
        client(bench, port)
        check(plain_client(port) == b"plain", "the TCP server does not answer")
        client(bench, port)
        check(plain.heard == [b"plain"], f"the TCP server has heard {plain.heard}")
        check(started.running(), "the RDMA server has ended")


@row("the RoCE view, and callers of the iWARP view")
def views(bench):
    port = bench.port()
    with PlainServer(port):
        server(bench, port, "-P", options=("--transport", "roce"))
        client(bench, port, options=("--transport", "roce"))
        client(bench, port)


@row("[::]: one listener for both families, where TCP has the number for both")
def wildcard(bench):
    port = bench.port()
    with PlainServer(port, socket.AF_INET6, "::") as plain:
        server(bench, port, "-P", host="::")
        client(bench, port, "::1")
        client(bench, port, "127.0.0.1")
        check(plain_client(port, "::1") == plain_client(port) == b"plain", "the TCP server does not answer")
        check(plain.heard == [b"plain", b"plain"], f"the TCP server has heard {plain.heard}")


@row("a second RDMA listener gets EADDRINUSE, with the TCP port and without; a killed one leaves the number")
def second(bench):
    port = bench.port()

    def refused():
        run = bench.run(pings.server(port), status=None)
        check(run.status() and "Address already in use" in run.output, "there are two listeners of one number")

    with PlainServer(port):
        first = server(bench, port, "-P")
        refused()
        first.kill()
        first.wait(10)
        server(bench, port, "-P")
        client(bench, port)
        refused()
    refused()  # TCP has given the number up, the RDMA listener has not
    client(bench, port)


@row("two users: the listener is another user's than the caller's")
def users(bench):
    if os.geteuid() != 0:
        raise harness.Skip("needs root")
    port = bench.port()
    os.chmod(bench.runtime, 0o777)
    with PlainServer(port) as plain:
        server(bench, port, "-P", wrap=["setpriv", f"--reuid={NOBODY}", "--clear-groups"],
               env={"UIW_RUNTIME_DIR": None, "XDG_RUNTIME_DIR": None})
        client(bench, port)
        check(not plain.heard, f"the TCP server has heard {plain.heard}")


@row("the log says which TCP port it is")
def logged(bench):
    port = bench.port()
    path = os.path.join(bench.tmp, "log")
    with PlainServer(port):
        server(bench, port, options=("--log", path))
        client(bench, port)
    said = pathlib.Path(path).read_text()
    check(f"TCP port {port} belongs to another socket, so RDMA port {port} is TCP port " in said, said)


for _view in ("iwarp", "roce"):
    for _address in ("127.0.0.1", "::1"):
        add_row(f"a port that another process has bound to, without listening: {_address}, --transport {_view}",
                lambda bench, a=_address, v=_view: cases.run(bench, "uiw_views", "bound_elsewhere", address=a,
                                                             env={"UIW_TRANSPORT": v}))
        add_row(f"a program listens with RDMA first, then with TCP: {_address}, --transport {_view}",
                lambda bench, a=_address, v=_view: cases.run(bench, "uiw_views", "beside_tcp", address=a,
                                                             env={"UIW_TRANSPORT": v}))


if __name__ == "__main__":
    sys.exit(harness.main())
