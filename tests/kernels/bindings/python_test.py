"""The Python package on emulated GPUs, with NumPy as the oracle.

    python_test.py LIBRARY [unittest arguments]

LIBRARY is liboctet.so of a build.
"""

import concurrent.futures
import gc
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from python_step import (EXPERTS, HIDDEN, LOCAL, PACKAGE, RANKS, SOURCE, TOKENS, TOPK, NodeTest,
                         Step, bits_of, silu)

import numpy as np

import octet

sys.path.insert(0, str(SOURCE / "tests" / "tools" / "cli"))


class CallsTest(NodeTest):
    def test_dispatch_delivers_rows_and_combine_sums_them(self):
        for strategy in ["direct", "low_latency", "high_throughput", "auto"]:
            with self.subTest(strategy=strategy):
                ep, step = self.ep(strategy=strategy), Step()
                arrays = step.arrays(self.node)
                outs = [self.node.empty(rank, (ep.expert_out_rows, HIDDEN), "float16")
                        for rank in range(RANKS)]

                def body(rank):
                    x, ids, weights, y = arrays[rank.rank]
                    received = ep.dispatch(rank, x, ids, weights)
                    rank.synchronize()
                    self.check_rows(step, rank.rank, received)
                    rows, out = np.asarray(received.x), np.asarray(outs[rank.rank])
                    offsets = np.asarray(received.expert_offsets)
                    for local in range(LOCAL):  # expert e multiplies by e + 1
                        part = slice(offsets[local], offsets[local + 1])
                        out[part] = rows[part] * np.float16(rank.rank * LOCAL + local + 1)
                    ep.combine(rank, received, outs[rank.rank], y)

                self.node.run(body)
                for (*_, y), want in zip(arrays, step.expected(lambda e, row: (e + 1) * row)):
                    np.testing.assert_allclose(y.numpy(), want, rtol=0.01, atol=0.02)

    def test_rows_are_counted_where_a_placement_puts_experts(self):
        placement = octet.plan_placement([2.0 ** -e for e in range(EXPERTS)], RANKS, LOCAL + 1)
        ep, step = self.ep(placement=placement, count_loads=1, load_window=3), Step(3)
        self.assertEqual((ep.config["placement"], ep.local_experts), (placement, LOCAL + 1))
        arrays = step.arrays(self.node)
        outs = [self.node.empty(rank, (ep.expert_out_rows, HIDDEN), "float16")
                for rank in range(RANKS)]

        def body(rank):
            x, ids, weights, y = arrays[rank.rank]
            ep.combine(rank, ep.dispatch(rank, x, ids, weights), outs[rank.rank], y)

        for _ in range(4):
            self.node.run(body)
        want = [sum(int((ids == expert).sum()) for ids in step.ids) for expert in range(EXPERTS)]
        self.assertEqual(ep.loads(), ([4 * rows for rows in want], [3 * rows for rows in want]))

    def check_rows(self, step, rank, received):
        counts = np.asarray(received.expert_counts)
        self.assertEqual(list(counts), [sum(int((ids == rank * LOCAL + local).sum())
                                            for ids in step.ids) for local in range(LOCAL)])
        sources, rows = np.asarray(received.sources), np.asarray(received.x)
        for row in range(int(counts.sum())):
            origin, token, k, local = sources[row]
            self.assertEqual(step.ids[origin][token, k], rank * LOCAL + local)
            np.testing.assert_array_equal(rows[row], step.x[origin][token])

    def test_bfloat16_comes_as_its_bits(self):
        ep = self.ep(dtype="bfloat16", num_experts=RANKS, topk=1)
        bits = bits_of(np.arange(HIDDEN) / 8).reshape(1, HIDDEN)
        ys = [self.node.empty(rank, (1, HIDDEN), "bfloat16") for rank in range(RANKS)]
        xs = [self.node.array(rank, bits) for rank in range(RANKS)]
        ids = [self.node.array(rank, np.array([[3 - rank]], np.int32)) for rank in range(RANKS)]

        def body(rank):
            received = ep.dispatch(rank, np.asarray(xs[rank.rank]), ids[rank.rank])
            self.assertEqual(received.x.dtype, "bfloat16")
            ep.combine(rank, received, received.x, ys[rank.rank])

        self.node.run(body)
        for y in ys:
            np.testing.assert_array_equal(y.numpy(), bits)

    def test_grouped_gemm(self):
        random = np.random.default_rng(2)
        a = random.standard_normal((7, 32)).astype(np.float16)
        b = random.standard_normal((2, 24, 32)).astype(np.float16)

        def body(rank):
            gemm = octet.GroupedGemm(rank, experts=2, max_rows=7, n=24, k=32, dtype="float16")
            out = rank.empty((7, 24), "float16")
            gemm.run(rank, self.node.array(rank.rank, a), self.node.array(rank.rank, b),
                     self.node.array(rank.rank, np.array([0, 3, 7], np.int32)), out)
            rank.synchronize()
            return out.numpy()

        want = np.concatenate([a[:3].astype(np.float32) @ b[0].T.astype(np.float32),
                               a[3:].astype(np.float32) @ b[1].T.astype(np.float32)])
        for out in self.node.run(body):
            np.testing.assert_allclose(out, want, rtol=0.01, atol=0.02)

    def test_routed_experts(self):
        inner, step = 16, Step(3)
        random = np.random.default_rng(4)
        gate, up = (random.standard_normal((EXPERTS, inner, HIDDEN)).astype(np.float16) / 8
                    for _ in range(2))
        w2 = random.standard_normal((EXPERTS, HIDDEN, inner)).astype(np.float16) / 4
        # Eight rows of gate, eight of up, and so on.
        w1 = np.stack([gate.reshape(EXPERTS, -1, 8, HIDDEN), up.reshape(EXPERTS, -1, 8, HIDDEN)],
                      axis=2).reshape(EXPERTS, 2 * inner, HIDDEN)
        experts = octet.RoutedExperts(self.node, intermediate=inner, ep={
            "num_experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN, "dtype": "fp16",
            "max_tokens_per_rank": TOKENS})
        arrays = step.arrays(self.node)

        def body(rank):
            x, ids, weights, y = arrays[rank.rank]
            own = slice(rank.rank * LOCAL, (rank.rank + 1) * LOCAL)
            h = rank.empty((experts.max_rows, inner), "float16")
            first = self.node.array(rank.rank, w1[own])
            second = self.node.array(rank.rank, w2[own])
            received = experts.dispatch_gemm(rank, x, ids, weights, first, h)
            experts.gemm_combine(rank, received, h, second, y)

        self.node.run(body)

        def expert(e, row):
            f32 = np.float32
            inside = silu(gate[e].astype(f32) @ row) * (up[e].astype(f32) @ row)
            return w2[e].astype(f32) @ inside.astype(np.float16).astype(f32)

        for (*_, y), want in zip(arrays, step.expected(expert)):
            np.testing.assert_allclose(y.numpy(), want, rtol=0.02, atol=0.03)

    def test_a_graph_serves_tokens_that_change(self):
        ep, step = self.ep(), Step(5)
        arrays = step.arrays(self.node)

        def capture(rank):
            x, ids, weights, y = arrays[rank.rank]

            def enqueue():
                received = ep.dispatch(rank, x, ids, weights)
                ep.combine(rank, received, received.x, y)

            return octet.Graph(rank, enqueue)

        graphs = self.node.run(capture)
        gc.collect()
        for factor in (1, 2):
            for rank, (x, *_) in enumerate(arrays):
                np.asarray(x)[:] = factor * step.x[rank]
            self.node.run(lambda rank: graphs[rank.rank].launch(rank))
            for (*_, y), want in zip(arrays, step.expected(lambda _, row: row)):
                np.testing.assert_allclose(y.numpy(), factor * want, rtol=0.01, atol=0.02)


