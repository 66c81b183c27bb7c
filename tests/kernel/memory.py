# SPDX-License-Identifier: MIT
"""Memory that this host's kernel need not have, in a guest: dma-buf from the kernel's exporters, and a file system on
persistent memory, with uiw in the guest too."""

RELEASE = "trixie"                  # the first one of Debian whose kernel exports buffers to programs
PARAMETERS = "memmap=128M!768M"     # /dev/pmem0: memory that the kernel takes for persistent
WAYS = (("auto", "off"), ("tcp", "off"), ("tcp", "on"))  # between the two ends of a program, and whether with a CRC


def dma_buffers(guest, build, _provider, say):
    good = True
    for kind in ("heap", "udmabuf"):
        for number, (way, crc) in enumerate(WAYS):
            done = guest.run(f"{build}/tools/uiw run --same-host {way} --crc {crc} -- "
                             f"{build}/tests/apps/uiw_dma_buffers 127.0.0.1 {7000 + number} {kind}")
            fine = done.status == 0 and "as documented" in done.output
            say(f"{'ok   ' if fine else 'WRONG'} {kind}, {way}, CRC {crc}{'' if fine else ': ' + done.output + done.errors}")
            good = good and fine
    return good, 2 * len(WAYS)


def medium(guest, build, _provider, say):
    done = guest.run("sh -c 'mkfs.ext4 -q -b 4096 /dev/pmem0 && mount -o dax /dev/pmem0 /mnt && "
                     f"DAX_DIRECTORY=/mnt {build}/tests/unit/provider_test \"[.medium]\"'")
    fine = done.status == 0 and "All tests passed" in done.output
    say(f"{'ok   ' if fine else 'WRONG'} flush to persistence{'' if fine else ': ' + done.output + done.errors}")
    return fine, 1
