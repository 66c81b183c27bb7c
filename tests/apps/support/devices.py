# SPDX-License-Identifier: MIT
"""The interfaces that devices are made for, and what ibv_devices prints."""

import ipaddress
import json
import re
import subprocess


def interfaces():
    """name -> (MAC or None, MTU, [addresses]) of the interfaces that have an address."""
    found = {}
    for link in json.loads(subprocess.run(["ip", "-j", "address"], check=True, capture_output=True).stdout):
        addresses = [ipaddress.ip_address(info["local"]) for info in link.get("addr_info", [])]
        if addresses:
            found[link["ifname"]] = (link.get("address"), link["mtu"], addresses)
    return found


def device_table(text):
    table = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s+(\S+)\s+([0-9a-f]{16})", line)
        if match:
            table[match[1]] = bytes.fromhex(match[2])
    return table