class ArraysTest(NodeTest):
    def test_memory_crosses_without_a_copy(self):
        array = self.node.array(1, np.arange(6, dtype=np.int32).reshape(2, 3))
        for view in (np.from_dlpack(array), np.asarray(array)):
            self.assertEqual(view.ctypes.data, array.pointer)
            np.testing.assert_array_equal(view, [[0, 1, 2], [3, 4, 5]])
        del array
        gc.collect()
        np.testing.assert_array_equal(view, [[0, 1, 2], [3, 4, 5]])  # which keeps the memory

    def test_a_capsule_that_nobody_takes(self):
        import weakref
        array = self.node.empty(0, (4,), "float32")
        gone = weakref.ref(array)
        array.__dlpack__()
        del array
        gc.collect()
        self.assertIsNone(gone())

    def test_memory_is_given_up_during_a_run(self):
        ep, step = self.ep(), Step(9)
        arrays = step.arrays(self.node)
        for _ in range(3):
            def body(rank):
                x, ids, weights, _ = arrays[rank.rank]
                y = rank.empty((TOKENS, HIDDEN), "float16")
                received = ep.dispatch(rank, x, ids, weights)
                ep.combine(rank, received, received.x, y)
                del y
                gc.collect()

            self.node.run(body)

    def test_arguments_are_checked(self):
        ep, step = self.ep(), Step(10)
        arrays = step.arrays(self.node)

        def body(rank):
            if rank.rank:
                return
            x, ids, weights, _ = arrays[0]
            for bad, words in [
                    ((step.x[0], ids, weights), "x of rank 0 .*must be memory of the rank's own device"),
                    ((x, ids, np.zeros((TOKENS, TOPK), np.float64)), "DLPack's type|float64"),
                    ((ids, ids, weights), "x is of int32, and must be of float16 or uint16"),
                    ((x, weights, weights), "topk_idx is of float32, and must be of int32"),
                    ((x, self.node.empty(0, (TOKENS, 2), "int32"), weights),
                     r"topk_idx has the shape \(6, 2\), and must be \[T\]\[3\]"),
                    ((np.asarray(x).T, ids, weights), "not contiguous"),
                    (([1.0], ids, weights), "x is a list, which has no __dlpack__")]:
                with self.assertRaisesRegex(octet.InvalidArgument, words):
                    ep.dispatch(rank, *bad)
            with self.assertRaisesRegex(octet.InvalidArgument, "num_tokens"):
                ep.dispatch(rank, x, ids, weights, num_tokens=TOKENS + 1)

        self.node.run(body)


