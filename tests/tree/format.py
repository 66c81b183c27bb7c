# SPDX-License-Identifier: MIT
"""Each source file of C++ and C is formatted as .clang-format says, by clang-format 14: other versions differ in details.

usage: python3 tests/tree/format.py [--write] [SOURCE-DIRECTORY]

Exit status 77 where that program is not there.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

FOLDERS = ["base", "mpa", "ddp", "rdmap", "provider", "kernel-abi", "tools", "tests"]
VERSION = "version 14."


def formatter():
    for name in ("clang-format-14", "clang-format"):
        program = shutil.which(name)
        if program and VERSION in subprocess.run([program, "--version"], capture_output=True, text=True).stdout:
            return program
    return None


def main():
    parser = argparse.ArgumentParser(description="Checks that source files are formatted as .clang-format says.")
    parser.add_argument("--write", action="store_true", help="format those that are not")
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parents[2], type=pathlib.Path)
    arguments = parser.parse_args()
    program = formatter()
    if program is None:
        print("no clang-format 14: install it (Debian 12: clang-format)")
        return 77
    files = sorted(str(path) for folder in FOLDERS for path in (arguments.root / folder).rglob("*")
                   if path.suffix in (".cc", ".h", ".c"))
    how = ["-i"] if arguments.write else ["--dry-run", "-Werror"]
    return subprocess.run([program, "--style=file", *how, *files]).returncode


if __name__ == "__main__":
    sys.exit(main())
