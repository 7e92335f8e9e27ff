"""Made-up results in the form of the programs that measure, for tests. Nothing was measured."""

import contextlib
import io
import json
import types

STRATEGIES = {"direct": 1.0, "peer": 4.0}  # how slow each is
WIRE = {"direct": 3.0, "peer": 0.5}  # bytes on the wire for each of payload
COMBINE_ORDERS = {"direct": "flat", "peer": "per_rank"}
CEILING_GBPS = 100.0
LOGICAL_CEILING_GBPS = 200.0  # of two ranks: half of the rows stay


def figures(median, logical_gbps, wire_gbps):
    steps = [median + 0.01 * i for i in (-3, -2, -1, 0, 1, 2, 3)]
    return {"us": {"median": median}, "steps_us": steps, "logical_gbps": logical_gbps,
            "wire_gbps": wire_gbps, "ceiling_ratio": wire_gbps / CEILING_GBPS, "wrong": 0}


def perf():
    """As `octet perf -J` writes: both strategies at 1, 16 and 256 tokens; 1 µs + 0.1 a token."""
    rows = []
    for tokens in (256, 1, 16):
        for strategy, slow in STRATEGIES.items():
            row = {"tokens": tokens, "hidden": 64, "topk": 2, "experts": 8, "dtype": "fp16",
                   "strategy": strategy, "ranks": 2, "slots": "prefix", "flags": "token",
                   "routing": "uniform", "drop": 0.0, "expert": "id", "fuse_expert": True,
                   "align": "host", "combine_order": COMBINE_ORDERS[strategy],
                   "combine_method": "push", "format": "same", "scales": "float32",
                   "received": "packed", "duplicates": "fill", "expert_alignment": 1,
                   "host_totals": False, "cached": False, "scale_group": 128,
                   "failure_policy": "abort", "statistics": False, "max_blocks": 0}
            for kind in ("dispatch", "combine", "both"):
                us = slow * (1 + 0.1 * tokens)
                gbps = 2 * tokens / us  # 2000 bytes a token
                row[kind] = figures(us, gbps, WIRE[strategy] * gbps)
            rows.append(row)
    return {"schema": 1, "program": "octet perf",
            "platform": {"name": "nowhere", "gpus": [{"name": "made-up GPU"}] * 2},
            "ceilings": {"all_to_all_gbps": CEILING_GBPS}, "rows": rows}


def layer(tokens, us, experts=8, **changes):
    """As `octet layer --json` writes, of `tokens` on each of two ranks: 1 MFLOP a token."""
    return {"schema": 1, "program": "octet layer", "platform": "nowhere", "gpu": "made-up GPU",
            "ranks": 2, "tokens": 2 * tokens, "layer": "mixtral with random weights",
            "experts": experts, "topk": 2, "hidden": 64, "intermediate": 32,
            "shared_intermediate": 0, "dtype": "bf16", "weights": "bf16",
            "work": {"flops": 1e6 * tokens, "weight_bytes": 3e6,
                     "dispatch_link_bytes": 2e3 * tokens, "combine_link_bytes": 3e3 * tokens},
            "limits": {"peak_tflops": 2.0, "memory_tbps": 1.0, "link_gbps": 10.0},
            "rows": [{"part": "router", "median_us": 1.0, "tflops": 1.0},
                     {"part": "layer", "median_us": us, "tflops": tokens / us},
                     {"part": "graph", "median_us": us / 2, "tflops": 2 * tokens / us}],
            "contenders": [{"name": "peer", "check": None,
                            "times": {"part": "peer", "median_us": 2 * us,
                                      "tflops": tokens / us / 2}}],
            "check": {"routed": 4, "wrong_routed": 0, "checked": 9, "wrong": 0, "worst": 0.5},
            **changes}


def google_benchmark(scale=1.0):
    """As octet_bench writes: five repetitions and an aggregate of each of three benchmarks."""
    entries = []
    for name, us in (("dispatch/direct/decode_T8/iterations:1/manual_time", 10.0),
                     ("dispatch/direct/challenge1/iterations:1/manual_time", 20.0),
                     ("latency/host_barrier/iterations:1/manual_time", 2.0)):
        for i in range(5):
            entries.append({"name": name, "run_name": name, "run_type": "iteration",
                            "repetition_index": i, "real_time": scale * us * 1e3 + i,
                            "time_unit": "ns", "logical_GBps": 50.0 + i,
                            "wire_GBps": 70.0 + i})
        entries.append({"name": f"{name}_mean", "run_name": name, "run_type": "aggregate",
                        "aggregate_name": "mean", "real_time": 1e9, "time_unit": "ns",
                        "logical_GBps": 1e9, "wire_GBps": 1e9})
    return {"context": {"host_name": "nowhere", "platform": "nowhere", "gpu": "made-up GPU",
                        "ranks": "2", "ceiling_all_to_all_GBps": str(CEILING_GBPS)},
            "benchmarks": entries}


def run(main, *words):
    """What subprocess.run would give for a program's main(), without another Python's start."""
    stdout, stderr = io.StringIO(), io.StringIO()
    returncode = 0
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            returncode = end.code
    return types.SimpleNamespace(returncode=returncode, stdout=stdout.getvalue(),
                                 stderr=stderr.getvalue())


def write(path, data):
    path.write_text(json.dumps(data))
    return path
