"""moe_layer_oracle.py, make_model.py, safetensors_file.py: accept what is right, and nothing else.

    moe_layer_oracle_test.py [unittest arguments]

Imitates `octet layer` in float32 with the roundings that it has, on folders that make_model.py has
written, and plants errors. Exit code 77 where there is no NumPy.
"""

import copy
import dataclasses
import json
import pathlib
import struct
import sys
import tempfile
import unittest

from need_modules import need_modules

need_modules("numpy")
sys.dont_write_bytecode = True

import numpy as np  # noqa: E402

import make_model  # noqa: E402
import moe_layer_oracle as oracle  # noqa: E402
import moe_router_oracle as routers  # noqa: E402
import safetensors_file as files  # noqa: E402
from check_dump import quantize, fp8_table, round_to, to_float  # noqa: E402

RANKS = 3
SMALL = ["--hidden=128", "--intermediate=64", "--experts=12", "--topk=3", "--tokens=33"]


def exchanged(expert):
    gate, up, down = expert
    return [up, gate, down]


class Imitation:
    """Computes a layer in float32, as Octet does. `plant` alters one thing."""

    def __init__(self, layer, plant=None):
        self.layer = layer
        self.plant = plant
        self.bf16 = layer.dtype == "bf16"

    def rounded(self, values):
        if self.plant == "truncated":
            return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        return to_float(round_to(np.ascontiguousarray(values), self.bf16), self.bf16)

    def quantized(self, values):
        config = {"scale_group": 128, "scales": "float32"}
        rows, _, scales = quantize(np.ascontiguousarray(values), config, "e4m3fn")
        return fp8_table("e4m3fn")[rows] * scales

    def network(self, x, weights, fp8, biases=None):
        """`biases`: of gpt-oss, with its activation."""
        gate, up, down = [weight.astype(np.float32) for weight in weights]
        if fp8:
            x = self.quantized(x)
        g, u = x @ gate.T, x @ up.T
        alpha = 1.0
        if biases is not None:
            g, u = g + biases[0].astype(np.float32), u + biases[1].astype(np.float32)
            limit = np.inf if self.plant == "no limit" else 7
            g, u = np.minimum(g, limit), np.clip(u, -limit, limit) + np.float32(1)
            alpha = 1.0 if self.plant == "another alpha" else 1.702
        with np.errstate(over="ignore"):
            h = self.rounded((g / (1 + np.exp(-np.float32(alpha) * g)) * u).astype(np.float32))
        if fp8:
            h = self.quantized(h)
        out = h @ down.T
        if biases is not None and self.plant != "no bias of down":
            out = out + biases[2].astype(np.float32)
        return self.rounded(out)

    def expert(self, expert):
        if self.plant == "swapped experts" and expert < 2:
            expert = 1 - expert
        if self.plant == "a wrong expert" and expert == 1:
            expert = 2
        weights = list(self.layer.expert(expert))
        if self.plant == "gate and up exchanged":
            weights = exchanged(weights)
        if self.plant == "a missing row of an expert" and expert == 1:
            weights[2] = weights[2].copy()
            weights[2][7] = 0
        return weights

    def route(self, x):
        layer, router = self.layer, self.layer.router_config
        logits = (x @ layer.router.astype(np.float32).T).astype(np.float32)
        if self.plant != "no bias of logits":
            logits = logits + np.float32(layer.logit_bias)
        if self.plant == "rounded logits":
            logits = self.rounded(logits)
        if self.plant == "unnormalised":
            router = dataclasses.replace(router, normalize=not router.normalize)
        if self.plant == "unscaled":
            router = dataclasses.replace(router, scaling=1.0)
        if self.plant == "best group by its best":
            router = dataclasses.replace(router, two_best=False)
        if self.plant == "no groups":
            router = dataclasses.replace(router, groups=1, top_groups=1)
        if self.plant == "another jitter":
            router = dataclasses.replace(router, jitter=2 * router.jitter)
        scores = routers.scores_of(router, logits)[0].astype(np.float32)
        bias = layer.bias.astype(np.float32)
        keys = scores if self.plant == "no bias" else scores + bias
        ids = routers.choose(router, keys, layer.topk)
        weighted = keys if self.plant == "weights with the bias" else scores
        weights = routers.weights_of(router, weighted, ids).astype(np.float32)
        if self.plant == "one softmax for all choices":
            weights = np.concatenate([routers.weights_of(router, weighted, ids[:, k:k + 1])
                                      for k in range(layer.topk)], axis=1).astype(np.float32)
        return logits, ids.astype(np.int32), weights

    def sums(self, x, ids, weights):
        """Each rank's sums, rounded, and added by rank."""
        total = np.zeros_like(x)
        per_rank = self.layer.experts // RANKS
        for rank in range(RANKS):
            part = np.zeros_like(x)
            for expert in range(rank * per_rank, (rank + 1) * per_rank):
                token, k = np.nonzero(ids == expert)
                biases = self.layer.biases(expert) if self.layer.alternating else None
                weight = weights[token, k][:, None]
                given = x[token]
                if self.layer.weighs_input:
                    if self.plant != "no weights":
                        given = self.rounded(given * weight)
                    weight = np.ones_like(weight)
                out = self.network(given, self.expert(expert), self.layer.fp8, biases)
                if self.plant == "a choice is missing":
                    last = k == self.layer.topk - 1
                    weight = np.where((token == 5) & last, 0, weight[:, 0])[:, None]
                part[token] += (1 if self.plant == "no weights" else weight) * out
            total += self.rounded(part)
        return total

    def dump(self, folder, x):
        x = oracle.values_of(x, self.layer.dtype).astype(np.float32)
        logits, ids, weights = self.route(x)
        y = self.sums(x, ids, weights)
        if self.layer.shared_prefix and self.plant != "no shared expert":
            shared = self.network(x, self.layer.shared(), False)
            gate = self.layer.shared_gate()
            if gate is not None and self.plant != "no shared gate":
                of_gate = x @ gate.astype(np.float32).T
                shared = shared / (1 + np.exp(-of_gate))
                if self.plant == "another gate's logits":
                    of_gate = -of_gate
                np.save(folder / "shared_gate.npy", of_gate[:, 0])
            y = y + shared.astype(np.float32)
        if self.plant == "another token":
            y[4] = y[5]
        for name, array in [("x", x), ("logits", logits), ("topk_idx", ids),
                            ("topk_weights", weights), ("y", self.rounded(y))]:
            np.save(folder / f"{name}.npy", array)


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octet_oracle_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def model(self, *flags):
        options = make_model.parse([str(self.folder / "model"), *SMALL, *flags])
        make_model.make_model(options.folder, options)
        return options

    def findings(self, options, plant=None, number=0, weights=None, experts=None):
        """Of a dump that an imitation with `plant` has written."""
        layer = oracle.Layer(options.folder, number, weights)
        x = make_model.make_tokens(options)
        Imitation(layer, plant).dump(self.folder, x)
        return oracle.check(experts or layer, self.folder)

    def assert_found(self, options, plant, words, **more):
        with self.subTest(family=options.family, plant=plant):
            found, _ = self.findings(options, plant, **more)
            self.assertTrue(any(finding.startswith(words) for finding in found),
                            f"{plant}: {found}")