class ErrorsTest(NodeTest):
    def test_configurations_are_refused(self):
        with self.assertRaisesRegex(octet.InvalidArgument, "hidden"):
            self.ep(hidden=63)
        with self.assertRaisesRegex(octet.InvalidArgument, "'fast' is not one of auto, direct"):
            self.ep(strategy="fast")
        with self.assertRaisesRegex(TypeError, "has no 'hiden'; it has .*hidden"):
            self.ep(hiden=64)
        with self.assertRaisesRegex(octet.NotFound, "/no/such/folder"):
            octet.ModelFolder("/no/such/folder")
        with self.assertRaisesRegex(octet.InvalidArgument, "1000 ranks"):
            octet.Node(1000)

    def test_an_exception_ends_the_run_of_all(self):
        def body(rank):
            if rank.rank == 2:
                raise KeyError("my key")
            rank.barrier("what never comes")

        with self.assertRaisesRegex(octet.Error, "rank 2: KeyError: 'my key'") as raised:
            self.node.run(body)
        self.assertIsInstance(raised.exception.__cause__, KeyError)
        self.assertEqual(raised.exception.failure.rank, 2)
        self.assertEqual(self.node.run(lambda rank: rank.rank), list(range(RANKS)))

    def test_a_rank_that_is_silent(self):
        told = []
        with octet.Node(2, timeout=0.2, on_failure=told.append) as node:
            ep = octet.ExpertParallel(node, name="layer 7", num_experts=2, topk=1, hidden=64,
                                      max_tokens_per_rank=2, dtype="float16")
            x = node.array(0, np.zeros((1, 64), np.float16))
            ids = node.array(0, np.zeros((1, 1), np.int32))

            def body(rank):
                if rank.rank == 0:
                    ep.dispatch(rank, x, ids)

            with self.assertRaisesRegex(octet.Aborted, "rank 1 has left Run") as raised:
                node.run(body)
            failure = raised.exception.failure
            self.assertEqual((failure.kind, failure.rank, failure.peer, failure.phase),
                             ("wait", 0, 1, "host barrier before dispatch of 'layer 7'"))
            self.assertEqual(len(told), 1)

    def test_what_a_kernel_refuses(self):
        ep, step = self.ep(), Step(11)
        step.ids[3][2, 0] = EXPERTS + 5
        arrays = step.arrays(self.node)
        with self.assertRaisesRegex(octet.InvalidArgument, "rank 3: .*token 2") as raised:
            self.node.run(lambda rank: ep.dispatch(rank, *arrays[rank.rank][:3]))
        self.assertEqual(raised.exception.failure.kind, "input")
        self.assertEqual(raised.exception.failure.seen, EXPERTS + 5)

    def test_system_exit_leaves_as_it_is(self):
        def body(rank):
            if rank.rank == 0:
                sys.exit(3)

        with self.assertRaises(SystemExit):
            self.node.run(body)

    def test_a_node_that_is_closed(self):
        node = octet.Node(1)
        array = node.empty(0, 8, "uint8")
        node.close()
        node.close()
        with self.assertRaisesRegex(octet.FailedPrecondition, "closed"):
            node.run(lambda rank: None)
        del array


