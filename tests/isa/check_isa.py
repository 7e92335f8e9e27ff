#!/usr/bin/env python3
"""Compares the gfx942 assembly of kernels with what LLVM's AMDGPU memory model asks for.

  check_isa.py [--require FILE] ASSEMBLY.s...

runtime/platform/amd/device_ops.h leaves a pair of comments around everything that orders memory
between GPUs (a site). For each site the instructions between the comments are checked:

  publish         s_waitcnt vmcnt(0); buffer_wbl2 sc0 sc1; s_waitcnt vmcnt(0); store sc0 sc1
  release         s_waitcnt vmcnt(0); buffer_wbl2 sc0 sc1; s_waitcnt vmcnt(0)
  store           store sc0 sc1
  poll            load sc0 sc1
  acquire         buffer_inv sc0 sc1, after a poll of the same function
  consume         load sc0 sc1; s_waitcnt vmcnt(0); buffer_inv sc0 sc1
  atomic          global_atomic_* sc1
  atomic_acq_rel  publish's first half; global_atomic_* sc1; consume's second half

and for each function as a whole:

  - what has system scope and is in no site: an error, except the indivisible 16-byte accesses
    (global dwordx4 with sc0 sc1), counted as "packet_load" and "packet_store"
  - a load or store of a word with device scope, sc1 alone: counted as "device_load" and
    "device_store"
  - what converts to FP8, of the form E4m3Fnuz here, is counted as "fnuz"
  - what is nontemporal: only global_load_dwordx4 and global_store_dwordx4, counted as "row". Rows
    may lie in memory that their owner caches (runtime/platform/amd/heap_memory.h): sc0 or sc1 is an
    error. So is a kernel that loads rows and polls but never acquires, even if it reads packets, or
    that stores rows and flags or packets but never releases: caches would hide rows
  - flat instructions with system scope: an error
  - a block's barrier that does not wait for stores, before a release that is to cover them: an
    error (block_stores.py)
  - a kernel that polls and neither consumes nor reads packets, or that stores flags and publishes
    nothing: an error

  - a kernel that calls a function, or uses scratch memory: an error, since everything is meant to be
    inlined and to stay in registers

FILE lists kernels, a line each: "<regular expression> <word>...", '#' begins a comment. A word is a
site that the kernel must have, or with a '!' before it must not have, "scratch=<bytes>" for a kernel
that reserves exactly so much scratch memory and uses none of it, "scratch=any", or "calls" for one
that may call functions. A line that matches no kernel is an error.

Prints the kernels with their sites; exit code 1 and a line per error when something is wrong.
"""

import argparse
import collections
import dataclasses
import re
import shutil
import subprocess
import sys

import block_stores

SITE = re.compile(r"^\s*; octet\.(\w+)\.(begin|end)\s*$")
FUNCTION = re.compile(r"^([A-Za-z_$.][\w$.]*):\s*; @")
LABEL = re.compile(r"^(\.L\w+):")
KERNEL = re.compile(r"^\s*\.amdhsa_kernel\s+(\S+)")
SCRATCH = re.compile(r"^\s*\.amdhsa_private_segment_fixed_size\s+(\d+)")
CALLEE = re.compile(r"\b([A-Za-z_$][\w$.]*)@(?:rel32@lo|gotpcrel32@lo)")


@dataclasses.dataclass
class Instruction:
    line: int
    name: str
    operands: str

    def has(self, *modifiers):
        words = self.operands.split()
        return all(modifier in words for modifier in modifiers)

    @property
    def system(self):
        # A read-modify-write uses sc0 for another purpose: whether it returns the old value.
        return self.has("sc1") if "atomic" in self.name else self.has("sc0", "sc1")

    @property
    def device(self):
        return "atomic" not in self.name and self.has("sc1") and not self.has("sc0")

    @property
    def waits_for_memory(self):
        return self.name == "s_waitcnt" and "vmcnt(0)" in self.operands

    @property
    def flag_load(self):
        return self.name in ("global_load_dword", "global_load_dwordx2")

    @property
    def flag_store(self):
        return self.name in ("global_store_dword", "global_store_dwordx2")

    @property
    def row_access(self):
        return self.name in ("global_load_dwordx4", "global_store_dwordx4")

    @property
    def call(self):
        return self.name in ("s_swappc_b64", "s_call_b64")

    @property
    def memory(self):
        return self.name.startswith(("global_", "flat_", "buffer_load", "buffer_store",
                                     "buffer_atomic", "scratch_"))


