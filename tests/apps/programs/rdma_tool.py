# SPDX-License-Identifier: MIT
"""NETLINK_RDMA: iproute2's rdma and libibverbs' discovery, and the socket as programs use it."""

import ctypes
import errno
import json
import os
import pathlib
import re
import select
import shutil
import socket
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.devices import device_table, interfaces
from support.harness import Skip, check, row

NETLINK_RDMA, NETLINK_USERSOCK = 20, 2
GET, GET_CHARDEV = 5 << 10 | 1, 5 << 10 | 15  # RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, ...)
DEV_NAME = 2
REQUEST, ACK, DUMP, MULTI = 1, 4, 0x300, 2
ERROR, DONE = 2, 3


def rdma(bench, *words, view="iwarp", status=0):
    program = shutil.which("rdma", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not program:
        raise Skip("no rdma of iproute2")
    run = bench.run([program, *words], options=("--transport", view), status=status)
    check(not run.stderr or status != 0, f"rdma complains: {run.stderr}")
    return run


def show_devices(bench, view):
    shown = json.loads(rdma(bench, "-j", "dev", view=view).stdout)
    wanted = interfaces()
    check({device["ifname"] for device in shown} == {f"uiw_{name}" for name in wanted}, f"not those: {shown}")
    check(len({device["ifindex"] for device in shown}) == len(shown), f"an index twice: {shown}")
    check(shown[-1]["ifname"] == "uiw_lo", "the loopback device is not the last one")
    table = device_table(bench.run(["ibv_devices"], options=("--transport", view)).stdout)
    for device in shown:
        check(device["node_type"] == {"iwarp": "rnic", "roce": "ca"}[view], f"type: {device}")
        check(bytes.fromhex(device["node_guid"].replace(":", "")) == table[device["ifname"]], f"GUID: {device}")
    text = rdma(bench, "dev", view=view).stdout
    for device in shown:
        check(re.search(rf"^{device['ifindex']}: {device['ifname']}: ", text, re.M), f"no line for {device}")
    one = json.loads(rdma(bench, "-j", "dev", "show", "uiw_lo", view=view).stdout)
    check([device["ifname"] for device in one] == ["uiw_lo"], f"not one device: {one}")


def show_links(bench, view):
    for words in (("-j", "link", "show"), ("link", "show", "-j")):
        shown = json.loads(rdma(bench, *words, view=view).stdout)
        check({(link["ifname"], link["netdev"]) for link in shown} == {(f"uiw_{name}", name) for name in interfaces()},
              f"not those: {shown}")
        for link in shown:
            check((link["port"], link["state"], link["physical_state"]) == (1, "ACTIVE", "LINK_UP"), f"state: {link}")
            check(link["netdev_index"] == socket.if_nametoindex(link["netdev"]), f"interface: {link}")
    text = rdma(bench, "link", view=view).stdout
    check(re.search(r"^link uiw_lo/1 state ACTIVE physical_state LINK_UP netdev lo\b", text, re.M), "no line for lo")
    one = rdma(bench, "link", "show", "uiw_lo/1", view=view).stdout
    check(len(one.splitlines()) == 1, "not one link")


for VIEW in ("iwarp", "roce"):
    row(f"rdma dev: the devices of uiw ({VIEW})", view=VIEW)(show_devices)
    row(f"rdma link show, -j in front and behind: their interfaces ({VIEW})", view=VIEW)(show_links)


@row("rdma system show: registered pages are copied at a fork")
def show_system(bench):
    for view in ("iwarp", "roce"):
        text = rdma(bench, "system", "show", view=view).stdout
        check(re.match(r"netns shared .*copy-on-fork on$", text.strip()), f"not so: {text}")


FORK_INIT = """
import ctypes, os, re, sys
verbs = ctypes.CDLL("libibverbs.so.1", ctypes.RTLD_GLOBAL)
# A program that is linked to libibverbs finds the function by its name alone, one that loads it asks the library.
init = (ctypes.CDLL(None) if sys.argv[1] == "linked" else verbs).ibv_fork_init
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr"):
    getattr(verbs, name).restype = ctypes.c_void_p
def kept_from_children():
    return len(re.findall(r"^VmFlags:.* dc( |$)", open("/proc/self/smaps").read(), re.M))
if sys.argv[2] == "early":
    assert init() == 0, "ibv_fork_init before all else"
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
assert verbs.ibv_is_fork_initialized() == 2, verbs.ibv_is_fork_initialized()
pd = verbs.ibv_alloc_pd(ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0]))))
page = ctypes.create_string_buffer(8192)
assert verbs.ibv_reg_mr(ctypes.c_void_p(pd), ctypes.byref(page, 2048), ctypes.c_size_t(2048), 1)
assert kept_from_children() == 0, "a registered page is not for children"
if sys.argv[2] == "late":
    assert init() == 0, "ibv_fork_init after a registration"
child = os.fork()
if child == 0:
    page[0] = page[8000] = b"x"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "a child cannot use the other half of a registered page"
"""


@row("ibv_fork_init: needless and welcome at any time; registered pages are their children's too")
def fork_init(bench):
    for how, when, env, view in (("linked", "late", {}, "iwarp"), ("linked", "early", {}, "roce"),
                                 ("loaded", "early", {}, "iwarp"), ("linked", "never", {"RDMAV_FORK_SAFE": "1"}, "iwarp")):
        bench.run([sys.executable, "-c", FORK_INIT, how, when], env=env, options=("--transport", view))


@row("rdma dev set, link delete: refused, and said so")
def refused(bench):
    for words in (("dev", "set", "uiw_lo", "name", "other"), ("link", "delete", "uiw_lo")):
        run = rdma(bench, *words, status=None)
        check(run.status() != 0 and "not supported" in run.stderr, f"not refused: {words}")


@row("libibverbs finds the devices by netlink: a device has an index")
def by_netlink(bench):
    code = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = verbs.ibv_get_device_index.argtypes = [ctypes.c_void_p]
number = ctypes.c_int()
for turn in range(2):
    devices = verbs.ibv_get_device_list(ctypes.byref(number))
    for i in range(number.value):
        print(verbs.ibv_get_device_name(devices[i]).decode(), verbs.ibv_get_device_index(devices[i]))
"""
    lines = bench.run([sys.executable, "-c", code]).stdout.split("\n")[:-1]
    shown = [f"{device['ifname']} {device['ifindex']}" for device in json.loads(rdma(bench, "-j", "dev").stdout)]
    check(lines == shown * 2, f"libibverbs has {lines}, rdma {shown}")


# ---- the socket, in a process of its own under uiw ------------------------------------------------------------------

def message(kind, flags, payload=b"", sequence=7):
    return struct.pack("=IHHII", 16 + len(payload), kind, flags, sequence, 0) + payload


def messages(data):
    """(type, flags, sequence, port, payload) of each."""
    found = []
    while data:
        length, kind, flags, sequence, port = struct.unpack("=IHHII", data[:16])
        found.append((kind, flags, sequence, port, data[16:length]))
        data = data[(length + 3) & ~3:]
    return found


def device_names(data):
    names = []
    for kind, _, _, _, payload in messages(data):
        while kind == GET and payload:
            length, attribute = struct.unpack("=HH", payload[:4])
            if attribute == DEV_NAME:
                names.append(payload[4:length - 1].decode())
            payload = payload[(length + 3) & ~3:]
    return names


def netlink():
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_RDMA)
    made.bind((0, 0))
    made.settimeout(5)
    return made


def dump(made):
    return made.recv(65536)


def as_libnl_uses_it():
    made = netlink()
    port, groups = made.getsockname()
    check(port != 0 and groups == 0, f"it is bound to {port}, {groups}")
    waiting = select.poll()
    waiting.register(made, select.POLLIN)
    check(not waiting.poll(0), "something can be read before it is asked for")
    made.setblocking(False)
    try:
        made.recv(16)
        check(False, "something was read before it was asked for")
    except BlockingIOError:
        pass
    for send in (lambda data: made.sendto(data, (0, 0)), made.send, lambda data: os.write(made.fileno(), data),
                 lambda data: made.sendmsg([data], [], 0, (0, 0)), lambda data: made.sendmsg([data[:9], data[9:]])):
        ask = message(GET, REQUEST | DUMP)
        check(send(ask) == len(ask), "not all was taken")
        check(waiting.poll(5000), "nothing can be read")
        size = made.recv_into(bytearray(16), 16, socket.MSG_PEEK | socket.MSG_TRUNC)
        check(size > 16, f"MSG_TRUNC says {size}")
        data, _, flags, _ = made.recvmsg(65536)
        check(len(data) == size and not flags & socket.MSG_TRUNC, "another length than MSG_TRUNC said")
        check("uiw_lo" in device_names(data), f"names: {device_names(data)}")
        check(messages(data)[-1][0] == DONE, "it does not end")
        check(all(entry[1] & MULTI and entry[2] == 7 and entry[3] == port for entry in messages(data)), "a header")
        check(not waiting.poll(0), "more can be read")
    made.send(message(GET, REQUEST | DUMP))
    data, _, flags, _ = made.recvmsg(20)
    check(len(data) == 20 and flags & socket.MSG_TRUNC, "a short read is not marked")


def copies_and_children():
    made = netlink()
    copy = made.dup()
    made.close()
    copy.send(message(GET, REQUEST | DUMP))
    check("uiw_lo" in device_names(dump(copy)), "a copy of the descriptor does not work")
    child = os.fork()
    if child == 0:
        copy.send(message(GET, REQUEST | DUMP))
        os._exit(0 if "uiw_lo" in device_names(dump(copy)) else 1)
    check(os.waitpid(child, 0)[1] == 0, "not in the child of a fork")
    # The number goes to something else, behind the interposer's back.
    number = copy.fileno()
    ends = os.pipe()
    ctypes.CDLL(None).syscall(33 if os.uname().machine == "x86_64" else 24, ends[1], number, 0)  # dup2, dup3
    os.write(number, b"as a pipe")
    check(os.read(ends[0], 100) == b"as a pipe", "a pipe with the number of a former socket does not work")


def strangers():
    """Another process sends what looks like an answer."""
    made = netlink()
    port = made.getsockname()[0]
    stranger = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
    forged = message(GET, MULTI, struct.pack("=HH", 12, DEV_NAME) + b"forged\0\0")
    stranger.sendto(forged, (port, 0))
    made.send(message(GET, REQUEST | DUMP))
    try:
        stranger.sendto(forged, (port, 0))
        check(False, "a stranger may send to the socket")
    except OSError as error:
        check(error.errno == errno.ECONNREFUSED, f"another error: {error}")
    names = device_names(dump(made))
    check("uiw_lo" in names and "forged" not in names, f"names: {names}")
    made.setblocking(False)
    try:
        check(False, f"more can be read: {made.recv(65536)}")
    except BlockingIOError:
        pass


def hostile():
    made = netlink()
    for octets in (b"", b"x", bytes(15), b"\xff" * 16, bytes(16), message(GET, REQUEST)[:-1],
                   struct.pack("=IHHII", 0xffffffff, GET, REQUEST | DUMP, 1, 0), b"\xff" * 60000):
        check(made.send(octets) == len(octets), f"{len(octets)} octets are not taken")
    for octets in (bytes(1 << 20), b"x" * 70000):
        try:
            made.send(octets)
            check(False, "a request of any length is taken")
        except OSError as error:
            check(error.errno == errno.EMSGSIZE, f"another error: {error}")
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.send(made.fileno(), ctypes.c_void_p(8), 64, 0) == -1 and ctypes.get_errno() == errno.EFAULT,
          "a bad pointer")
    made.send(message(GET_CHARDEV, REQUEST | ACK, b"\xff" * 8))
    kind, _, _, _, payload = messages(dump(made))[0]
    check(kind == ERROR and struct.unpack("=i", payload[:4])[0] == -errno.EINVAL, f"no error: {kind} {payload}")
    # Nobody reads: what finds no room is refused, and what is there stays.
    try:
        while True:
            made.send(message(GET, REQUEST | DUMP))
    except OSError as error:
        check(error.errno == errno.ENOBUFS, f"another error: {error}")
    check("uiw_lo" in device_names(dump(made)), "what came before is lost")


SOCKET_TESTS = {function.__name__: function for function in (as_libnl_uses_it, copies_and_children, strangers, hostile)}


def run_socket_test(bench, name):
    bench.run([sys.executable, "-B", __file__, "--socket-test", name])


for TITLE, NAME in (("the socket as libnl and libmnl use it: bind, poll, MSG_PEEK, MSG_TRUNC", "as_libnl_uses_it"),
                    ("the socket's copies, in children, and after its end", "copies_and_children"),
                    ("other processes cannot put anything into the socket", "strangers"),
                    ("requests of any kind, and a program that does not read", "hostile")):
    row(TITLE, name=NAME)(run_socket_test)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--socket-test"]:
        SOCKET_TESTS[sys.argv[2]]()
    else:
        sys.exit(harness.main())
