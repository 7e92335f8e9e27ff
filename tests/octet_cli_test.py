"""The program as its users see it: exit codes, messages, tables and files.

    octet_cli_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on.
"""

import json
import subprocess

import octet_cli
from octet_cli import HERE, SMALL, CliTest, GpuTest, npy, octet, python_with_numpy


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

    def test_version(self):
        result = octet("--version")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^octet \d+\.\d+\.\d+, (emulation|nvidia|amd), commit \w+")

    def test_full_disk(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for args in [["--version"], ["run", "--help"]]:
                result = subprocess.run([octet_cli.OCTET, *args], stdout=full,
                                        stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(result.returncode, 2)
                self.assertTrue(result.stderr.startswith(
                    "octet: cannot write all to standard output"), result.stderr)

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


class RunTest(GpuTest):
    def test_full_disk_for_a_file(self):
        # It is said when the GPUs have done their work; it is not their error.
        for command, flag in [("run", "--json"), ("run", "--trace"), ("trace", "--output")]:
            result = octet(command, "--ranks=1", *SMALL, f"{flag}=/dev/full")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("cannot write /dev/full: No space left on device", result.stderr)

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

    def test_only_one_strategy_keeps_layouts(self):
        for strategy in ["direct", "low_latency"]:
            self.assert_refused(
                ["run", "--ranks=1", *SMALL, "--cached", f"--strategy={strategy}"],
                f"--cached: only high_throughput keeps layouts, not {strategy}",
            )

    def test_emulation_variables(self):
        if not octet_cli.EMULATED:
            self.skipTest("real GPUs")
        for name, value, words in [
            ("DEVICES", "eight", "'eight': not a whole number from 1 to 16"),
            ("DEVICES", "17", "'17': not a whole number from 1 to 16"),
            ("DEVICES", "-1", "'-1': not a whole number"),
            ("WAVE_SIZE", "48", "'48': not 32 or 64"),
            ("MEMORY_MB", "99999999999999999999", "not a whole number from 1 to 32768"),
            ("STACK_KB", "16k", "'16k': not a whole number from 0 to 8192"),
            ("SCHEDULE", "late:1", "'late:1': not SEED or KIND:SEED"),
        ]:
            name = f"OCTET_EMULATION_{name}"
            for command in [["topo"], ["run", *SMALL]]:
                self.assert_refused(command, f"{name} is {words}" if words[0] == "'" else words,
                                    env={name: value})

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
            ["--failure_policy=mask"],
            ["--failure_policy=mask", "--statistics", "--combine_order=flat"],
            ["--statistics", "--format=quantized_fp8", "--scale_group=64"],
        ]:
            with self.subTest(args=args):
                lines = self.run_small(*args).stdout
                self.assertIn(", strategy low_latency (auto), ", lines)
                self.assertIn("# All of 5 steps equal the reference to the bit", lines)
                for flag, words in [("--statistics", "statistics"),
                                    ("--failure_policy=mask", "failure_policy mask"),
                                    ("--scale_group=64", "(scales float32 of 64 columns)")]:
                    self.assertEqual(words in lines, flag in args, words)
        self.assert_refused(["run", "--ranks=1", "--failure_policy=ignore"],
                            "--failure_policy=ignore is not abort or mask")
        self.assert_refused(["run", "--ranks=1", "--failure_policy=mask", "--strategy=direct"],
                            "need the strategy low_latency")
        self.assert_refused(["run", "--ranks=1", "--format=quantized_fp8", "--scale_group=100"],
                            "scale_group is 100; ")
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
        self.assertEqual(len(report["platform"]["gpus"]), octet_cli.GPUS)
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
        if not octet_cli.EMULATED:
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


if __name__ == "__main__":
    octet_cli.run_tests()
