#!/usr/bin/env python3
"""Runs compute-sanitizer's four tools over what Octet's kernels do, and prints one table.

    tools/compute_sanitizer.py OCTET [--jobs=N] [--timeout=SECONDS] [--logs=FOLDER]
        [--tools=memcheck,...] [--cases=REGEX] [--list]

OCTET is the program for NVIDIA GPUs. A run that does not end in time is a row of the table like any
other ("hang"), and so is one that ends with an exit code other than 0. What a tool has printed
about a run that is not ok follows the table; --logs keeps all of it.

Exit code: 0; 1 when a run is not ok; 2 when nothing was run.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")

# Small shapes with rows, columns and K that are no multiple of a tile, and more experts than get
# rows. Two ranks. Few blocks, since racecheck takes time for each.
STEP = ("--ranks=2 --experts=24 --topk=5 --hidden=264 --max_tokens=40 --tokens=9,0"
        " --iters=1 --warmup=1")
GEMM = "--tiles=all --iters=1 --warmup=0 --blocks=16"
FUSED = ("-b 9 -e 9 -n 1 -w 1 -c 1 -g 2 --experts=24 --topk=5 --hidden=264 --intermediate=136"
         " --strategy=high_throughput --max_blocks=16")
LAYER = ("--ranks=2 --family=qwen3_moe --experts=8 --topk=3 --hidden=256 --intermediate=128"
         " --tokens=9 --iters=1 --warmup=0 --max_blocks=16")
CASES = {
    "direct": f"run {STEP} --strategy=direct",
    "direct, atomic, by source": f"run {STEP} --strategy=direct --slots=atomic --flags=source",
    "high_throughput": f"run {STEP} --strategy=high_throughput --row_copies=vectors",
    "high_throughput, bulk, pull":
        f"run {STEP} --strategy=high_throughput --row_copies=bulk --combine_method=pull",
    "low_latency": f"run {STEP} --strategy=low_latency",
    "low_latency, FP8": f"run {STEP} --strategy=low_latency --format=quantized_fp8",
    "products, BF16": f"gemm {GEMM} --rows=3,0,130,257,17 --n=272 --k=400",
    "products, FP16, bias, scale":
        f"gemm {GEMM} --rows=3,0,130,17 --n=264 --k=136 --dtype=fp16 --epilogue=bias,row_scale",
    "products, FP8": f"gemm {GEMM} --rows=1,0,65 --n=136 --k=144 --dtype=fp8",
    "products, FP8, SwiGLU":
        f"gemm {GEMM} --rows=3,0,130,257,17 --n=272 --k=400 --dtype=fp8 --epilogue=swiglu",
    "products, float32": f"gemm {GEMM} --rows=3,0,130 --n=64 --k=400 --epilogue=float32",
    **{f"dispatch_gemm, {mode}": f"perf --operation=dispatch_gemm --fusion={mode} {FUSED}"
       for mode in ("none", "tiles", "serial")},
    **{f"gemm_combine, {mode}": f"perf --operation=gemm_combine --fusion={mode} {FUSED}"
       for mode in ("none", "tiles", "serial", "epilogue")},
    "layer, BF16": f"layer {LAYER}",
    "layer, BF16, fused": f"layer {LAYER} --strategy=high_throughput --fusion=tiles",
    "layer, FP8": f"layer {LAYER} --weights=fp8",
    "layer, FP8, high_throughput":
        f"layer {LAYER} --weights=fp8 --strategy=high_throughput --fusion=none",
}

# Taken for a false alarm of racecheck: once warpgroups have met at barriers of their own, as those
# of a product do, it does not see that the block's next barrier orders a write of one and a read of
# others. It counts in all other cases, which run the same function without a product before it.
FALSE_ALARM = re.compile(
    r"Error: Race reported between Write access at bool octet::device::AwaitFlags<.*\n"
    r".*and Read access at bool octet::device::AwaitFlags<")
FALSE_ALARM_CASES = ("gemm_combine, tiles", "gemm_combine, serial", "layer, BF16, fused")

# "ERROR SUMMARY: 3 errors", "RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)"
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")


def verdict(case, code, output):
    """"ok", or what is wrong with a run that ended with this code, or (None) was ended."""
    counts = [int(count) for count in SUMMARY.findall(output)]
    alarms = len(FALSE_ALARM.findall(output)) if case in FALSE_ALARM_CASES else 0
    if sum(counts) > alarms:
        return f"{sum(counts)} errors"
    if code is None:
        return "hang"
    if code != 0:
        return f"exit code {code}"
    if not counts:
        return "no summary"
    return "ok*" if alarms else "ok"


def run(case, command, timeout, environment):
    """(verdict, seconds, output) of a command."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, env=environment,
                                   start_new_session=True)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, 9)  # the tool and the program, which has its group
            try:
                process.wait(10)  # a process that a GPU holds may stay
            except subprocess.TimeoutExpired:
                pass
        output.seek(0)
        text = output.read().decode(errors="replace")
    return verdict(case, code, text), time.monotonic() - start, text


