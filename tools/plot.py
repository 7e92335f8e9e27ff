#!/usr/bin/env python3
"""Draws what `octet perf -J` or octet_bench has measured: time and bandwidth against tokens.

    tools/plot.py RESULTS.json OUT.svg|OUT.png|OUT.pdf
    tools/plot.py LAYER.json... OUT.svg|OUT.png|OUT.pdf

A column for each of dispatch, combine and both; a line for each strategy and peer. Bandwidth is
logical: the payload that the busiest rank receives, each token once, whatever a strategy puts on
the wire for it; so the higher line is the faster one. The dashed line is the most that the links
allow, from all-to-all stores measured in the same run, times R / (R - 1): of rows that go to all R
ranks alike, one in R stays on its GPU. The same file gives the same picture to the byte.

Files of `octet layer --json`, of one machine, give the rate of whole layers against tokens, a column
for each layer. The roofline is what matrix units at their peak take, or reading the weights once if
that takes longer; `links` is what the rows of dispatch and combine take at the rate of stores in the
same run.
"""

import argparse
import math
import os
import pathlib
import sys

import results

results.need("matplotlib")

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

import layer_picture

matplotlib.rcParams.update({
    "svg.hashsalt": "octet",  # ids by content instead of by chance
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.edgecolor": "#888888",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
})
FORMATS = ("svg", "png", "pdf")
MOST_TICKS = 10
MOST_CEILING = 4  # times the highest line; a higher ceiling would flatten all lines
LEGEND_LINE, TITLE_LINE = 0.045, 0.035  # of the picture's height
# Of strategies and peers by name: the same in every picture, and apart for the colour-blind too.
STYLES = {
    "low_latency": ("#0072b2", "o", "-"),
    "high_throughput": ("#009e73", "s", "-"),
    "direct": ("#e69f00", "D", "-"),
    "nccl": ("#cc3311", "^", "-."),
    "rccl": ("#cc3311", "^", "-."),
    "memcpy_peer": ("#7f7f7f", "v", "-."),
}
OTHER_STYLES = [("#882255", "P", "-"), ("#56b4e9", "X", "-"), ("#332288", "*", "-"),
                ("#999933", "h", "-"), ("#000000", "d", "-"), ("#aa4499", "<", "-")]
# What a title says of these only if it is something else.
USUAL = {"drop": 0, "format": "same", "received": "packed", "duplicates": "fill",
         "host_totals": False, "cached": False, "failure_policy": "abort", "statistics": False,
         "max_blocks": 0, "graph": False}
CEILING = {"color": "#333333", "linestyle": "--", "linewidth": 1, "label": "ceiling"}


def series(rows):
    """{label: rows by tokens}; labels name what tells the lines of a strategy apart."""
    telling = results.telling(rows)
    lines = {}
    for row in rows:
        words = [f"{name} {row.shape[name]}" for name in telling[row.shape["strategy"]]
                 if row.shape[name] is not None]
        lines.setdefault(", ".join([row.shape["strategy"], *words]), []).append(row)
    return {label: sorted(line, key=lambda row: row.tokens) for label, line in lines.items()}


def styles(labels):
    """{label: how its line looks}, for all labels of a picture."""
    others = iter(OTHER_STYLES * len(labels))
    taken, looks = set(), {}
    for label in labels:
        colour, marker, line = STYLES.get(label.split(",")[0].rstrip("*"), (None, None, None))
        if colour is None or colour in taken:
            colour, marker, line = next(others)
        taken.add(colour)
        looks[label] = {"color": colour, "marker": marker, "linestyle": line, "label": label,
                        "markersize": 4, "linewidth": 1.5, "markeredgewidth": 0}
    return looks


def ceiling_us(rows, ceiling_gbps):
    """{tokens: time that the ceiling takes for the payload}, the least of all rows."""
    fewest = {}
    for row in rows:
        if row.logical_gbps is None:
            continue
        us = row.median * row.logical_gbps / ceiling_gbps
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


