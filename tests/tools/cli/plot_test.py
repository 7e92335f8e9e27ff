"""tools/plot.py: the picture has what the file has, and is the same every time.

    plot_test.py OCTET [unittest arguments]

Exit code 77 where there is no Matplotlib.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from need_modules import need_modules

need_modules("matplotlib")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))

import plot
import results
import sample_results

OCTET = ""


class PlotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octet_plot_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, data):
        return sample_results.write(self.folder / "perf.json", data)

    def plot(self, data, name="out.svg"):
        return sample_results.run(plot.main, self.file(data), self.folder / name)

    def lines(self, data):
        """{(row of axes, kind): {label: [(x, y), ...]}}"""
        picture = plot.figure(results.read(self.file(data)))
        columns = len(picture.axes) // 2
        found = {}
        for i, axes in enumerate(picture.axes):
            kind = picture.axes[i % columns].get_title()
            found[i // columns, kind] = {
                line.get_label(): list(zip(*line.get_data())) for line in axes.get_lines()}
        return found

    def test_lines_are_the_figures_in_order_of_tokens(self):
        lines = self.lines(sample_results.perf())
        self.assertEqual(set(lines), {(row, kind) for row in (0, 1)
                                      for kind in ("dispatch", "combine", "both")})
        for kind in ("dispatch", "combine", "both"):
            self.assertEqual(set(lines[0, kind]), {"direct", "peer", "ceiling"})
            for strategy, slow in sample_results.STRATEGIES.items():
                for (tokens, us), expected in zip(lines[0, kind][strategy], (1, 16, 256)):
                    self.assertEqual(tokens, expected)
                    self.assertAlmostEqual(us, slow * (1 + 0.1 * expected))
                for (tokens, gbps), (_, us) in zip(lines[1, kind][strategy],
                                                   lines[0, kind][strategy]):
                    self.assertAlmostEqual(gbps, 2 * tokens / us)

    def test_ceiling(self):
        data = sample_results.perf()
        data["ceilings"]["all_to_all_gbps"] = 20
        lines = self.lines(data)
        ceiling = 40  # logical: of two ranks half of the rows stay
        self.assertEqual([gbps for _, gbps in lines[1, "both"]["ceiling"]], [ceiling] * 2)
        self.assertEqual([tokens for tokens, _ in lines[0, "both"]["ceiling"]], [1, 16, 256])
        for tokens, us in lines[0, "both"]["ceiling"]:
            self.assertAlmostEqual(us, 2 * tokens / ceiling)

    def words(self, picture, row):
        """What is written into the axes of a row."""
        return [text.get_text() for axes in picture.axes[3 * row:3 * row + 3] for text in axes.texts]

    def test_small_ceilings_have_figures(self):
        data = sample_results.perf()
        data["ceilings"]["all_to_all_gbps"] = 0.1234
        picture = plot.figure(results.read(self.file(data)))
        self.assertEqual(self.words(picture, 1), ["ceiling 0.247 GB/s"] * 3)

    def test_a_high_ceiling_flattens_no_line(self):
        data = sample_results.perf()
        highest = max(row["both"]["logical_gbps"] for row in data["rows"])
        data["ceilings"]["all_to_all_gbps"] = 5 * highest  # logical: twice that
        picture = plot.figure(results.read(self.file(data)))
        self.assertAlmostEqual(picture.axes[3].get_ylim()[1], 1.25 * highest)
        self.assertEqual(self.words(picture, 1), [f"ceiling {10 * highest:.3g} GB/s, far above"] * 3)
        self.assertNotIn("ceiling", self.lines(data)[1, "both"])
        self.assertIn("ceiling", self.lines(data)[0, "both"])

    def test_what_has_no_number_of_tokens_is_named(self):
        done = self.plot(sample_results.google_benchmark())
        self.assertEqual(done.returncode, 0)
        self.assertIn("not in the picture", done.stderr)
        self.assertTrue(done.stderr.endswith(": challenge1, latency/host_barrier\n"), done.stderr)
        self.assertEqual(self.plot(sample_results.perf()).stderr, "")

    def test_one_legend_for_all(self):
        picture = plot.figure(results.read(self.file(sample_results.perf())))
        (legend,) = picture.legends
        self.assertEqual([text.get_text() for text in legend.get_texts()],
                         ["direct", "peer", "ceiling"])
        self.assertEqual([axes.get_legend() for axes in picture.axes], [None] * 6)

    def test_a_name_looks_alike_in_every_picture(self):
        few, many = plot.styles(["low_latency", "x"]), plot.styles(["x", "direct", "low_latency"])
        self.assertEqual(few["low_latency"], many["low_latency"])
        looks = plot.styles([f"line{i}" for i in range(5)] + list(plot.STYLES))
        self.assertEqual(len({look["color"] for look in looks.values()}), len(looks))

    def test_up_to_4096_tokens(self):
        data = sample_results.perf()
        data["rows"] = [{**data["rows"][0], "tokens": 1 << i} for i in range(13)]
        axes = plot.figure(results.read(self.file(data))).axes[0]
        self.assertEqual(list(axes.get_xticks()), [4 ** i for i in range(6, -1, -1)])

    def test_the_suffix_decides(self):
        for suffix, magic in [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF-"),
                              ("PNG", b"\x89PNG")]:
            done = self.plot(sample_results.perf(), f"out.{suffix}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((self.folder / f"out.{suffix}").read_bytes().startswith(magic))
        for name in ["out", "out.jpg", "out.svg.txt"]:
            done = self.plot(sample_results.perf(), name)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr, f"{self.folder / name}: the name of a picture ends in "
                                          ".svg, .png, .pdf\n")
            self.assertFalse((self.folder / name).exists())

    def test_emulated_times_are_called_meaningless(self):
        data = sample_results.perf()
        words = "times say nothing about the speed of real ones"
        self.plot(data)
        self.assertNotIn(words, (self.folder / "out.svg").read_text())
        data["platform"]["name"] = "emulation"
        self.plot(data)
        self.assertIn(words, (self.folder / "out.svg").read_text())
        data = sample_results.google_benchmark()
        data["context"]["platform"] = "emulation"
        self.plot(data)
        self.assertIn(words, (self.folder / "out.svg").read_text())

    def test_no_ceiling_of_a_single_rank(self):
        data = sample_results.perf()
        data["ceilings"]["all_to_all_gbps"] = 0
        self.assertEqual(set(self.lines(data)[0, "both"]), {"direct", "peer"})

    def test_what_varies_tells_lines_apart(self):
        data = sample_results.perf()
        for row in list(data["rows"]):
            data["rows"].append({**row, "hidden": 128})
        self.assertEqual(set(self.lines(data)[0, "both"]),
                         {"direct, hidden 64", "direct, hidden 128",
                          "peer, hidden 64", "peer, hidden 128", "ceiling"})

    def test_autos_choice_beside_the_same_by_name(self):
        data = sample_results.perf()
        for row in list(data["rows"]):
            if row["strategy"] == "direct":
                data["rows"].append({**row, "auto_strategy": True})
        self.assertEqual(set(self.lines(data)[0, "both"]), {"direct", "direct*", "peer", "ceiling"})
        for row in data["rows"]:  # without the other it has the plain name
            row["auto_strategy"] = row["strategy"] == "direct"
        data["rows"] = data["rows"][:6]
        self.assertEqual(set(self.lines(data)[0, "both"]), {"direct", "peer", "ceiling"})

    def test_the_title_says_what_is_unusual(self):
        data = sample_results.perf()
        title = plot.title(results.read(self.file(data)))
        self.assertTrue(title.endswith("hidden 64, dtype fp16, routing uniform"), title)
        for row in data["rows"]:
            row.update(format="fp8", cached=True, drop=0.5)
        title = plot.title(results.read(self.file(data)))
        self.assertTrue(title.endswith("routing uniform, drop 0.5, format fp8, cached"), title)

    def test_what_octet_perf_writes(self):
        if subprocess.run([OCTET, "topo"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no GPU")
        path = self.folder / "perf.json"
        subprocess.run([OCTET, "perf", "-b", "2", "-e", "8", "-f", "4", "-n", "5", "-w", "1", "-g",
                        "1", "--experts=8", "--topk=2", "--hidden=64", "-J", path],
                       capture_output=True, check=True)
        measured = results.read(path)
        self.assertEqual({(row.tokens, row.kind) for row in measured.rows},
                         {(tokens, kind) for tokens in (2, 8) for kind in results.PERF_KINDS})
        for row in measured.rows:
            self.assertEqual(len(row.us), 5)
        plot.save(plot.figure(measured), self.folder / "perf.svg")

    def test_what_peers_do_not_have_tells_nothing(self):
        data = sample_results.perf()
        for row in data["rows"]:
            if row["strategy"] == "peer":
                row["slots"] = row["flags"] = None
        self.assertEqual(set(self.lines(data)[0, "both"]), {"direct", "peer", "ceiling"})

    def test_google_benchmark(self):
        self.assertEqual(self.plot(sample_results.google_benchmark()).returncode, 0)
        measured = results.read(self.file(sample_results.google_benchmark()))
        measured.rows = measured.rows[:1]
        times, bandwidths = plot.figure(measured).axes
        self.assertEqual([list(zip(*line.get_data())) for line in times.get_lines()],
                         [[(8, 10.002)], [(8, 10.002 * 52 / sample_results.LOGICAL_CEILING_GBPS)]])
        self.assertEqual(list(bandwidths.get_lines()[0].get_ydata()), [52])

    def layers(self, *layers):
        paths = [sample_results.write(self.folder / f"layer{i}.json", layer)
                 for i, layer in enumerate(layers)]
        return paths, sample_results.run(plot.main, *paths, self.folder / "layers.svg")

    def test_layers(self):
        layers = [sample_results.layer(16, 20.0), sample_results.layer(1, 10.0),
                  sample_results.layer(4, 5.0, experts=16)]
        paths, done = self.layers(*layers)
        self.assertEqual(done.returncode, 0, done.stderr)
        picture = plot.picture_of(paths)
        lines = [{line.get_label().split(":")[0]: list(zip(*line.get_data()))
                  for line in axes.get_lines()} for axes in picture.axes]
        self.assertEqual(lines[0], {
            "peer": [(1, 0.05), (16, 0.4)],
            "layer": [(1, 0.1), (16, 0.8)], "layer, from a graph": [(1, 0.2), (16, 1.6)],
            # 3 µs for the weights, then 8 µs for the products; 0.5 µs a token on links
            "roofline": [(1, 1 / 3), (16, 2.0)], "links": [(1, 2.0), (16, 2.0)]})
        self.assertEqual(lines[1]["layer"], [(4, 0.8)])
        text = (self.folder / "layers.svg").read_text()
        for words in ("2 × made-up GPU (nowhere)", "mixtral: H 64, I 32, top 2 of 16", "roofline"):
            self.assertIn(words, text)
        unknown = {"peak_tflops": None, "memory_tbps": None, "link_gbps": None}
        paths, done = self.layers(sample_results.layer(1, 10.0, limits=unknown,
                                                       platform="emulation"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(plot.picture_of(paths).axes[0].get_lines()), 3)
        self.assertIn("times say nothing", (self.folder / "layers.svg").read_text())

    def test_bad_layers(self):
        good = sample_results.layer(1, 10.0)
        wrong = sample_results.layer(1, 10.0)
        wrong["check"]["wrong"] = 3
        wrong_peer = sample_results.layer(1, 10.0)
        wrong_peer["contenders"][0]["check"] = {**wrong["check"], "wrong": 5}
        incomplete = sample_results.layer(1, 10.0)
        del incomplete["work"]["flops"]
        for layers, words in [
                ([wrong], "3 wrong elements"), ([wrong_peer], "5 wrong elements"), ([incomplete], "'flops'"),
                ([sample_results.layer(1, 10.0, rows=[], contenders=[])], "no times"),
                ([sample_results.layer(1, 10.0, schema=9)], "schema 9"),
                ([good, good], "there twice"),
                ([good, sample_results.layer(2, 10.0, gpu="other")], "2 × other"),
                ([good, sample_results.perf()], "is not of octet layer"),
                ([sample_results.perf(), sample_results.perf()], "several files")]:
            with self.subTest(words):
                (self.folder / "layers.svg").unlink(missing_ok=True)
                _, done = self.layers(*layers)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertFalse((self.folder / "layers.svg").exists())

    def test_what_octet_layer_writes(self):
        if subprocess.run([OCTET, "topo"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no GPU")
        paths = [self.folder / f"layer{tokens}.json" for tokens in (1, 3)]
        for tokens, path in zip((1, 3), paths):
            subprocess.run([OCTET, "layer", "--family=deepseek_v3", "--ranks=2", "--iters=2",
                            "--hidden=64", "--intermediate=32", f"--tokens={tokens}",
                            f"--json={path}"], capture_output=True, check=True)
        axes = plot.picture_of(paths).axes[0]
        self.assertEqual(list(axes.get_lines()[0].get_xdata()), [1, 3])

    def test_same_bytes_every_time(self):
        self.assertEqual(self.plot(sample_results.perf(), "a.svg").returncode, 0)
        self.assertEqual(self.plot(sample_results.perf(), "b.svg").returncode, 0)
        a, b = ((self.folder / name).read_bytes() for name in ("a.svg", "b.svg"))
        self.assertEqual(a, b)
        text = "".join(xml.etree.ElementTree.fromstring(a).itertext())
        for words in ("2 × made-up GPU (nowhere)", "experts 8", "direct", "peer", "ceiling"):
            self.assertIn(words, text)
        self.assertNotIn("date", text.lower())

    def test_no_such_folder(self):
        done = self.plot(sample_results.perf(), "nowhere/out.svg")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nowhere/out.svg: No such file or directory", done.stderr)

    def test_bad_files(self):
        other = sample_results.perf()
        other["schema"] = 99
        twice = sample_results.perf()
        twice["rows"].append(twice["rows"][0])
        incomplete = sample_results.perf()
        del incomplete["rows"][0]["combine"]
        untold = sample_results.google_benchmark()
        untold["benchmarks"] = [each for each in untold["benchmarks"] if "_T8" not in each["name"]]
        wrong = sample_results.perf()
        wrong["rows"][0]["both"]["wrong"] = 7
        for data, words in [(wrong, "direct, 256 tokens, both: 7 wrong"), (other, "schema 99"),
                            (twice, "twice"), (incomplete, "'combine'"), ({}, "neither"),
                            (untold, "against tokens")]:
            with self.subTest(words):
                done = self.plot(data)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(list(self.folder.glob("*.svg*")), [])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: plot_test.py OCTET [unittest arguments]")
    OCTET = sys.argv.pop(1)
    unittest.main()
