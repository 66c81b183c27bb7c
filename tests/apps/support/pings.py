# SPDX-License-Identifier: MIT
"""rping, the pair of programs that most tests start, wait for and look at: a server, and clients of it."""

HOST = "127.0.0.1"


def server(port, *options, host=HOST):
    # The server reads pings into a buffer of its own -S, which must not be the smaller one.
    return ["rping", "-s", "-S", 65535, "-a", host, "-p", port, *options]


def client(port, *options, host=HOST):
    return ["rping", "-c", "-a", host, "-p", port, *options]


def serve(bench, *options, port=None, host=HOST, **more):
    """Starts a server. Returns it once it listens, and its port."""
    port = port or bench.port()
    return bench.start(server(port, *options, host=host), **more).wait_listen(port), port


def pair(bench, *options, server_options=(), port=None, host=HOST, **more):
    """A server, and a client with these options; see Bench.pair(), to which goes what there is more."""
    port = port or bench.port()
    return bench.pair(server(port, *server_options, host=host), client(port, *options, host=host), port, **more)


def start_client(bench, port, *options, **more):
    """Starts a client of a server with -P, and waits until it is connected.

    Such a server keeps one place for the request that came last: of two that come at once, it loses one, on any
    adapter, and rdma_create_qp then finds a QP at the other (EINVAL).
    """
    started = bench.start(["stdbuf", "-oL", "rping", "-d", *client(port, *options)[1:]], **more)
    started.wait_output("ESTABLISHED", 10)
    return started
