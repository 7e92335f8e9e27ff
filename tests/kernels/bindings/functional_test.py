"""Calls of arrays (octet/c/functional.h) on emulated GPUs: what octet.jax and octet.torch call.

    functional_test.py LIBRARY [unittest arguments]

LIBRARY is liboctet.so of a build.
"""

import ctypes
import os
import pathlib
import sys
import unittest

from python_with_numpy import go_on_with_numpy

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True

if len(sys.argv) < 2:
    sys.exit("usage: functional_test.py LIBRARY [unittest arguments]")
go_on_with_numpy()

os.environ["OCTET_LIBRARY"] = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, str(SOURCE / "kernels" / "bindings" / "python"))

import numpy as np  # noqa: E402

import octet  # noqa: E402
from octet import _abi  # noqa: E402
from octet._functional import BACKWARD, FORWARD, Functional  # noqa: E402
from octet._library import check, lib  # noqa: E402

RANKS, EXPERTS, TOPK, HIDDEN, TOKENS = 4, 8, 3, 64, 6
LOCAL = EXPERTS // RANKS


class Calls:
    """Calls of one Functional, with memory for what they deliver."""

    def __init__(self, node, strategy, **config):
        self.functional = Functional(node, "of arrays", {
            "num_experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN, "dtype": "float16",
            "max_tokens_per_rank": TOKENS, "strategy": strategy, **config})
        random = np.random.default_rng(1)
        rows = self.functional.max_rows
        self.node = node
        self.x, self.ids, self.weights, self.arrays = [], [], [], []
        for rank in range(RANKS):
            self.x.append(random.standard_normal((TOKENS, HIDDEN)).astype(np.float16))
            self.ids.append(np.stack([random.permutation(EXPERTS)[:TOPK] for _ in range(TOKENS)])
                            .astype(np.int32))
            self.weights.append(random.random((TOKENS, TOPK)).astype(np.float32))
            self.arrays.append({
                "x": node.array(rank, self.x[-1]), "ids": node.array(rank, self.ids[-1]),
                "ids_moved": node.array(rank, self.ids[-1]),
                "weights": node.array(rank, self.weights[-1]),
                "rows": node.array(rank, np.full((rows, HIDDEN), np.nan, np.float16)),
                "counts": node.empty(rank, LOCAL, "int32"),
                "offsets": node.empty(rank, LOCAL + 1, "int32"),
                "sources": node.empty(rank, (rows, 4), "int32"),
                "row_weights": node.empty(rank, rows, "float32"),
                "y": node.empty(rank, (TOKENS, HIDDEN), "float16")})
        self.tickets = {line: self.new_tickets() for line in (FORWARD, BACKWARD)}

    def new_tickets(self):
        return [self.node.empty(rank, 2, "float32") for rank in range(RANKS)]

    def dispatch(self, rank, ticket_line=FORWARD, rows=None, **delivery):
        of = self.arrays[rank.rank]
        args = _abi.octet_dispatch_args(
            x=of["x"].pointer, topk_idx=of["ids"].pointer, topk_weights=of["weights"].pointer,
            num_tokens=TOKENS)
        high_throughput = self.functional.high_throughput
        to = _abi.octet_delivery(**{
            "x": (rows or of["rows"]).pointer, "expert_counts": of["counts"].pointer,
            "expert_offsets": of["offsets"].pointer, "sources": of["sources"].pointer,
            "row_weights": of["row_weights"].pointer if high_throughput else None,
            "ticket": self.tickets[ticket_line][rank.rank].pointer, "zero_rest": 1,
            "line": ticket_line,
            **delivery})
        check(lib.octet_functional_dispatch(self.functional.handle, rank.handle,
                                            ctypes.byref(args), ctypes.byref(to)))

    def combine(self, rank, line=FORWARD, tickets=None, tokens=TOKENS, rows=None):
        of = self.arrays[rank.rank]
        args = _abi.octet_delivered_args(
            ticket=(tickets or self.tickets[line])[rank.rank].pointer,
            topk_idx=of["ids_moved"].pointer, topk_weights=of["weights"].pointer,
            num_tokens=tokens, expert_out=(rows or of["rows"]).pointer, y=of["y"].pointer,
            line=line, unweighted=line == BACKWARD)
        check(lib.octet_functional_combine(self.functional.handle, rank.handle,
                                           ctypes.byref(args)))


class FunctionalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = octet.Node(RANKS, on_failure=None, timeout=5)
        cls.addClassCleanup(cls.node.close)

    def check_y(self, calls, weighted=True):
        for rank, of in enumerate(calls.arrays):
            factor = calls.weights[rank].sum(1, keepdims=True) if weighted else TOPK
            np.testing.assert_allclose(of["y"].numpy(), factor * calls.x[rank], rtol=1e-2,
                                       atol=1e-2)

    def check_rows(self, calls):
        for rank, of in enumerate(calls.arrays):
            total = of["offsets"].numpy()[-1]
            rows, sources = of["rows"].numpy(), of["sources"].numpy()
            self.assertEqual(of["counts"].numpy().sum(), total)
            for row, source in zip(rows[:total], sources[:total]):
                np.testing.assert_array_equal(row, calls.x[source[0]][source[1]])
            self.assertTrue((rows[total:] == 0).all() and (sources[total:] == -1).all())
            if calls.functional.high_throughput:
                weights = of["row_weights"].numpy()
                for weight, source in zip(weights[:total], sources[:total]):
                    self.assertEqual(weight, calls.weights[source[0]][source[1], source[2]])
                    self.assertEqual(calls.ids[source[0]][source[1], source[2]],
                                     rank * LOCAL + source[3])
                self.assertTrue((weights[total:] == 0).all())

    def test_results_are_memory_of_the_caller(self):
        for strategy in ["direct", "low_latency", "high_throughput"]:
            with self.subTest(strategy=strategy):
                calls = Calls(self.node, strategy)

                def step(rank, calls=calls):
                    calls.dispatch(rank)
                    calls.combine(rank)

                for _ in range(3):
                    self.node.run(step)
                self.check_y(calls)
                self.check_rows(calls)
                calls.functional.check()

    def test_rows_may_stay_where_they_arrive(self):
        calls = Calls(self.node, "high_throughput")
        rows = [calls.functional.rows(rank) for rank in range(RANKS)]

        def step(rank):
            calls.dispatch(rank, rows=rows[rank.rank], zero_rest=0)
            calls.combine(rank, rows=rows[rank.rank])

        self.node.run(step)
        self.check_y(calls)
        self.assertIsNone(Calls(self.node, "low_latency").functional.rows(0))
        with self.assertRaisesRegex(octet.InvalidArgument, "rank is 4, and this node has 4"):
            calls.functional.rows(RANKS)

    def test_lines_do_not_disturb_each_other(self):
        calls = Calls(self.node, "high_throughput")

        def step(rank):  # as a layer that is repeated for its backward pass
            calls.dispatch(rank, BACKWARD)
            calls.dispatch(rank)
            calls.combine(rank, BACKWARD)

        self.node.run(step)
        self.check_y(calls, weighted=False)
        self.node.run(calls.combine)
        self.check_y(calls)
        calls.functional.check()

    def test_a_ticket_of_another_dispatch_is_found(self):
        calls = Calls(self.node, "high_throughput")
        first = calls.tickets[FORWARD]

        def two(rank):
            calls.dispatch(rank)
            calls.dispatch(rank, ticket=later[rank.rank].pointer)
            calls.combine(rank, tickets=first)

        later = calls.new_tickets()
        self.node.run(two)
        with self.assertRaisesRegex(octet.FailedPrecondition, "not of the last dispatch"):
            calls.functional.check()
        calls.functional.check()
        self.node.run(two)
        with self.assertRaisesRegex(octet.FailedPrecondition, "not of the last dispatch"):
            self.node.run(calls.dispatch)

    def test_graphs_count_their_tickets(self):
        calls = Calls(self.node, "low_latency")

        def step(rank):
            calls.dispatch(rank)
            calls.combine(rank)

        def replay(rank):
            graph = octet.Graph(rank, lambda: step(rank))
            for _ in range(5):
                graph.launch(rank)

        self.node.run(step)
        self.node.run(replay)
        self.check_y(calls)
        calls.functional.check()
        np.testing.assert_array_equal(calls.tickets[FORWARD][0].numpy(), [6, 0])

    def test_refusals(self):
        calls = Calls(self.node, "low_latency")
        for message, wrong in [
                ("line is 2", lambda rank: calls.dispatch(rank, **{"line": 2})),
                ("to->ticket is null", lambda rank: calls.dispatch(rank, ticket=None)),
                ("only high_throughput delivers",
                 lambda rank: calls.dispatch(rank, row_weights=calls.arrays[0]["x"].pointer))]:
            with self.assertRaisesRegex(octet.Error, message):
                self.node.run(wrong)
        with self.assertRaisesRegex(octet.FailedPrecondition, "dispatch has not been made"):
            self.node.run(Calls(self.node, "low_latency").combine)
        self.node.run(calls.dispatch)
        with self.assertRaisesRegex(octet.FailedPrecondition, "of 5 tokens, and the last .* had 6"):
            self.node.run(lambda rank: calls.combine(rank, tokens=5))
        with self.assertRaisesRegex(octet.InvalidArgument, "output, dispatch_format"):
            Calls(self.node, "low_latency", output="expert_major")


if __name__ == "__main__":
    unittest.main()
