# SPDX-License-Identifier: MIT
"""Runs a program to which the system refuses some calls, as a sandbox does (seccomp(2)). Children inherit that.

usage: python3 refusing.py RULE... -- PROGRAM [ARGUMENT...]

RULE is CALL:ERRNO, or CALL:CONDITION,...:ERRNO. A condition is I=VALUE, of argument I (0 to 5), or I&MASK=VALUE; all of
them have to be met, by the low 32 bits of the argument. Exit status 125 where the system has no such filters.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

WORDS = __file__  # for words()
NO_FILTERS = 125
# AUDIT_ARCH_* of linux/audit.h, and the numbers of the calls.
MACHINES = {
    "x86_64": (0xC000003E, {"memfd_create": 319, "socket": 41, "recvmsg": 47, "mmap": 9, "madvise": 28, "fcntl": 72,
                            "fallocate": 285, "getsockopt": 55}),
    "aarch64": (0xC00000B7, {"memfd_create": 279, "socket": 198, "recvmsg": 212, "mmap": 222, "madvise": 233, "fcntl": 25,
                             "fallocate": 47, "getsockopt": 209}),
}
# Instructions of linux/bpf_common.h; what they load is struct seccomp_data.
LOAD, AND, JUMP_IF_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


def words(*rules):
    """Words that start a program so, in front of the program's own."""
    return [sys.executable, "-B", WORDS, *rules, "--"]


def instruction(code, value, if_not=0):
    """`if_not`: so many instructions are skipped where a comparison fails."""
    return struct.pack("=HBBI", code, 0, if_not, value)


def tests_of(condition):
    """(offset, mask, value) of what has to be equal."""
    where, value = condition.split("=")
    index, _, mask = where.partition("&")
    return ARGUMENTS + 8 * int(index), int(mask or "0xFFFFFFFF", 0), int(value, 0)


def compiled(rule, numbers):
    call, *conditions, error = rule.split(":")
    tests = [(NUMBER, 0xFFFFFFFF, numbers[call])]
    for condition in ",".join(conditions).split(",") if conditions else []:
        tests.append(tests_of(condition))
    code = []
    left = 3 * len(tests) + 1
    for offset, mask, value in tests:
        left -= 3
        code += [instruction(LOAD, offset), instruction(AND, mask), instruction(JUMP_IF_EQUAL, value, left)]
    return code + [instruction(RETURN, REFUSE | getattr(errno, error))]


def program(rules):
    machine, numbers = MACHINES[platform.machine()]
    # Calls of another architecture, such as those of 32-bit programs, are none of ours.
    code = [instruction(LOAD, MACHINE), struct.pack("=HBBI", JUMP_IF_EQUAL, 1, 0, machine), instruction(RETURN, ALLOW)]
    for rule in rules:
        code += compiled(rule, numbers)
    return code + [instruction(RETURN, ALLOW)]


def install(rules):
    """0, or the errno of the system's answer."""
    if platform.machine() not in MACHINES:
        return errno.ENOSYS
    code = program(rules)

    class Program(ctypes.Structure):  # struct sock_fprog
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    filled = Program(len(code), b"".join(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    none, one = ctypes.c_ulong(0), ctypes.c_ulong(1)
    if prctl(PR_SET_NO_NEW_PRIVS, one, none, none, none) != 0:
        return ctypes.get_errno()
    if prctl(PR_SET_SECCOMP, ctypes.c_ulong(FILTER), ctypes.byref(filled), none, none) != 0:
        return ctypes.get_errno()
    return 0


def main():
    split = sys.argv.index("--")
    error = install(sys.argv[1:split])
    if error != 0:
        print(f"no filters of system calls here: {os.strerror(error)}", file=sys.stderr)
        return NO_FILTERS
    os.execvp(sys.argv[split + 1], sys.argv[split + 1:])
    return None


if __name__ == "__main__":
    sys.exit(main())