class OracleTest(FolderTest):
    def test_accepts(self):
        for family in make_model.FAMILIES:
            for flags in [[], ["--dtype=f16", "--shards=3"], ["--dtype=f32"],
                          ["--dtype=mxfp4" if family == "gpt_oss" else
                           "--dtype=f32" if make_model.only_fused(family) else "--dtype=fp8"],
                          ["--layers=2", "--seed=7", "--hidden=200"],
                          ["--set=norm_topk_prob=true"], ["--set=norm_topk_prob=false"]]:
                with self.subTest(family=family, flags=flags):
                    options = self.model(f"--family={family}", *flags)
                    found, line = self.findings(options, number=options.layers - 1)
                    self.assertEqual(found, [])
                    self.assertIn(f"{family}: 33 tokens are right", line)

    def test_experts_in_two_tensors(self):
        """The same numbers as from tensors of each, whichever of the two is square."""
        for flags in [["--family=mixtral"], ["--intermediate=48"], ["--intermediate=128"],
                      ["--family=deepseek_v3", "--dtype=fp8", "--intermediate=128"]]:
            options = self.model(*flags)
            layer = oracle.Layer(options.folder, 0)
            wanted = [layer.expert(expert) for expert in range(options.experts)]
            for form in ("fused", "transposed"):
                with self.subTest(flags=flags, form=form):
                    options = self.model(*flags, f"--experts_as={form}")
                    layer = oracle.Layer(options.folder, 0)
                    self.assertEqual((layer.fused, layer.fp8), (True, "--dtype=fp8" in flags))
                    for expert, matrices in enumerate(wanted):
                        for got, want in zip(layer.expert(expert), matrices, strict=True):
                            np.testing.assert_array_equal(got, want)
                    found, _ = self.findings(options)
                    self.assertEqual(found, [])
                    self.assert_found(options, "gate and up exchanged", "y[")

    def test_two_tensors_that_do_not_fit(self):
        options = self.model("--experts_as=fused")
        folder = files.Folder(options.folder)
        tensors = {name: copy.deepcopy(folder.load(name)) for name in folder.places}  # of a map
        name = "model.layers.0.mlp.experts.down_proj"
        tensors[name] = files.Tensor("BF16", tensors[name].array[:, :, :-8])
        files.write_folder(options.folder, tensors)
        with self.assertRaisesRegex(files.Damaged, r"\(12, 128, 128\) and \(12, 128, 56\)"):
            oracle.Layer(options.folder, 0).expert(0)

    def test_accepts_fp8_weights_as_bf16_and_the_other_way_round(self):
        options = self.model("--dtype=fp8", "--family=deepseek_v3")
        self.assertEqual(self.findings(options, weights="bf16")[0], [])
        options = self.model("--family=deepseek_v3")
        self.assertEqual(self.findings(options, weights="fp8")[0], [])

    def test_roundings_are_about_what_is_said(self):
        """The mean square is below what roundings can give, but not by far."""
        for dtype in ("bf16", "f16", "fp8"):
            options = self.model(f"--dtype={dtype}", "--hidden=256")
            layer = oracle.Layer(options.folder, 0)
            Imitation(layer).dump(self.folder, make_model.make_tokens(options))
            found = []
            dump = oracle.load_dump(layer, self.folder, found)
            bound, overall = oracle.check_y(layer, dump, found)
            self.assertEqual(found, [])
            self.assertLess(bound, 0.5)
            self.assertGreater(overall, 0.5, dtype)
            self.assertLess(overall, 0.95, dtype)

    def test_planted_in_every_family(self):
        for family in make_model.FAMILIES:
            options = self.model(f"--family={family}")
            for plant, words in [("swapped experts", "y["), ("a wrong expert", "y["),
                                 ("gate and up exchanged", "y["), ("another token", "y["),
                                 ("a choice is missing", "y[5"), ("no weights", "y["),
                                 ("a missing row of an expert", "y["), ("truncated", "y is off"),
                                 ("unnormalised", "topk_weights["),
                                 ("rounded logits", "logits[")]:
                self.assert_found(options, plant, words)

    def test_planted_in_gpt_oss(self):
        for dtype in ("bf16", "mxfp4"):
            options = self.model("--family=gpt_oss", f"--dtype={dtype}")
            for plant, words in [("no limit", "y["), ("another alpha", "y["),
                                 ("no bias of down", "y["), ("no bias of logits", "logits[")]:
                self.assert_found(options, plant, words)

    def test_planted_in_some_families(self):
        third = self.model("--family=deepseek_v3")
        for plant, words in [("unscaled", "topk_weights["), ("no bias", "topk_idx["),
                             ("weights with the bias", "topk_weights["),
                             ("best group by its best", "topk_idx["),
                             ("no groups", "topk_idx["), ("no shared expert", "y[")]:
            self.assert_found(third, plant, words)
        second = self.model("--family=deepseek_v2")
        for plant, words in [("unscaled", "topk_weights["), ("no groups", "topk_idx["),
                             ("no shared expert", "y[")]:
            self.assert_found(second, plant, words)
        qwen = self.model("--family=qwen2_moe")
        for plant, words in [("no shared expert", "y["), ("no shared gate", "y["),
                             ("another gate's logits", "shared_gate[0, 0]")]:
            self.assert_found(qwen, plant, words)
        phimoe = self.model("--family=phimoe")
        for plant in ("another jitter", "one softmax for all choices"):
            self.assert_found(phimoe, plant, "topk_weights[")

    def test_planted_with_other_weights(self):
        for flags in [["--dtype=fp8"], ["--dtype=f16"], ["--dtype=f32"]]:
            options = self.model("--family=deepseek_v3", *flags)
            for plant in ["swapped experts", "gate and up exchanged", "a choice is missing",
                          "no shared expert"]:
                self.assert_found(options, plant, "y[")

    def test_a_flipped_bit(self):
        """Of the last elements: one that matters is told."""
        options = self.model()
        layer = oracle.Layer(options.folder, 0)
        for name, bit, words in [("logits", 16, "logits[32, 11]"), ("topk_idx", 0, "topk_idx[32]"),
                                 ("topk_weights", 8, "topk_weights[32, 2]"),
                                 ("y", 28, "y[32, 127]"), ("x", 29, "logits[32")]:
            Imitation(layer).dump(self.folder, make_model.make_tokens(options))
            array = np.load(self.folder / f"{name}.npy")
            array.view(np.uint32)[-1, -1] ^= np.uint32(1 << bit)
            np.save(self.folder / f"{name}.npy", array)
            found, _ = oracle.check(layer, self.folder)
            self.assertTrue(any(line.startswith(words) for line in found), (name, found))

    def test_nan_and_shapes(self):
        options = self.model()
        layer = oracle.Layer(options.folder, 0)
        for name in ("logits", "topk_weights", "y"):
            Imitation(layer).dump(self.folder, make_model.make_tokens(options))
            array = np.load(self.folder / f"{name}.npy")
            array[3, 1] = np.nan
            np.save(self.folder / f"{name}.npy", array)
            found, _ = oracle.check(layer, self.folder)
            self.assertIn(f"{name}[3, 1] is nan", found[0])
        np.save(self.folder / "y.npy", array[:-1])
        self.assertIn("y.npy is float32 (32, 128), not float32 (33, 128)",
                      oracle.check(layer, self.folder)[0][0])
        (self.folder / "topk_idx.npy").unlink()
        self.assertIn("topk_idx.npy", oracle.check(layer, self.folder)[0][0])

    def test_ends(self):
        options = self.model()
        layer = oracle.Layer(options.folder, 0)
        x = make_model.make_tokens(options)
        Imitation(layer).dump(self.folder, x)
        y = np.load(self.folder / "y.npy")
        given = {"x": self.folder / "input.npy", "y": self.folder / "output.npy"}
        np.save(given["x"], x.reshape(3, 11, 128))
        np.save(given["y"], y.reshape(3, 11, 128))
        self.assertEqual(oracle.check(layer, self.folder, given)[0], [])
        np.save(given["y"], y[::-1])
        self.assertIn("output.npy is not what the dump has as y",
                      oracle.check(layer, self.folder, given)[0][0])
        np.save(given["x"], x[1:])
        self.assertIn("input.npy is not what the dump has as x",
                      oracle.check(layer, self.folder, given)[0][0])


