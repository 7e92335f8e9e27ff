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
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))

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
        lines = self.lines(sample_results.perf())
        self.assertEqual([gbps for _, gbps in lines[1, "both"]["ceiling"]],
                         [sample_results.CEILING_GBPS] * 2)
        for tokens, us in lines[0, "both"]["ceiling"]:
            self.assertAlmostEqual(us, 2 * tokens / sample_results.CEILING_GBPS)

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
                         [[(8, 10.002)], [(8, 10.002 * 52 / sample_results.CEILING_GBPS)]])
        self.assertEqual(list(bandwidths.get_lines()[0].get_ydata()), [52])

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
