#!/usr/bin/env python3
"""Runs octet_bench on emulated GPUs: every benchmark, its JSON, and what happens when one fails.

usage: octet_bench_test.py OCTET_BENCH
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
CONTENDERS = ["direct", "high_throughput", "low_latency", "memcpy_peer"]
KINDS = ["dispatch", "combine", "both"]
WORKLOADS = ["small_T4", "small_drawn"]
PRODUCTS = ["fused_16x16384", "dsv3_up_64x512", "dsv3_down_64x512", "qwen3_up_32x1024",
            "qwen3_down_32x1024", "dsv3_up_64x16", "dsv3_down_64x16",
            "dsv3_up_fp8_64x512", "dsv3_up_fp8_64x16"]


def run(*args, environment=None):
    return subprocess.run([PROGRAM, "--ranks=2", *args], capture_output=True, text=True,
                          env={**os.environ, **(environment or {})}, check=False)


def names_of(result):
    return {entry["name"].split("/iterations")[0] for entry in result["benchmarks"]}


class OctetBenchTest(unittest.TestCase):

    def test_every_benchmark_runs_and_says_what_it_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bench.json")
            done = run("--benchmark_repetitions=2", f"--benchmark_out={path}",
                       "--benchmark_out_format=json")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                result = json.load(file)
        for key in ["octet_commit", "platform", "gpu", "ranks", "driver_version"]:
            self.assertIn(key, result["context"])
        self.assertEqual(result["context"]["platform"], "emulation")
        self.assertIn("times say nothing about the speed of real", result["context"]["note"])
        self.assertIn("times say nothing about the speed of real", done.stdout + done.stderr)
        ceiling = float(result["context"]["ceiling_all_to_all_GBps"])
        wanted = {f"{kind}/{contender}/{workload}"
                  for kind in KINDS for contender in CONTENDERS for workload in WORKLOADS}
        wanted |= {f"{kind}/low_latency/small_fp8_T4" for kind in KINDS}
        wanted |= {f"latency/{name}" for name in
                   ["empty_launch", "host_barrier", "node_barrier", "coordinated_launch", "launch_skew",
                    "flag_round_trip/0-1"]}
        wanted |= {f"links/{pattern}/{mover}/blocks:4/row:14336"
                   for pattern in ["all_to_all", "pair:0-1", "pair:1-0"]
                   for mover in ["stores", "loads", "bulk"]}
        wanted |= {"gemm/small_4x32", "gemm/small_fp8_2x3"}
        wanted |= {"layer/small_T4", "layer/small_fp8_T2", "layer/small_T2/path:launches",
                   "layer/small_T2/path:decode"}
        wanted |= {f"placement/plan_{shape}" for shape in
                   ["E256_R8_S40", "E256_R64_S5", "E2048_R64_S40"]}
        wanted |= {f"links/{pattern}/copy_engine" for pattern in ["all_to_all", "pair:0-1"]}
        self.assertLessEqual(wanted, names_of(result))
        for entry in result["benchmarks"]:
            self.assertNotIn("error_occurred", entry)
            if entry["run_type"] == "aggregate":
                continue
            if "launch_skew" not in entry["name"]:  # may be less than the clocks are exact
                self.assertGreater(entry["real_time"], 0, entry["name"])
            if entry["name"].startswith("links/"):
                self.assertGreater(entry["wire_GBps"], 0, entry["name"])
                self.assertAlmostEqual(entry["of_ceiling"] * ceiling / entry["wire_GBps"], 1,
                                       delta=0.01)
            if entry["name"].startswith("gemm/small_4x32"):
                seconds = entry["real_time"] * 1e-6
                self.assertAlmostEqual(entry["TFLOPps"] * seconds * 1e12 / (2 * 128 * 128 * 64), 1,
                                       delta=0.001)
                self.assertAlmostEqual(entry["weights_TBps"] * seconds * 1e12 / (4 * 128 * 64 * 2),
                                       1, delta=0.001)
                self.assertNotIn("of_peak", entry)
            if entry["name"].split("/")[0] in KINDS:
                self.assertAlmostEqual(entry["of_ceiling"] * ceiling / entry["wire_GBps"], 1,
                                       delta=0.01)
                for counter in ["logical_GBps", "wire_GBps", "of_ceiling", "rows"]:
                    self.assertGreater(entry[counter], 0, entry["name"])
        aggregates = {entry["aggregate_name"] for entry in result["benchmarks"]
                      if entry["run_type"] == "aggregate"}
        self.assertLessEqual({"median", "min", "p99", "cv"}, aggregates)

    def test_contenders_have_the_workloads_that_they_can_do(self):
        listed = run("--all_shapes", "--ranks=8", "--benchmark_list_tests")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        found = {contender: set() for contender in CONTENDERS}
        products = set()
        for name in listed.stdout.split():
            kind, contender, workload = (name.split("/") + ["", ""])[:3]
            if kind == "gemm":
                products.add(contender)
            if kind == "dispatch":
                found[contender].add(workload)
        few = {f"challenge{i}" for i in range(1, 6)} | {
            f"decode_T{tokens}" for tokens in (1, 16, 64, 128, 256, 512)} | {
            f"decode_E288_T{tokens}" for tokens in (1, 16, 64, 128)} | {
            f"decode_{routing}_T128" for routing in ("zipf", "group", "one_expert")}
        many = {"prefill_T4096", "prefill_T8192", "triton_T32768", "triton_weighted_T4096",
                "fused_T32768"} | {
            f"prefill_{routing}_T4096" for routing in ("zipf", "group", "one_expert")}
        self.assertEqual(products, set(PRODUCTS))
        self.assertEqual(found["direct"], few | many)
        self.assertEqual(found["memcpy_peer"], few | many)
        self.assertEqual(found["high_throughput"],
                         few | many | {"prefill_fp8_T4096", "prefill_fp8_T8192"})
        self.assertEqual(found["low_latency"],
                         few | {name.replace("_T", "_fp8_T") for name in few
                                if name.startswith(("decode_T", "decode_E288"))})

    def test_a_failure_is_in_the_json_and_in_the_exit_code(self):
        done = run("--benchmark_filter=dispatch/direct/small_T4", "--benchmark_format=json",
                   "--benchmark_repetitions=1", "--blocks=1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("blocks is 1", done.stderr)
        errors = [entry for entry in json.loads(done.stdout)["benchmarks"]
                  if entry.get("error_occurred")]
        self.assertEqual(len(errors), 1)
        self.assertIn("blocks is 1", errors[0]["error_message"])
        self.assertEqual(json.loads(done.stdout)["context"]["flags"], "--blocks=1")

    def test_a_program_is_given_every_repetition(self):
        one = ["--benchmark_filter=dispatch/direct/small_T4", "--benchmark_repetitions=3"]
        entries = json.loads(run(*one, "--benchmark_format=json").stdout)["benchmarks"]
        kinds = [entry["run_type"] for entry in entries]
        self.assertEqual(kinds.count("iteration"), 3)
        self.assertGreater(kinds.count("aggregate"), 0)
        # A person is given a line for each aggregate.
        self.assertNotIn("manual_time  ", run(*one).stdout)

    def test_one_rank_has_no_links(self):
        def refuse(constant):
            raise AssertionError(f"{constant} is no JSON")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bench.json")
            done = run("--ranks=1", "--benchmark_filter=latency|both/direct", f"--benchmark_out={path}",
                       "--benchmark_repetitions=2")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                result = json.load(file, parse_constant=refuse)
        names = names_of(result)
        self.assertIn("latency/node_barrier", names)
        self.assertIn("both/direct/small_T4", names)
        self.assertNotIn("latency/launch_skew", names)
        for entry in result["benchmarks"]:
            self.assertNotIn("of_ceiling", entry)

    def test_results_that_cannot_be_written(self):
        one = "--benchmark_filter=host_barrier"
        for path, words in [("/no/such/folder/file", "cannot write /no/such/folder/file: No such"),
                            ("/dev/full", "cannot write /dev/full: No space left on device")]:
            done = run(one, f"--benchmark_out={path}")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stdout, "")  # before anything is measured
            self.assertIn(f"octet_bench: {words}", done.stderr)
        with tempfile.TemporaryDirectory() as folder:  # noticed afterwards
            path = os.path.join(folder, "bench.json")
            done = subprocess.run(
                [PROGRAM, "--ranks=2", one, f"--benchmark_out={path}"], capture_output=True,
                text=True, restore_signals=False, check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"octet_bench: cannot write all to {path}", done.stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:
            for words in [[one], ["--help"]]:
                done = subprocess.run([PROGRAM, "--ranks=2", *words], stdout=full,
                                      stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("cannot write all to standard output", done.stderr)

    def test_usage(self):
        self.assertEqual(run("--benchmark_filter=carrier_pigeon").returncode, 2)
        unknown = run("--frobnicate=1")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("frobnicate", unknown.stderr)
        help_text = run("--help")
        self.assertEqual(help_text.returncode, 0)
        self.assertIn("--all_shapes", help_text.stdout)


if __name__ == "__main__":
    unittest.main()
