# SPDX-License-Identifier: MIT
"""Places in uiw by their names."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "apps"))

OBJECTS = {"libuiw": "provider/libuiw.so.1", "preload": "kernel-abi/libuiw-preload.so"}
PLACE = re.compile(r"\b(libuiw|preload)\+0x([0-9a-f]+)")


def readable(bench, text):
    """The text with the names of functions in place of addresses, where addr2line is installed."""
    if not shutil.which("addr2line"):
        return text

    def name(found):
        words = ["addr2line", "-Cfsp", "-e", os.path.join(bench.build, OBJECTS[found[1]]), hex(int(found[2], 16) - 1)]
        return "\n      " + subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    return PLACE.sub(name, re.sub(r" library\+0x[0-9a-f]+", "", text))
