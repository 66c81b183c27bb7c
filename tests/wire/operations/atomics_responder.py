# SPDX-License-Identifier: MIT
"""Atomic operations that the peer asks of uiw: what they do to memory, against the pseudo-code of RFC 7306 section
5.1, and the answers, octet by octet (sections 5.2 to 5.4)."""

import itertools
import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import Session, check, fpdu_comes, harness, main, row
from peer.wire import ATOMIC_REQUEST, ATOMIC_RESPONSE, COMPARE_SWAP, FETCH_ADD, ONES, READ_RESPONSE, WRITE, pattern

HIGH = 1 << 63


# ---- what the operations do ------------------------------------------------------------------------------------------


def added(original, add, mask):
    """The pseudo-code of RFC 7306 5.1.1: a bit of the mask ends a field, its carry is discarded."""
    value = carry = 0
    for bit in range(64):
        location = 1 << bit
        total = carry + ((original & location) >> bit) + ((add & location) >> bit)
        carry = (total & 2) >> 1
        if total & 1:
            value |= location
        carry = int(bool(carry) and not mask & location)
    return value


def swapped(original, swap, compare, swap_mask, compare_mask):
    """The pseudo-code of RFC 7306 5.1.2."""
    if (compare ^ original) & compare_mask:
        return original
    return original & ~swap_mask & ONES | swap & swap_mask


assert added(ONES, 2, 0) == 1 and added(ONES, ONES, ONES) == 0 and added(5, 3, ONES) == 6
assert added(0xFFFF_FFFF_FFFF_FFFF, 0x0001_0001_0001_0001, 0x8000_8000_8000_8000) == 0


class Operation:
    """One atomic operation of the peer on the word at `offset` of a region of uiw."""

    def __init__(self, aopcode, offset, data, mask, compare=0, compare_mask=ONES):
        self.aopcode, self.offset, self.data, self.mask = aopcode, offset, data, mask
        self.compare, self.compare_mask = compare, compare_mask

    def result(self, original):
        if self.aopcode == FETCH_ADD:
            return added(original, self.data, self.mask)
        return swapped(original, self.data, self.compare, self.mask, self.compare_mask)

    def request(self, msn, identifier, memory):
        return wire.untagged(ATOMIC_REQUEST, 1, msn, 0, wire.atomic_header(
            self.aopcode, identifier, memory.rkey, memory.addr + self.offset, self.data, self.mask, self.compare,
            self.compare_mask))

    def __repr__(self):
        if self.aopcode == FETCH_ADD:
            return f"FetchAdd of {self.data:#x} mask {self.mask:#x} at {self.offset}"
        return (f"CmpSwap to {self.data:#x} mask {self.mask:#x} where {self.compare:#x} mask {self.compare_mask:#x} "
                f"at {self.offset}")


def perform(session, memory, operations, model, depth=8, piece=None):
    """Sends the operations, `depth` in each TCP send; model: offset -> value, brought forward. Each answer must carry
    the value before, and the memory the values after."""
    identifiers = itertools.count(0xFFFFFFFF - 5)  # wraps
    for at in range(0, len(operations), depth):
        burst = [(operation, next(identifiers) & 0xFFFFFFFF) for operation in operations[at:at + depth]]
        octets = b"".join(wire.fpdu(operation.request(session.read_msn + number, identifier, memory),
                                    session.peer.crc) for number, (operation, identifier) in enumerate(burst))
        session.read_msn += len(burst)
        session.peer.send(octets, piece)
        for operation, identifier in burst:
            before = model[operation.offset]
            got = session.original(identifier)
            check(got == before, f"{operation}: original value {got:#x}, not {before:#x}")
            model[operation.offset] = operation.result(before)
    for offset, value in model.items():
        got = memory.word(offset)
        check(got == value, f"the word at {offset} is {got:#x}, not {value:#x}, after {operations[-1]}")


# ---- the rows --------------------------------------------------------------------------------------------------------


def asked(bench, **more):
    session = Session(bench, before=lambda session: session.sut.memory("at", 4096, "lrwa", seed=17), **more)
    return session, session.sut, session.sut.memories["at"]


