"""The program as its users see it: what runs print and write.

    octet_cli_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on.
"""

import json
import os
import resource
import shutil
import subprocess

import octet_cli
from octet_cli import HERE, SMALL, GpuTest, octet, python_with_numpy

# Of each file in turn: flips a bit of the last byte, and counts what check_dump says is wrong.
FLIP_BITS = """
import contextlib, io, pathlib, sys
sys.path.insert(0, sys.argv[1])
import check_dump
folder = pathlib.Path(sys.argv[2])
files = sorted(folder.glob("rank0_*.npy"))
found = 0
check = lambda: check_dump.check(folder, {})
with contextlib.redirect_stdout(io.StringIO()):
    check()
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        try:
            check()
            print("not found:", file, file=sys.stderr)
        except SystemExit as end:
            found += str(end.code).startswith("check_dump: ")
        file.write_bytes(data)
print(found, len(files))
"""


class RunTest(GpuTest):
    def test_full_disk_is_noticed_before_the_run(self):
        words = "cannot write /dev/full: No space left on device"
        for command in [
            ["run", *SMALL, "--json=/dev/full"],
            ["run", *SMALL, "--trace=/dev/full"],
            ["run", "--soak=1", "--json=/dev/full"],
            ["trace", *SMALL, "--output=/dev/full"],
            ["perf", "-b1", "--hidden=64", "-J/dev/full"],
        ]:
            self.assert_refused([*command, "--ranks=1"], words)

    def test_file_that_grows_too_large_is_noticed_after_the_run(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

        path = self.folder / "run.json"
        result = subprocess.run(
            [octet_cli.OCTET, "run", "--ranks=1", *SMALL, "--iters=9", f"--json={path}"],
            preexec_fn=limit, restore_signals=False,  # SIGXFSZ stays ignored
            capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("steps equal the reference", result.stdout)
        self.assertIn(f"cannot write {path}: File too large", result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_json_into_a_named_pipe(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        with subprocess.Popen(["cat", path], stdout=subprocess.PIPE, text=True) as reader:
            self.run_small(f"--json={path}")
            self.assertEqual(json.loads(reader.stdout.read())["program"], "octet run")

    def test_json_into_the_file_of_standard_output(self):
        path = self.folder / "output"
        path.write_text("before\n")
        link = self.folder / "stdout"
        link.symlink_to("/proc/self/fd/1")
        with open(path, "a", encoding="utf-8") as output:
            subprocess.run([octet_cli.OCTET, "run", "--ranks=1", *SMALL, f"--json={link}"],
                           stdout=output, check=True)
        text = path.read_text()
        self.assertTrue(text.startswith("before\n# octet run"), text[:100])
        json.loads(text[text.index("\n{"):])
        self.assertTrue(link.is_symlink())

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
        steps, phases = data[:self.ranks + 1], data[self.ranks + 1:]
        for table in (steps, phases):
            self.assertEqual([row[0] for row in table], [*map(str, range(self.ranks)), "all"])
        for row in steps:
            self.assertEqual(row[-1], "yes")
            self.assertEqual(float(row[-2]), 0)
        for column in [1, 2, 3]:
            self.assertEqual(sum(float(row[column]) for row in steps[:-1]),
                             float(steps[-1][column]))

    def test_no_line_is_wider_than_a_terminal(self):
        for args in [[], ["--strategy=direct", "--cached=false", "--ceilings"],
                     ["--format=fp8", "--expert_alignment=8", "--combine_method=pull", "--cached",
                      "--host_totals", "--scales=ue8m0", "--routing=zipf:1.25"]]:
            text = self.run_small(*args).stdout
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)
            note = "# emulated GPUs: times say nothing about the speed of real ones\n"
            self.assertEqual(note in text, octet_cli.EMULATED)

    def test_same_seed_same_workload(self):
        def counts(*args):
            rows = [line.split() for line in self.run_small(*args).stdout.splitlines()
                    if not line.startswith("#")]
            return [row[1:4] for row in rows[:self.ranks + 1]]

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
                self.assertIn(f"# strategy {strategy} (auto), ", table)
                self.assertIn("# All of 5 steps equal the reference to the bit", table)
                config = json.loads(path.read_text())["runs"][0]["config"]
                self.assertEqual((config["strategy"], config["auto_strategy"]), (strategy, True))
        # Layouts that are used again are nothing that a configuration asks for.
        self.assertIn("# strategy high_throughput, ", self.run_small("--cached").stdout)
        self.run_small("--strategy=direct", f"--json={path}")
        config = json.loads(path.read_text())["runs"][0]["config"]
        self.assertEqual((config["strategy"], config["auto_strategy"]), ("direct", False))
        self.assert_refused(["run", "--ranks=1", "--slots=atomic", "--host_totals"],
                            "no strategy supports all of it: ")

    def test_everything_that_can_be_received_is_verified(self):
        for args in [
            ["--format=fp8"],
            ["--format=fp8", "--scales=ue8m0", "--dtype=fp16", "--combine_order=flat"],
            ["--format=fp8", "--received=deduplicated", "--scales=power_of_two", "--drop=0.3"],
            ["--received=deduplicated", "--combine_method=pull"],
            ["--duplicates=index", "--expert_alignment=8", "--cached"],
            ["--expert_alignment=8", "--combine_method=push", "--drop=0.5"],
            ["--cached", "--combine_method=pull", "--host_totals"],
            ["--format=bytes", "--expert_alignment=8", "--combine_method=pull"],
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
                self.assertIn("# strategy low_latency (auto), ", lines)
                self.assertIn("# All of 5 steps equal the reference to the bit", lines)
                for flag, words in [("--statistics", "statistics"),
                                    ("--failure_policy=mask", "failure_policy mask"),
                                    ("--scale_group=64", "(scales float32 of 64 columns)")]:
                    self.assertEqual(words in lines, flag in args, words)
        self.assert_refused(["run", "--ranks=1", "--failure_policy=ignore"],
                            "failure_policy 'ignore' is not one of abort, mask")
        self.assert_refused(["run", "--ranks=1", "--failure_policy=mask", "--strategy=direct"],
                            "failure_policy needs the strategy low_latency, not direct")
        self.assert_refused(["run", "--ranks=1", "--format=quantized_fp8", "--scale_group=100"],
                            "scale_group is 100; ")
        for received in ["expert_major", "rank_major"]:
            result = octet("perf", f"--ranks={self.ranks}", "--experts=16", "--hidden=64", "-b8",
                           "-n2", "-w1", "-c2", "--topk=4", f"--received={received}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("# Wrong rows          : 0 OK, 4 steps verified", result.stdout)
        result = octet("perf", f"--ranks={self.ranks}", "--experts=16", "--hidden=64", "-b8", "-n2",
                       "-w1", "-c2", "--topk=4", "--strategy=high_throughput", "--format=fp8",
                       "--duplicates=index")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("# Wrong rows          : 0 OK, 4 steps verified", result.stdout)
        self.assertIn("its own kernel", result.stdout)
        for flag in ["--nofuse_expert", "--received=deduplicated", "--duplicates=index"]:
            self.assert_refused(["run", "--ranks=1", *SMALL, "--format=bytes", flag],
                                "--format=bytes: experts are applied inside combine")

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

    def dumps(self):
        """Flags of a run of each strategy, format and layout; the rest varies from run to run."""
        runs = [
            ["--strategy=direct", "--drop=0.2"],
            ["--strategy=direct", "--slots=atomic", "--flags=source", "--routing=zipf:1"],
            ["--tokens=0"],
        ]
        scales = ["float32", "power_of_two", "ue8m0"]
        layouts = [[], ["--expert_alignment=8"], ["--duplicates=index"],
                   ["--duplicates=index", "--expert_alignment=8"], ["--received=deduplicated"]]
        for i, layout in enumerate(layouts):
            for fmt in ["same", "fp8", "bytes"]:
                if fmt == "bytes" and i > 1:
                    continue
                runs.append(["--strategy=high_throughput", f"--format={fmt}", *layout,
                             f"--scales={scales[i % 3]}"])
        for i, received in enumerate(["packed", "expert_major", "rank_major"]):
            runs.append([f"--received={received}", "--strategy=low_latency"])
            for j, scale in enumerate(scales):
                runs.append([f"--received={received}", "--format=quantized_fp8",
                             f"--scales={scale}", f"--scale_group={64 << (i + j) % 3}"])
        for i, flags in enumerate(runs):
            flags += [["--dtype=bf16"], ["--dtype=fp16", "--expert=rank"], ["--nofuse_expert"]][
                0 if "--format=bytes" in flags else i % 3]
            if "--strategy=high_throughput" in flags:
                flags += [["--combine_method=push"], ["--combine_method=pull", "--nocheck"],
                          ["--drop=0.3"]][i % 3]
            if i % 2 and "--received=deduplicated" not in flags:
                flags += ["--combine_order=flat"]
        return runs

    def dump(self, path, *flags):
        self.run_small("--hidden=144", "--max_tokens=8", "--iters=1", "--warmup=0",
                       f"--dump={path}", *flags)
        return path

    def test_dump(self):
        python = python_with_numpy()
        if python is None:
            self.skipTest("no NumPy")
        paths = []
        for i, flags in enumerate(self.dumps()):
            with self.subTest(flags=flags):
                paths.append(self.dump(self.folder / f"dump{i}", *flags))
        result = subprocess.run([python, HERE / "check_dump.py", *paths, f"--ranks={self.ranks}"],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, f"{self.dumps()[result.stdout.count(chr(10))]}: "
                         f"{result.stderr}" if result.returncode else "")
        self.assertEqual(result.stdout.count("to the bit"), len(self.dumps()))
        wrong = subprocess.run([python, HERE / "check_dump.py", paths[0], "--experts=8"],
                               capture_output=True, text=True, check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("--experts=8, but the run had 16", wrong.stderr)

    def test_what_is_wrong_in_a_dump_is_found(self):
        python = python_with_numpy()
        if python is None:
            self.skipTest("no NumPy")
        for flags in [
            ["--strategy=high_throughput", "--format=fp8", "--duplicates=index"],
            ["--strategy=high_throughput", "--received=deduplicated"],
            ["--strategy=high_throughput", "--format=bytes"],
            ["--format=quantized_fp8", "--received=rank_major", "--scales=ue8m0"],
        ]:
            with self.subTest(flags=flags):
                path = self.dump(self.folder / "dump", *flags, "--tokens=8")
                result = subprocess.run([python, "-c", FLIP_BITS, HERE, path], text=True,
                                        capture_output=True, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                found, files = map(int, result.stdout.split())
                self.assertGreater(files, 9)
                self.assertEqual(found, files)

    def test_dump_into_a_used_folder(self):
        path = self.folder / "dump"
        self.dump(path, "--format=fp8")
        self.assertTrue((path / "rank0_recv_scales.npy").exists())
        ranks = self.ranks
        self.ranks = 1
        (path / "rank0_x.npy.123.tmp").write_bytes(b"of a run that was killed")
        self.dump(path)
        names = {file.name for file in path.iterdir()}
        self.ranks = ranks
        meta = json.loads((path / "meta.json").read_text())
        self.assertEqual(names, {"meta.json", *(f"rank0_{name}.npy" for name in meta["arrays"])})
        self.assertNotIn("rank0_recv_scales.npy", names)
        for name, text in [("notes.txt", "mine"), ("rank0_mine.npy", ""), ("meta.json", "{}"),
                           ("meta.json", "[1]"), ("meta.json", "no json"),
                           ("meta.json", '{"program": 5}')]:
            used = self.folder / "used"
            used.mkdir()
            (used / name).write_text(text)
            self.assert_refused(["run", "--ranks=1", *SMALL, f"--dump={used}"],
                                f"cannot dump into {used}: it has {name}, which is not of a dump")
            self.assertEqual((used / name).read_text(), text)
            shutil.rmtree(used)

    def test_a_failed_run_leaves_the_old_dump(self):
        path = self.dump(self.folder / "dump")
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        result = octet("run", f"--ranks={self.ranks}", *SMALL, "--blocks=100000", f"--dump={path}")
        self.assertEqual(result.returncode, 2)
        self.assertEqual({file.name: file.read_bytes() for file in path.iterdir()}, before)

    def test_dumped_routing_is_read_again(self):
        self.run_small(f"--dump={self.folder}/dump", "--tokens=6", "--drop=0.3")
        path = self.folder / "dump" / "rank0_topk_idx.npy"
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

    def run_gemm(self, *args, code=0):
        path = self.folder / "gemm.json"
        result = octet("gemm", "--n=64", "--k=64", "--iters=1", "--warmup=0", f"--json={path}", *args)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout, json.loads(path.read_text())

    def test_gemm(self):
        for args, rows in [(["--rows=3,0,2x9"], [3, 0, 9, 9]),
                           (["--rows=5", "--experts=3"], [5, 5, 5]),
                           (["--rows=routing", "--ranks=4", "--experts=8", "--topk=8",
                             "--tokens=1,2,3,4", "--epilogue=swiglu"], [10, 10]),
                           (["--rows=routing", "--ranks=1", "--experts=2", "--topk=2",
                             "--tokens=3", "--dtype=fp8", "--k=128"], [3, 3]),
                           (["--rows=3,1", "--epilogue=float32"], [3, 1])]:
            with self.subTest(args=args):
                text, data = self.run_gemm(*args)
                self.assertEqual(data["rows"], rows)
                self.assertIn(f": {len(rows)} experts, {sum(rows)} rows, N 64, K {data['k']}, "
                              f"{data['dtype']}", text)
                table = [line.split() for line in text.splitlines() if not line.startswith("#")]
                self.assertEqual(len(table), len(data["measurements"]))
                for line, row in zip(table, data["measurements"]):
                    self.assertEqual(line[0], row["name"] + ("*" if row["chosen"] else ""))
                    self.assertEqual((row["wrong"], row["checked"]), (0, 2048), row["name"])
                    self.assertEqual(line[-2:], ["2048", "0"])
                    for cell, key in [(line[5], "of_peak"), (line[6], "clock_mhz")]:
                        self.assertEqual(cell == "-", row[key] is None)
                        self.assertTrue(row[key] is None or not octet_cli.EMULATED)
                for line in text.splitlines():
                    self.assertLessEqual(len(line), 100, line)

    def test_gemm_with_the_same_seed_has_the_same_rows(self):
        def rows(seed):
            return self.run_gemm("--rows=routing", "--ranks=2", "--experts=8", "--topk=2",
                                 "--tokens=32", f"--seed={seed}")[1]["rows"]

        self.assertEqual(rows(1), rows(1))
        self.assertNotEqual(rows(1), rows(2))

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
