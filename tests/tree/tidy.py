# SPDX-License-Identifier: MIT
"""Each source file of the library and the tools passes the checks that .clang-tidy lists, by clang-tidy 14: others know
other checks.

usage: python3 tests/tree/tidy.py [--build BUILD-DIRECTORY] [FILE...]

BUILD-DIRECTORY has been configured (cmake -S . -B BUILD-DIRECTORY), so that it holds compile_commands.json; default:
build. Exit status 77 where clang-tidy 14 is not there.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["base", "mpa", "ddp", "rdmap", "provider", "kernel-abi", "tools"]
VERSION = "version 14."
# Link-time optimisation: clang does not know all of g++'s options for it.
GCC_ONLY = re.compile(r"-f.*lto\b.*")


def linter():
    for name in ("clang-tidy-14", "clang-tidy"):
        program = shutil.which(name)
        if program and VERSION in subprocess.run([program, "--version"], capture_output=True, text=True).stdout:
            return program
    return None


def commands(build):
    """Each file once: the same ones are compiled for several libraries."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in FOLDERS or path.suffix != ".cc":
            continue
        entry["command"] = " ".join(word for word in entry["command"].split() if not GCC_ONLY.fullmatch(word))
        found.setdefault(str(path), entry)
    return found


def main():
    parser = argparse.ArgumentParser(description="Checks source files with clang-tidy.")
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path, help="a configured build directory")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="only these")
    arguments = parser.parse_args()
    program = linter()
    if program is None:
        print("no clang-tidy 14: install it (Debian 12: clang-tidy)")
        return 77
    try:
        known = commands(arguments.build)
    except OSError as error:
        print(f"{error}: configure a build first: cmake -S . -B {arguments.build}")
        return 2
    chosen = [str(path.resolve()) for path in arguments.files] or sorted(known)
    unknown = [path for path in chosen if path not in known]
    if unknown or not chosen:
        print(f"not compiled by {arguments.build}: {' '.join(unknown) or 'anything'}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps(list(known.values())))

        def check(path):
            return path, subprocess.run([program, "--quiet", "--warnings-as-errors=*", "-p", folder, path],
                                        capture_output=True, text=True)

        faulty = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for path, result in pool.map(check, chosen):
                if result.returncode == 0:
                    continue
                faulty += 1
                print(f"{pathlib.Path(path).relative_to(ROOT)}\n{result.stdout}{result.stderr}")
    print(f"{faulty} of {len(chosen)} files have faults" if faulty else f"{len(chosen)} files are as they should be")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
