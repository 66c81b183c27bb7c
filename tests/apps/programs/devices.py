# SPDX-License-Identifier: MIT
"""ibv_devices and ibv_devinfo: the devices that stock libibverbs shows, against the machine's interfaces."""

import ipaddress
import os
import pathlib
import re
import shutil
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest
from support.devices import device_table, interfaces
from support.harness import check, row


def eui64(mac):
    """RFC 4291 appendix A."""
    octets = [int(part, 16) for part in mac.split(":")]
    octets[0] ^= 2
    return bytes(octets[:3] + [0xFF, 0xFE] + octets[3:])


def gid_of(address):
    if address.version == 4:
        return ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
    return address


def parse_devinfo(text):
    """device -> {attribute: value}; port attributes and "gids" with it."""
    devices, current = {}, None
    for line in text.splitlines():
        if line.startswith("hca_id:"):
            current = devices.setdefault(line.split()[1], {"gids": []})
            continue
        gid = re.match(r"\s+GID\[\s*(\d+)\]:\s+([0-9a-fA-F:.]+)", line)
        if gid:
            current["gids"].append(ipaddress.IPv6Address(gid[2]))
            continue
        match = re.match(r"\s+([\w ]+):\s+(\S.*)", line)
        if match and current is not None:
            current[match[1]] = match[2].strip()
    return devices


@row("ibv_devices: one device for each interface that has an address, GUIDs differ and fit the MAC")
def ibv_devices(bench):
    table = device_table(bench.run(["ibv_devices"]).stdout)
    wanted = interfaces()
    check(set(table) == {f"uiw_{name}" for name in wanted}, f"devices {sorted(table)} for interfaces {sorted(wanted)}")
    check(len(set(table.values())) == len(table), f"two devices have one GUID: {table}")
    for name, (mac, _, _) in wanted.items():
        guid = table[f"uiw_{name}"]
        check(guid != bytes(8), f"uiw_{name} has GUID 0")
        if mac and mac != "00:00:00:00:00:00" and name != "lo":
            check(guid == eui64(mac), f"GUID {guid.hex()} of uiw_{name} is not the EUI-64 of {mac}")


@row("ibv_devices: LD_PRELOAD alone, without uiw run")
def preload_alone(bench):
    plain = bench.run(["ibv_devices"], uiw=False, env={"LD_PRELOAD": bench.preload})
    check(device_table(plain.stdout) == device_table(bench.run(["ibv_devices"]).stdout), "not the devices of uiw run")


@row("ibv_devinfo -l: the same names")
def devinfo_list(bench):
    names = set(device_table(bench.run(["ibv_devices"]).stdout))
    text = bench.run(["ibv_devinfo", "-l"]).stdout
    check(re.search(rf"^{len(names)} HCAs? found:", text, re.M), f"no count of {len(names)}")
    check({line.strip() for line in text.splitlines()[1:] if line.strip()} == names, f"not {sorted(names)}")


@row("ibv_devinfo: iWARP, PORT_ACTIVE, Ethernet")
def devinfo(bench):
    text = bench.run(["ibv_devinfo"]).stdout
    devices = parse_devinfo(text)
    check(set(devices) == {f"uiw_{name}" for name in interfaces()}, f"devices {sorted(devices)}")
    for name, value in devices.items():
        check(value["transport"].startswith("iWARP (1)"), f"{name}: transport {value['transport']}")
        check(value["state"].startswith("PORT_ACTIVE"), f"{name}: state {value['state']}")
        check(value["link_layer"] == "Ethernet", f"{name}: link layer {value['link_layer']}")
        check(value["phys_port_cnt"] == "1", f"{name}: {value['phys_port_cnt']} ports")
        check(value.get("node_guid", "").replace(":", "") != "0" * 16, f"{name}: node GUID 0")
        check(value.get("fw_ver"), f"{name}: no fw_ver")
    check("nvalid" not in text, "something in it is invalid")