@dataclasses.dataclass
class Site:
    kind: str
    line: int
    body: list


@dataclasses.dataclass
class Function:
    symbol: str
    file: str
    line: int
    is_kernel: bool = False
    scratch: int = 0  # bytes of a lane, of a kernel
    name: str = ""
    sites: list = dataclasses.field(default_factory=list)
    outside: list = dataclasses.field(default_factory=list)  # instructions in no site
    callees: set = dataclasses.field(default_factory=set)
    code: list = dataclasses.field(default_factory=list)  # all instructions
    labels: dict = dataclasses.field(default_factory=dict)  # indices into `code`
    errors: list = dataclasses.field(default_factory=list)
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def error(self, line, text):
        self.errors.append(f"{self.file}:{line}: {self.name}: {text}")


def parse(path):
    """The functions of one assembly file, in order."""
    functions, kernels = [], {}  # kernels: the scratch memory of each
    kernel = None
    function = site = None
    with open(path, encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            if match := KERNEL.match(text):
                kernel = match[1]
            if match := SCRATCH.match(text):
                kernels[kernel] = int(match[1])
            if match := FUNCTION.match(text):
                function = Function(symbol=match[1], file=path, line=number)
                functions.append(function)
                continue
            if function is None:
                continue
            if text.startswith(".Lfunc_end"):
                if site:
                    function.errors.append((site.line, f"site '{site.kind}' does not end"))
                function = site = None
                continue
            if match := SITE.match(text):
                kind, edge = match.groups()
                if edge == "begin" and site is None:
                    site = Site(kind, number, [])
                elif edge == "end" and site is not None and site.kind == kind:
                    function.sites.append(site)
                    site = None
                else:
                    function.errors.append((number, f"stray end or nested site '{kind}'"))
                continue
            if match := LABEL.match(text):
                function.labels[match[1]] = len(function.code)
            code = text.split(";")[0].strip()
            if not code or code.startswith(".") or code.endswith(":"):
                continue
            name, operands = (code.split(maxsplit=1) + [""])[:2]
            name = re.sub(r"_e(32|64)$", "", name)
            instruction = Instruction(number, name, operands)
            function.callees.update(CALLEE.findall(code))
            function.code.append(instruction)
            (site.body if site else function.outside).append(instruction)
    for function in functions:
        function.is_kernel = function.symbol in kernels
        function.scratch = kernels.get(function.symbol, 0)
    return functions


def sequence(body, steps):
    """The first step that is missing when `steps` must occur in this order, or None.

    steps: (description, predicate) pairs.
    """
    at = 0
    for description, wanted in steps:
        while at < len(body) and not wanted(body[at]):
            at += 1
        if at == len(body):
            return description
        at += 1
    return None


WRITE_BACK = ("buffer_wbl2 sc0 sc1", lambda i: i.name == "buffer_wbl2" and i.system)
INVALIDATE = ("buffer_inv sc0 sc1", lambda i: i.name == "buffer_inv" and i.system)
WAIT = ("s_waitcnt vmcnt(0)", lambda i: i.waits_for_memory)
LOAD = ("a global load with sc0 sc1", lambda i: i.flag_load and i.system)
STORE = ("a global store with sc0 sc1", lambda i: i.flag_store and i.system)
ATOMIC = ("a global atomic with sc1", lambda i: i.name.startswith("global_atomic") and i.system)

STEPS = {
    "publish": [WAIT, WRITE_BACK, WAIT, STORE],
    "release": [WAIT, WRITE_BACK, WAIT],
    "store": [STORE],
    "poll": [LOAD],
    "acquire": [INVALIDATE],
    "consume": [LOAD, WAIT, INVALIDATE],
    "atomic": [ATOMIC],
    "atomic_acq_rel": [WAIT, WRITE_BACK, WAIT, ATOMIC, WAIT, INVALIDATE],
}


def check_site(function, site):
    if site.kind not in STEPS:
        function.error(site.line, f"unknown site '{site.kind}'")
        return
    missing = sequence(site.body, STEPS[site.kind])
    if missing:
        function.error(site.line, f"{site.kind}: {missing} is missing or out of order")
    for instruction in site.body:
        # A wider, narrower or unscoped access beside the one that the site is about.
        if (site.kind in ("publish", "store") and "store" in instruction.name and
                instruction.memory and not (instruction.flag_store and instruction.system)):
            function.error(instruction.line, f"{site.kind}: a store without system scope")
    if site.kind == "acquire" and not any(
            other.kind == "poll" and other.line < site.line for other in function.sites):
        function.error(site.line, "acquire: no poll before it")


def check_function(function):
    function.errors, early = [], function.errors
    for line, text in early:
        function.error(line, text)
    for site in function.sites:
        function.counts[site.kind] += 1
        check_site(function, site)
    for instruction in function.outside:
        if instruction.system and instruction.row_access:
            function.counts["packet_load" if "load" in instruction.name else "packet_store"] += 1
        elif instruction.system:
            function.error(instruction.line,
                           f"{instruction.name} with system scope outside of any site")
        elif instruction.device and (instruction.flag_load or instruction.flag_store):
            function.counts["device_load" if instruction.flag_load else "device_store"] += 1
    for instruction in [i for site in function.sites for i in site.body] + function.outside:
        if instruction.name.startswith("flat_") and instruction.system:
            function.error(instruction.line, f"{instruction.name} with system scope: not global")
        if instruction.name == "v_cvt_pk_fp8_f32":
            function.counts["fnuz"] += 1
        if instruction.has("nt"):
            function.counts["row"] += 1
            function.counts["row_store" if "store" in instruction.name else "row_load"] += 1
            if instruction.has("sc0") or instruction.has("sc1"):
                function.error(instruction.line,
                               f"{instruction.name} nt with a scope: rows pass through the caches")
            if not instruction.row_access:
                function.error(instruction.line,
                               f"{instruction.name} nt: rows move as global dwordx4")


def check_block_stores(function):
    for barrier, (stores, publications) in sorted(
            block_stores.uncovered(function.code, function.labels).items()):
        function.error(barrier, f"s_barrier without s_waitcnt vmcnt(0): the release that publishes "
                                f"in line {min(publications)} does not cover other waves' stores, "
                                f"as that in line {min(stores)}")


def check_protocol(kernel, counts):
    if counts["poll"] and not (counts["acquire"] or counts["consume"] or counts["packet_load"]):
        kernel.error(kernel.line, "polls, but neither consumes nor reads packets")
    # Rows may lie in cached memory: packets order nothing there.
    if counts["poll"] and counts["row_load"] and not (counts["acquire"] or counts["consume"]):
        kernel.error(kernel.line, "polls and loads rows, but acquires nothing")
    if (counts["row_store"] and (counts["store"] or counts["packet_store"]) and
            not (counts["release"] or counts["publish"] or counts["atomic_acq_rel"])):
        kernel.error(kernel.line, "stores rows and tells peers, but releases nothing")
    if counts["store"] and not (counts["release"] or counts["publish"] or
                                counts["atomic_acq_rel"]):
        kernel.error(kernel.line, "stores flags, but publishes nothing")


def with_callees(function, by_symbol, seen=None):
    """The site counts of a function and of all that it calls."""
    seen = seen if seen is not None else set()
    if function.symbol in seen:
        return collections.Counter()
    seen.add(function.symbol)
    counts = collections.Counter(function.counts)
    for symbol in function.callees:
        if symbol in by_symbol:
            counts += with_callees(by_symbol[symbol], by_symbol, seen)
    return counts


def demangle(symbols):
    tool = next(filter(shutil.which, ("llvm-cxxfilt-22", "llvm-cxxfilt", "c++filt")), None)
    if not tool or not symbols:
        return symbols
    names = subprocess.run([tool], input="\n".join(symbols), text=True, capture_output=True,
                           check=True).stdout.splitlines()
    return [without_parameters(name.replace("(anonymous namespace)::", "")) for name in names]


def without_parameters(name):
    """Template arguments may have parentheses of their own."""
    depth = 0
    for i, c in enumerate(name):
        depth += {"<": 1, ">": -1}.get(c, 0)
        if c == "(" and depth == 0:
            return name[:i]
    return name


SCRATCH_WORD = "scratch="


def check_frame(kernel, words):
    """Checks that the kernel calls nothing and uses no scratch memory, unless `words` allow it."""
    calls = [instruction for instruction in kernel.code if instruction.call]
    if calls and "calls" not in words:
        kernel.error(calls[0].line, "calls a function: something is no longer inlined")
    scratch = [word.removeprefix(SCRATCH_WORD) for word in words if word.startswith(SCRATCH_WORD)]
    allowed = scratch[-1] if scratch else "0"
    if allowed not in ("any", str(kernel.scratch)):
        kernel.error(kernel.line,
                     f"uses {kernel.scratch} bytes of scratch memory; expected are {allowed}")
    used = [instruction for instruction in kernel.code if instruction.name.startswith("scratch_")]
    if used and allowed != "any":
        kernel.error(used[0].line, f"{used[0].name}: no instruction may use scratch memory")


def check_required(path, kernels):
    """(errors of the list of required sites, what it says of frames: kernel -> words).

    kernels: (Function, counts) pairs.
    """
    errors = []
    frames = collections.defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            words = text.split("#")[0].split()
            if not words:
                continue
            matching = [(k, c) for k, c in kernels if re.search(words[0], k.name)]
            if not matching:
                errors.append(f"{path}:{number}: no kernel matches {words[0]}")
            frame = [word for word in words[1:] if word.startswith((SCRATCH_WORD, "calls"))]
            for kernel, counts in matching:
                frames[kernel.file, kernel.symbol] += frame
                for site in words[1:]:
                    if site in frame:
                        continue
                    if site.startswith("!") and counts[site[1:]]:
                        errors.append(f"{kernel.file}:{kernel.line}: {kernel.name}: a '{site[1:]}' "
                                      f"site, which {path}:{number} forbids")
                    elif not site.startswith("!") and not counts[site]:
                        errors.append(f"{kernel.file}:{kernel.line}: {kernel.name}: no '{site}' "
                                      f"site, which {path}:{number} requires")
    return errors, frames


def check(paths, required=None):
    """(kernels with their site counts, errors) of assembly files."""
    kernels, all_functions, errors = [], [], []
    for path in paths:
        functions = parse(path)
        for function, name in zip(functions, demangle([f.symbol for f in functions])):
            function.name = name
            check_function(function)
            check_block_stores(function)
        by_symbol = {function.symbol: function for function in functions}
        for function in functions:
            if function.is_kernel:
                counts = with_callees(function, by_symbol)
                check_protocol(function, counts)
                kernels.append((function, counts))
            all_functions.append(function)
    if not kernels:
        errors.append("no kernel found")
    frames = {}
    if required:
        more, frames = check_required(required, kernels)
        errors += more
    for kernel, _ in kernels:
        check_frame(kernel, frames.get((kernel.file, kernel.symbol), ()))
    for function in all_functions:
        errors += function.errors
    return kernels, errors


def main():
    parser = argparse.ArgumentParser(description="Checks gfx942 assembly; see the file's comment.")
    parser.add_argument("--require", metavar="FILE", help="kernels and the sites they must have")
    parser.add_argument("assembly", nargs="+")
    args = parser.parse_args()
    kernels, errors = check(args.assembly, args.require)
    for kernel, counts in kernels:
        sites = " ".join(f"{site}={count}" for site, count in sorted(counts.items()))
        print(f"{kernel.name}: {sites or 'no sites'}")
    for error in errors:
        print(error, file=sys.stderr)
    print(f"# {len(kernels)} kernels, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
