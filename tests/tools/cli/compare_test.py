"""tools/compare.py: finds what became slower, and nothing else.

    compare_test.py [unittest arguments]

Exit code 77 where there is no SciPy.
"""

import copy
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from need_modules import need_modules

need_modules("scipy")
TOOLS = str(pathlib.Path(__file__).resolve().parents[3] / "tools")
sys.path.insert(0, TOOLS)

import compare
import sample_results


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octet_compare_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compare(self, before, after, *flags):
        return sample_results.run(
            compare.main, sample_results.write(self.folder / "before.json", before),
            sample_results.write(self.folder / "after.json", after), *flags)

    def scaled(self, factor, strategy="direct", tokens=16, kind="combine"):
        data = sample_results.perf()
        for row in data["rows"]:
            if (row["strategy"], row["tokens"]) == (strategy, tokens):
                row[kind]["steps_us"] = [us * factor for us in row[kind]["steps_us"]]
        return data

    def marked(self, done):
        return [line.split() for line in done.stdout.splitlines()
                if line.endswith(("SLOWER", "faster", "ERROR"))]

    def test_same(self):
        done = self.compare(sample_results.perf(), sample_results.perf())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.marked(done), [])
        self.assertIn("0 of 18 rows slower", done.stdout)

    def test_one_row_slower(self):
        done = self.compare(sample_results.perf(), self.scaled(1.2))
        self.assertEqual(done.returncode, 1, done.stderr)
        (line,) = self.marked(done)
        self.assertEqual(line[:4] + line[5:6], ["direct", "tokens=16", "combine", "2.60", "+20.0"])
        self.assertEqual(line[-1], "SLOWER")

    def test_faster_is_no_regression(self):
        done = self.compare(sample_results.perf(), self.scaled(0.8))
        self.assertEqual(done.returncode, 0, done.stderr)
        (line,) = self.marked(done)
        self.assertEqual(line[-1], "faster")

    def test_a_small_ceiling_has_figures(self):
        results = sample_results.perf()
        results["ceilings"]["all_to_all_gbps"] = 0.0423
        done = self.compare(results, results)
        self.assertIn("# ceiling: before 0.0423, after 0.0423 GB/s\n", done.stdout)

    def test_threshold(self):
        after = self.scaled(1.04)
        self.assertEqual(self.compare(sample_results.perf(), after).returncode, 0)
        self.assertEqual(self.compare(sample_results.perf(), after, "--threshold=3").returncode, 1)

    def test_noise_is_no_regression(self):
        # The median is far off, but the samples are all over the place.
        before, after = sample_results.perf(), sample_results.perf()
        before["rows"][0]["both"]["steps_us"] = [10, 11, 12, 30, 40, 50, 60]
        after["rows"][0]["both"]["steps_us"] = [10, 11, 12, 45, 40, 50, 60]
        done = self.compare(before, after)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("+33.3", done.stdout)

    def test_p(self):
        # Five samples all above five others: 2 of the 252 orders are as extreme.
        done = self.compare(sample_results.google_benchmark(),
                            sample_results.google_benchmark(1.5))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual([line[-2:] for line in self.marked(done)], [["0.0079", "SLOWER"]] * 3)

    def test_names_of_google_benchmark(self):
        done = self.compare(sample_results.google_benchmark(),
                            sample_results.google_benchmark(1.5))
        self.assertEqual([line[:-5] for line in self.marked(done)],
                         [["direct", "workload=decode", "tokens=8", "dispatch"],
                          ["direct", "workload=challenge1", "dispatch"], ["latency/host_barrier"]])
        self.assertIn("2 × made-up GPU (nowhere)", done.stdout)

    def test_medians_are_shown_where_there_is_nothing_else(self):
        def aggregates(scale):
            data = sample_results.google_benchmark(scale)
            data["benchmarks"] = [
                {**entry, "run_type": "aggregate", "aggregate_name": name, "name": f"x_{name}"}
                for entry in data["benchmarks"] if entry.get("repetition_index") == 0
                for name in ("mean", "median", "stddev")]
            return data
        done = self.compare(aggregates(1), aggregates(1.5))
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(done.stdout.count("medians only"), 3)
        self.assertIn("+50.0", done.stdout)
        self.assertIn("--benchmark_report_aggregates_only=false", done.stderr)
        # Repetitions on one side are no samples of the other.
        done = self.compare(sample_results.google_benchmark(), aggregates(1))
        self.assertEqual((done.returncode, done.stdout.count("medians only")), (2, 3))

    def test_emulated_times_are_called_meaningless(self):
        words = "# emulated GPUs: times say nothing about the speed of real ones"
        data = sample_results.perf()
        self.assertNotIn(words, self.compare(data, data).stdout)
        data["platform"]["name"] = "emulation"
        self.assertIn(words, self.compare(sample_results.perf(), data).stdout.splitlines())

    def test_false_alarms_are_rare(self):
        random.seed(1)
        before = sample_results.perf()
        after = copy.deepcopy(before)
        alarms = 0
        for _ in range(3):
            for data in (before, after):
                for row in data["rows"]:
                    for kind in ("dispatch", "combine", "both"):
                        row[kind]["steps_us"] = [random.gauss(100, 5) for _ in range(20)]
            alarms += len(self.marked(self.compare(before, after, "--threshold=0")))
        self.assertLess(alarms, 10)  # of 54 rows, 2.7 expected

    def test_too_few_samples_are_said(self):
        before, after = sample_results.perf(), self.scaled(2)
        for data in (before, after):
            for row in data["rows"]:
                row["combine"]["steps_us"] = row["combine"]["steps_us"][:3]
        done = self.compare(before, after)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.count("too few samples"), 6)

    def test_nothing_but_too_few_samples_is_no_comparison(self):
        before, after = sample_results.perf(), self.scaled(2)
        for data in (before, after):
            for row in data["rows"]:
                for kind in ("dispatch", "combine", "both"):
                    row[kind]["steps_us"] = row[kind]["steps_us"][:3]
        after["rows"] = after["rows"][2:]
        done = self.compare(before, after)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(done.stdout.count("too few samples"), 12)
        self.assertIn("6 rows are only in before", done.stdout)
        self.assertIn("no row could be compared", done.stderr)
        after["rows"][0]["both"]["wrong"] = 7  # an error needs no samples
        self.assertEqual(self.compare(before, after).returncode, 1)
        before["rows"][2]["both"]["wrong"] = 7  # of what was wrong before nothing can be said
        after["rows"][0]["both"]["wrong"] = 0
        self.assertEqual(self.compare(before, after).returncode, 2)

    def test_error_after(self):
        after = sample_results.google_benchmark()
        after["benchmarks"][0].update(error_occurred=True, error_message="it hung")
        done = self.compare(sample_results.google_benchmark(), after)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ERROR: it hung", done.stdout)

    def test_wrong_results_after(self):
        after = sample_results.perf()
        after["rows"][0]["both"]["wrong"] = 7
        done = self.compare(sample_results.perf(), after)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ERROR: 7 wrong rows", done.stdout)

    def test_rows_of_one_side_are_counted(self):
        after = sample_results.perf()
        after["rows"] = after["rows"][2:]
        done = self.compare(sample_results.perf(), after)
        self.assertEqual(done.returncode, 0)
        self.assertIn("6 rows are only in before", done.stdout)

    def test_a_full_disk_is_no_regression(self):
        path = sample_results.write(self.folder / "perf.json", sample_results.perf())
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([sys.executable, compare.__file__, path, path], stdout=full,
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr,
                         "cannot write all to standard output: No space left on device\n")

    def test_without_scipy(self):
        done = subprocess.run([sys.executable, "-I", "-S", "-c",
                               "import sys; sys.path.insert(0, sys.argv[1]); import compare",
                               TOOLS], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("has no scipy; tools/install_packages.sh plot", done.stderr)

    def test_what_was_asked_for_tells_rows_apart(self):
        for name, other in [("combine_order", "auto"), ("combine_method", "pull"),
                            ("format", "fp8"), ("scales", "ue8m0"), ("received", "deduplicated"),
                            ("duplicates", "index"), ("expert_alignment", 8),
                            ("host_totals", True), ("cached", True), ("scale_group", 64),
                            ("failure_policy", "mask"), ("statistics", True),
                            ("max_blocks", 24)]:
            after = sample_results.perf()
            for row in after["rows"]:
                row[name] = other
            self.assertEqual(self.compare(sample_results.perf(), after).returncode, 2, name)
            both = sample_results.perf()
            both["rows"] += after["rows"]
            done = self.compare(both, both)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"\ndirect {name}={other} tokens=16 combine ", done.stdout)

    def test_other_flags_of_octet_bench_are_another_experiment(self):
        after = sample_results.google_benchmark()
        after["context"]["flags"] = "--align=device"
        done = self.compare(sample_results.google_benchmark(), after)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no row in common", done.stderr)

    def test_nothing_in_common(self):
        done = self.compare(sample_results.perf(), sample_results.google_benchmark())
        self.assertEqual(done.returncode, 2)
        self.assertIn("no row in common", done.stderr)
        done = self.compare({}, {})
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