def table(results, tools):
    """The rows of the table; results[case, tool] is (verdict, seconds, output)."""
    cases = list(dict.fromkeys(case for case, tool in results))
    width = max(len(case) for case in cases)
    lines = ["# " + "case".ljust(width - 2) + "".join(f"  {tool:>16}" for tool in tools)]
    for case in cases:
        cells = []
        for tool in tools:
            what, seconds, _ = results[case, tool]
            cells.append(f"{what} {seconds:.1f} s")
        lines.append(case.ljust(width) + "".join(f"  {cell:>16}" for cell in cells))
    return lines


def sanitizer():
    """compute-sanitizer's path, or None."""
    beside = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin",
                          "compute-sanitizer")
    return shutil.which("compute-sanitizer") or shutil.which(beside)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("octet", nargs="?")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time; they share the GPUs")
    parser.add_argument("--timeout", type=float, default=240, help="seconds of a run")
    parser.add_argument("--logs", type=pathlib.Path, help="folder for what the tools print")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--cases", default="", help="only cases whose name has such a match")
    parser.add_argument("--list", action="store_true", help="prints the cases; runs nothing")
    return parser.parse_args()


def main():
    arguments = parse()
    cases = {name: flags for name, flags in CASES.items() if re.search(arguments.cases, name)}
    if arguments.list:
        for name, flags in cases.items():
            print(f"{name}: octet {flags}")
        return 0
    tools = arguments.tools.split(",")
    program = sanitizer()
    if arguments.octet is None or program is None or not cases or not set(tools) <= set(TOOLS):
        print("compute_sanitizer.py: " +
              ("no compute-sanitizer in PATH" if program is None else
               "wants the program `octet`, a case and a tool that there is"), file=sys.stderr)
        return 2
    # A step takes some 100 times as long. Waits must end before the run does, to be named.
    environment = {"OCTET_TIMEOUT_MS": str(int(arguments.timeout * 1000 / 4)), **os.environ}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        # CUDA reports a second activation of peer access as an error.
        started = {(case, tool): pool.submit(
            run, case, [program, "--tool", tool, "--report-api-errors", "no", arguments.octet,
                  *shlex.split(flags)], arguments.timeout, environment)
            for case, flags in cases.items() for tool in tools}
        results = {key: future.result() for key, future in started.items()}
    if arguments.logs is not None:
        arguments.logs.mkdir(parents=True, exist_ok=True)
        for (case, tool), (_, _, text) in results.items():
            name = re.sub(r"\W+", "_", case)
            (arguments.logs / f"{name}.{tool}.txt").write_text(text)
    print("\n".join(table(results, tools)))
    wrong = {key: each for key, each in results.items() if each[0] not in ("ok", "ok*")}
    if any(each[0] == "ok*" for each in results.values()):
        print("# *: but for a false alarm (docs/testing.md)")
    print(f"# {len(results)} runs, {len(wrong)} not ok")
    for (case, tool), (what, _, text) in wrong.items():
        most = 40
        lines = text.splitlines()
        print(f"\n# {tool}: {case}: {what}\n# octet {cases[case]}\n" + "\n".join(lines[:most]))
        if len(lines) > most:
            print(f"# and {len(lines) - most} lines more")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
