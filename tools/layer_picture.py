"""The picture of whole layers: compute rate against tokens, beside what the GPUs allow.

For plot.py.
"""

import itertools
import math

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

LEGEND_LINE = 0.055  # of the height of a picture with one row of axes
LINES = {"layer": {"color": "#0072b2", "marker": "o", "label": "layer"},
         "graph": {"color": "#009e73", "marker": "s", "label": "layer, from a graph"}}
# Without the router, which takes the same time with any of them.
CONTENDERS = [{"color": "#e69f00", "marker": "^", "linestyle": "-."},
              {"color": "#882255", "marker": "v", "linestyle": "-."},
              {"color": "#7f7f7f", "marker": "D", "linestyle": "-."}]
LIMITS = {"roofline": {"color": "#333333", "linestyle": "--", "linewidth": 1,
                       "label": "roofline: matrix units at their peak, weights read once"},
          "links": {"color": "#cc3311", "linestyle": ":", "linewidth": 1.2,
                    "label": "links: rows of dispatch and combine, and nothing else"}}


def teraflops(flops, us):
    return flops / us / 1e6


def roofline_us(layer):
    known = [us for us in (layer.compute_us, layer.memory_us) if us is not None]
    return max(known) if len(known) == 2 else None


def looks_of(layers):
    """{name: how its line looks}: contenders look alike in all columns."""
    names = dict.fromkeys(name for layer in layers for name in layer.tflops if name not in LINES)
    contenders = itertools.cycle(CONTENDERS)
    return LINES | {name: {**next(contenders), "label": name} for name in names}


def draw(axes, layers, looks):
    """One layer's lines, against the tokens of a rank."""
    for name in dict.fromkeys(name for layer in layers for name in layer.tflops):
        measured = [layer for layer in layers if name in layer.tflops]
        axes.plot([layer.tokens for layer in measured],
                  [layer.tflops[name] for layer in measured], markersize=4, linewidth=1.5,
                  markeredgewidth=0, **looks[name])
    for name, limit in (("roofline", roofline_us), ("links", lambda layer: layer.link_us)):
        known = [(layer.tokens, teraflops(layer.flops, limit(layer)))
                 for layer in layers if limit(layer)]
        if known:
            axes.plot(*zip(*known), **LIMITS[name])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [layer.tokens for layer in layers]
    axes.set_xticks(ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ScalarFormatter())
    axes.tick_params(length=3)
    axes.set_xlabel("tokens of each rank")


def figure(layers, emulated_words):
    """The picture of Layers of one machine, a column for each layer."""
    names = list(dict.fromkeys(layer.name for layer in layers))
    columns = math.ceil(math.sqrt(len(names)))
    rows = math.ceil(len(names) / columns)
    picture = Figure(figsize=(max(4.2 * columns, 6.5), 3.6 * rows + 1), layout="constrained")
    looks = looks_of(layers)
    all_axes = picture.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in all_axes.flat[len(names):]:
        axes.set_visible(False)
    for axes, name in zip(all_axes.flat, names):
        draw(axes, sorted((layer for layer in layers if layer.name == name),
                          key=lambda layer: layer.tokens), looks)
        axes.set_title(name.replace(", weights", ",\nweights"), fontsize=8.5)
    for axes in all_axes[:, 0]:
        axes.set_ylabel("TFLOP/s of a GPU\nmedian of the slowest rank")
    emulated = any(layer.emulated for layer in layers)
    lines = [layers[0].machine] + [emulated_words] * emulated
    picture.suptitle("\n".join(lines), fontsize=10.5, color="#b00020" if emulated else "black")
    handles = {line.get_label(): line for axes in all_axes.flat for line in axes.get_lines()}
    legend_rows = math.ceil(len(handles) / columns)
    # The layout does not know the legend.
    picture.get_layout_engine().set(rect=(0, LEGEND_LINE * legend_rows / rows, 1,
                                          1 - LEGEND_LINE * legend_rows / rows))
    picture.legend(handles.values(), handles.keys(), loc="lower center", ncol=columns,
                   handlelength=2.6, fontsize=8)
    return picture
