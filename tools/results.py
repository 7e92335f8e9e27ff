"""Reads what was measured: the JSON of octet perf, octet layer and Google Benchmark (octet_bench).

For plot.py and compare.py.
"""

import collections
import dataclasses
import importlib.util
import json
import re
import statistics
import sys

PERF_SCHEMA = 1
LAYER_SCHEMA = 1
PERF_KINDS = ["dispatch", "combine", "both"]
# What makes a row of `octet perf` another experiment, rather than another result of the same.
PERF_SHAPE = ["strategy", "ranks", "hidden", "topk", "experts", "dtype", "slots", "flags",
              "routing", "drop", "expert", "fuse_expert", "align"]
# The same, of files that are not older than these.
NEWER_PERF_SHAPE = ["combine_order", "combine_method", "format", "scales", "scale_group",
                    "received", "duplicates", "expert_alignment", "host_totals", "cached",
                    "failure_policy", "statistics", "max_blocks"]
# What Google Benchmark adds to a benchmark's name.
HOW_MEASURED = r"(/(iterations|repeats|min_time):[^/]+|/(manual|real|process)_time)+$"
EMULATED = "emulated GPUs: times say nothing about the speed of real ones"
US_PER = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def need(name):
    """Ends the program, with exit code 2, where this Python does not have the module."""
    if importlib.util.find_spec(name) is None:
        print(f"{sys.argv[0]}: {sys.executable} has no {name}; "
              "tools/install_packages.sh plot, or apt-get install "
              f"python3-{name}, installs it for /usr/bin/python3", file=sys.stderr)
        sys.exit(2)


class ResultsError(Exception):
    """A file that cannot be read as results; the text says which and why."""


@dataclasses.dataclass
class Row:
    """One thing that was measured a number of times."""

    shape: dict  # name and value of what tells it from other rows, but for tokens and kind
    tokens: int | None  # of every rank
    kind: str  # "dispatch", "combine", "both"; of Google Benchmark "time"
    us: list[float]  # the samples
    logical_gbps: float | None = None  # payload that the busiest rank receives, each token once
    error: str | None = None  # why the samples, if any, count for nothing
    aggregated: bool = False  # `us` is their median alone: the file does not have them

    @property
    def key(self):
        return (*self.shape.values(), self.tokens, self.kind)

    @property
    def median(self):
        return statistics.median(self.us)


@dataclasses.dataclass
class Results:
    machine: str  # in words
    ceiling_gbps: float | None  # what a GPU's links can do, measured in the same run
    rows: list[Row]
    ranks: int = 1
    emulated: bool = False  # its times say nothing about the speed of GPUs

    @property
    def logical_ceiling_gbps(self):
        """The most logical bandwidth that the links allow where rows go to all ranks alike.

        Of R rows that a rank receives one is its own, which crosses no link.
        """
        if not self.ceiling_gbps or self.ranks < 2:
            return None
        return self.ceiling_gbps * self.ranks / (self.ranks - 1)


def varying(rows):
    """Names of what rows' shapes do not have in common; None is what a row has nothing of."""
    return [name for name in rows[0].shape
            if len({str(row.shape[name]) for row in rows if row.shape[name] is not None}) > 1]


def telling(rows):
    """{strategy: names of what tells its rows apart}; strategies may differ in more."""
    lines = collections.defaultdict(list)
    for row in rows:
        lines[row.shape["strategy"]].append(row)
    return {strategy: varying(line) for strategy, line in lines.items()}


def _perf(data):
    platform = data["platform"]
    gpus = platform["gpus"]
    ranks = max(row["ranks"] for row in data["rows"])
    rows = []
    named = {row["strategy"] for row in data["rows"] if not row.get("auto_strategy")}
    for row in data["rows"]:
        shape = {name: row[name] for name in PERF_SHAPE}
        shape.update({name: row.get(name) for name in NEWER_PERF_SHAPE})
        shape["graph"] = row.get("graph", False)  # older files have none
        if row.get("auto_strategy") and row["strategy"] in named:
            shape["strategy"] += "*"  # as in the table: auto's choice, measured beside the same
        for kind in PERF_KINDS:
            figures = row[kind]
            wrong = figures["wrong"]  # None: not verified
            rows.append(Row(shape, row["tokens"], kind, figures["steps_us"],
                            logical_gbps=figures["logical_gbps"],
                            error=f"{wrong} wrong rows" if wrong else None))
    return Results(f"{ranks} × {gpus[0]['name']} ({platform['name']})",
                   data["ceilings"]["all_to_all_gbps"] or None, rows, ranks,
                   platform["name"] == "emulation")


def _step_benchmark(name):
    """Row of octet_bench's "dispatch/direct/decode_T128"; None of another benchmark."""
    kind, strategy, workload = (name.split("/") + ["", ""])[:3]
    if kind not in PERF_KINDS or not workload:
        return None
    tokens = re.fullmatch(r"(.*)_T(\d+)", workload)
    if tokens:
        workload = tokens[1]
    return Row({"strategy": strategy, "workload": workload}, int(tokens[2]) if tokens else None,
               kind, [])


