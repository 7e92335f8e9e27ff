"""Layers of the Python package on emulated GPUs, with NumPy as the oracle.

    python_layer_test.py LIBRARY [unittest arguments]

LIBRARY is liboctet.so of a build.
"""

import ctypes
import subprocess
import sys
import tempfile
import unittest

from python_step import (EXPERTS, HIDDEN, LOCAL, RANKS, SOURCE, TOKENS, TOPK, NodeTest, Step,
                         bits_of, floats_of, silu)

import numpy as np

import octet
from octet import _abi
from octet._library import lib


class LayerTest(NodeTest):
    INNER = 32

    def weights(self):
        random = np.random.default_rng(6)

        def matrix(*shape):
            return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float16)

        return matrix(EXPERTS, HIDDEN), [
            {"gate": matrix(self.INNER, HIDDEN), "up": matrix(self.INNER, HIDDEN),
             "down": matrix(HIDDEN, self.INNER)} for _ in range(EXPERTS)]

    def layer(self, **config):
        return octet.MoeLayer(self.node, **{
            "num_experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN, "intermediate": self.INNER,
            "max_tokens_per_rank": TOKENS, "dtype": "float16", **config})

    def expected(self, x, router, experts):
        f32, y = np.float32, np.zeros(x.shape, np.float32)
        for token, row in enumerate(x.astype(f32)):
            logits = router.astype(f32) @ row
            scores = np.exp(logits - logits.max())
            scores /= scores.sum()
            for e in np.argsort(-scores, kind="stable")[:TOPK]:
                weight = experts[e]
                inside = (silu(weight["gate"].astype(f32) @ row) *
                          (weight["up"].astype(f32) @ row)).astype(np.float16).astype(f32)
                y[token] += scores[e] * (weight["down"].astype(f32) @ inside)
        return y

    def test_a_layer_from_arrays(self):
        router, experts = self.weights()
        for path in ("launches", "decode"):
            with self.subTest(path=path):
                layer, step = self.layer(path=path), Step(7)
                layer.load(router=router, experts=experts)
                arrays = step.arrays(self.node)
                self.node.run(lambda rank: layer.forward(
                    rank, arrays[rank.rank][0], arrays[rank.rank][3]))
                for x, (*_, y) in zip(step.x, arrays):
                    np.testing.assert_allclose(y.numpy(), self.expected(x, router, experts),
                                               rtol=0.02, atol=0.01)

    def test_experts_move_and_keep_their_rows(self):
        """Through several steps, since no slot of a rank is free that another expert could take."""
        router, experts = self.weights()
        first = [[rank * LOCAL + local for local in range(LOCAL)] + [-1] for rank in range(RANKS)]
        popular = octet.plan_placement([100] + [1] * (EXPERTS - 1), RANKS, LOCAL + 1)
        self.assertTrue(all(0 in slots for slots in popular))
        full = [slots[:LOCAL] + [0 if 0 not in slots else LOCAL] for slots in first]
        for path in ("launches", "decode"):
            with self.subTest(path=path):
                layer, step = self.layer(path=path, placement=first, count_loads=1), Step(7)
                self.assertEqual(layer.config["placement"], first)
                layer.load(router=router, experts=experts)
                arrays = step.arrays(self.node)

                def forward(rank):
                    layer.forward(rank, arrays[rank.rank][0], arrays[rank.rank][3])

                self.node.run(forward)
                once = layer.loads()
                self.assertEqual(sum(once.rows), RANKS * TOKENS * TOPK)
                self.assertEqual(once.rows, once.window)
                calls, at, in_force = 1, first, [None] * RANKS
                for wanted in (full, popular, first):
                    for next_one in octet.plan_moves(at, wanted, EXPERTS):
                        def move(rank, to=next_one):
                            layer.prepare(rank, to)
                            forward(rank)
                            layer.apply(rank)
                            in_force[rank.rank] = layer.placement_of(rank)
                            forward(rank)

                        self.node.run(move)
                        at = next_one
                        calls += 2
                        self.assertEqual(in_force, [at] * RANKS)
                    self.assertEqual([set(slots) - {-1} for slots in at],
                                     [set(slots) - {-1} for slots in wanted])
                    self.assertEqual(layer.loads().rows, [calls * rows for rows in once.rows])
                    self.assertEqual(layer.loads().window, once.window)
                    for x, (*_, y) in zip(step.x, arrays):
                        np.testing.assert_allclose(y.numpy(), self.expected(x, router, experts),
                                                   rtol=0.02, atol=0.01)

    def test_placements_are_refused(self):
        with self.assertRaisesRegex(TypeError, "as many of each rank"):
            self.layer(placement=[[0], [1, 2]])
        with self.assertRaisesRegex(octet.InvalidArgument, "expert"):
            self.layer(placement=[[0, 0]] * RANKS)
        with self.assertRaisesRegex(octet.FailedPrecondition, "loads.count"):
            self.layer().loads()

    def test_the_number_of_tokens_lies_on_the_gpu(self):
        router, experts = self.weights()
        layer, step = self.layer(path="decode"), Step(8)
        layer.load(router=router, experts=experts)
        arrays = step.arrays(self.node)
        counts = [self.node.array(rank, np.array([rank], np.int32)) for rank in range(RANKS)]
        for *_, y in arrays:
            np.asarray(y)[:] = 7
        self.node.run(lambda rank: layer.forward(rank, arrays[rank.rank][0], arrays[rank.rank][3],
                                                 num_tokens=counts[rank.rank]))
        for count, (x, (*_, y)) in enumerate(zip(step.x, arrays)):
            np.testing.assert_allclose(y.numpy()[:count],
                                       self.expected(x[:count], router, experts),
                                       rtol=0.02, atol=0.01)
            self.assertTrue((y.numpy()[count:] == 7).all())

    def model(self, family):
        folder = tempfile.TemporaryDirectory(prefix="octet_python_")
        self.addCleanup(folder.cleanup)
        subprocess.run([sys.executable, str(SOURCE / "tests/tools/cli/make_model.py"), folder.name,
                        f"--family={family}", "--hidden=128", "--intermediate=64"],
                       check=True, capture_output=True)
        model = octet.ModelFolder(folder.name)
        self.assertEqual((model.family, model.num_layers), (family, 1))
        return model

    def forward(self, layers, x, dtype):
        """What each layer makes of the same tokens on every rank."""
        xs = [self.node.array(rank, x, dtype) for rank in range(RANKS)]
        results = []
        for layer in layers:
            ys = [self.node.empty(rank, x.shape, dtype) for rank in range(RANKS)]
            self.node.run(lambda rank: layer.forward(rank, xs[rank.rank], ys[rank.rank]))
            results += [floats_of(y.numpy()) for y in ys]
        return results

    def test_a_layer_from_a_model_folder(self):
        """Loaded as a whole, and tensor by tensor: gpt_oss has biases and rows that alternate."""
        for family, names in [("mixtral", ()), ("gpt_oss", ("gate_bias", "up_bias", "down_bias")),
                              ("phimoe", ())]:
            with self.subTest(family=family):
                model = self.model(family)
                config = {**model.layer_config(0), "max_tokens_per_rank": 3}
                self.assertEqual((config["hidden"], config["dtype"]), (128, "bfloat16"))
                self.assertEqual(bool(config["expert_biases"]), bool(names))
                phimoe = family == "phimoe"
                self.assertEqual(config["router_scores"], "sparsemixer" if phimoe else "softmax")
                self.assertEqual(config["router_jitter"], np.float32(0.1 if phimoe else 0))
                layers = [octet.MoeLayer(self.node, **config) for _ in range(2)]
                layers[0].load_model(model, 0)
                layers[1].load(router=model.tensor(0, "router"), experts=[
                    {name: model.tensor(0, name, expert) for name in ("gate", "up", "down", *names)}
                    for expert in range(config["num_experts"])],
                    logit_bias=model.tensor(0, "logit_bias"))
                self.assertIsNone(model.tensor(0, "shared_up"))
                x = bits_of(np.random.default_rng(12).standard_normal((3, 128)))
                results = self.forward(layers, x, config["dtype"])
                self.assertTrue(np.isfinite(results[0]).all() and np.abs(results[0]).max() > 0.01)
                for y in results:
                    np.testing.assert_array_equal(y, results[0])

    def test_structs_of_older_versions(self):
        """They do for layers that need nothing newer; others are refused."""
        for family, code in [("mixtral", 0), ("phimoe", _abi.OCTET_INVALID_ARGUMENT)]:
            with self.subTest(family=family):
                model = self.model(family)
                struct = _abi.octet_layer_config()
                struct.size = _abi.octet_layer_config.router_jitter.offset
                # pylint: disable-next=protected-access
                given = lib.octet_model_layer_config(model._handle, 0, ctypes.byref(struct))
                self.assertEqual(given, code)
        self.assertRegex(lib.octet_last_error().decode(), "lacks a member that this layer needs")

    def test_a_jitter_is_refused(self):
        with self.assertRaisesRegex(octet.InvalidArgument, "jitter is -1; it must be at least 0"):
            self.layer(router_scores="sparsemixer", router_jitter=-1.0)

    def test_a_layer_with_memory_for_fewer_rows(self):
        """Its tokens may take several passes, with the same bits."""
        model = self.model("qwen3_moe")
        config = {**model.layer_config(0), "max_tokens_per_rank": 8, "path": "launches",
                  "strategy": "high_throughput"}
        least = RANKS * 4 * min(config["topk"], config["num_experts"] // RANKS)
        layers = [octet.MoeLayer(self.node, **{**config, "capacity_rows": rows})
                  for rows in (0, least)]
        for layer in layers:
            layer.load_model(model, 0)
        x = bits_of(np.tile(np.random.default_rng(13).standard_normal((1, 128)), (8, 1)))
        results = self.forward(layers, x, config["dtype"])
        for y in results:
            np.testing.assert_array_equal(y, results[0])
        with self.assertRaisesRegex(octet.InvalidArgument, "capacity_rows"):
            octet.MoeLayer(self.node, **{**config, "capacity_rows": 1})

    def test_a_model_folder_refuses(self):
        model = self.model("mixtral")
        with self.assertRaisesRegex(octet.InvalidArgument, "layer 99"):
            model.layer_config(99)
        with self.assertRaisesRegex(octet.InvalidArgument, "'gates' is not one of router, "):
            model.tensor(0, "gates")


if __name__ == "__main__":
    unittest.main()
