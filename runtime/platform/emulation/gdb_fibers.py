"""Lanes of emulated GPUs in gdb.

  (gdb) source runtime/platform/emulation/gdb_fibers.py
  (gdb) octet-lanes [DEVICE]            what the lanes of every running kernel wait for, which ranks
                                        each device waits for, and which devices run nothing
  (gdb) octet-bt DEVICE GRID BLOCK WAVE LANE     backtrace of a suspended lane
  (gdb) break combine.hip:126 if $octet("block") == 5 && $octet("lane") == 3
                                        $octet(...): device, block, wave, lane or thread of the lane
                                        that this thread runs, -1 if it runs none

The numbers are those that octet-lanes prints. x86-64 only, live processes only (not core files).
"""

import os

import gdb

# Files have names such as ../../kernels/direct/protocol.h, from the folder of a build. An object
# from the compiler cache names the build that has made it first, which may be gone.
gdb.execute("directory %s" % os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            to_string=True)

WAITING = [
    "runs, or could",
    "waits for its wave",
    "waits for its block",
    "waits for its grid",
    "waits for a value",
    "polls",
    "has left",
]
SAVED = ["r15", "r14", "r13", "r12", "rbx", "rbp"]  # as octet_emulation_switch saves them


def vector(value):
    begin, end = value["_M_impl"]["_M_start"], value["_M_impl"]["_M_finish"]
    return [begin[i] for i in range(int(end - begin))]


def unique(pointer):  # a std::unique_ptr is one pointer
    target = pointer.type.strip_typedefs().template_argument(0)
    return pointer.address.cast(target.pointer().pointer()).dereference().dereference()


def machine():
    try:
        pointer = gdb.parse_and_eval("'octet::emulation::(anonymous namespace)::machine_pointer'")
        pointer["_M_b"]["_M_p"].dereference().fetch_lazy()
    except gdb.error as error:
        raise gdb.GdbError("no emulated machine is running: %s" % error)
    return pointer["_M_b"]["_M_p"].dereference()


def grids(device_id):
    return [g.dereference() for g in vector(unique(vector(machine()["devices"])[device_id])["grids"])]


HOST_ARENA = 16  # kHostArena, kArenaShift of memory.h
ARENA_SHIFT = 36


def owner(address):
    """Whose memory it is; an address tells."""
    arena = (address - int(machine()["memory"]["base_"])) >> ARENA_SHIFT
    if arena == HOST_ARENA:
        return " in pinned host memory"
    return " on device %d" % arena if 0 <= arena < HOST_ARENA else ""


def awaited(lane):
    """The rank that a polling lane waits for, or None."""
    polls = WAITING[int(lane["waiting"])] in ("waits for a value", "polls")
    rank = int(lane["awaited_rank"])
    return rank if polls and rank >= 0 else None


def where(lane):
    place = lane["where"]["_M_impl"]
    if int(place) == 0:
        return ""
    name = place["_M_file_name"].string().rsplit("/", 1)[-1]
    return "%s:%d" % (name, int(place["_M_line"]))


def describe(lane, wave):
    index = int(lane["lane"])
    if int(wave["unstarted"]) >> index & 1:
        return "not started"
    text = WAITING[int(lane["waiting"])]
    if text == "waits for a value":
        value = int(lane["poll_value"][0])
        address = int(lane["poll_address"])
        text += " other than %#x at %#x%s" % (value, address, owner(address))
    text = (text + " " + where(lane)).strip()
    rank = awaited(lane)
    return text if rank is None else "%s, for rank %d" % (text, rank)


def ranges(numbers):
    parts = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in parts)


def outstanding(device):
    """The number of operations that the device's streams have not finished."""
    return sum(int(s["enqueued"]) - int(s["finished"])
               for s in (unique(stream) for stream in vector(device["streams"])))


