"""The program as its users see it: exit codes, messages, tables and files.

    octet_cli_test.py OCTET

Exit code 77 where there is no GPU to run on.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

OCTET = ""
GPUS = 0
EMULATED = False
SMALL = ["--experts=16", "--topk=4", "--hidden=128", "--max_tokens=24", "--iters=2", "--warmup=1"]
HERE = pathlib.Path(__file__).resolve().parent


def octet(*args, env=None):
    return subprocess.run(
        [OCTET, *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )


def npy(shape, values, kind="<i4"):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    code = {"<i4": "i", "<i8": "q", "<f4": "f"}[kind]
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    return magic + header + struct.pack(f"<{len(values)}{code}", *values)


def python_with_numpy():
    for python in [sys.executable, shutil.which("python3"), "/usr/bin/python3"]:
        if not python or not os.path.exists(python):
            continue
        probe = subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False)
        if probe.returncode == 0:
            return python
    return None


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="octet_cli_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.ranks = min(GPUS, 4)

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def run_small(self, *args, code=0, env=None):
        result = octet("run", f"--ranks={self.ranks}", *SMALL, *args, env=env)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def assert_refused(self, args, words, code=2, env=None):
        """One line on stderr with `words` in it, nothing on stdout."""
        result = octet(*args, env=env)
        with self.subTest(args=args):
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertTrue(result.stderr.startswith("octet"), result.stderr)
            self.assertIn(words, result.stderr)


class UsageTest(CliTest):
    def test_help(self):
        for args in [["--help"], ["-h"], ["help"], ["run", "--help"], ["topo", "--help"]]:
            result = octet(*args)
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout.startswith("usage: octet"))
            self.assertEqual(result.stderr, "")
        self.assertIn("--max_tokens=256\n", octet("run", "--help").stdout)

    def test_without_a_command(self):
        result = octet()
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("usage: octet"))

    def test_commands_and_flags(self):
        self.assert_refused(["rnu"], "unknown command 'rnu'; did you mean 'run'?")
        self.assert_refused(["run", "--hiden=8"], "did you mean '--hidden'?")
        self.assert_refused(["run", "--zzzzzz"], "unknown flag '--zzzzzz'\n")
        self.assert_refused(["run", "hidden"], "'hidden' is no flag")
        self.assert_refused(["run", "-x"], "'-x' is no flag")
        self.assert_refused(["run", "--"], "'--' is no flag")
        self.assert_refused(["run", "--hidden"], "--hidden needs a value")
        self.assert_refused(["run", "--hidden=8x"], "--hidden=8x is not a whole number")
        self.assert_refused(["run", "--hidden="], "is not a whole number")
        self.assert_refused(["run", "--hidden=99999999999"], "too large")
        self.assert_refused(["run", "--drop=much"], "is not a number")
        self.assert_refused(["run", "--check=maybe"], "is not true or false")
        self.assert_refused(["run", "--nohidden"], "unknown flag '--nohidden'")
        self.assert_refused(["topo", "--ranks=8"], "unknown flag '--ranks'")

    def test_values(self):
        for flag, words in [
            ("--experts=0", "--experts=0 is not from 1 to 2048"),
            ("--hidden=100", "hidden is 100; it must be a multiple of 8"),
            ("--topk=0", "topk is 0"),
            ("--topk=33", "topk is 33"),
            ("--max_tokens=0", "max_tokens_per_rank is 0"),
            ("--max_tokens=1", "max_tokens is 1"),
            ("--tokens=257", "is to have 257 tokens"),
            ("--tokens=-1", "is to have -1 tokens"),
            ("--tokens=1,x", "--tokens=1,x is neither"),
            ("--dtype=fp8", "dtype 'fp8' is not one of"),
            ("--strategy=fast", "strategy 'fast' is not one of"),
            ("--routing=zipf", "routing 'zipf' is not one of"),
            ("--routing=group:3/2", "3 of 2 groups"),
            ("--drop=1.1", "drop is 1.1"),
            ("--drop=nan", "drop is nan"),
            ("--expert=best", "--expert=best is not id or rank"),
            ("--slots=x", "--slots=x is not prefix or atomic"),
            ("--flags=x", "--flags=x is not token or source"),
            ("--align=x", "--align=x is not host or device"),
            ("--iters=0", "--iters=0 is not from 1"),
            ("--warmup=-1", "--warmup=-1 is not from 0"),
            ("--blocks=-1", "none may be negative"),
            ("--heap_mb=-1", "--heap_mb=-1 is not from 0"),
            ("--timeout_ms=-1", "--timeout_ms=-1 is not from 0"),
            ("--ranks=17", "--ranks=17 is not from 1 to 16"),
            ("--ranks=-1", "--ranks=-1 is not from 1 to 16"),
            ("--workload=all", "--workload=all is not challenge"),
            ("--json=/no/such/folder/file", "cannot write /no/such/folder/file"),
            ("--trace=/", "cannot write /"),
        ]:
            self.assert_refused(["run", "--ranks=1", flag], words)
        self.assert_refused(["run", "--soak=0"], "--soak=0 is not from 1")
        self.assert_refused(["run", "--soak=1", "--hidden=8"], "--hidden does not go with --soak")
        self.assert_refused(["run", "--soak=1", "--nocheck"], "--check does not go with --soak")
        self.assert_refused(
            ["run", "--workload=challenge", "--hidden=8"], "--hidden does not go with --workload"
        )

    def test_recorded_routing(self):
        def refuse(path, words, *flags):
            args = ["run", "--ranks=1", "--experts=8", f"--routing=file:{path}", *flags]
            self.assert_refused(args, words)

        good = npy((2, 2), [0, 1, 2, 3])
        refuse("/no/such.npy", "cannot read /no/such.npy: No such file")
        refuse(self.folder, "cannot read")
        refuse("/dev/zero", "cannot read /dev/zero: it has more than")
        refuse(self.file("text.npy", b"hello"), "not a .npy file")
        refuse(self.file("short.npy", good[:-1]), "cut short")
        refuse(self.file("header.npy", good[:20]), "malformed .npy header")
        refuse(self.file("float.npy", npy((2, 2), [0, 1, 2, 3], "<f4")), "dtype is float32")
        refuse(self.file("vector.npy", npy("(4,)", [0, 1, 2, 3])), "neither [ranks, T, K] nor")
        refuse(self.file("ranks.npy", npy((2, 1, 2), [0, 1, 2, 3])), "has 2 ranks; 1 are to run")
        refuse(
            self.file("big.npy", npy((1, 2), [0, 2**40], "<i8")),
            "element 1 is 1099511627776, which does not fit into int32",
        )
        refuse(
            self.file("range.npy", npy((2, 2), [0, 1, 2, 8])),
            "rank 0, token 1, k 1: expert id 8 is not from -1 (dropped) to 7",
        )
        refuse(
            self.file("twice.npy", npy((2, 2), [0, 1, 5, 5])),
            "rank 0, token 1, k 1: expert id 5 is there already",
        )
        refuse(self.file("topk.npy", npy((1, 33), [-1] * 33)), "topk is 33; it must be from 1 to 8")
        refuse(self.file("empty.npy", npy((0, 2**31 - 1), [])), "topk is 2147483647")
        path = self.file("good.npy", good)
        refuse(path, "--tokens does not go with", "--tokens=2")
        refuse(path, "has 2 choices for a token; topk is 4", "--topk=4")
        refuse(path, "is to have 2 tokens", "--max_tokens=1")


class RunTest(CliTest):
    def test_machine(self):
        self.assert_refused(["run", "--ranks=16", "--experts=16"], "--ranks=16 needs as many GPUs")
        if self.ranks > 1:
            self.assert_refused(
                ["run", f"--ranks={self.ranks}", "--experts=17"], "must be divisible by the"
            )
            self.assert_refused(
                ["run", f"--ranks={self.ranks}", "--tokens=1,2,3,4,5"], "are given for 5 ranks"
            )

    def test_heap(self):
        self.assert_refused(
            ["run", "--ranks=1", "--heap_mb=1"], "the heap is too small: "
        )
        self.run_small("--heap_mb=8")

    def test_dump_into_no_folder(self):
        path = self.file("file", b"")
        self.assert_refused(["run", "--ranks=1", *SMALL, f"--dump={path}"], "cannot make folder")

    def test_launch_shapes(self):
        self.assert_refused(["run", "--ranks=1", *SMALL, "--waves=999"], "waves_per_block is 999")
        self.assert_refused(["run", "--ranks=1", *SMALL, "--blocks=100000"], "100000 blocks")

    def test_timeout_variable(self):
        self.assert_refused(
            ["run", "--ranks=1", *SMALL], "OCTET_TIMEOUT_MS is 'soon'", env={"OCTET_TIMEOUT_MS": "soon"}
        )

    def test_table(self):
        lines = self.run_small().stdout.splitlines()
        data = [line.split() for line in lines if not line.startswith("#")]
        self.assertEqual(len(data), self.ranks + 1)
        self.assertEqual(data[-1][0], "all")
        for row in data:
            self.assertEqual(row[-1], "yes")
            self.assertEqual(float(row[-2]), 0)
        for column in [1, 2, 3]:
            self.assertEqual(sum(float(row[column]) for row in data[:-1]), float(data[-1][column]))

    def test_same_seed_same_workload(self):
        def counts(*args):
            return [line.split()[1:4] for line in self.run_small(*args).stdout.splitlines()
                    if not line.startswith("#")]

        self.assertEqual(counts("--seed=9"), counts("--seed=9"))
        self.assertNotEqual(counts("--seed=9"), counts("--seed=10"))

    def test_options(self):
        for args in [
            ["--dtype=fp16", "--expert=rank", "--tokens=24"],
            ["--slots=atomic", "--flags=source", "--fuse_expert=false"],
            ["--routing=zipf:1.2", "--drop=0.3", "--align=device"],
            ["--routing=group:2/4", "--nofuse_expert", "--row_parts=1"],
            ["--routing=one_expert", "--blocks=4", "--send_blocks=1", "--waves=2"],
            ["--tokens=0", "--warmup", "0"],
            ["--drop=1"],
            ["--nocheck"],
        ]:
            with self.subTest(args=args):
                self.run_small(*args)

    def test_auto_says_what_was_chosen(self):
        path = self.folder / "run.json"
        for args, strategy in [
            ([], "low_latency"),
            (["--slots=atomic"], "direct"),
            (["--format=fp8"], "high_throughput"),
            (["--format=quantized_fp8", "--combine_order=flat"], "low_latency"),
        ]:
            with self.subTest(args=args):
                table = self.run_small(*args, f"--json={path}").stdout
                self.assertIn(f", strategy {strategy} (auto), ", table)
                self.assertIn("# All of 5 steps equal the reference to the bit", table)
                config = json.loads(path.read_text())["runs"][0]["config"]
                self.assertEqual((config["strategy"], config["auto_strategy"]), (strategy, True))
        # Layouts that are used again are nothing that a configuration asks for.
        self.assertIn(", strategy high_throughput, ", self.run_small("--cached").stdout)
        self.run_small("--strategy=direct", f"--json={path}")
        config = json.loads(path.read_text())["runs"][0]["config"]
        self.assertEqual((config["strategy"], config["auto_strategy"]), ("direct", False))
        self.assert_refused(["run", "--ranks=1", "--slots=atomic", "--host_totals"],
                            "no strategy can do all of it: ")

    def test_everything_that_can_be_received_is_verified(self):
        for args in [
            ["--format=fp8"],
            ["--format=fp8", "--scales=ue8m0", "--dtype=fp16", "--combine_order=flat"],
            ["--format=fp8", "--received=deduplicated", "--scales=power_of_two", "--drop=0.3"],
            ["--received=deduplicated", "--combine_method=pull"],
            ["--duplicates=index", "--expert_alignment=8", "--cached"],
            ["--expert_alignment=8", "--combine_method=push", "--drop=0.5"],
            ["--cached", "--combine_method=pull", "--host_totals"],
        ]:
            with self.subTest(args=args):
                lines = self.run_small("--strategy=high_throughput", *args).stdout
                self.assertIn("# All of 5 steps equal the reference to the bit", lines)
        for args in [
            ["--received=expert_major"],
            ["--received=rank_major", "--drop=0.3"],
            ["--received=expert_major", "--format=quantized_fp8", "--combine_order=flat"],
            ["--received=rank_major", "--format=quantized_fp8", "--scales=ue8m0"],
            ["--received=expert_major", "--nofuse_expert", "--dtype=fp16", "--tokens=0"],
            ["--received=rank_major", "--nofuse_expert", "--routing=one_expert"],
        ]:
            with self.subTest(args=args):
                lines = self.run_small(*args).stdout
                self.assertIn(", strategy low_latency (auto), ", lines)
                self.assertIn("# All of 5 steps equal the reference to the bit", lines)
        for received in ["expert_major", "rank_major"]:
            result = octet("perf", f"--ranks={self.ranks}", "--experts=16", "--hidden=64", "-b8",
                           "-n2", "-w1", "-c2", "--topk=4", f"--received={received}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("# Wrong rows          : 0 OK, 4 steps verified", result.stdout)
            self.assert_refused(["run", "--ranks=1", f"--received={received}", "--dump=d"],
                                "no --received but packed")
        result = octet("perf", f"--ranks={self.ranks}", "--experts=16", "--hidden=64", "-b8", "-n2",
                       "-w1", "-c2", "--topk=4", "--strategy=high_throughput", "--format=fp8",
                       "--duplicates=index")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("# Wrong rows          : 0 OK, 4 steps verified", result.stdout)
        self.assertIn("its own kernel", result.stdout)
        self.assert_refused(
            ["run", "--ranks=1", "--strategy=high_throughput", "--format=fp8", "--dump=d"],
            "it goes with neither fp8 nor",
        )

    def test_json(self):
        path = self.folder / "run.json"
        self.run_small("--tokens=5", "--drop=0.5", "--strategy=direct", f"--json={path}")
        report = json.loads(path.read_text())
        self.assertEqual(report["schema"], 1)
        self.assertEqual(len(report["platform"]["gpus"]), GPUS)
        (run,) = report["runs"]
        self.assertEqual(run["config"]["tokens"], [5] * self.ranks)
        self.assertEqual(run["config"]["drop"], 0.5)
        self.assertEqual(len(run["steps"]), 2)
        self.assertEqual(len(run["steps_by_phases"]), 2)
        self.assertEqual(len(run["ranks"]), self.ranks)
        self.assertIs(run["total"]["verification"]["bitwise"], True)
        times = sorted(step["all_us"] for step in run["steps"])
        self.assertAlmostEqual(run["total"]["all_us"]["median"], sum(times) / 2)
        self.assertAlmostEqual(run["total"]["all_us"]["min"], times[0])
        for step in run["steps"]:
            self.assertEqual(max(rank["all_us"] for rank in step["ranks"]), step["all_us"])
            sent = sum(rank["rows_sent"] for rank in step["ranks"])
            self.assertEqual(sent, sum(rank["rows_received"] for rank in step["ranks"]))
        self.assertEqual(list(self.folder.iterdir()), [path])

    def test_trace(self):
        path = self.folder / "trace.json"
        self.run_small(f"--trace={path}")
        trace = json.loads(path.read_text())
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        slices = [event for event in events if event["ph"] == "X"]
        self.assertEqual({event["pid"] for event in slices}, set(range(self.ranks)))
        self.assertGreater(len({event["tid"] for event in slices}), 1)
        self.assertGreaterEqual(min(event["ts"] for event in slices), 0)

    def test_dump(self):
        python = python_with_numpy()
        if python is None:
            self.skipTest("no NumPy")
        for flags, check in [
            (["--drop=0.2"], []),
            (["--dtype=fp16", "--expert=rank", "--nofuse_expert"], ["--expert=rank"]),
            (["--combine_order=flat"], ["--combine_order=flat"]),
            (["--slots=atomic", "--routing=zipf:1"], ["--any_order", "--combine_order=flat"]),
            (["--tokens=0"], []),
        ]:
            with self.subTest(flags=flags):
                self.run_small(f"--dump={self.folder}/dump", *flags)
                result = subprocess.run(
                    [python, HERE / "check_dump.py", self.folder / "dump",
                     f"--ranks={self.ranks}", "--experts=16", *check],
                    capture_output=True, text=True, check=False,
                )
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_dumped_routing_is_read_again(self):
        self.run_small(f"--dump={self.folder}", "--tokens=6", "--drop=0.3")
        path = self.folder / "rank0_topk_idx.npy"
        result = octet("run", "--ranks=1", "--experts=16", "--hidden=64", "--iters=1",
                       f"--routing=file:{path}", f"--json={self.folder}/run.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        config = json.loads((self.folder / "run.json").read_text())["runs"][0]["config"]
        self.assertEqual((config["tokens"], config["topk"], config["max_tokens"]), ([6], 4, 6))

    def test_soak(self):
        path = self.folder / "soak.json"
        result = octet("run", "--soak=1", f"--ranks={self.ranks}", "--seed=8", f"--json={path}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        self.assertIn("equal the reference to the bit; 0 errors\n", result.stdout)
        rows = [line.split() for line in result.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(rows[-1][0], "all")
        self.assertGreater(int(rows[-1][1]), 0)
        soak = json.loads(path.read_text())["soak"]
        self.assertEqual(soak["errors"], 0)
        self.assertEqual(soak["total"]["shapes"], int(rows[-1][1]))
        self.assertEqual(soak["total"]["rows"], sum(each["rows"] for each in soak["variants"]))

    def test_soak_ends_with_the_first_error(self):
        result = octet("run", "--soak=60", f"--ranks={self.ranks}", "--timeout_ms=1")
        if result.returncode == 0:
            return  # GPUs that are quick enough
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("then 1 ERROR", result.stdout)
        lines = result.stderr.splitlines()
        self.assertIn("waited", lines[2])  # below it, perhaps, what all ranks waited for
        words = lines[1].split()
        self.assertEqual(words[:2], ["octet", "run"])
        again = octet(*words[1:])
        self.assertIn(again.returncode, [0, 4], again.stderr)

    def test_deadline(self):
        result = octet("run", f"--ranks={self.ranks}", "--iters=1", "--timeout_ms=1")
        if result.returncode != 0:  # a GPU may be quick enough
            self.assertEqual(result.returncode, 4, result.stderr)
            self.assertIn("waited", result.stderr)

    def test_schedule(self):
        if not EMULATED:
            self.assert_refused(["run", "--schedule=7"], "only emulated GPUs")
            return
        for text in ["0", "late:7", "lap:", "lap:x"]:
            self.assert_refused(["run", f"--schedule={text}"], f"'{text}' is no schedule")

        def times(schedule):
            path = self.folder / "run.json"
            table = self.run_small(f"--schedule={schedule}", f"--json={path}").stdout
            (run,) = json.loads(path.read_text())["runs"]
            self.assertIn(f"# schedule {run['config']['schedule']};", table)
            steps = run["steps"] + run["steps_by_phases"]
            for step in steps:
                del step["host_us"]  # the only real time
            return run["config"]["schedule"], steps

        for schedule in ["9", "delay_device:9"]:
            with self.subTest(schedule=schedule):
                name, steps = times(schedule)
                self.assertEqual((name, steps), times(name))
        self.assertNotEqual(times("9")[1], times("lap:8")[1])

        failed = octet("run", "--hidden=64", "--timeout_ms=1", "--schedule=starve_wave:17")
        self.assertEqual(failed.returncode, 4, failed.stderr)
        self.assertIn("replay: --schedule=starve_wave:17\n", failed.stderr)


class PerfTest(CliTest):
    SHAPE = ["--experts=16", "--topk=4", "--hidden=128", "-n2", "-w", "1"]

    def perf(self, *args, code=0):
        result = octet("perf", f"-g{self.ranks}", *self.SHAPE, *args)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_usage(self):
        self.assertIn("  -b, --begin=128\n", octet("perf", "--help").stdout)
        for flag, words in [
            ("-b5x", "--begin=5x is not a number of tokens"),
            ("-b-1", "--begin=-1 is not a number of tokens"),
            ("-e65K", "--end=65K is more than the 65536 tokens"),
            ("-e4", "--end=4 is less than --begin=128"),
            ("-c-1", "--check_steps=-1 is not from 0"),
            ("-T-1", "--timeout=-1 is not from 0"),
            ("--strategy=direct,fast", "'fast' is not one of"),
            ("--max_tokens=4", "unknown flag '--max_tokens'"),
            ("-J/no/such/folder/file", "cannot write /no/such/folder/file"),
        ]:
            self.assert_refused(["perf", "-g1", flag], words)
        self.assert_refused(["perf", "-i1", "-f2"], "exclude one another")

    def test_table_and_json(self):
        path = self.folder / "perf.json"
        result = self.perf("-b", "1", "-e", "9", "-f3", "-c1", f"-J{path}")
        self.assertEqual(result.stderr, "")
        lines = result.stdout.splitlines()
        data = [line.split() for line in lines if not line.startswith("#")]
        self.assertEqual([row[0] for row in data], ["1", "3", "9"])
        columns = next(line for line in lines if line.startswith("# tokens ")
                       and "hidden" in line).split()[1:]
        report = json.loads(path.read_text())
        self.assertEqual((report["schema"], report["program"]), (1, "octet perf"))
        self.assertEqual([row["tokens"] for row in report["rows"]], [1, 3, 9])
        for row, figures in zip(data, report["rows"]):
            self.assertEqual(len(row), len(columns))
            self.assertEqual(row[1:6], ["128", "4", "16", "bf16", "low_latency"])
            for place, kind in [(7, "dispatch"), (14, "combine"), (21, "both")]:
                times = figures[kind]["steps_us"]
                self.assertEqual(len(times), 2)
                self.assertAlmostEqual(float(row[place]), sum(times) / 2, delta=0.06)
                self.assertAlmostEqual(figures[kind]["us"]["max"], max(times))
                self.assertEqual(row[place + 6], "0")
                self.assertEqual(figures[kind]["wrong"], 0)
        self.assertTrue(any(line.startswith("# Avg wire bandwidth") for line in lines))
        self.assertTrue(any(line.endswith("0 OK, 6 steps verified") for line in lines))

    def test_options(self):
        for args in [
            ["-b4", "-c0", "-dfp16", "--nofuse_expert", "--align=device"],
            ["-b0", "-e4", "-i4", "--drop=0.5"],
            ["-b4", "--strategy=direct,auto", "-c9"],
        ]:
            with self.subTest(args=args):
                data = [line for line in self.perf(*args).stdout.splitlines()
                        if not line.startswith("#")]
                self.assertEqual(len(data), 1 if "-c0" in args else 2)
                self.assertEqual(data[0].endswith("N/A"), "-c0" in args)

    def test_deadline(self):
        result = octet("perf", f"-g{self.ranks}", "-n1", "-T0.001")
        if result.returncode != 0:  # a GPU may be quick enough
            self.assertEqual(result.returncode, 4, result.stderr)


class TraceTest(CliTest):
    def trace(self, *args, code=0):
        result = octet("trace", f"--ranks={self.ranks}", *SMALL,
                       f"--output={self.folder}/trace.json", *args)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_usage(self):
        self.assert_refused(["trace", "--ranks=1", "--output=/no/such/folder/file"], "cannot write")
        self.assert_refused(["trace", "--ranks=1", "--workload=challenge"], "unknown flag")

    def test_summary_and_file(self):
        for args in [["--tokens=9"], ["--flags=source", "--slots=atomic"], ["--tokens=0"]]:
            with self.subTest(args=args):
                lines = self.trace(*args).stdout.splitlines()
                data = [line for line in lines if not line.startswith("#")]
                if "--tokens=0" not in args:
                    phases = [line for line in data if line[0].isalpha()]
                    self.assertEqual([line[:18].strip() for line in phases],
                                     ["dispatch send", "dispatch receive", "combine send",
                                      "combine receive"])
                    self.assertTrue(any(line.startswith("#   combine   launch ") for line in lines))
                table = [line.split() for line in data[-self.ranks:]]
                self.assertEqual([row[0] for row in table], [str(r) for r in range(self.ranks)])
                self.assertTrue(all(len(row) == self.ranks + 2 for row in table))
                self.assertTrue(any(line.startswith("# tracing costs") for line in lines))
                events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
                waits = [event for event in events if event["name"] == "wait counts"]
                self.assertEqual({event["pid"] for event in waits}, set(range(self.ranks)))
                for event in waits:
                    self.assertIn(event["args"].get("peer", 0), range(self.ranks))


    def test_layouts_that_are_used_again_are_not_exchanged(self):
        for args, exchanges in [([], True), (["--cached"], False)]:
            table = self.trace("--strategy=high_throughput", *args).stdout
            self.assertEqual("\n  exchange " in table, exchanges)


    def test_overlap(self):
        self.assert_refused(["trace", "--ranks=1", "--overlap_us=-1"], "--overlap_us is -1")
        # Long enough to end after the sends of emulated GPUs, too.
        for strategy in ["low_latency", "direct"]:
            with self.subTest(strategy=strategy):
                lines = self.trace("--overlap_us=40000", "--tokens=9", "--iters=1",
                                   f"--strategy={strategy}").stdout.splitlines()
                table = [line.split() for line in lines if not line.startswith("#")]
                self.assertEqual([len(row) for row in table], [6])
                alone, kernel, in_turn, overlapped, hidden, percent = map(float, table[0])
                self.assertGreater(min(alone, kernel, in_turn, overlapped), 0)
                self.assertAlmostEqual(hidden, in_turn - overlapped, delta=0.2)
                self.assertAlmostEqual(percent, hidden / alone * 100, delta=0.2)
                events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
                self.assertIn("combine receive", [event.get("cat") for event in events])
                for rank in range(self.ranks):
                    self.check_overlapped([e for e in events if e["pid"] == rank and "cat" in e])

    def check_overlapped(self, events):
        """Of one rank: a kernel, then what dispatch receives; the same of combine."""
        def spans(category):
            return sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == category)
        compute = spans("compute")
        half = len(compute) // 2
        self.assertGreater(half, 0)
        order = [compute[:half], spans("dispatch receive"), compute[half:],
                 spans("combine receive")]
        order = [part for part in order if part]
        for before, after in zip(order, order[1:]):
            self.assertLessEqual(max(end for _, end in before), min(start for start, _ in after))


class TuneTest(CliTest):
    SHAPE = ["-g1", "--experts=8", "--topk=2", "--hidden=64", "-b8", "-n2", "-w1", "--budget=1"]

    def test_usage(self):
        bad = self.file("bad.json", b'{"schema": 1, "entries": [{"blocks": 3}]}')
        for flag, words in [
            ("--budget=0", "--budget must be more than 0"),
            ("--strategy=direct,auto", "--strategy takes one strategy"),
            ("--strategy=fast", "strategy 'fast' is not one of"),
            ("--blocks=4", "unknown flag '--blocks'"),
            ("--output=/no/such/folder/file", "cannot write /no/such/folder/file"),
            (f"--output={bad}", f"tuning {bad}: entries[0]: field 'platform' is missing"),
        ]:
            self.assert_refused(["tune", "-g1", flag], words)

    def test_what_is_found_is_used(self):
        for strategy, tuning in [
            ("direct", {"blocks": 2, "send_blocks": 1, "waves": 1, "row_parts": 3}),
            ("high_throughput",
             {"blocks": 3, "waves": 4, "send_waves": 1, "combine_send_waves": 3, "row_parts": 2,
              "row_copies": "bulk"}),
            ("low_latency", {"blocks": 2, "send_blocks": 1, "waves": 2, "row_parts": 1}),
        ]:
            with self.subTest(strategy=strategy):
                self.check_tuning(strategy, tuning)

    def check_tuning(self, strategy, tuning):
        path = self.folder / f"{strategy}.json"
        strategy = f"--strategy={strategy}"
        result = octet("tune", *self.SHAPE, strategy, f"--output={path}")
        self.assertEqual(result.returncode, 0, result.stderr)
        table = json.loads(path.read_text())
        self.assertEqual(table["schema"], 1)
        taken = result.stdout.count(": taken")
        self.assertEqual(len(table["entries"]), taken)
        lines = [line.split() for line in result.stdout.splitlines()]
        self.assertIn(["#", *tuning, "time", "built-in"], lines)
        self.assertGreater(len([line for line in lines if line[0] != "#"]), 1)

        # What was found, or something else if nothing was.
        entry = table["entries"][0] if taken else {
            "strategy": path.stem, "ranks": 1, "rows": [16, 31], "row_bytes": [128, 255]}
        name = json.loads(self.json_of("topo.json", "--iters=1"))["platform"]
        entry.update(platform=name["name"], gpu=name["gpus"][0]["name"], **tuning)
        path.write_text(json.dumps({"schema": 1, "entries": [entry]}))
        config = json.loads(self.json_of("run.json", strategy, env={"OCTET_TUNING": str(path)}))
        config = config["runs"][0]["config"]
        for field, value in tuning.items():
            self.assertEqual(config[field], value)

    def test_the_strategy_that_is_found_is_used(self):
        path = self.folder / "auto.json"
        result = octet("tune", *self.SHAPE, f"--output={path}")
        self.assertEqual(result.returncode, 0, result.stderr)
        for strategy in ["direct", "high_throughput", "low_latency"]:
            self.assertIn(f"# 8 tokens on every rank, {strategy}: candidates\n", result.stdout)
        choices = [entry for entry in json.loads(path.read_text())["entries"]
                   if entry["strategy"] == "auto"]
        # Of the rules, and of what is found: either may be the faster one here.
        if "auto stays" in result.stdout:
            self.assertEqual(choices, [])
            found = "low_latency"
        else:
            found = choices[0]["chosen"]
            self.assertIn(f"# 8 tokens: {found} takes", result.stdout)
        config = json.loads(self.json_of("run.json", env={"OCTET_TUNING": str(path)}))
        self.assertEqual(config["runs"][0]["config"]["strategy"], found)

        one = ["tune", *self.SHAPE, "--format=fp8", f"--output={path}"]
        result = octet(*one)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("# direct is left out: dispatch_format", result.stdout)
        self.assertIn("auto stays high_throughput, which is the fastest", result.stdout)

    def json_of(self, name, *args, env=None):
        shape = ["--ranks=1", "--experts=8", "--topk=2", "--hidden=64", "--max_tokens=8"]
        result = octet("run", *shape, "--iters=1", f"--json={self.folder / name}", *args, env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return (self.folder / name).read_text()

    def test_malformed_file(self):
        path = self.file("tuning.json", b"{")
        self.assert_refused(["run", "--ranks=1", *SMALL], f"tuning {path} is no JSON object",
                            env={"OCTET_TUNING": str(path)})


def main():
    global OCTET, GPUS, EMULATED
    if len(sys.argv) < 2:
        sys.exit("usage: octet_cli_test.py OCTET [unittest arguments]")
    OCTET = sys.argv.pop(1)
    topo = octet("topo")
    if topo.returncode == 0:
        rows = [line for line in topo.stdout.split("# peer access")[0].splitlines()
                if not line.startswith("#")]
        GPUS = len(rows)
        EMULATED = topo.stdout.startswith("# platform emulation")
    if GPUS == 0:
        for tests in [RunTest, PerfTest, TraceTest, TuneTest]:
            tests.__unittest_skip__ = True
            tests.__unittest_skip_why__ = "no GPU"
    program = unittest.main(exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(0 if GPUS > 0 else 77)


if __name__ == "__main__":
    main()
