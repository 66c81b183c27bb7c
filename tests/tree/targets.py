# SPDX-License-Identifier: MIT
"""Configuring for a 32-bit target, and for a C library other than glibc, ends with one sentence that says so; without
Catch2 the tests alone are left out, unless they are asked for.

usage: python3 tests/tree/targets.py SOURCE-DIRECTORY [--c COMPILER] [--cxx COMPILER]

What is compiled is not linked, so that the compiler needs no libraries of the target. What the compiler
has no flag for is skipped.
"""
import argparse
import os
import subprocess
import sys
import tempfile


def configure(arguments, folder, flags, *more):
    command = ["cmake", "-S", arguments.source, "-B", os.path.join(folder, "build"),
               f"-DCMAKE_C_COMPILER={arguments.c}", f"-DCMAKE_CXX_COMPILER={arguments.cxx}",
               "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY", f"-DCMAKE_C_FLAGS={flags}",
               f"-DCMAKE_CXX_FLAGS={flags}", *more]
    # Without what the environment says of flags.
    env = {key: value for key, value in os.environ.items() if key not in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def refused(arguments, what, flags, sentence):
    """True, False, or None where the compiler itself refuses the flags."""
    with tempfile.TemporaryDirectory(prefix="uiw-targets-") as folder:
        # As musl's, it defines no __GLIBC__.
        with open(os.path.join(folder, "features.h"), "w", encoding="ascii") as header:
            header.write("#pragma once\n")
        status, said = configure(arguments, folder, flags.format(folder=folder))
    if "is not able to compile" in said:
        print(f"skip {what}: the compiler does not know {flags}")
        return None
    good = status != 0 and sentence in said and said.count("CMake Error") == 1
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": status {status}: {said[-600:]}"))
    return good


def without_catch(arguments, asked):
    """The first lines of the README, on a machine without Catch2; and the same where the tests are asked for."""
    with tempfile.TemporaryDirectory(prefix="uiw-targets-") as folder:
        status, said = configure(arguments, folder, "", "-DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON",
                                 *(["-DUIW_TESTS=ON"] if asked else []))
    good = status != 0 and "Catch2" in said if asked else status == 0 and "The tests are not built" in said
    what = "without Catch2, " + ("the tests asked for: refused" if asked else "nothing said of the tests: without them")
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": status {status}: {said[-600:]}"))
    return good


def main():
    parser = argparse.ArgumentParser(description="Checks which targets are refused.")
    parser.add_argument("source")
    parser.add_argument("--c", default="cc")
    parser.add_argument("--cxx", default="c++")
    arguments = parser.parse_args()
    results = [refused(arguments, "a 32-bit target", "-m32", "uiw is for 64-bit systems only"),
               refused(arguments, "a C library that is not glibc", "-I{folder}", "uiw needs glibc"),
               without_catch(arguments, False), without_catch(arguments, True)]
    if False in results:
        return 1
    return 0 if True in results else 77


if __name__ == "__main__":
    sys.exit(main())
