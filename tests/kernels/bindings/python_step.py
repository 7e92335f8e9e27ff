"""The Python package's tests have this in common: four emulated GPUs, tokens drawn by a seed.

Importing it takes the shared library from the command line (TEST.py LIBRARY [unittest arguments])
and goes on in a Python that has NumPy.
"""

import os
import pathlib
import sys
import unittest

from python_with_numpy import go_on_with_numpy

SOURCE = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = SOURCE / "kernels" / "bindings" / "python"
sys.dont_write_bytecode = True

if len(sys.argv) < 2:
    sys.exit(f"usage: {sys.argv[0]} LIBRARY [unittest arguments]")
go_on_with_numpy()

os.environ["OCTET_LIBRARY"] = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, str(PACKAGE))

import numpy as np  # noqa: E402

import octet  # noqa: E402

RANKS, EXPERTS, TOPK, HIDDEN, TOKENS = 4, 8, 3, 64, 6
LOCAL = EXPERTS // RANKS


def bits_of(values):
    """bfloat16, rounded to nearest even, as uint16."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def floats_of(bits):
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


def silu(values):
    return values / (1 + np.exp(-values))


class Step:
    """Tokens and routing of all ranks, drawn by a seed."""

    def __init__(self, seed=1, tokens=TOKENS):
        random = np.random.default_rng(seed)
        self.x = [random.standard_normal((tokens, HIDDEN)).astype(np.float16) for _ in range(RANKS)]
        self.ids = [np.stack([random.permutation(EXPERTS)[:TOPK] for _ in range(tokens)])
                    .astype(np.int32) for _ in range(RANKS)]
        self.ids[0][0, 1] = -1  # dropped
        self.weights = [random.random((tokens, TOPK)).astype(np.float32) for _ in range(RANKS)]

    def expected(self, expert):
        """y of each rank where expert(e, rows) are the experts' outputs, in float32."""
        ys = []
        for x, ids, weights in zip(self.x, self.ids, self.weights):
            y = np.zeros(x.shape, np.float32)
            for token, k in np.ndindex(ids.shape):
                if ids[token, k] >= 0:
                    y[token] += weights[token, k] * expert(ids[token, k],
                                                           x[token].astype(np.float32))
            ys.append(y)
        return ys

    def arrays(self, node):
        """x, ids, weights and y by rank, on the GPUs."""
        return [(node.array(rank, self.x[rank]), node.array(rank, self.ids[rank]),
                 node.array(rank, self.weights[rank]),
                 node.empty(rank, self.x[rank].shape, "float16")) for rank in range(RANKS)]


class NodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = octet.Node(RANKS, on_failure=None, timeout=5)
        cls.addClassCleanup(cls.node.close)

    def ep(self, **config):
        return octet.ExpertParallel(self.node, **{
            "num_experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN, "dtype": "float16",
            "max_tokens_per_rank": TOKENS, **config})
