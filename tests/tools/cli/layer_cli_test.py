"""`octet layer` as its users see it: every step of it against NumPy, for all model families.

    layer_cli_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU or no NumPy.
"""

import json
import os
import pty
import subprocess

from need_modules import need_modules

need_modules("numpy")

import numpy as np  # noqa: E402

import make_model  # noqa: E402
import moe_layer_oracle as oracle  # noqa: E402
import octet_cli  # noqa: E402
import safetensors_file  # noqa: E402
from check_dump import to_float  # noqa: E402

SMALL = ["--hidden=128", "--intermediate=64", "--experts=12", "--topk=3", "--tokens=23"]


class LayerTest(octet_cli.GpuTest):
    def setUp(self):
        super().setUp()
        self.most = max(ranks for ranks in (1, 2, 3, 4) if ranks <= octet_cli.GPUS)

    def model(self, *flags):
        options = make_model.parse([str(self.folder / "model"), *SMALL, *flags])
        make_model.make_model(options.folder, options)
        return options

    def layer(self, options, x, *flags, layer=0, ranks=None, weights=None, fp8_rows=False):
        """y of a run, each step of which is checked."""
        np.save(self.folder / "x.npy", x)
        (self.folder / "dump").mkdir(exist_ok=True)
        given = {"x": self.folder / "x.npy", "y": self.folder / "y.npy"}
        if weights:
            flags = [*flags, f"--weights={weights}"]
        if fp8_rows:
            flags = [*flags, "--fp8_rows"]
        result = octet_cli.octet(
            "layer", f"--model={options.folder}", f"--layer={layer}",
            f"--ranks={ranks or self.most}", f"--input={given['x']}", f"--output={given['y']}",
            f"--dump={self.folder / 'dump'}", "--iters=0", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        found, line = oracle.check(oracle.Layer(options.folder, layer, weights, fp8_rows),
                                   self.folder / "dump", given)
        self.assertEqual(found, [])
        self.assertIn("are right", line)
        y = np.load(given["y"])
        self.assertEqual((y.shape, y.dtype), (x.shape, np.float32))
        return y

    def test_families(self):
        for family in make_model.FAMILIES:
            for flags in [[], ["--dtype=f16", "--shards=3", "--seed=2"],
                          ["--dtype=f32", "--hidden=200", "--intermediate=72", "--seed=3"]]:
                with self.subTest(family=family, flags=flags):
                    options = self.model(f"--family={family}", *flags)
                    self.layer(options, make_model.make_tokens(options), "--check")

    def test_mxfp4(self):
        options = self.model("--family=gpt_oss", "--dtype=mxfp4", "--hidden=160",
                             "--intermediate=96")
        x = make_model.make_tokens(options)
        self.layer(options, x, "--check")
        self.layer(options, x, weights="bf16")  # the same numbers
        random = octet_cli.octet("layer", "--family=gpt_oss", "--weights=mxfp4", "--fp8_rows",
                                 "--tokens=9", f"--ranks={self.most}", "--iters=0")
        self.assertEqual(random.returncode, 0, random.stderr)
        self.assertIn("weights mxfp4 times rows of fp8", random.stdout)
        rows = self.layer(options, x, "--check", "--path=launches", fp8_rows=True)
        self.assertFalse(np.array_equal(rows, self.layer(options, x, "--path=launches")))

    def test_all_layers(self):
        options = self.model("--family=deepseek_v2", "--layers=3")
        table = octet_cli.octet("model", f"--model={options.folder}", "--ranks=2", "--tensors")
        self.assertEqual(table.returncode, 0, table.stderr)
        rows = [row.split() for row in table.stdout.splitlines() if not row.startswith("#")]
        self.assertEqual([row[:6] for row in rows], [["1-2", "12", "3", "128", "64", "128"]])
        elements = 12 // 2 * 3 * 64 * 128 + 12 * 128 + 3 * 128 * 128
        self.assertEqual(rows[0][9], f"{2 * elements / 2 ** 20:.1f}")
        self.assertIn("# 0: ", table.stdout)
        result = octet_cli.octet("layer", f"--model={options.folder}", "--all",
                                 f"--ranks={self.most}")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual([line[:12] for line in lines], ["layer 1 of 3", "layer 2 of 3"])
        self.assertTrue(all(": right, " in line for line in lines), lines)
        for flags, words in [(["--all", "--layer=1"], "--layer is for one layer"),
                             (["--all", "--json=x"], "--json is for one layer")]:
            result = octet_cli.octet("layer", f"--model={options.folder}", *flags)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)
        result = octet_cli.octet("layer", "--all")
        self.assertIn("--all needs --model", result.stderr)
        result = octet_cli.octet("model", f"--model={options.folder}/none")
        self.assertEqual(result.returncode, 2)

    def test_what_the_configuration_says(self):
        for family, change in [("qwen2_moe", "norm_topk_prob=true"),
                               ("qwen3_moe", "norm_topk_prob=false"),
                               ("olmoe", "norm_topk_prob=true"),
                               ("deepseek_v2", 'topk_method="greedy"'),
                               ("deepseek_v3", "norm_topk_prob=false"),
                               ("deepseek_v3", "routed_scaling_factor=1.25"),
                               ("deepseek_v3", "topk_group=3")]:
            with self.subTest(family=family, change=change):
                options = self.model(f"--family={family}", f"--set={change}")
                self.layer(options, make_model.make_tokens(options))

    def test_fp8_weights(self):
        options = self.model("--family=deepseek_v3", "--dtype=fp8", "--hidden=384",
                             "--intermediate=256", "--shards=2")
        x = make_model.make_tokens(options)
        self.layer(options, x)
        self.layer(options, x, weights="bf16")
        options = self.model("--family=deepseek_v3", "--hidden=384", "--intermediate=256")
        self.layer(options, x, weights="fp8")

    def test_scales_of_other_blocks(self):
        for flags in [["--dtype=fp8_tensor"], ["--dtype=fp8_rows"], ["--dtype=int4"],
                      ["--dtype=int4", "--group=128", "--shards=3"]]:
            with self.subTest(flags=flags):
                options = self.model("--family=deepseek_v3", "--hidden=384",
                                     "--intermediate=256", *flags)
                x = make_model.make_tokens(options)
                self.layer(options, x, "--check")
                self.layer(options, x, weights="bf16")

    def test_scales_and_biases_of_16_bits(self):
        options = self.model("--family=deepseek_v3", "--dtype=fp8", "--hidden=384",
                             "--intermediate=256")
        files = safetensors_file.Folder(options.folder)
        loaded = {name: files.load(name) for name in files.places}
        # Copies: the file that the arrays are mapped from is written again.
        tensors = {name: safetensors_file.Tensor(stored.kind, np.array(stored.array))
                   for name, stored in loaded.items()}
        for kind in ("BF16", "F16"):
            with self.subTest(kind=kind):
                other = {name: safetensors_file.tensor(stored.array, kind)
                         if name.endswith(("_scale_inv", "_bias")) else stored
                         for name, stored in tensors.items()}
                safetensors_file.write_folder(options.folder, other)
                self.layer(options, make_model.make_tokens(options), "--check")

    def test_experts_in_two_tensors(self):
        cases = [[f"--family={family}"] for family in make_model.FAMILIES
                 if not make_model.only_fused(family)]
        cases += [["--dtype=f16", "--shards=3"], ["--dtype=f32", "--intermediate=72"],
                  ["--family=olmoe", "--intermediate=128"],  # each of the two is square in one case
                  ["--family=deepseek_v3", "--dtype=fp8", "--intermediate=256", "--hidden=272"]]
        for flags in cases:
            options = self.model(*flags)
            x = make_model.make_tokens(options)
            y = self.layer(options, x)
            for form in ("fused", "transposed"):
                with self.subTest(flags=flags, form=form):
                    options = self.model(*flags, f"--experts_as={form}")
                    np.testing.assert_array_equal(self.layer(options, x), y)

    def test_when_shared_experts_run(self):
        options = self.model("--family=deepseek_v2")
        x = make_model.make_tokens(options)
        y = self.layer(options, x, "--shared=after")
        for flags in [["--shared=beside"], ["--shared=beside", "--link_blocks=2"]]:
            np.testing.assert_array_equal(self.layer(options, x, *flags), y)

    def test_passes_change_nothing_and_rows_are_counted(self):
        options = self.model("--family=qwen3_moe", "--tokens=160")
        x = make_model.make_tokens(options)
        y = self.layer(options, x, "--strategy=high_throughput")
        loads = self.folder / "loads.npy"
        for flags in [["--capacity=1"], ["--capacity=1.25", f"--loads={loads}"]]:
            np.testing.assert_array_equal(self.layer(options, x, *flags), y)
        chosen = np.load(self.folder / "dump" / "topk_idx.npy")
        np.testing.assert_array_equal(np.load(loads), np.bincount(chosen.ravel(), minlength=12))
        result = octet_cli.octet("balance", "--experts=12", f"--ranks={self.most}", "--slots=12",
                                 f"--loads={loads}")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_memory_is_listed_before_it_is_there(self):
        shape = ["--family=deepseek_v3", "--ranks=8", "--tokens=8192", "--memory"]
        result = octet_cli.octet("layer", *shape, "--capacity=1.25")
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ["E 256, K 8, H 7168, I 2048, T 8192", "received rows", "workspace  all",
                      "capacity_rows 81920 it is 1.2"]:
            self.assertIn(words, result.stdout.replace("\n# ", " "))
        for flags, words in [(["--capacity=-1"], "--capacity is -1; it must be from 0 to 1024"),
                             (["--strategy=direct", "--capacity=1"], "direct sends rows before"),
                             (["--path=decode"], "decode"),
                             (["--json=x.json"], "--memory runs none")]:
            with self.subTest(flags=flags):
                result = octet_cli.octet("layer", *shape, *flags)
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertIn(words, result.stderr)

    def test_the_layer_asked_for(self):
        for family in ("qwen3_moe", "deepseek_v3"):
            options = self.model(f"--family={family}", "--layers=3")
            x = make_model.make_tokens(options)
            self.assertFalse(np.array_equal(self.layer(options, x, layer=1),
                                            self.layer(options, x, layer=2)))

    def test_tokens_are_split_over_the_ranks(self):
        options = self.model("--family=qwen2_moe", "--tokens=24")
        x = make_model.make_tokens(options)
        for ranks in range(1, self.most + 1):
            with self.subTest(ranks=ranks):
                flat = self.layer(options, x, ranks=ranks)
                split = self.layer(options, x.reshape(ranks, -1, x.shape[1]), ranks=ranks)
                np.testing.assert_array_equal(split.reshape(x.shape), flat)
                self.layer(options, x[:23], ranks=ranks)
                self.layer(options, x[:1], ranks=ranks)

    def test_types_of_x(self):
        options = self.model()
        x = make_model.make_tokens(options)
        y = self.layer(options, x)
        values = to_float(x, bf16=True)
        np.testing.assert_array_equal(self.layer(options, values), y)
        self.layer(options, values.astype(np.float16))

    def test_refused(self):
        options = self.model("--family=deepseek_v3", "--layers=2")
        np.save(self.folder / "x.npy", make_model.make_tokens(options)[:, :-8])
        run = ["layer", f"--output={self.folder / 'y.npy'}", f"--input={self.folder / 'x.npy'}"]
        for layer in (0, 2):
            result = octet_cli.octet(*run, f"--model={options.folder}", f"--layer={layer}")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(str(layer), result.stderr)
        for flags, words in [([f"--model={options.folder}", "--layer=1"], "120"),
                             ([f"--model={self.folder / 'none'}", "--layer=0"], "none")]:
            result = octet_cli.octet(*run, *flags)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(words, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_fusions_on_one_node(self):
        for fusion in ("tiles", "serial"):
            with self.subTest(fusion=fusion):
                result = octet_cli.octet(
                    "layer", "--family=mixtral", "--strategy=high_throughput",
                    f"--fusion={fusion}", *SMALL, "--iters=1", f"--ranks={self.most}")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("high_throughput", result.stdout)

    def test_both_paths(self):
        result = octet_cli.octet("layer", *SMALL[:-1], "--tokens=2", "--path=all", "--iters=1",
                                 f"--ranks={self.most}")
        self.assertEqual(result.returncode, 0, result.stderr)
        launches, decode = result.stdout.split("in one launch")
        for text in (launches, decode):
            self.assertRegex(text, r"\n *layer +\d")
            self.assertIn("0 wrong, the largest error", text)
        self.assertRegex(launches, r"\n *router +\d")
        self.assertNotIn("combine", decode)  # one launch has no parts

    def test_experts_where_a_placement_has_them(self):
        ranks, each = self.most, 12 // self.most
        table = np.full((ranks, each + 2), -1, np.int32)
        table[:, :each] = np.arange(12).reshape(ranks, each)
        table[table == 11] = -1  # 11 experts
        np.save(self.folder / "p.npy", table)
        table[:, each] = (np.arange(ranks) + 1) % ranks * each  # the next rank's first expert
        if ranks == 1:
            table[0, each] = -1
        np.save(self.folder / "next.npy", table)
        given = ["--experts=11", "--topk=3", "--hidden=64", "--intermediate=32", "--tokens=3",
                 f"--ranks={ranks}", "--iters=1", f"--placement={self.folder / 'p.npy'}"]
        result = octet_cli.octet("layer", *given, "--path=all", f"--apply={self.folder / 'next.npy'}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count(f"placed in {each + 2} slots of each rank"), 2)
        copies = ranks if ranks > 1 else 0
        self.assertEqual(result.stdout.count(f"moved: {copies} copies of experts"), 2)
        self.assertEqual(result.stdout.count("moved, checked: "), 2)
        report = self.folder / "report.json"
        result = octet_cli.octet("layer", *given, f"--json={report}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(report.read_text(encoding="utf-8"))["slots"], each + 2)
        for flags, words in [
                ([*given, "--contenders=nccl+cublas"], "give no --placement"),
                ([*given, "--experts=12"], "expert 11 has no slot"),
                ([*given[:-1], "--experts=12", f"--apply={self.folder / 'p.npy'}"],
                 "--apply needs --placement")]:
            with self.subTest(flags=flags):
                result = octet_cli.octet("layer", *flags)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(words, result.stderr)

    def test_flags_that_do_not_fit(self):
        half = self.model("--dtype=f16").folder
        for flags, words in [
                (["--layer=1"], "--layer is one of a model's; it needs --model"),
                ([f"--model={half}", "--weights=bf16"],
                 "--weights is bf16, and the layer's rows are fp16; it must be fp16 or fp8"),
                (["--dtype=bf16", "--weights=fp16"],
                 "--weights is fp16, and the layer's rows are bf16; it must be bf16 or fp8"),
                (["--weights=fp4"], "--weights 'fp4' is not one of fp16, bf16, fp8"),
                ([f"--model={half}", "--hidden=64"], "--hidden is for random weights"),
                (["--tokens=3,4"], "--tokens=3,4 is not a number from 0 to"),
                (["--fusion=none,tiles"], "--fusion 'none,tiles' is not one of auto, none, tiles"),
                (["--path=both"], "--path 'both' is not one of auto, launches, decode, all\n"),
                (["--path=all", "--json=x.json"], "--json is for one path, and --path is all"),
                (["--fusion=epilogue"],
                 "--fusion 'epilogue' is not one of auto, none, tiles, serial\n")]:
            with self.subTest(flags=flags):
                result = octet_cli.octet("layer", *flags)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertIn(words, result.stderr)
        result = octet_cli.octet("layer", f"--model={half}", "--weights=fp16", "--tokens=2",
                                 "--iters=0", f"--ranks={self.most}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("weights fp16", result.stdout)

    def test_a_terminal_sees_the_progress(self):
        reader, writer = pty.openpty()
        try:
            done = subprocess.run(
                [octet_cli.OCTET, "layer", "--experts=12", "--topk=2", "--hidden=64", "--tokens=3",
                 "--intermediate=32", f"--ranks={self.most}", "--iters=1", "--warmup=0"],
                stdout=subprocess.PIPE, stderr=writer, check=False)
            shown = os.read(reader, 4096).decode()
        finally:
            os.close(writer)
            os.close(reader)
        self.assertEqual(done.returncode, 0, shown)
        places = [shown.find(words) for words in ["loading weights: step 1/3", "step 2/3",
                                                  "call 1/1", "checking: step 3/3"]]
        self.assertNotIn(-1, places, shown)
        self.assertEqual(places, sorted(places))
        self.assertTrue(shown.endswith("\r\x1b[K"), shown)  # nothing is left of it

    def test_help_is_about_the_layer(self):
        text = octet_cli.octet("layer", "--help").stdout
        for words in ["--output=\n      y.npy to write", "--tokens=16\n", "--fusion=auto\n",
                      "--experts=\n      E: experts", "topk_weights and y"]:
            self.assertIn(words, text)
        for words in ["octet_trace.json", "dispatch_gemm", "meta.json", "of each rank", "perf also"]:
            self.assertNotIn(words, text)

    def test_contenders(self):
        small = ["layer", "--experts=8", "--topk=2", "--hidden=64", "--intermediate=32",
                 f"--ranks={self.most}", "--tokens=3", "--iters=1", "--warmup=0"]
        for name, words in [("nccl", "is not of the form EXCHANGE+PRODUCTS"),
                            ("pigeons+cublas", "'pigeons' is not one of"),
                            ("memcpy_peer+abacus", "'abacus' is not one of")]:
            result = octet_cli.octet(*small, f"--contenders={name}")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(words, result.stderr)
        result = octet_cli.octet(*small, "--contenders=memcpy_peer+cublas_streams")
        self.assertEqual(result.returncode, 0, result.stderr)
        if "memcpy_peer+cublas_streams is left out: " not in result.stdout:
            self.assertRegex(result.stdout, r"\n *memcpy_peer\+cublas_streams +\d")
        else:
            self.assertRegex(result.stdout, r"\n *layer +\d")


if __name__ == "__main__":
    octet_cli.run_tests()
