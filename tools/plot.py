#!/usr/bin/env python3
"""Draws what `octet perf -J` or octet_bench has measured: time and bandwidth against tokens.

    tools/plot.py RESULTS.json OUT.svg

A column for each of dispatch, combine and both; a line for each strategy and peer. The dashed line
is what the links can do, measured in the same run: a bandwidth, and above it the time in which
that moves the bytes of whoever sends the fewest. The same file gives the same picture to the byte.
"""

import argparse
import os
import pathlib

import results

results.need("matplotlib")

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

matplotlib.rcParams.update({
    "svg.hashsalt": "octet",  # ids by content instead of by chance
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
})
MARKERS = "osD^vP*X"
MOST_TICKS = 9
# What a title says of these only if it is something else.
USUAL = {"drop": 0, "format": "same", "received": "packed", "duplicates": "fill",
         "host_totals": False, "cached": False, "failure_policy": "abort", "statistics": False,
         "max_blocks": 0}
CEILING = {"color": "black", "linestyle": "--", "linewidth": 1, "label": "ceiling"}


def series(rows):
    """{label: rows by tokens}; labels name what tells the lines of a strategy apart."""
    telling = results.telling(rows)
    lines = {}
    for row in rows:
        words = [f"{name} {row.shape[name]}" for name in telling[row.shape["strategy"]]
                 if row.shape[name] is not None]
        lines.setdefault(", ".join([row.shape["strategy"], *words]), []).append(row)
    return {label: sorted(line, key=lambda row: row.tokens) for label, line in lines.items()}


def ceiling_us(rows, ceiling_gbps):
    """{tokens: time of the fewest wire bytes at the ceiling}."""
    fewest = {}
    for row in rows:
        us = row.median * row.wire_gbps / ceiling_gbps
        fewest[row.tokens] = min(us, fewest.get(row.tokens, us))
    return dict(sorted(fewest.items()))


def title(measured):
    differing = results.varying(measured.rows)
    shape = measured.rows[0].shape
    common = [f"{name} {shape[name]}"
              for name in ("workload", "experts", "topk", "hidden", "dtype", "routing")
              if name in shape and name not in differing]
    common += [name if shape[name] is True else f"{name} {shape[name]}"
               for name, usual in USUAL.items()
               if name not in differing and shape.get(name, usual) not in (usual, None)]
    return f"{measured.machine}: {', '.join(common)}"


def figure(measured):
    """The picture of Results whose rows all stand against tokens."""
    kinds = [kind for kind in results.PERF_KINDS if any(row.kind == kind for row in measured.rows)]
    picture = Figure(figsize=(3.4 * len(kinds), 5.6), layout="constrained")
    axes = picture.subplots(2, len(kinds), squeeze=False, sharex=True, sharey="row")
    for column, kind in enumerate(kinds):
        rows = [row for row in measured.rows if row.kind == kind]
        times, bandwidths = axes[0][column], axes[1][column]
        for marker, (label, line) in zip(MARKERS * len(rows), series(rows).items()):
            tokens = [row.tokens for row in line]
            style = {"marker": marker, "markersize": 3.5, "linewidth": 1.2, "label": label}
            times.plot(tokens, [row.median for row in line], **style)
            bandwidths.plot(tokens, [row.wire_gbps for row in line], **style)
        if measured.ceiling_gbps:
            floor = ceiling_us(rows, measured.ceiling_gbps)
            times.plot(list(floor), list(floor.values()), **CEILING)
            bandwidths.axhline(measured.ceiling_gbps, **CEILING)
        times.set_title(kind)
        bandwidths.set_xlabel("tokens of each rank")
    axes[0][0].set_ylabel("µs, median of the slowest rank")
    axes[1][0].set_ylabel("GB/s on the wire, busiest rank")
    axes[0][0].set_yscale("log")
    axes[0][0].set_ylim(bottom=min(row.median for row in measured.rows) / 2)
    axes[1][0].set_ylim(bottom=0)
    ticks = sorted({row.tokens for row in measured.rows})
    for each in axes.flat:
        each.set_xscale("symlog" if ticks[0] == 0 else "log", base=2)
        each.set_xticks(ticks if len(ticks) <= MOST_TICKS else ticks[::-2])
        each.tick_params(axis="x", labelrotation=45)
        each.xaxis.set_minor_locator(NullLocator())
        each.xaxis.set_major_formatter(ScalarFormatter())
        each.yaxis.set_major_formatter(ScalarFormatter())
    axes[1][0].legend(loc="best")
    picture.suptitle(title(measured), fontsize=10)
    return picture


def save(picture, path):
    """Writes an SVG that says nothing of when and with what it was made, all of it or nothing."""
    partial = f"{path}.tmp"
    try:
        picture.savefig(partial, format="svg", metadata={"Date": None, "Creator": None})
        os.replace(partial, path)
    except OSError:
        pathlib.Path(partial).unlink(missing_ok=True)
        raise


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", help="of octet perf -J, or of octet_bench --benchmark_out")
    parser.add_argument("svg", help="the picture, whatever its name ends in")
    arguments = parser.parse_args(words)
    try:
        measured = results.read(arguments.json)
    except results.ResultsError as error:
        parser.exit(2, f"{error}\n")
    measured.rows = [row for row in measured.rows if row.tokens is not None]
    if not measured.rows:
        parser.exit(2, f"{arguments.json} has nothing that stands against tokens\n")
    wrong = [row for row in measured.rows if row.error]
    if wrong:
        row = wrong[0]
        parser.exit(2, f"{arguments.json}: {row.shape['strategy']}, {row.tokens} tokens, "
                       f"{row.kind}: {row.error}\n")
    try:
        save(figure(measured), arguments.svg)
    except OSError as error:
        parser.exit(2, f"cannot write {arguments.svg}: {error.strerror}\n")


if __name__ == "__main__":
    main()