class RouterTest(unittest.TestCase):
    """choice_is_possible() and choose(): what float32 cannot tell apart, and ties."""

    NOISE = 1e-7

    def possible(self, keys, ids, router=routers.Router()):
        keys = np.array(keys, np.float64)
        return routers.choice_is_possible(router, keys, np.full(len(keys), self.NOISE),
                                         np.array(ids))

    def test_ties_go_to_the_lower(self):
        keys = [0.1, 0.4, 0.4, 0.1]
        self.assertEqual(routers.choose(routers.Router(), np.array([keys]), 3).tolist(), [[1, 2, 0]])
        self.assertTrue(self.possible(keys, [1, 2, 0]))
        for ids in ([2, 1, 0], [1, 2, 3], [1, 0, 2], [0, 1, 2]):
            self.assertFalse(self.possible(keys, ids), ids)

    def test_near_ties_may_go_either_way(self):
        keys = [0.1, 0.4, 0.4 + 1e-8, 0.1 + 1e-8]
        for ids in ([1, 2], [2, 1], [2, 1, 0], [1, 2, 3]):
            self.assertTrue(self.possible(keys, ids), ids)
        self.assertFalse(self.possible([0.1, 0.4, 0.4 + 1e-6], [1, 2]))

    def test_groups(self):
        router = routers.Router(groups=3, top_groups=1, two_best=True)
        keys = [0.9, 0.0, 0.5, 0.6, 0.55, 0.55]
        self.assertEqual(routers.choose(router, np.array([keys]), 2).tolist(), [[3, 2]])
        self.assertTrue(self.possible(keys, [3, 2], router))
        # As good a sum as far as float32 can tell, and one that is not.
        self.assertFalse(self.possible(keys, [4, 5], router))  # an exact tie: the lower group
        keys[4] += 1e-8
        self.assertTrue(self.possible(keys, [4, 5], router))
        self.assertFalse(self.possible(keys, [0, 1], router))
        self.assertFalse(self.possible(keys, [3, 4], router))  # of two groups
        by_best = routers.Router(groups=3, top_groups=1)
        self.assertEqual(routers.choose(by_best, np.array([keys]), 2).tolist(), [[0, 1]])

    def test_weights(self):
        scores, ids = np.array([[0.5, 0.2, 0.3]]), np.array([[0, 2]])
        plain = routers.weights_of(routers.Router(), scores, ids)
        np.testing.assert_allclose(plain, [[0.5, 0.3]])
        scaled = routers.weights_of(routers.Router(normalize=True, scaling=2.5), scores, ids)
        np.testing.assert_allclose(scaled, [[1.5625, 0.9375]])

    def test_sparsemixer(self):
        router = routers.Router(jitter=0.125)  # logits a quarter below are near
        logits = np.array([[4.0, 3.0, 2.9, 1.0], [-2.5, -2.0, -9.0, -2.75]])
        self.assertEqual(routers.choose(router, logits, 2).tolist(), [[0, 1], [1, 0]])
        weights = routers.weights_of(router, logits, np.array([[0, 1], [1, 0]]))
        np.testing.assert_allclose(weights, [
            [1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(-0.1))],
            [1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(-0.25))]])