@row("the octets of an Atomic Response, all of them")
def response_octets(bench):
    session, sut, memory = asked(bench)
    memory.put(8, 0x0102030405060708)
    session.fetch_add(0xA1B2C3D4, memory.rkey, memory.addr + 8, 0x1000)
    want = bytes.fromhex("001e" "41" "4b" "00000000" "00000003" "00000001" "00000000" "a1b2c3d4" "0102030405060708")
    fpdu_comes(session.peer, want)
    check(memory.word(8) == 0x0102030405061708, f"the word is {memory.word(8):#x}")


VALUES = (0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, HIGH - 1, HIGH, ONES - 1, ONES)
FIELDS = (1, 2, 1 << 31, 1 << 62, HIGH, HIGH | 1 << 31, 0x8000_8000_8000_8000, 0x8080_8080_8080_8080,
          0x8888_8888_8888_8888, 0xAAAA_AAAA_AAAA_AAAA, 0x5555_5555_5555_5555, 0x8000_0000_0000_0001,
          0x0101_0101_0101_0101, 0xFF00_0000_0000_0000, 0x0000_0100_0040_0008, HIGH - 1, ONES)


def table(bench, operations, **more):
    """operations: (value in memory before, Operation). The rest of the memory must stay."""
    session, sut, memory = asked(bench, **more)
    for before, operation in operations:
        memory.put(operation.offset, before)
        perform(session, memory, [operation], {operation.offset: before})
    touched = {operation.offset for _, operation in operations}
    for offset in touched:
        sut.command(f"poke at {offset} {pattern(17 + offset, 8).hex()}")
    memory.untouched()
    sut.nothing(0.05)  # the consumer learns nothing of it
    session.hang_up()


row("FetchAdd, Add Mask 0: 64-bit sums, the carry out of the top discarded", operations=[
    (before, Operation(FETCH_ADD, 64, add, 0)) for before in VALUES for add in VALUES])(table)
row("FetchAdd with a field boundary at every bit: carries end there", operations=[
    (before, Operation(FETCH_ADD, 128, add, 1 << bit)) for bit in range(64) for before, add in (
        (ONES, 1), ((1 << bit + 1) - 1, 1 << bit), (0x0123456789ABCDEF, 0xFEDCBA9876543211))])(table)
row("FetchAdd with several fields: each adds alone", operations=[
    (before, Operation(FETCH_ADD, 256, add, mask)) for mask in FIELDS for before, add in (
        (ONES, 1), (ONES, ONES), (0, mask), (mask, mask), (ONES, 0x0101_0101_0101_0101),
        (0x7FFF_7FFF_7FFF_7FFF, 0x0001_0001_0001_0001), (0x0123456789ABCDEF, 0xFEDCBA9876543210))])(table)
row("FetchAdd of 0 changes nothing, whatever the mask (RFC 7306 1.1)", operations=[
    (before, Operation(FETCH_ADD, 0, 0, mask)) for before in (0, ONES, 0x123456789ABCDEF0) for mask in (0, *FIELDS)]
    )(table)
row("FetchAdd: Compare Data and Compare Mask are ignored", operations=[
    (7, Operation(FETCH_ADD, 8, 5, 0, compare, mask)) for compare in (0, 7, ONES) for mask in (0, 7, ONES)])(table)
row("CmpSwap, both masks all ones: swaps where all 64 bits are equal, and only there", operations=[
    (before, Operation(COMPARE_SWAP, 512, swap, ONES, compare)) for before in VALUES for compare in VALUES
    for swap in (0, ONES, 0x123456789ABCDEF0)])(table)
row("CmpSwap: one different bit under the Compare Mask is enough, others do not count", operations=[
    (0x5A5A5A5A5A5A5A5A, Operation(COMPARE_SWAP, 4088, 0x1111111111111111, ONES, 0x5A5A5A5A5A5A5A5A ^ 1 << bit, mask))
    for bit in range(64) for mask in (ONES, 1 << bit, ONES ^ 1 << bit)])(table)