def caption(measured):
    """What the axes have no room for."""
    text = ("logical: payload that the busiest rank receives (combine: sends home), each token "
            "once for each rank")
    if measured.logical_ceiling_gbps:
        ranks = measured.ranks
        text += (f"\nceiling: all-to-all stores of this run, {measured.ceiling_gbps:.4g} GB/s a GPU "
                 f"on the wire, × {ranks}/{ranks - 1}: of rows that go to all ranks alike, 1 in "
                 f"{ranks} stays on its GPU")
    return text


def add_words(picture, measured, axes):
    """Title, a legend for all axes, and caption."""
    lines = [title(measured)] + [results.EMULATED] * measured.emulated
    picture.suptitle("\n".join(lines), fontsize=10.5,
                     color="#b00020" if measured.emulated else "black")
    picture.supxlabel(caption(measured), fontsize=7.5, color="#555555")
    handles = {line.get_label(): line for each in axes for line in each.get_lines()}
    columns = min(len(handles), 2 * len(axes))
    # The layout makes room for the title, and does not know the legend.
    room = LEGEND_LINE * math.ceil(len(handles) / columns)
    picture.get_layout_engine().set(rect=(0, 0, 1, 1 - room))
    picture.legend(handles.values(), handles.keys(), loc="upper center", ncol=columns,
                   bbox_to_anchor=(0.5, 1 - TITLE_LINE * len(lines)), borderaxespad=0.3,
                   handlelength=2.6)


def top_gbps(measured):
    """Where the axis of bandwidth ends, if the ceiling is too high to be in the picture."""
    ceiling = measured.logical_ceiling_gbps
    highest = max((row.logical_gbps for row in measured.rows if row.logical_gbps), default=0)
    return 1.25 * highest if ceiling and 0 < MOST_CEILING * highest < ceiling else None


def add_ceiling(bandwidths, ceiling, top):
    """The line, or what it is if it lies above `top`."""
    text = f"ceiling {ceiling:.3g} GB/s"
    if top is None:
        bandwidths.axhline(ceiling, **CEILING)
    else:
        text += ", far above"
    bandwidths.annotate(text, (0.02, ceiling if top is None else top),
                        xycoords=("axes fraction", "data"), xytext=(0, -3),
                        textcoords="offset points", va="top", color="#333333", fontsize=8)


def figure(measured):
    """The picture of Results whose rows all stand against tokens."""
    kinds = [kind for kind in results.PERF_KINDS if any(row.kind == kind for row in measured.rows)]
    picture = Figure(figsize=(max(3.6 * len(kinds), 6.5), 6.6), layout="constrained")
    axes = picture.subplots(2, len(kinds), squeeze=False, sharex=True, sharey="row")
    looks = styles(list(series(measured.rows)))
    ceiling = measured.logical_ceiling_gbps
    top = top_gbps(measured)
    for column, kind in enumerate(kinds):
        rows = [row for row in measured.rows if row.kind == kind]
        times, bandwidths = axes[0][column], axes[1][column]
        for label, line in series(rows).items():
            times.plot([row.tokens for row in line], [row.median for row in line], **looks[label])
            moved = [row for row in line if row.logical_gbps is not None]
            bandwidths.plot([row.tokens for row in moved], [row.logical_gbps for row in moved],
                            **looks[label])
        if ceiling:
            floor = ceiling_us(rows, ceiling)
            times.plot(list(floor), list(floor.values()), **CEILING)
            add_ceiling(bandwidths, ceiling, top)
        times.set_title(kind)
        bandwidths.set_xlabel("tokens of each rank")
    axes[0][0].set_ylabel("time (µs)\nmedian of the slowest rank")
    axes[1][0].set_ylabel("logical bandwidth (GB/s)\nof the busiest rank")
    axes[0][0].set_yscale("log")
    axes[0][0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0][0].yaxis.set_minor_locator(NullLocator())
    axes[0][0].set_ylim(bottom=min(row.median for row in measured.rows) / 2)
    axes[1][0].set_ylim(bottom=0, top=top)
    ticks = sorted({row.tokens for row in measured.rows})
    for each in axes.flat:
        each.set_xscale("symlog" if ticks[0] == 0 else "log", base=2)
        each.set_xticks(ticks if len(ticks) <= MOST_TICKS else ticks[::-2])
        each.xaxis.set_minor_locator(NullLocator())
        each.xaxis.set_major_formatter(ScalarFormatter())
        each.yaxis.set_major_formatter(ScalarFormatter())
        each.tick_params(length=3)
    add_words(picture, measured, axes[0])
    return picture