@row("ibv_devinfo -v: GIDs fit the addresses; MTU, speed and limits make sense")
def devinfo_verbose(bench):
    text = bench.run(["ibv_devinfo", "-v"]).stdout
    # Virtual lanes are InfiniBand's; no iWARP adapter names any.
    invalid = [line for line in text.splitlines() if "nvalid" in line and "max_vl_num" not in line]
    check(not invalid, f"invalid: {invalid}")
    devices = parse_devinfo(text)
    for name, (mac, mtu, addresses) in interfaces().items():
        value = devices[f"uiw_{name}"]
        check(value["gids"], f"uiw_{name}: no GID shown")
        for address in addresses:
            check(gid_of(address) in value["gids"], f"uiw_{name}: no GID for {address} in {value['gids']}")
        check(len(set(value["gids"])) == len(value["gids"]), f"uiw_{name}: a GID twice: {value['gids']}")
        check(int(value["gid_tbl_len"]) >= len(value["gids"]), f"uiw_{name}: gid_tbl_len {value['gid_tbl_len']}")
        active, most = int(value["active_mtu"].split()[0]), int(value["max_mtu"].split()[0])
        check(active <= most <= 4096, f"uiw_{name}: active MTU {active}, max {most}")
        fits = max(size for size in (256, 512, 1024, 2048, 4096) if size <= max(mtu, 256))
        check(active == fits, f"uiw_{name}: active MTU {active}; the interface's is {mtu}, so {fits} fits")
        check(re.match(r"(1|2|4|8|12)X", value["active_width"]), f"uiw_{name}: width {value['active_width']}")
        check(re.match(r"[\d.]+ Gbps", value["active_speed"]), f"uiw_{name}: speed {value['active_speed']}")
        check(int(value["max_msg_sz"], 0) >= 1 << 30, f"uiw_{name}: max_msg_sz {value['max_msg_sz']}")
        for limit, least in (("max_qp", 10000), ("max_cq", 10000), ("max_mr", 10000), ("max_pd", 1000),
                             ("max_qp_wr", 8192), ("max_cqe", 65535), ("max_sge", 4), ("max_sge_rd", 1),
                             ("max_qp_rd_atom", 1), ("max_qp_init_rd_atom", 1), ("num_comp_vectors", 1)):
            check(int(value[limit]) >= least, f"uiw_{name}: {limit} is {value[limit]}, below {least}")
        check(int(value["max_mr_size"], 0) >= 1 << 40, f"uiw_{name}: max_mr_size {value['max_mr_size']}")


@row("ibv_devinfo -d and -i: one device, one port, and clear errors for others")
def devinfo_select(bench):
    name = f"uiw_{sorted(interfaces())[0]}"
    check(list(parse_devinfo(bench.run(["ibv_devinfo", "-d", name, "-i", "1"]).stdout)) == [name], "not that device")
    wrong = bench.run(["ibv_devinfo", "-d", "nosuch"], status=None)
    check(wrong.status() != 0 and "wasn't found" in wrong.stderr, "an unknown device is not refused")
    wrong = bench.run(["ibv_devinfo", "-d", name, "-i", "2"], status=None)
    check(wrong.status() != 0 and "Invalid port" in wrong.stderr, "port 2 is not refused")


@row("UIW_DEVICES and --devices choose interfaces")
def choose(bench):
    for more in ({"env": {"UIW_DEVICES": "lo"}}, {"options": ("--devices", "lo")}):
        table = device_table(bench.run(["ibv_devices"], **more).stdout)
        check(list(table) == ["uiw_lo"], f"{more} gives {sorted(table)}")


@row("an interface is offered twice by names of the program's choice: both devices are used, rdma_cm takes the first")
def named(bench):
    options = ("--devices", "lo=mlx5_0,lo=mlx5_1")
    table = device_table(bench.run(["ibv_devices"], options=options).stdout)
    check(sorted(table) == ["mlx5_0", "mlx5_1"], f"devices {sorted(table)}")
    check(len(set(table.values())) == 2, f"one GUID for two devices: {table}")
    found = parse_devinfo(bench.run(["ibv_devinfo"], options=options).stdout)
    check(sorted(found) == ["mlx5_0", "mlx5_1"], f"ibv_devinfo finds {sorted(found)}")
    for pair in (("mlx5_0", "mlx5_1"), ("mlx5_1", "mlx5_0")):
        port = bench.port()
        server, client = (["ibv_rc_pingpong", "-d", name, "-g", 0, "-p", port, "-n", 50] for name in pair)
        bench.pair(server, [*client, "127.0.0.1"], port, options=options)
    perftest.talk(bench, "ib_write_bw", "-n", 100, "-d", "mlx5_0", options=options)
    wrong = bench.run(["ibv_devices"], status=125, options=("--devices", "lo=a/b"))
    check("'lo=a/b'" in wrong.stderr, "no word of the wrong name")