row("CmpSwap: the Swap Mask says which bits are swapped", operations=[
    (before, Operation(COMPARE_SWAP, 8, swap, mask, before)) for mask in (0, *FIELDS) for before, swap in (
        (0, ONES), (ONES, 0), (0x123456789ABCDEF0, 0x0FEDCBA987654321))])(table)
row("CmpSwap with Compare Mask 0: always equal", operations=[
    (before, Operation(COMPARE_SWAP, 8, 0x99, mask, compare, 0)) for before in VALUES for compare in (0, ONES)
    for mask in (ONES, 0xFF00)])(table)
row("CmpSwap with different masks for comparing and swapping", operations=[
    (0x1122334455667788, Operation(COMPARE_SWAP, 8, 0xAAAAAAAAAAAAAAAA, swap_mask, compare, compare_mask))
    for swap_mask in (0xFFFFFFFF, 0xFFFFFFFF00000000, 0x00FF00FF00FF00FF)
    for compare, compare_mask in ((0x1122334400000000, 0xFFFFFFFF00000000), (0x55667788, 0xFFFFFFFF),
                                  (0x1122334500000000, 0xFFFFFFFF00000000), (0x55667789, 0xFFFFFFFF))])(table)


def chance(draw):
    """Numbers that are random, and those at which sums and comparisons are at their edges."""
    kind = draw.randrange(6)
    if kind == 0:
        return draw.choice((0, 1, ONES, HIGH, HIGH - 1, *FIELDS))
    if kind == 1:
        return 1 << draw.randrange(64)
    if kind == 2:
        return ONES ^ (1 << draw.randrange(64))
    if kind == 3:
        return draw.getrandbits(64) & draw.getrandbits(64) & draw.getrandbits(64)
    return draw.getrandbits(64)


def at_random(bench, seed, initiator, crc, spin=False):
    """A thousand operations on 512 words, each word's history followed; 8 outstanding."""
    draw = random.Random(seed)
    session, sut, memory = asked(bench, initiator=initiator, crc=crc)
    if spin:
        sut.command("spin on")
    content = memory.dump()
    model = {offset: int.from_bytes(content[offset:offset + 8], sys.byteorder) for offset in range(0, 4096, 8)}
    plan, operations = dict(model), []
    for _ in range(1000):
        offset = draw.choice((0, 8, 4088, draw.randrange(512) * 8))
        if draw.random() < 0.5:
            operation = Operation(FETCH_ADD, offset, chance(draw), draw.choice((0, chance(draw))), chance(draw),
                                  chance(draw))
        else:
            compare_mask = draw.choice((ONES, chance(draw)))
            compare = plan[offset] ^ draw.choice((0, chance(draw) & ~compare_mask & ONES, chance(draw)))
            operation = Operation(COMPARE_SWAP, offset, chance(draw), draw.choice((ONES, chance(draw))), compare,
                                  compare_mask)
        plan[offset] = operation.result(plan[offset])
        operations.append(operation)
    perform(session, memory, operations, {offset: model[offset] for offset in {op.offset for op in operations}})
    sut.nothing(0.02)
    session.hang_up()


for _seed in range(1, 5):
    row(f"a thousand random operations against the pseudo-code of the RFC, seed {_seed}", seed=_seed,
        initiator=_seed % 2 == 0, crc=_seed < 4, spin=_seed == 3)(at_random)


@row("the first and the last word of a region, the octets around them untouched")
def edges(bench):
    session, sut, memory = asked(bench)
    for offset in (0, 4088, 8, 2048):
        memory.fill(17)
        before = memory.word(offset)
        perform(session, memory, [Operation(FETCH_ADD, offset, 0x0101010101010101, 0)], {offset: before})
        memory.untouched((offset, offset + 8))


@row("a region of one word, and one with remote atomics alone")
def narrow(bench):
    session, sut, _ = asked(bench)
    word = sut.memory("word", 8, "lrwa", seed=3)
    only = sut.memory("only", 64, "la", seed=3)
    for memory in (word, only):
        before = memory.word(0)
        perform(session, memory, [Operation(FETCH_ADD, 0, 7, 0), Operation(COMPARE_SWAP, 0, 9, ONES, before + 7)],
                {0: before})


