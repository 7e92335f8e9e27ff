"""Checks what `octet run --dump=DIR` has written, with NumPy and nothing of Octet's.

    check_dump.py DIR --ranks=R --experts=E [--expert=id|rank] [--combine_order=per_rank|flat]
                  [--any_order]

For each rank: that every row that somebody sent to its experts is there, once, where
expert_offsets say, and equal to the sender's x; and that y is the weighted sum of its tokens'
experts' outputs, to the bit, in the order that `octet run` says (combine ...). Prints one line and
exits 0, or says what is wrong and exits 1.
"""

import argparse
import pathlib
import sys

import numpy as np


def round_to(values, bf16):
    """float32 as the bits of float16, or of bfloat16: to nearest, ties to even."""
    if not bf16:
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_float(bits, bf16):
    if not bf16:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def fail(message):
    sys.exit(f"check_dump: {message}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--experts", type=int, required=True)
    parser.add_argument("--expert", choices=["id", "rank"], default="id")
    parser.add_argument("--combine_order", choices=["per_rank", "flat"], default="per_rank")
    parser.add_argument("--any_order", action="store_true", help="written with --slots=atomic")
    args = parser.parse_args()
    local = args.experts // args.ranks

    def load(rank, name):
        try:
            return np.load(args.folder / f"rank{rank}_{name}.npy", allow_pickle=False)
        except (OSError, ValueError) as error:
            return fail(error)

    x = [load(rank, "x") for rank in range(args.ranks)]
    topk_idx = [load(rank, "topk_idx") for rank in range(args.ranks)]
    bf16 = x[0].dtype == np.uint16
    x = [array.view(np.uint16) for array in x]
    if args.expert == "id":
        scale = np.float32(1) + np.arange(args.experts, dtype=np.float32) / np.float32(args.experts)
    else:
        scale = (1 + np.arange(args.experts) // local).astype(np.float32)

    rows = 0
    for rank in range(args.ranks):
        recv_x = load(rank, "recv_x").view(np.uint16)
        recv_src = load(rank, "recv_src")
        counts = load(rank, "expert_counts")
        offsets = load(rank, "expert_offsets")
        if counts.shape != (local,) or offsets.shape != (local + 1,):
            fail(f"rank {rank}: expert_counts or expert_offsets has another shape")
        if offsets[0] != 0 or not np.array_equal(np.diff(offsets), counts):
            fail(f"rank {rank}: expert_offsets are not the sums of expert_counts")
        if offsets[-1] != len(recv_x) or len(recv_src) != len(recv_x):
            fail(f"rank {rank}: recv_x or recv_src has another number of rows than expert_offsets")
        for expert in range(local):
            wanted = [
                (source, token, k)
                for source in range(args.ranks)
                for token, k in zip(*np.nonzero(topk_idx[source] == rank * local + expert))
            ]
            got = [tuple(row) for row in recv_src[offsets[expert] : offsets[expert + 1]].tolist()]
            if args.any_order:
                sources = [row[0] for row in got]
                if sources != sorted(sources):
                    fail(f"rank {rank}, local expert {expert}: rows are not in order of sources")
                got.sort()
            if got != wanted:
                fail(f"rank {rank}, local expert {expert}: rows are from {got}, not {wanted}")
        for row, (source, token, _) in enumerate(recv_src.tolist()):
            if not np.array_equal(recv_x[row], x[source][token]):
                fail(f"rank {rank}: row {row} is not token {token} of rank {source}")
        rows += len(recv_x)

    tokens = 0
    for rank in range(args.ranks):
        y = load(rank, "y").view(np.uint16)
        weights = load(rank, "topk_weights")
        values = to_float(x[rank], bf16)

        def add(total, home):
            """The outputs of experts that live on one rank, or on any, by k."""
            for k in range(topk_idx[rank].shape[1]):
                ids = topk_idx[rank][:, k]
                chosen = (ids >= 0) & ((ids // local == home) if home is not None else True)
                factor = scale[ids[chosen]][:, None]
                output = to_float(round_to(values[chosen] * factor, bf16), bf16)
                total[chosen] += weights[chosen, k][:, None] * output
            return total

        total = np.zeros(values.shape, np.float32)
        if args.combine_order == "flat":
            add(total, None)
        else:
            for home in range(args.ranks):
                there = ((topk_idx[rank] >= 0) & (topk_idx[rank] // local == home)).any(axis=1)
                part = add(np.zeros(values.shape, np.float32), home)
                total[there] += to_float(round_to(part[there], bf16), bf16)
        if not np.array_equal(y, round_to(total, bf16)):
            wrong = np.nonzero((y != round_to(total, bf16)).any(axis=1))[0]
            fail(f"rank {rank}: y differs in tokens {wrong.tolist()}")
        tokens += len(y)
    print(f"{args.ranks} ranks, {rows} rows and {tokens} tokens equal NumPy's to the bit")


if __name__ == "__main__":
    main()