class SafetensorsTest(FolderTest):
    def tensors(self):
        random = np.random.default_rng(1)
        found = {kind: files.tensor(random.standard_normal((5, 3)), kind)
                 for kind in ("BF16", "F16", "F32", "F8_E4M3")}
        return found | {"none": files.tensor(np.zeros((0, 3)), "F32"),
                        "numbers": files.Tensor("I64", np.arange(4))}

    def test_round_trip(self):
        tensors = self.tensors()
        for shards in (1, 3):
            files.write_folder(self.folder, tensors, shards)
            folder = files.Folder(self.folder)
            self.assertEqual(set(folder.places), set(tensors))
            for name, stored in tensors.items():
                loaded = folder.load(name)
                self.assertEqual((loaded.kind, loaded.array.shape),
                                 (stored.kind, stored.array.shape))
                self.assertEqual(loaded.array.tobytes(), stored.array.tobytes())
            for path in self.folder.glob("*"):
                path.unlink()

    def test_bytes(self):
        """As the format says, byte by byte."""
        files.write_file(self.folder / "a.safetensors",
                         {"w": files.tensor([[1.0, -2.0]], "BF16")})
        data = (self.folder / "a.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        self.assertEqual(length % 8, 0)
        header = json.loads(data[8:8 + length])
        self.assertEqual(header["w"], {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]})
        self.assertEqual(data[8 + length:], b"\x80\x3f\x00\xc0")

    def test_fp8(self):
        values = np.random.default_rng(2).standard_normal((200, 130)).astype(np.float32)
        values[:128, :128] *= 100
        weights, scales = files.quantized(values)
        self.assertEqual(scales.array.shape, (2, 2))
        files.write_folder(self.folder, {"w": weights, "w_scale_inv": scales})
        back = files.Folder(self.folder).values("w")
        largest = np.abs(values[:128, :128]).max()
        self.assertLess(np.abs(back - values)[:128, :128].max(), largest / 16)
        self.assertLess(np.abs(back - values)[128:].max(), np.abs(values[128:]).max() / 16)
        self.assertGreater(scales.array[0, 0], 50 * scales.array[1, 1])

    def test_damaged(self):
        path = self.folder / "model.safetensors"

        def written(change=lambda header: None, data=bytes(30), length=None):
            header = {"w": {"dtype": "BF16", "shape": [5, 3], "data_offsets": [0, 30]}}
            change(header)
            text = json.dumps(header).encode()
            path.write_bytes(struct.pack("<Q", length or len(text)) + text + data)

        written()
        files.Folder(self.folder)
        for words, arguments in [
                ("its shape needs 32", [lambda header: header["w"].update(shape=[4, 4])]),
                ("begin at 2", [lambda header: header["w"].update(data_offsets=[2, 32])]),
                ("of 131", [lambda header: None, bytes(31)]),
                ("a header of", [lambda header: None, bytes(30), 1 << 40]),
                ("no JSON", [lambda header: None, bytes(30), 10])]:
            written(*arguments)
            with self.assertRaises(files.Damaged) as caught:
                files.Folder(self.folder)
            self.assertIn(words.replace("131", str(path.stat().st_size)), str(caught.exception))
        files.write_folder(self.folder, self.tensors(), 2)
        path.unlink()
        index = json.loads((self.folder / files.INDEX).read_text())
        index["weight_map"]["F32"] = "elsewhere"
        (self.folder / files.INDEX).write_text(json.dumps(index))
        with self.assertRaisesRegex(files.Damaged, "not where the files have it: ..F32"):
            files.Folder(self.folder)