def _google_benchmark(data):
    rows = {}
    logical_gbps = collections.defaultdict(list)
    context = data["context"]
    entries = data["benchmarks"]
    measured = {entry.get("run_name", entry["name"]) for entry in entries
                if entry.get("run_type", "iteration") == "iteration"}
    for entry in entries:
        aggregated = entry.get("run_type", "iteration") != "iteration"
        # Repetitions that are in the file themselves need no aggregates.
        if aggregated and (entry["run_name"] in measured or entry["aggregate_name"] != "median"):
            continue
        name = re.sub(HOW_MEASURED, "", entry.get("run_name", entry["name"]))
        if name not in rows:
            rows[name] = _step_benchmark(name) or Row({"strategy": name, "workload": None}, None,
                                                      "time", [])
            rows[name].shape["flags"] = context.get("flags", "")  # older files have none
            rows[name].aggregated = aggregated
        if entry.get("error_occurred"):
            rows[name].error = entry.get("error_message", "error")
            continue
        rows[name].us.append(entry["real_time"] * US_PER[entry["time_unit"]])
        if "logical_GBps" in entry:
            logical_gbps[name].append(entry["logical_GBps"])
    for name, gbps in logical_gbps.items():
        rows[name].logical_gbps = statistics.median(gbps)
    machine = context.get("host_name", "?")
    if "gpu" in context:
        machine = f"{context['ranks']} × {context['gpu']} ({context['platform']})"
    return Results(machine, float(context.get("ceiling_all_to_all_GBps", 0)) or None,
                   list(rows.values()), int(context.get("ranks", 1)),
                   context.get("platform") == "emulation")


@dataclasses.dataclass
class Layer:
    """What `octet layer` has measured of a layer and a number of tokens."""

    machine: str
    name: str  # the layer, in words
    tokens: float  # of a rank, on average
    tflops: dict  # {"layer", "graph" or a contender: of a GPU, in the median}
    flops: float  # of a GPU, on average
    # What the GPUs take at least, by what limits them; None is what nobody knows.
    compute_us: float | None
    memory_us: float | None
    link_us: float | None
    emulated: bool


def _at_rate(work, rate, per_us):
    return work / (rate * per_us) if rate else None


def _layer(data):
    shared = f", shared {data['shared_intermediate']}" if data["shared_intermediate"] else ""
    work, limits = data["work"], data["limits"]
    link_bytes = work["dispatch_link_bytes"] + work["combine_link_bytes"]
    times = [row for row in data["rows"] if row["part"] in ("layer", "graph")]
    times += [contender["times"] for contender in data["contenders"] if contender["times"]]
    return Layer(
        f"{data['ranks']} × {data['gpu']} ({data['platform']})",
        f"{data['layer'].split(',')[0].removesuffix(' with random weights')}: H {data['hidden']}, "
        f"I {data['intermediate']}, top {data['topk']} of {data['experts']}{shared}, "
        f"weights {data['weights']}",
        data["tokens"] / data["ranks"],
        {row["part"]: row["tflops"] for row in times}, work["flops"],
        _at_rate(work["flops"], limits["peak_tflops"], 1e6),
        _at_rate(work["weight_bytes"], limits["memory_tbps"], 1e6),
        _at_rate(link_bytes, limits["link_gbps"], 1e3), data["platform"] == "emulation")


def read_layer(path):
    """The Layer in a file, None if it is of another program; ResultsError if it is damaged."""
    data = _json(path)
    if not isinstance(data, dict) or data.get("program") != "octet layer":
        return None
    try:
        if data["schema"] != LAYER_SCHEMA:
            raise ResultsError(f"{path} has schema {data['schema']}; "
                               f"this program reads {LAYER_SCHEMA}")
        for check in [data["check"], *(each["check"] for each in data["contenders"])]:
            if not check or not (check["wrong"] or check["wrong_routed"]):
                continue
            raise ResultsError(f"{path}: {check['wrong']} wrong elements, "
                               f"{check['wrong_routed']} tokens with wrong experts")
        layer = _layer(data)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ResultsError(f"{path} is not as expected: {error!r}") from error
    if not layer.tflops:
        raise ResultsError(f"{path} has no times")
    return layer


def _json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}") from error


def read(path):
    """The Results in a file; ResultsError if they are not there."""
    data = _json(path)
    try:
        if "benchmarks" in data:
            results = _google_benchmark(data)
        elif data.get("program") == "octet perf":
            if data["schema"] != PERF_SCHEMA:
                raise ResultsError(f"{path} has schema {data['schema']}; "
                                   f"this program reads {PERF_SCHEMA}")
            results = _perf(data)
        else:
            raise ResultsError(f"{path} is neither of `octet perf` nor of Google Benchmark")
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ResultsError(f"{path} is not as expected: {error!r}") from error
    keys = [row.key for row in results.rows]
    for key in keys:
        if keys.count(key) > 1:
            raise ResultsError(f"{path} has twice {key}")
    return results