@row("alignment is that of the address, not of the Tagged Offset (RFC 7306 5.2.1)")
def shifted(bench):
    session, sut, _ = asked(bench)
    kind, answer = sut.attempt("mr shifted 4096 lrwa pd 0x500000000003")
    if kind == "error":
        raise harness.Skip(f"no regions under another address: {answer}")
    rkey = int(dict(word.split("=") for word in answer.split())["rkey"], 0)
    session.fetch_add(1, rkey, 0x500000000003 + 16, 5)
    check(session.original(1) == 0, "original value")
    check(sut.command("dump shifted 16 8") == (5).to_bytes(8, sys.byteorder).hex(), "memory")
    session.fetch_add(2, rkey, 0x500000000003 + 21, 5)  # a multiple of 8, and no aligned address
    session.peer.terminates({0x0207})


@row("the Request Identifier comes back, whatever it is and however often it is used")
def identifiers(bench):
    session, sut, memory = asked(bench)
    memory.put(0, 0)
    for number, identifier in enumerate((0, 0, 1, 0xFFFFFFFF, 0x80000000, 1, 0x12345678, 0x78563412, 0)):
        session.fetch_add(identifier, memory.rkey, memory.addr, 1)
        check(session.original(identifier) == number, f"operation {number}")


@row("reserved fields are ignored: Reserved, Invalidate STag, bits of the control octets")
def reserved(bench):
    session, sut, memory = asked(bench)
    memory.put(0, 100)
    header = wire.atomic_header(FETCH_ADD, 5, memory.rkey, memory.addr, 1, 0, reserved=(1 << 28) - 1)
    session.peer.fpdu(wire.untagged(ATOMIC_REQUEST | 0x30, 1, 1, 0, header, control=0x7D, inv=0x12345678))
    check(session.original(5) == 100, "first")
    session.read_msn = 2
    session.fetch_add(6, memory.rkey, memory.addr, 1)
    check(session.original(6) == 101, "second")


@row("IRD requests at once, in one TCP segment and octet by octet, are answered in order", ird=5)
def burst(bench, ird):
    session, sut, memory = asked(bench, ird=ird)
    memory.put(0, 0)
    operations = [Operation(FETCH_ADD, 0, 1, 0) for _ in range(3 * ird)]
    perform(session, memory, operations, {0: 0}, ird)
    perform(session, memory, operations[:ird], {0: 3 * ird}, ird, piece=1)
    swaps = [Operation(COMPARE_SWAP, 0, number + 1, ONES, number) for number in range(4 * ird, 6 * ird)]
    perform(session, memory, swaps, {0: 4 * ird}, ird)


@row("atomics and Reads share the MSN of queue 1, answers come in the order of the requests")
def with_reads(bench):
    """Atomic Responses count their MSN on queue 3 alone."""
    session, sut, memory = asked(bench)
    memory.put(0, 1000)
    value, number = 1000, 0
    for turn in range(20):
        kinds = [("atomic", "read"), ("read", "atomic"), ("read", "read", "atomic", "atomic"),
                 ("atomic", "atomic", "read", "read", "atomic")][turn % 4]
        octets, expected = b"", []
        for kind in kinds:
            number += 1
            if kind == "atomic":
                octets += wire.fpdu(wire.fetch_add(session.read_msn, number, memory.rkey, memory.addr, 3))
                expected.append((kind, number, value))
                value += 3
            else:
                octets += wire.fpdu(wire.read_request(session.read_msn, number, 9, 700, memory.rkey, memory.addr + 8))
                expected.append((kind, number, pattern(25, 700)))
            session.read_msn += 1
        session.peer.send(octets)
        for kind, identifier, want in expected:
            if kind == "atomic":
                got = session.original(identifier)
                check(got == want, f"turn {turn}: original value {got}, not {want}")
            else:
                first, payload = session.peer.message(READ_RESPONSE)
                check((first.stag, payload == want) == (identifier, True), f"turn {turn}: {first}")
    check(memory.word(0) == value, "the sum")