class MakeModelTest(FolderTest):
    def test_names(self):
        mlp = ["down_proj", "gate_proj", "up_proj"]
        wanted = {
            "mixtral": ("block_sparse_moe.", ["w1", "w2", "w3"], []),
            "minimax_m2": ("block_sparse_moe.", ["w1", "w2", "w3"], ["e_score_correction_bias"]),
            "phimoe": ("block_sparse_moe.", ["w1", "w2", "w3"], []),
            "qwen2_moe": ("mlp.", mlp, [f"shared_expert.{name}.weight" for name in mlp]
                          + ["shared_expert_gate.weight"]),
            "qwen3_moe": ("mlp.", mlp, []),
            "qwen3_next": ("mlp.", mlp, [f"shared_expert.{name}.weight" for name in mlp]
                           + ["shared_expert_gate.weight"]),
            "olmoe": ("mlp.", mlp, []),
            "glm4_moe": ("mlp.", mlp, [f"shared_experts.{name}.weight" for name in mlp]
                         + ["gate.e_score_correction_bias"]),
            "deepseek_v2": ("mlp.", mlp, [f"shared_experts.{name}.weight" for name in mlp]),
            "deepseek_v3": ("mlp.", mlp, [f"shared_experts.{name}.weight" for name in mlp]
                            + ["gate.e_score_correction_bias"]),
        }
        for family, (block, names, more) in wanted.items():
            options = self.model(f"--family={family}", "--experts=2", "--topk=1")
            prefix = f"model.layers.0.{block}"
            found = {name.removeprefix(prefix) for name in files.Folder(options.folder).places
                     if name.startswith(prefix)}
            self.assertEqual(found, {"gate.weight", *more, *[
                f"experts.{expert}.{name}.weight" for expert in range(2) for name in names]})
            config = json.loads((options.folder / "config.json").read_text())
            self.assertEqual(config["model_type"], family)

    def test_names_of_experts_in_two_tensors(self):
        for family, router in [("mixtral", "gate"), ("qwen3_moe", "gate"), ("phimoe", "router")]:
            shapes = {"fused": [(2, 128, 96), (2, 96, 64)], "transposed": [(2, 96, 128),
                                                                           (2, 64, 96)]}
            for form, wanted in shapes.items():
                options = self.model(f"--family={family}", "--experts=2", "--topk=1",
                                     "--hidden=96", f"--experts_as={form}")
                places = files.Folder(options.folder).places
                prefix = "model.layers.0.mlp."
                found = {name.removeprefix(prefix): place[2] for name, place in places.items()
                         if "experts" in name or name.endswith(router + ".weight")}
                self.assertEqual(found, {router + ".weight": (2, 96),
                                         "experts.gate_up_proj": wanted[0],
                                         "experts.down_proj": wanted[1]})

    def test_int4(self):
        values = np.random.default_rng(3).standard_normal((24, 256)).astype(np.float32)
        for group in (32, 128):
            tensors = {"w" + suffix: stored
                       for suffix, stored in files.packed(values, group).items()}
            files.write_folder(self.folder, tensors)
            off = np.abs(files.Folder(self.folder).values("w") - values)
            largest = np.abs(values).reshape(24, -1, group).max(axis=2)
            self.assertTrue((off.reshape(24, -1, group) <= largest[..., None] / 13).all())
            # Number 9 of row 1 is the second of the second word.
            word = int(tensors["w_packed"].array[1, 1]) >> 4 & 15
            scale = files.floats(tensors["w_scale"])[1, 0]
            self.assertEqual(files.Folder(self.folder).values("w")[1, 9], (word - 8) * scale)

    def test_the_same_flags_write_the_same_bytes(self):
        def contents():
            options = self.model("--family=deepseek_v3", "--dtype=fp8", "--shards=2")
            return {path.name: path.read_bytes() for path in options.folder.iterdir()}

        self.assertEqual(contents(), contents())

    def test_the_first_layer_of_several_is_dense(self):
        options = self.model("--family=deepseek_v3", "--layers=2")
        names = files.Folder(options.folder).places
        self.assertIn("model.layers.0.mlp.up_proj.weight", names)
        self.assertNotIn("model.layers.0.mlp.gate.weight", names)


if __name__ == "__main__":
    unittest.main()