class AdoptTest(unittest.TestCase):
    """Threads of the test's own, as those of JAX or of an inference server."""

    def setUp(self):
        self.node = octet.Node.adopt(list(range(RANKS)), on_failure=None, timeout=5)
        self.addCleanup(self.node.close)
        self.streams = self.node.run(lambda rank: rank.stream)

    def call_all(self, function):
        """Results by rank, or what was raised."""
        def call(rank):
            try:
                return self.node.call(rank, self.streams[rank], function)
            except octet.Error as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(RANKS) as pool:
            return list(pool.map(call, range(RANKS)))

    def test_steps_from_a_pool_of_threads(self):
        ep = octet.ExpertParallel(self.node, num_experts=EXPERTS, topk=TOPK, hidden=HIDDEN,
                                  max_tokens_per_rank=TOKENS, dtype="float16")
        step = Step(13)
        arrays = step.arrays(self.node)

        def body(rank):
            x, ids, weights, y = arrays[rank.rank]
            received = ep.dispatch(rank, x, ids, weights)
            ep.combine(rank, received, received.x, y)
            return rank.rank

        for _ in range(5):
            self.assertEqual(self.call_all(body), list(range(RANKS)))
            gc.collect()
        self.node.settle()
        for (*_, y), want in zip(arrays, step.expected(lambda _, row: row)):
            np.testing.assert_allclose(y.numpy(), want, rtol=0.01, atol=0.02)

    def test_a_rank_that_raises(self):
        def body(rank):
            if rank.rank == 1:
                raise KeyError("my key")
            rank.barrier("what never comes")

        raised = self.call_all(body)
        self.assertTrue(all(isinstance(each, octet.Error) for each in raised), raised)
        self.assertIsInstance(raised[1].__cause__, KeyError)
        with self.assertRaisesRegex(octet.Error, "rank 1: KeyError: 'my key'"):
            self.node.settle()
        self.assertEqual(self.call_all(lambda rank: rank.rank), list(range(RANKS)))

    def test_two_ranks_on_a_thread_are_refused(self):
        def body(_rank):
            with self.assertRaisesRegex(octet.FailedPrecondition, "would wait for ever"):
                self.node.call(1, self.streams[1], lambda rank: None)

        self.node.call(0, self.streams[0], body)
        with self.assertRaisesRegex(octet.FailedPrecondition, "Node::Adopt"):
            with octet.Node(1) as other:
                other.call(0, 0, lambda rank: None)
        with self.assertRaisesRegex(octet.InvalidArgument, "device 999 is none of"):
            octet.Node.adopt([999])


class PackageTest(unittest.TestCase):
    def test_declarations_are_those_of_the_header(self):
        subprocess.run([sys.executable, str(PACKAGE / "make_abi.py"), "--check"], check=True)

    def test_the_program_of_the_documents(self):
        text = (SOURCE / "docs" / "bindings.md").read_text(encoding="utf-8")
        program, *others = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for other in others:  # of JAX and PyTorch
            compile(other, "bindings.md", "exec")
        said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)}).stdout
        self.assertEqual(said, "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]\n")
        self.assertIn(f"`{said.strip()}`", text)

    def test_version_and_platform(self):
        self.assertEqual(octet.PLATFORM, "emulation")
        text = (PACKAGE / "pyproject.toml").read_text()
        self.assertIn(f'version = "{octet.VERSION}"', text)

    def test_pip_installs_it_with_its_library(self):
        missing = [name for name in ("pip", "setuptools", "wheel")
                   if importlib.util.find_spec(name) is None]
        if missing:
            self.skipTest(f"{sys.executable} has no {', '.join(missing)}")
        folder = tempfile.TemporaryDirectory(prefix="octet_pip_")
        self.addCleanup(folder.cleanup)
        target = pathlib.Path(folder.name) / "site"
        source = pathlib.Path(folder.name) / "source"
        subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "--no-build-isolation",
                        "--no-index", "--no-deps", "--quiet", "--target", str(target),
                        str(source)], check=True, capture_output=True)
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("OCTET_LIBRARY", "PYTHONPATH")}
        said = subprocess.run(
            [sys.executable, "-c", "import octet\nwith octet.Node(2) as node:\n"
             "  print(node.run(lambda rank: rank.rank), octet.__file__)"],
            check=True, capture_output=True, text=True, cwd=folder.name,
            env={**environment, "PYTHONPATH": str(target)}).stdout
        self.assertEqual(said, f"[0, 1] {target / 'octet' / '__init__.py'}\n")
        self.assertTrue((target / "octet" / "py.typed").exists())


if __name__ == "__main__":
    unittest.main()