def suffix_of(path):
    """What a picture of that name is, of FORMATS; None if it is none of them."""
    suffix = pathlib.Path(path).suffix.removeprefix(".").lower()
    return suffix if suffix in FORMATS else None


# Nothing of when and with what a picture was made.
METADATA = {"svg": {"Date": None, "Creator": None},
            "png": {"Software": None},
            "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}


def save(picture, path):
    """Writes the picture as its name's suffix says, all of it or nothing."""
    suffix = suffix_of(path)
    partial = f"{path}.tmp"
    try:
        picture.savefig(partial, format=suffix, metadata=METADATA[suffix], dpi=150)
        os.replace(partial, path)
    except OSError:
        pathlib.Path(partial).unlink(missing_ok=True)
        raise


def picture_of_layers(paths, layers):
    for path, layer in zip(paths, layers):
        if layer is None:
            raise results.ResultsError(f"{path} is not of octet layer, as others are")
        if layer.machine != layers[0].machine:
            raise results.ResultsError(f"{path} is of {layer.machine}, {paths[0]} of "
                                       f"{layers[0].machine}")
        twice = [other for other in layers
                 if other and (other.name, other.tokens) == (layer.name, layer.tokens)]
        if len(twice) > 1:
            raise results.ResultsError(f"{path}: {layer.name} with {layer.tokens:g} tokens of a "
                                       "rank is there twice")
    return layer_picture.figure(layers, results.EMULATED)


def picture_of(paths):
    """The picture of what is in the files; ResultsError if they cannot be drawn."""
    layers = [results.read_layer(path) for path in paths]
    if any(layers):
        return picture_of_layers(paths, layers)
    if len(paths) > 1:
        raise results.ResultsError("several files must be of octet layer; "
                                   f"{paths[0]} is not")
    measured = results.read(paths[0])
    left_out = sorted({row.shape["workload"] or row.shape["strategy"]
                       for row in measured.rows if row.tokens is None})
    measured.rows = [row for row in measured.rows if row.tokens is not None]
    if measured.rows and left_out:
        print(f"{paths[0]}: not in the picture, since their names do not end in a number of tokens: "
              f"{', '.join(left_out)}", file=sys.stderr)
    if not measured.rows:
        raise results.ResultsError(f"{paths[0]} has nothing that stands against tokens")
    for row in measured.rows:
        if row.error:
            raise results.ResultsError(f"{paths[0]}: {row.shape['strategy']}, {row.tokens} "
                                       f"tokens, {row.kind}: {row.error}")
    return figure(measured)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="+", help="of octet perf -J, or of octet_bench "
                        "--benchmark_out; or of octet layer --json, one or more")
    parser.add_argument("picture", help="its suffix decides: .svg, .png or .pdf")
    arguments = parser.parse_args(words)
    if suffix_of(arguments.picture) is None:
        parser.exit(2, f"{arguments.picture}: the name of a picture ends in "
                       f"{', '.join('.' + suffix for suffix in FORMATS)}\n")
    try:
        picture = picture_of(arguments.json)
    except results.ResultsError as error:
        parser.exit(2, f"{error}\n")
    try:
        save(picture, arguments.picture)
    except OSError as error:
        parser.exit(2, f"cannot write {arguments.picture}: {error.strerror}\n")


if __name__ == "__main__":
    main()