class Lanes(gdb.Command):
    """octet-lanes [DEVICE]: what the lanes of all running kernels wait for.

Then, for each device, which ranks it waits for, and which devices run no kernel.
"""

    def __init__(self):
        super().__init__("octet-lanes", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        devices = [unique(d) for d in vector(machine()["devices"])]
        idle = []
        waits = []
        for device in [int(argument)] if argument else range(len(devices)):
            for grid_index, grid in enumerate(grids(device)):
                kernel = str(grid["kernel"]).partition(" ")[2] or str(grid["kernel"])
                print("device %d grid %d: %s" % (device, grid_index, kernel))
                ranks = self.print_grid(grid)
                if ranks:
                    waits.append("device %d waits for %s" % (device, ", ".join(
                        "rank %d (%d lane%s)" % (rank, n, "" if n == 1 else "s")
                        for rank, n in sorted(ranks.items()))))
            if not grids(device):
                idle.append(device)
        for line in waits:
            print(line)
        with_work = [d for d in idle if outstanding(devices[d])]
        if with_work:
            print("no kernel yet, work enqueued: device %s" % ranges(with_work))
        if len(idle) > len(with_work):
            print("idle: device %s" % ranges([d for d in idle if d not in with_work]))
        if len(idle) == len(devices):
            print("no kernel is running")

    def print_grid(self, grid):
        """Returns how many lanes poll for each rank."""
        # Blocks whose waves do the same share a line.
        lines = {}
        ranks = {}
        for index, pointer in enumerate(vector(grid["blocks"])):
            waves = {}
            for wave in vector(unique(pointer)["waves"]):
                groups = {}
                for i in range(int(wave["num_lanes"])):
                    lane = wave["lanes"][i]
                    groups.setdefault(describe(lane, wave), []).append(i)
                    if awaited(lane) is not None:
                        ranks[awaited(lane)] = ranks.get(awaited(lane), 0) + 1
                for text, lanes in groups.items():
                    waves.setdefault((ranges(lanes), text), []).append(int(wave["index"]))
            for (lanes, text), indices in waves.items():
                lines.setdefault((ranges(indices), lanes, text), []).append(index)
        for (waves, lanes, text), blocks in lines.items():
            print("  block %s wave %s lane %s: %s" % (ranges(blocks), waves, lanes, text))
        return ranks


class CurrentLane(gdb.Function):
    """$octet(WHAT): device, block, wave, lane or thread that the current thread runs, or -1."""

    def __init__(self):
        super().__init__("octet")

    def invoke(self, what):
        view = gdb.parse_and_eval("octet_emulation_lane")
        if int(view) == 0:
            return -1
        lane = view.cast(gdb.lookup_type("octet::emulation::Lane").pointer())
        block = lane["wave"]["block"]
        found = {
            "device": lambda: block["grid"]["device"]["id"],
            "block": lambda: block["number"],
            "wave": lambda: lane["wave_index"],
            "lane": lambda: lane["lane"],
            "thread": lambda: lane["thread"]["x"],
        }
        what = what.string()
        if what not in found:
            raise gdb.GdbError("$octet: one of " + ", ".join(found))
        return int(found[what]())


class Backtrace(gdb.Command):
    """octet-bt DEVICE GRID BLOCK WAVE LANE: the stack of a suspended lane."""

    def __init__(self):
        super().__init__("octet-bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        numbers = argument.split()
        if len(numbers) != 5:
            raise gdb.GdbError("octet-bt DEVICE GRID BLOCK WAVE LANE, as octet-lanes prints them")
        device, grid, block, wave, lane_index = map(int, numbers)
        block = unique(vector(grids(device)[grid]["blocks"])[block])
        lane = vector(block["waves"])[wave]["lanes"][lane_index]
        stack_pointer = int(lane["context"]["stack_pointer"])
        if int(lane["stack"]) == 0 or stack_pointer == 0:
            print("the lane has no stack")
            return
        memory = gdb.selected_inferior().read_memory(stack_pointer, 56)
        words = [int.from_bytes(memory[i * 8:i * 8 + 8], "little") for i in range(7)]
        gdb.execute("select-frame 0")
        before = {r: int(gdb.parse_and_eval("(unsigned long)$" + r)) for r in SAVED + ["rsp", "rip"]}
        try:
            for register, value in zip(SAVED, words):
                gdb.execute("set $%s = %d" % (register, value))
            gdb.execute("set $rsp = %d" % (stack_pointer + 56))
            gdb.execute("set $rip = %d" % words[6])
            gdb.execute("backtrace")
        finally:
            gdb.execute("select-frame 0")
            for register, value in before.items():
                gdb.execute("set $%s = %d" % (register, value))


Lanes()
Backtrace()
CurrentLane()
