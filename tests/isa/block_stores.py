"""Finds releases that do not cover what the other waves of a block have stored.

On gfx942 a block's barrier does not wait for stores, and a release waits for those of its own wave
only. So what all waves of a block have stored is published by one of them only if each wave waits
for its stores (s_waitcnt vmcnt(0)) between the last of them and the barrier: SyncBlockStores() in
runtime/platform/amd/device_ops.h.

An error is a path through a function on which there are

  1. a store to memory: plain, nontemporal, or an indivisible one of 16 bytes
  2. no s_waitcnt vmcnt(0)
  3. s_barrier, the last one before 4
  4. buffer_wbl2 sc0 sc1
  5. a store or atomic of system scope: the publication

unless waves store rows between 3 and 4 (on any path): then each of them publishes its own. Paths
are those of the control flow graph. Branches on masks that were set to a constant before are
followed in one direction only, since the compiler joins alternatives in that way; nothing else is
known of conditions. Calls are taken to do nothing.
"""

import collections
import re
import typing

# Distinct sets of known masks with which a basic block is visited. Beyond that nothing is known.
MOST_MASKS = 32

MEMORY_STORE = re.compile(r"(global|flat|buffer)_store_")
MASK_COPY = re.compile(r"(vcc|s\[\d+:\d+\]),\s*(0|-1)$")
MASK_TEST = re.compile(r"vcc,\s*exec,\s*(s\[\d+:\d+\])$")
SCALARS = re.compile(r"^s\[(\d+):(\d+)\]$|^s(\d+)$")


class State(typing.NamedTuple):
    """What may hold at some place. Lines, and pairs of the barrier's and the store's line."""
    stored: frozenset = frozenset()  # stores that this wave has not waited for
    left: frozenset = frozenset()  # (barrier, store): such stores of any wave at the last barrier
    own_rows: bool = False  # rows were stored since the last barrier
    released: bool = False  # so was the write-back of a release

    def join(self, other):
        return State(self.stored | other.stored, self.left | other.left,
                     self.own_rows or other.own_rows, self.released or other.released)


def is_data_store(instruction):
    if not MEMORY_STORE.match(instruction.name):
        return False
    return not instruction.has("sc1") or instruction.row_access


def is_publication(instruction):
    if instruction.name.startswith(("global_atomic", "flat_atomic")):
        return instruction.system
    return (bool(MEMORY_STORE.match(instruction.name)) and instruction.system and
            not instruction.row_access)


def step(state, instruction, report):
    """The state behind an instruction. `report`: called with (state, line) of a publication."""
    if is_data_store(instruction):
        return state._replace(stored=state.stored | {instruction.line},
                              own_rows=state.own_rows or instruction.row_access)
    if instruction.waits_for_memory:
        return state._replace(stored=frozenset())
    if instruction.name == "s_barrier":
        return State(stored=state.stored,
                     left=frozenset((instruction.line, store) for store in state.stored))
    if instruction.name == "buffer_wbl2" and instruction.system:
        return state._replace(released=True)
    if state.released and state.left and is_publication(instruction):
        report(state, instruction.line)
    return state


def overlaps(register, pair):
    """Whether writing to `register` (operand text) writes to `pair` (as "s[a:b]" or "vcc")."""
    if pair == "vcc" or register.startswith("vcc"):
        return pair == "vcc" and register.startswith("vcc")
    written = SCALARS.match(register)
    if not written:
        return False
    first = int(written[1] or written[3])
    last = int(written[2] or written[3])
    begin, end = map(int, pair[2:-1].split(":"))
    return first <= end and begin <= last


def is_written(pair, instruction):
    operands = instruction.operands.split(",")
    return any(overlaps(register.strip(), pair)
               for register in operands[:2 if instruction.name[0] == "v" else 1])


def step_masks(masks, instruction):
    """The masks that are known to be 0 or -1 behind an instruction: {pair: bool}."""
    operands = instruction.operands.strip()
    known = {pair: value for pair, value in masks.items() if not is_written(pair, instruction)}
    if instruction.name == "s_mov_b64" and (match := MASK_COPY.match(operands)):
        known[match[1]] = match[2] == "-1"
    elif instruction.name in ("s_and_b64", "s_andn2_b64") and (match := MASK_TEST.match(operands)):
        if match[1] in masks:
            known["vcc"] = masks[match[1]] == (instruction.name == "s_and_b64")
    return known