@row("an Atomic Request in two segments: reassembled, or an error; nothing else changes")
def split(bench):
    session, sut, memory = asked(bench)
    memory.put(0, 7)
    header = wire.atomic_header(FETCH_ADD, 5, memory.rkey, memory.addr, 1, 0)
    session.peer.fpdu(wire.untagged(ATOMIC_REQUEST, 1, 1, 0, header[:20], False))
    session.peer.fpdu(wire.untagged(ATOMIC_REQUEST, 1, 1, 20, header[20:]))
    segment = session.peer.segment()
    if segment.opcode == ATOMIC_RESPONSE:
        answer = wire.answer_fields(segment)
        check((answer.identifier, answer.value, memory.word(0)) == (5, 7, 8), f"{answer}")
    else:
        term = wire.Terminate(segment)
        check(term.error in {0x1205}, f"{term}")
        check(memory.word(0) == 7, "memory changed")


@row("a Write, an atomic and a Read of one word: each sees the result of those before it")
def write_atomic_read(bench):
    session, sut, memory = asked(bench)
    for number in range(1, 30):
        value = number * 0x0123456789ABCDEF & ONES
        session.peer.send(b"".join(wire.fpdu(piece) for piece in (
            wire.tagged(WRITE, memory.rkey, memory.addr + 32, value.to_bytes(8, sys.byteorder)),
            wire.fetch_add(2 * number - 1, number, memory.rkey, memory.addr + 32, number),
            wire.read_request(2 * number, 1, 2, 8, memory.rkey, memory.addr + 32))))
        check(session.original(number) == value, f"round {number}: original value")
        read = int.from_bytes(session.peer.message(READ_RESPONSE)[1], sys.byteorder)
        check(read == value + number & ONES, f"round {number}: {read:#x} was read")


@row("CRC off; an MPA connection of revision 1")
def variants(bench):
    for more in ({"crc": False}, {"revision": 1}, {"revision": 1, "crc": False}):
        session, sut, memory = asked(bench, **more)
        memory.put(0, 5)
        perform(session, memory, [Operation(FETCH_ADD, 0, 6, 0), Operation(COMPARE_SWAP, 0, 1, ONES, 11)], {0: 5}, 1)
        sut.quit()


@row("two streams and a thread of the program add to one word: nothing is lost (IBV_ATOMIC_GLOB)")
def together(bench):
    first, sut, memory = asked(bench)
    check("atomic=2" in sut.device.split(), f"atomic_cap: {sut.device}")
    second = Session(bench, sut=sut)
    memory.put(64, 0)
    rounds, depth = 150, 8
    seen, last = set(), {first: -1, second: -1}
    sut.command("hammer at 64")
    for turn in range(rounds):
        # Mask bit 63 says what mask 0 says: one field of 64 bits.
        mask = (0, HIGH)[turn % 2]
        for session in (first, second):
            session.peer.send(b"".join(wire.fpdu(wire.fetch_add(session.read_msn + number, number, memory.rkey,
                                                                memory.addr + 64, 1, mask)) for number in range(depth)))
            session.read_msn += depth
        for session in (first, second):
            for number in range(depth):
                value = session.original(number)
                check(value not in seen, f"two operations found the value {value}")
                check(value > last[session], f"{value} after {last[session]} on one stream")
                seen.add(value)
                last[session] = value
    count = int(sut.command("rest"))
    check(count > 0, "the thread did not run")
    check(memory.word(64) == count + 2 * rounds * depth,
          f"the sum is {memory.word(64)}, the thread added {count}, the peers {2 * rounds * depth}")


@row("two streams compare and swap one word at once: one of two wins")
def compete(bench):
    first, sut, memory = asked(bench)
    second = Session(bench, sut=sut)
    before = 0
    memory.put(0, before)
    for turn in range(100):
        for number, session in enumerate((first, second), 1):
            session.compare_swap(turn, memory.rkey, memory.addr, turn + 1 | number << 32, before)
        originals = [session.original(turn) for session in (first, second)]
        won = [original == before for original in originals]
        check(won.count(True) == 1, f"turn {turn}: original values {originals}, {before:#x} was there")
        before = memory.word(0)
        check(before == (turn + 1 | (1 + won.index(True)) << 32), f"turn {turn}: the word is {before:#x}")


if __name__ == "__main__":
    sys.exit(main())