@row("uiw devices: the same devices")
def uiw_devices(bench):
    text = bench.run([bench.uiw, "devices"], uiw=False).stdout
    for name in interfaces():
        check(re.search(rf"\buiw_{re.escape(name)}\b", text), f"uiw_{name} is not shown")


@row("sysfs names the interface of a device, as scripts look for it")
def interface_of(bench):
    script = 'for port in /sys/class/infiniband/*/device/net/*; do echo "$port $(cat "$port/ifindex")"; done'
    lines = bench.run(["bash", "-c", script]).stdout.splitlines()
    wanted = {f"/sys/class/infiniband/uiw_{name}/device/net/{name} {socket.if_nametoindex(name)}" for name in interfaces()}
    check(set(lines) == wanted, f"not {wanted}: {lines}")


@row("sysfs by relative paths: a shell that changes into it, and descriptors of the folders above it")
def relative(bench):
    names = {f"uiw_{name}" for name in interfaces()}
    type_of = "class/infiniband/uiw_lo/node_type"
    for start, path in (("/sys/class/infiniband", "uiw_lo/node_type"), ("/sys", type_of), ("/", "sys/" + type_of),
                        ("/sys/class/infiniband/uiw_lo/ports", "../node_type")):
        script = f"cd {start} && cat {path} && ls -d {path} && test -r {path} && cd - >&2"
        check(bench.run(["sh", "-c", script], cwd="/").stdout == f"4: RNIC\n{path}\n", f"{path} in {start}")
    code = """if True:
        import os, stat
        for base, path in (("/", "sys/class/infiniband"), ("/sys", "class/infiniband"), ("/sys/class", "./infiniband/"),
                           ("/sys/class/infiniband", ".")):
            folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
            inner = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
            print(*sorted(os.listdir(inner)))
            assert os.access(path, os.R_OK, dir_fd=folder)
            assert stat.S_ISDIR(os.stat(path, dir_fd=folder).st_mode)
            assert os.readlink(path.rstrip("/") + "/uiw_lo", dir_fd=folder).endswith("/infiniband/uiw_lo")
        root = os.open("/", os.O_PATH)
        os.close(os.open("dev/infiniband/rdma_cm", os.O_RDWR, dir_fd=root))
        assert os.stat("dev/infiniband/uverbs0", dir_fd=root).st_rdev == os.stat("/dev/infiniband/uverbs0").st_rdev
        """
    found = bench.run([sys.executable, "-c", code]).stdout.splitlines()
    check([set(line.split()) for line in found] == [names] * 4, f"not four times {names}: {found}")


@row("ibstatus finds each device")
def ibstatus(bench):
    if not shutil.which("ibstatus"):
        raise harness.Skip("no ibstatus of infiniband-diags")
    found = re.findall(r"^Infiniband device '(\S+)' port 1 status:", bench.run(["ibstatus"], cwd=bench.tmp).stdout, re.M)
    check(set(found) == {f"uiw_{name}" for name in interfaces()}, f"it finds {found}")


@row("hwloc shows a device where its interface's adapter is")
def lstopo(bench):
    if not shutil.which("lstopo-no-graphics"):
        raise harness.Skip("no hwloc")
    found = re.findall(r'(?:Net|OpenFabrics|RDMA).* "(uiw_\w+)"', bench.run(["lstopo-no-graphics", "--of", "console"]).stdout)
    wanted = {f"uiw_{name}" for name in interfaces() if os.path.exists(f"/sys/class/net/{name}/device")}
    check(set(found) == wanted, f"it shows {found}, not {wanted}")


@row("uiw devices --sysfs: a directory that is there without uiw, too")
def real_sysfs(bench):
    root = bench.run([bench.uiw, "devices", "--sysfs"], uiw=False).stdout.rstrip("\n")
    devices = pathlib.Path(root, "class", "infiniband")
    check({path.name for path in devices.iterdir()} == {f"uiw_{name}" for name in interfaces()}, f"not those: {root}")
    check((devices / "uiw_lo" / "ports" / "1" / "state").read_text() == "4: ACTIVE\n", "no state")
    check((devices / "uiw_lo" / "device" / "net" / "lo" / "ifindex").exists(), "no interface")
    both = bench.run([bench.uiw, "devices", "--sysfs", "--json"], uiw=False, status=None)
    check(both.status() == 2, "--json with it is not refused")


if __name__ == "__main__":
    sys.exit(harness.main())
