#!/usr/bin/env python3
"""Compares two results of `octet perf -J` or of Google Benchmark, row by row.

    tools/compare.py BEFORE.json AFTER.json [--threshold=PERCENT]

A row is slower (or faster) when its median has changed by more than the threshold and the
Mann-Whitney U test, two-sided, gives less than 0.05 that its samples are of one distribution with
the samples before. The samples are the timed steps, or Google Benchmark's repetitions
(--benchmark_repetitions=10). Where a file has only their aggregates, medians are shown and nothing
is tested. Steps of one run have more in common than two runs of one program have: run both twice
where it matters.

Exit code: 0; 1 when a row is slower or has an error; 2 when nothing could be compared: no row is in
both files, or none of those has enough samples.
"""

import argparse
import math
import os
import sys

import results

results.need("scipy")

from scipy.stats import mannwhitneyu

P_LIMIT = 0.05


def verdict(before, after, threshold):
    """(change in %, p, verdict) of two rows."""
    if after.error or before.error:
        return None, None, f"ERROR: {after.error}" if after.error else "error before"
    change = (after.median / before.median - 1) * 100
    if before.aggregated or after.aggregated:
        return change, None, "medians only"
    n, m = len(before.us), len(after.us)
    if 2 / math.comb(n + m, n) >= P_LIMIT:  # the p of samples that do not overlap at all
        return change, None, "too few samples"
    p = float(mannwhitneyu(before.us, after.us, alternative="two-sided").pvalue)
    if p >= P_LIMIT or abs(change) <= threshold:
        return change, p, ""
    return change, p, "SLOWER" if change > 0 else "faster"


def names(rows):
    """Of each row: tokens, kind, and of its shape what not all of its strategy have in common."""
    telling = results.telling(rows)
    texts = []
    for row in rows:
        words = [row.shape["strategy"]]
        words += [f"{name}={row.shape[name]}" for name in telling[row.shape["strategy"]]
                  if row.shape[name] is not None]
        words += [] if row.tokens is None else [f"tokens={row.tokens}"]
        words += [] if row.kind == "time" else [row.kind]
        texts.append(" ".join(words))
    return texts


def compare(before, after, threshold):
    """(lines of the table, exit code); None where no row is in both."""
    old = {row.key: row for row in before.rows}
    pairs = [(old.pop(row.key), row) for row in after.rows if row.key in old]
    if not pairs:
        return None
    lines = [f"# before: {before.machine}", f"# after:  {after.machine}"]
    if before.emulated or after.emulated:
        lines.append(f"# {results.EMULATED}")
    if before.ceiling_gbps and after.ceiling_gbps:
        lines.append(f"# ceiling: before {before.ceiling_gbps:.4g}, "
                     f"after {after.ceiling_gbps:.4g} GB/s")
    labels = names([row for _, row in pairs])
    width = max(map(len, labels))
    layout = f"{{:<{width}}} {{:>11}} {{:>11}} {{:>9}} {{:>8}}  {{}}"
    lines.append(layout.format("#row", "before us", "after us", "change %", "p", "").rstrip())
    worse = compared = 0
    for label, (was, now) in zip(labels, pairs):
        change, p, word = verdict(was, now, threshold)
        worse += word.startswith(("SLOWER", "ERROR"))
        compared += p is not None
        lines.append(layout.format(
            label,
            *(f"{row.median:.2f}" if row.us else "-" for row in (was, now)),
            "-" if change is None else f"{change:+.1f}",
            "-" if p is None else f"{p:.4f}",
            word).rstrip())
    for side, count in [("before", len(old)), ("after", len(after.rows) - len(pairs))]:
        if count:
            lines.append(f"# {count} rows are only in {side}")
    lines.append(f"# {worse} of {len(pairs)} rows slower by more than {threshold:g} % "
                 f"(p < {P_LIMIT}) or with an error; {compared} could be compared")
    return lines, 1 if worse else 0 if compared else 2


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--threshold", type=float, default=5.0, metavar="PERCENT",
                        help="changes of the median up to this are none (%(default)s)")
    arguments = parser.parse_args(words)
    try:
        compared = compare(results.read(arguments.before), results.read(arguments.after),
                           arguments.threshold)
    except results.ResultsError as error:
        parser.exit(2, f"{error}\n")
    if compared is None:
        parser.exit(2, f"{arguments.before} and {arguments.after} have no row in common\n")
    lines, code = compared
    try:
        print("\n".join(lines), flush=True)
    except OSError as error:  # which must not end like a regression
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        parser.exit(2, f"cannot write all to standard output: {error.strerror}\n")
    if code == 2:
        parser.exit(2, f"{arguments.before} and {arguments.after}: no row could be compared; measure "
                    "with more steps (-n) or repetitions, and keep them "
                    "(--benchmark_report_aggregates_only=false)\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
