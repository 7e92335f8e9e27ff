#!/usr/bin/env python3
"""Looks at the gfx942 assembly of the grouped products' kernels.

  check_gemm.py ASSEMBLY.s...

Of each kernel:
  - the innermost loop with matrix instructions has 4 or more of them, reads its operands from the LDS
    and from global memory 16 bytes at a time, and reads nothing narrower or by flat instructions, but
    for the scales of FP8 operands: a word for each 32 rows of a wave, and one for its columns, or
    two where they are of gate and up; and those of MXFP4 weights: a byte beside each 16 of weights,
    with 8-bit rows besides a word for each 32 rows
  - nothing lies in scratch: no spills, no private segment
  - three blocks of four waves fit into a compute unit: at most 168 vector registers; two blocks of the
    wide tiles of FP8 rows

The assembly is also tried with defects planted, each of which has to be found. Prints a line for each
kernel; exit code 1 and a line per error when something is wrong.
"""

import re
import sys

KERNEL = re.compile(r"^(_Z\S*GroupedGemmKernel\S*):\s*; @.*$", re.MULTILINE)
LABEL = re.compile(r"^(\.L\w+):")
BRANCH = re.compile(r"\bs_c?branch\w*\s+(\.L\w+)")
MOST_REGISTERS = 168  # 512 of a lane, in units of 8, for three waves
MOST_OF_TWO_WAVES = 256
LEAST_MFMA = 4
FP8 = "GemmElementE2"  # in the names of kernels of FP8 operands
MXFP4 = "GemmElementE3"  # in those of MXFP4 weights
FP8_MXFP4 = "GemmElementE4"  # and with rows of 8-bit floats
WIDE = "GemmTilesE0"
GATED = "GemmEpilogueILb1E"


def main_loop(lines):
    """The lines of the longest loop that contains every matrix instruction and no other loop around
    the tiles: the widest that waits at a barrier just twice."""
    labels = {match[1]: i for i, line in enumerate(lines) if (match := LABEL.match(line))}
    loops = []
    for i, line in enumerate(lines):
        match = BRANCH.search(line)
        first = labels.get(match[1], i) if match else i
        loop = lines[first:i + 1]
        if first < i and count(loop, "v_mfma") and count(loop, "s_barrier") == 2:
            loops.append(loop)
    return max(loops, key=len, default=[])


def count(lines, word):
    return sum(1 for line in lines if re.match(rf"\s+{word}", line))


def metadata(text, kernel, key):
    block = re.search(rf"\.amdhsa_kernel {re.escape(kernel)}\n(.*?)\.end_amdhsa_kernel", text, re.DOTALL)
    return int(re.search(rf"\.amdhsa_{key} (\d+)", block[1])[1])


def check(text):
    """(a line for each kernel, errors)."""
    facts, errors = [], []
    found = list(KERNEL.finditer(text))
    if not found:
        errors.append("there is no kernel")
    for match in found:
        kernel = match[1]
        body = text[match.end():].split(".amdhsa_kernel", 1)[0].splitlines()
        loop = main_loop(body)
        mfma, wide = count(loop, "v_mfma"), count(loop, "global_load_dwordx4")
        lds = count(loop, "ds_read_b128")
        registers = metadata(text, kernel, "next_free_vgpr")
        facts.append(f"{kernel}: {mfma} MFMA, {wide} global and {lds} LDS loads of 16 bytes, "
                     f"{len(loop)} lines in the main loop; {registers} registers")
        if mfma < LEAST_MFMA or mfma != count(body, "v_mfma"):
            errors.append(f"{kernel}: {mfma} of {count(body, 'v_mfma')} MFMA in the main loop")
        scales = count(loop, r"global_load_dword\b")
        most_scales = 4 if GATED in kernel else 3
        narrow = count(loop, "(global_load|flat|buffer_load)") - wide
        if FP8 in kernel and 0 < scales <= most_scales or FP8_MXFP4 in kernel and 0 < scales <= 2:
            narrow -= scales
        if MXFP4 in kernel or FP8_MXFP4 in kernel:  # of the wide loads, one at least is of rows
            scales = count(loop, "global_load_ubyte")
            narrow = narrow - scales if 0 < scales < wide else narrow
        if wide == 0 or narrow != 0:
            errors.append(f"{kernel}: loads narrower than 16 bytes in the main loop")
        if lds == 0 or lds != count(loop, "ds_read"):
            errors.append(f"{kernel}: LDS reads narrower than 16 bytes in the main loop")
        if metadata(text, kernel, "private_segment_fixed_size") or count(body, "scratch_"):
            errors.append(f"{kernel}: uses scratch")
        scaled = FP8 in kernel or FP8_MXFP4 in kernel
        most = MOST_OF_TWO_WAVES if scaled and WIDE in kernel else MOST_REGISTERS
        if registers > most:
            errors.append(f"{kernel}: {registers} registers, more than {most}")
    return facts, errors


PLANTED = [
    ("v_mfma_f32", "v_pk_fma_f32", "MFMA in the main loop"),
    ("global_load_dwordx4", "global_load_dwordx2", "loads narrower than 16 bytes"),
    ("global_load_dwordx4", "flat_load_dwordx4", "loads narrower than 16 bytes"),
    ("ds_read_b128", "ds_read_b64", "LDS reads narrower"),
    (".amdhsa_private_segment_fixed_size 0", ".amdhsa_private_segment_fixed_size 64", "uses scratch"),
    ("ds_write_b128", "scratch_store_dwordx4", "uses scratch"),
    (".amdhsa_next_free_vgpr ", ".amdhsa_next_free_vgpr 9", "registers, more than"),
]


def check_file(path):
    """Prints a line for each kernel of the file; returns errors."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    facts, errors = check(text)
    print("\n".join(facts))
    for old, new, words in PLANTED:
        if not any(words in error for error in check(text.replace(old, new))[1]):
            errors.append(f"'{new}' in place of '{old}' was not found")
    return [f"{path}: {error}" for error in errors]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    errors = [error for path in sys.argv[1:] for error in check_file(path)]
    print("\n".join(f"error: {error}" for error in errors))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