class Block:
    """A basic block: what matters in it, and where it goes."""

    def __init__(self):
        self.events = []
        self.next = []  # (block's number, value of vcc on the way there or None)
        self.tested = set()  # masks whose values at its begin matter to some branch


def interesting(instruction):
    return (is_data_store(instruction) or instruction.waits_for_memory or
            instruction.name in ("s_barrier", "buffer_wbl2") or is_publication(instruction))


def changes_masks(instruction):
    first = instruction.operands.lstrip()
    return (first.startswith(("s", "vcc")) or
            instruction.name.startswith("v_"))


def basic_blocks(code, labels):
    """`labels`: {label: index into `code`}."""
    leaders = {0} | set(labels.values())
    leaders |= {i + 1 for i, instruction in enumerate(code)
                if instruction.name.startswith(("s_branch", "s_cbranch", "s_endpgm", "s_setpc"))}
    numbers = {begin: n for n, begin in enumerate(sorted(i for i in leaders if i < len(code)))}
    blocks = [Block() for _ in numbers]
    block = None
    for i, instruction in enumerate(code):
        if i in numbers:
            block = blocks[numbers[i]]
        if interesting(instruction) or changes_masks(instruction):
            block.events.append(instruction)
        behind = numbers.get(i + 1)
        name = instruction.name
        if name.startswith(("s_branch", "s_cbranch")):
            target = numbers.get(labels.get(instruction.operands.strip()))
            jumps, falls = {"s_cbranch_vccz": (False, True),
                            "s_cbranch_vccnz": (True, False)}.get(name, (None, None))
            if target is not None:
                block.next.append((target, jumps))
            if name != "s_branch" and behind is not None:
                block.next.append((behind, falls))
        elif behind is not None and not name.startswith(("s_endpgm", "s_setpc")):
            block.next.append((behind, None))
    find_tested(blocks)
    return blocks


def find_tested(blocks):
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            tested = {pair for target, _ in block.next for pair in blocks[target].tested}
            if any(vcc is not None for _, vcc in block.next):
                tested.add("vcc")
            for instruction in reversed(block.events):
                match = MASK_TEST.match(instruction.operands.strip())
                if match and "vcc" in tested:
                    tested.add(match[1])
                    tested.discard("vcc")
                elif changes_masks(instruction):
                    tested = {pair for pair in tested if not is_written(pair, instruction)}
            if tested != block.tested:
                block.tested = tested
                changed = True


def uncovered(code, labels):
    """{barrier's line: (lines of stores, lines of publications)}, of one function."""
    found = collections.defaultdict(lambda: (set(), set()))
    own_publications = set()

    def report(state, line):
        if state.own_rows:
            own_publications.add(line)
            return
        for barrier, store in state.left:
            found[barrier][0].add(store)
            found[barrier][1].add(line)

    blocks = basic_blocks(code, labels)
    states = [{} for _ in blocks]  # by what is known of masks
    work = []

    def visit(number, masks, state):
        tested = blocks[number].tested
        key = frozenset(known for known in masks.items() if known[0] in tested)
        if key not in states[number] and len(states[number]) >= MOST_MASKS:
            key = frozenset()
        before = states[number].get(key)
        joined = state if before is None else before.join(state)
        if joined != before:
            states[number][key] = joined
            work.append((number, key))

    if blocks:
        visit(0, {}, State())
    while work:
        number, key = work.pop()
        masks, state = dict(key), states[number][key]
        for instruction in blocks[number].events:
            state = step(state, instruction, report)
            masks = step_masks(masks, instruction)
        for target, vcc in blocks[number].next:
            if vcc is None or masks.get("vcc", vcc) == vcc:
                visit(target, masks, state)
    return {barrier: (stores, publications - own_publications)
            for barrier, (stores, publications) in found.items()
            if publications - own_publications}
