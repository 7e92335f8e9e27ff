"""Checks what `octet run --dump=DIR` has written, with NumPy and nothing of Octet's.

    check_dump.py DIR... [--ranks=R] [--experts=E]

meta.json says what was run; docs/formats.md describes the files. For each rank, to the bit: that
every row that somebody sent to its experts is there, once, where the layout has its place, and
equal to the sender's x, or to what quantising x gives; that offsets, counts, ranges, indices,
weights and padding are right; and that y is the weighted sum of its tokens' experts' outputs. With
several nodes, what a rank has received is checked against the batches of its node's ranks. Prints
a line for each folder and exits 0, or says what is wrong and exits 1. Flags that are given must
agree with meta.json.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

SCHEMA = 1
# Names that mean other things, or nothing, to NumPy.
FP8_LARGEST = {"e4m3fn": 448, "e4m3fnuz": 240}
MIN_SCALE = np.float32(2.0 ** -90)


def fail(message):
    sys.exit(f"check_dump: {message}")


def round_to(values, bf16):
    """float32 as the bits of float16, or of bfloat16: to nearest, ties to even."""
    if not bf16:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def to_float(bits, bf16):
    if not bf16:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def fp8_table(form):
    """The value of each byte."""
    bias = 7 if form == "e4m3fn" else 8
    values = np.empty(256, np.float32)
    for byte in range(256):
        sign = -1.0 if byte & 0x80 else 1.0
        exponent, mantissa = (byte >> 3) & 15, byte & 7
        if exponent == 0:
            values[byte] = sign * mantissa / 8 * 2.0 ** (1 - bias)
        else:
            values[byte] = sign * (1 + mantissa / 8) * 2.0 ** (exponent - bias)
    if form == "e4m3fn":
        values[[0x7F, 0xFF]] = np.nan
    else:
        values[0x80] = np.nan
    return values


def to_fp8(values, form):
    """The nearest bytes, ties to even, saturating; there must be no NaN."""
    table = fp8_table(form)
    positive = table[:128][~np.isnan(table[:128])]  # ascending, as their bytes are
    magnitude = np.minimum(np.abs(values), positive[-1])
    above = np.searchsorted(positive, magnitude).astype(np.int64)  # first that is not less
    below = np.maximum(above - 1, 0)
    # float64 is exact here: both neighbours have few bits.
    to_above = positive[above].astype(np.float64) - magnitude
    to_below = magnitude.astype(np.float64) - positive[below]
    tie = to_above == to_below
    byte = np.where((to_below < to_above) | (tie & (below % 2 == 0)), below, above).astype(np.uint8)
    negative = np.signbit(values)
    if form == "e4m3fnuz":
        negative &= byte != 0  # it has no -0
    return byte | (negative.astype(np.uint8) << 7)


def power_of_two_above(scales):
    bits = scales.view(np.uint32)
    return ((bits + np.uint32(0x7FFFFF)) & np.uint32(0x7F800000)).view(np.float32)


def quantize(values, config, form):
    """(bytes, scales as they are stored, scale of each column) of rows of finite float32."""
    group = config["scale_group"]
    rows, hidden = values.shape
    groups = -(-hidden // group)
    padded = np.zeros((rows, groups * group), np.float32)
    padded[:, :hidden] = np.abs(values)
    largest = padded.reshape(rows, groups, group).max(axis=2)
    scales = np.maximum(largest / np.float32(FP8_LARGEST[form]), MIN_SCALE)
    if config["scales"] != "float32":
        scales = power_of_two_above(scales)
    scales = np.where(largest == 0, np.float32(1), scales)
    of_column = np.repeat(scales, group, axis=1)[:, :hidden]
    stored = scales
    if config["scales"] == "ue8m0":
        stored = np.zeros((rows, -(-groups // 4) * 4), np.uint8)
        stored[:, :groups] = scales.view(np.uint32) >> 23
    return to_fp8(values / of_column, form), stored, of_column


class Dump:
    """meta.json and the arrays of a folder."""

    def __init__(self, folder):
        self.folder = folder
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            fail(error)
        if (meta.get("program"), meta.get("schema")) != ("octet run --dump", SCHEMA):
            fail(f"{folder}/meta.json is not of `octet run --dump`, schema {SCHEMA}")
        self.arrays = meta["arrays"]
        self.config = config = meta["config"]
        self.form = meta["fp8_form"]
        self.row_bytes = meta["row_bytes"]
        self.ranks = config["ranks"]  # of all nodes
        self.nodes = config.get("nodes", 1)
        self.ranks_per_node = self.ranks // self.nodes
        self.local = config["experts"] // config["ranks"]
        self.of_node = config["experts"] // self.nodes
        self.bf16 = config["dtype"] == "bf16"
        self.fp8 = config["format"] in ("fp8", "quantized_fp8")
        self.once = config["received"] == "deduplicated" or config["duplicates"] == "index"
        self.apart = config["received"] in ("expert_major", "rank_major")
        self.check_files()
        self.x = [self.load(rank, "x").view(np.uint16) for rank in range(self.ranks)]
        self.topk_idx = [self.load(rank, "topk_idx") for rank in range(self.ranks)]
        self.topk_weights = [self.load(rank, "topk_weights") for rank in range(self.ranks)]
        factors = np.arange(config["experts"], dtype=np.float32)
        if config["expert"] == "id":
            self.factor = np.float32(1) + factors / np.float32(config["experts"])
        else:
            self.factor = np.float32(1) + factors // self.local
        self.sent = [self.rows_sent(rank) for rank in range(self.ranks)]

    def check_files(self):
        wanted = {f"rank{rank}_{name}.npy" for rank in range(self.ranks) for name in self.arrays}
        there = {path.name for path in self.folder.iterdir()} - {"meta.json"}
        if wanted != there:
            fail(f"files are missing or not of this dump: {sorted(wanted ^ there)}")

    def load(self, rank, name):
        try:
            array = np.load(self.folder / f"rank{rank}_{name}.npy", allow_pickle=False)
        except (OSError, ValueError) as error:
            return fail(error)
        declared = self.arrays[name]
        letters = {"T": self.config["tokens"][rank], "H": self.config["hidden"],
                   "K": self.config["topk"], "J": min(self.config["topk"], self.of_node),
                   "R": self.ranks_per_node, "L": self.local, "R+1": self.ranks_per_node + 1,
                   "L+1": self.local + 1, "2": 2, "3": 3, "B": self.row_bytes}
        shape = [letters.get(letter, size) for letter, size in zip(declared["shape"], array.shape)]
        if array.dtype != np.dtype(declared["dtype"]) or list(array.shape) != shape:
            fail(f"rank {rank}: {name} is {array.dtype} {array.shape}, which is not what meta.json "
                 f"says")
        return array

    def rows_sent(self, rank):
        """(rows as their experts receive them, their stored scales, what experts see of them)."""
        values = to_float(self.x[rank], self.bf16)
        if not self.fp8:
            row = self.x[rank]
            return row.view(np.uint8) if self.config["format"] == "bytes" else row, None, values
        rows, scales, of_column = quantize(values, self.config, self.form)
        if self.config["format"] == "fp8":  # quantised by the caller, in the same way
            self.same(rank, "x_fp8", self.load(rank, "x_fp8"), rows)
            self.same(rank, "x_scales", self.load(rank, "x_scales"), scales)
        return rows, scales, fp8_table(self.form)[rows] * of_column

    def same(self, rank, name, got, wanted):
        if got.shape != wanted.shape:
            fail(f"rank {rank}: {name} has the shape {got.shape}, not {wanted.shape}")
        if got.tobytes() == wanted.tobytes():
            return
        got, wanted = (array.view(f"u{array.itemsize}") for array in (got, wanted))
        place = tuple(int(axis[0]) for axis in np.nonzero(got != wanted))
        fail(f"rank {rank}: {name}{list(place)} differs: bits {got[place]:#x}, "
             f"not {wanted[place]:#x}")

    # ---- y

    def add(self, rank, total, first, count):
        """Adds the outputs of experts first .. first + count - 1, by k in float32."""
        for k in range(self.config["topk"]):
            ids = self.topk_idx[rank][:, k]
            chosen = (ids >= first) & (ids < first + count)
            rows = self.sent[rank][2][chosen] * self.factor[ids[chosen]][:, None]
            output = to_float(round_to(rows, self.bf16), self.bf16)
            total[chosen] += self.topk_weights[rank][chosen, k][:, None] * output
        return total

    def summed(self, rank, order, first, count):
        """The same, added in this order."""
        total = np.zeros(self.x[rank].shape, np.float32)
        if order == "flat":
            return self.add(rank, total, first, count)
        # The parts that are added by themselves and rounded: those of ranks, or of nodes.
        size, inner = (self.local, "flat") if order == "per_rank" else (
            self.of_node, self.config["intranode_order"])
        for part in range(first, first + count, size):
            ids = self.topk_idx[rank]
            there = ((ids >= part) & (ids < part + size)).any(axis=1)
            rounded = round_to(self.summed(rank, inner, part, size), self.bf16)
            total[there] += to_float(rounded[there], self.bf16)
        return total

    def check_y(self, rank):
        """Checks the sums; the number of tokens."""
        y = self.load(rank, "y").view(np.uint16)
        total = self.summed(rank, self.config["combine_order"], 0, self.config["experts"])
        wrong = np.nonzero((y != round_to(total, self.bf16)).any(axis=1))[0]
        if len(wrong):
            fail(f"rank {rank}: y differs in tokens {wrong.tolist()}")
        return len(y)


def part_of_batch(rows, tokens, size):
    """The rows of these tokens; behind them, up to `size`, rows that nobody receives."""
    part = np.zeros((size, *rows.shape[1:]), rows.dtype)
    part[: len(tokens)] = rows[tokens]
    return part


class OneNode:
    """What the ranks of a node must have received: rows are (source rank, token, k, local expert).

    Ranks are numbered within the node. With several nodes, a rank dispatches a batch within its
    node: of the tokens of the ranks with its number on all nodes those that have chosen experts of
    this node, with these choices.
    """

    def __init__(self, dump, node):
        self.dump = dump
        self.ranks = dump.ranks_per_node
        self.local = dump.local
        self.first = node * self.ranks  # the number of rank 0 among all ranks
        self.topk = min(dump.config["topk"], dump.of_node)
        self.max_tokens = dump.nodes * dump.config["max_tokens"]
        if dump.nodes == 1:
            self.topk_idx, self.topk_weights, self.sent = dump.topk_idx, dump.topk_weights, dump.sent
        else:
            batches = [self.batch(rank, node) for rank in range(self.ranks)]
            self.topk_idx, self.topk_weights, self.sent = zip(*batches)

    def batch(self, rank, node):
        """(ids [B][J] of the node's experts, weights, what was sent) of one rank's batch."""
        dump = self.dump
        parts = {}  # of each node: ids, weights, what was sent
        for source in range(rank, dump.ranks, self.ranks):
            ids, weights = dump.topk_idx[source], dump.topk_weights[source]
            here = (ids >= 0) & (ids // dump.of_node == node)
            tokens = np.nonzero(here.any(axis=1))[0]
            blocks = dump.config["rail_rows"] == "blocks"
            size = dump.config["max_tokens"] if blocks else len(tokens)
            batch_ids = np.full((size, self.topk), -1, np.int32)
            batch_weights = np.zeros((size, self.topk), np.float32)
            for place, token in enumerate(tokens):
                chosen = np.nonzero(here[token])[0]
                batch_ids[place, : len(chosen)] = ids[token, chosen] - node * dump.of_node
                batch_weights[place, : len(chosen)] = weights[token, chosen]
            sent = [None if part is None else part_of_batch(part, tokens, size)
                    for part in dump.sent[source]]
            parts[source // self.ranks] = [batch_ids, batch_weights, *sent]
        # The rank's own tokens, a chunk of each other node, another one of each, ...
        chunk = dump.config["rail_chunk"] or dump.config["max_tokens"]
        order = [(node, slice(None))]
        for first in range(0, dump.config["max_tokens"], chunk):
            order += [(other, slice(first, first + chunk)) for other in parts if other != node]
        ids, weights, *sent = [
            None if arrays[node] is None else np.concatenate(
                [arrays[source][tokens] for source, tokens in order])
            for arrays in ({source: part[i] for source, part in parts.items()}
                           for i in range(len(parts[node])))]
        return ids, weights, sent

    def load(self, rank, name):
        return self.dump.load(self.first + rank, name)

    def same(self, rank, name, got, wanted):
        self.dump.same(self.first + rank, name, got, wanted)

    def check(self):
        """Checks all ranks; the number of their rows."""
        return sum(self.check_received(rank) for rank in range(self.ranks))

    def choices(self, rank):
        """[L][R] lists of the rows of each (local expert, source rank), in order of tokens."""
        rows = [[[] for _ in range(self.ranks)] for _ in range(self.local)]
        for source, ids in enumerate(self.topk_idx):
            for token, k in zip(*np.nonzero((ids >= 0) & (ids // self.local == rank))):
                expert = int(ids[token, k]) - rank * self.local
                rows[expert][source].append((source, int(token), int(k), expert))
        return rows

    def check_received(self, rank):
        """Checks the layout and the rows; the number of rows."""
        config = self.dump.config
        choices = self.choices(rank)
        counts = np.array([[len(rows) for rows in expert] for expert in choices], np.int32)
        wanted = {"expert_counts": counts.sum(axis=1, dtype=np.int32)}
        # Rows in expert order, None where there is padding.
        in_order, offsets = [], [0]
        for expert in choices:
            in_order += sum(expert, [])
            in_order += [None] * (-len(in_order) % config["expert_alignment"])
            offsets.append(len(in_order))
        if self.dump.apart:
            room = self.ranks * self.max_tokens
            offsets = [room * expert for expert in range(self.local + 1)]
        wanted["expert_offsets"] = np.array(offsets, np.int32)
        first_choices, number = self.first_choices(choices)
        wanted["source_offsets"] = np.cumsum(
            [0] + [sum(row[0] == source for row in first_choices) for source in range(self.ranks)],
            dtype=np.int32)
        wanted["split_counts"] = np.ascontiguousarray(counts.T)
        wanted["ranges"], places = self.ranges(counts, offsets)
        wanted["recv_row"] = places
        listed = first_choices if config["received"] == "deduplicated" else in_order
        self.check_sources(rank, listed, counts, wanted)
        weight = lambda row: self.topk_weights[row[0]][row[1], row[2]] if row else 0
        wanted["row_weights"] = np.array([weight(row) for row in in_order], np.float32)
        wanted["row_index"] = np.array([number[row[:2]] if row else -1 for row in in_order],
                                       np.int32)
        self.add_topk(rank, first_choices, wanted)
        for name in set(self.dump.arrays) & set(wanted):
            self.same(rank, name, self.load(rank, name), wanted[name])
        rows = first_choices if self.dump.once else in_order
        if config["slots"] == "atomic":
            rows = [tuple(row) for row in self.load(rank, "recv_src").tolist()]
        self.check_rows(rank, rows)
        return len(rows)

    def first_choices(self, choices):
        """The tokens that come, each with its first choice here; and {(rank, token): its place}."""
        first = {}
        for row in sum(sum(choices, []), []):
            first[row[:2]] = min(first.get(row[:2], row), row, key=lambda each: each[2])
        tokens = [first[token] for token in sorted(first)]
        return tokens, {row[:2]: place for place, row in enumerate(tokens)}

    def ranges(self, counts, offsets):
        """([L][R] (first, count) of each expert's rows of each source, numbers of all the rows)."""
        ranges = np.zeros((self.local, self.ranks, 2), np.int32)
        ranges[:, :, 1] = counts
        if self.dump.config["received"] == "rank_major":
            room = self.max_tokens * min(self.topk, self.local)
            before = np.cumsum(counts, axis=0) - counts
            ranges[:, :, 0] = before + room * np.arange(self.ranks)
        else:
            before = np.cumsum(counts, axis=1) - counts
            ranges[:, :, 0] = before + np.array(offsets[:-1])[:, None]
        places = [np.arange(first, first + count) for first, count in ranges.reshape(-1, 2)]
        return ranges, np.concatenate(places).astype(np.int32)

    def check_sources(self, rank, rows, counts, wanted):
        sources = np.array([row[:3] if row else (-1, -1, -1) for row in rows],
                           np.int32).reshape(-1, 3)
        wanted["recv_expert"] = np.array([row[3] if row else -1 for row in rows], np.int32)
        got = self.load(rank, "recv_src")
        if self.dump.config["slots"] == "atomic":  # in any order within a source
            bounds = np.cumsum(counts.reshape(-1))[:-1]
            parts = [part[np.lexsort(part.T[::-1])] for part in np.split(got, bounds)]
            got = np.concatenate(parts)
        self.same(rank, "recv_src", got, sources)

    def add_topk(self, rank, tokens, wanted):
        shape = (len(tokens), self.topk)
        experts, weights = np.empty(shape, np.int32), np.empty(shape, np.float32)
        for place, (source, token, _, _) in enumerate(tokens):
            ids = self.topk_idx[source][token]
            here = (ids >= 0) & (ids // self.local == rank)
            experts[place] = np.where(here, ids - rank * self.local, -1)
            weights[place] = np.where(here, self.topk_weights[source][token], np.float32(0))
        wanted["recv_topk_idx"], wanted["recv_topk_weights"] = experts, weights

    def check_rows(self, rank, rows):
        """That each row is what its source sent, and zero where there is padding."""
        for name, part in [("recv_x", 0), ("recv_scales", 1)][: 2 if self.dump.fp8 else 1]:
            got = self.load(rank, name)
            got = got.view(np.uint16) if got.dtype == np.float16 else got
            if len(got) != len(rows):
                fail(f"rank {self.first + rank}: {name} has {len(got)} rows, not {len(rows)}")
            for place, row in enumerate(rows):
                if row is None or row[0] < 0:
                    wanted, what = np.zeros_like(got[place]), "padding, which is zero"
                else:
                    wanted = self.sent[row[0]][part][row[1]]
                    what = f"token {row[1]} of rank {row[0]}"
                if got[place].tobytes() != wanted.tobytes():
                    fail(f"rank {self.first + rank}: row {place} of {name} is not {what}")

def check(folder, given):
    """Checks the dump in a folder. `given`: what its configuration must say; None: anything."""
    dump = Dump(folder)
    for name, value in given.items():
        if value is not None and value != dump.config[name]:
            fail(f"--{name}={value}, but the run had {dump.config[name]}")
    rows = sum(OneNode(dump, node).check() for node in range(dump.nodes))
    tokens = sum(dump.check_y(rank) for rank in range(dump.ranks))
    nodes = f"{dump.nodes} nodes, " if dump.nodes > 1 else ""
    print(f"{nodes}{dump.ranks} ranks, {rows} rows and {tokens} tokens equal NumPy's to the bit")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=pathlib.Path, nargs="+", metavar="DIR")
    parser.add_argument("--ranks", type=int, help="as the run had")
    parser.add_argument("--experts", type=int, help="as the run had")
    parser.add_argument("--expert", choices=["id", "rank"], help="as the run had")
    parser.add_argument("--combine_order", choices=["per_rank", "flat", "per_node"], help="as the run had")
    parser.add_argument("--any_order", action="store_true", help="nothing: meta.json says so")
    args = parser.parse_args()
    for folder in args.folders:
        check(folder, {name: getattr(args, name)
                       for name in ("ranks", "experts", "expert", "combine_order")})


if __name__ == "__main__":
    main()
