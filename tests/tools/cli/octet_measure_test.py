"""The commands that measure, as their users see them: perf, trace and tune.

    octet_measure_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on.
"""

import json
import os
import pty
import signal
import subprocess

import octet_cli
from octet_cli import SMALL, GpuTest, octet


class PerfTest(GpuTest):
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
            ("--strategy=direct,fast", "strategy 'fast' is not one of direct"),
            ("--max_tokens=4", "unknown flag '--max_tokens'"),
            ("-J/no/such/folder/file", "cannot write /no/such/folder/file"),
        ]:
            self.assert_refused(["perf", "-g1", flag], words)
        self.assert_refused(["perf", "-i1", "-f2"], "exclude each other")
        for flag in ["--cached", "--host_totals"]:
            self.assert_refused(["perf", "-g1", "--graph", "--strategy=high_throughput", flag],
                                "--graph goes with neither --cached nor --host_totals")

    def test_table_and_json(self):
        path = self.folder / "perf.json"
        result = self.perf("-b", "1", "-e", "9", "-f3", "-c1", f"-J{path}")
        self.assertEqual(result.stderr, "")
        lines = result.stdout.splitlines()
        data = [line.split() for line in lines if not line.startswith("#")]
        kinds = ["dispatch", "combine", "both"]
        self.assertEqual([(row[0], row[3]) for row in data],
                         [(tokens, kind) for tokens in ["1", "3", "9"] for kind in kinds])
        self.assertIn("# experts 16, topk 4, hidden 128, bf16; routing uniform, drop 0, seed 4", lines)
        for line in lines:
            self.assertLessEqual(len(line), 100, line)
        columns = next(line.split() for line in lines if line.split()[1:2] == ["tokens"])[1:]
        report = json.loads(path.read_text())
        self.assertEqual((report["schema"], report["program"]), (1, "octet perf"))
        self.assertEqual([row["tokens"] for row in report["rows"]], [1, 3, 9])
        for i, row in enumerate(data):
            figures = report["rows"][i // 3][row[3]]
            self.assertEqual(len(row), len(columns))
            self.assertEqual(row[1], "low_latency*")
            times = figures["steps_us"]
            self.assertEqual(len(times), 2)
            self.assertAlmostEqual(float(row[4]), sum(times) / 2, delta=0.06)
            self.assertAlmostEqual(figures["us"]["max"], max(times))
            self.assertEqual(row[10], "0")
            self.assertEqual(figures["wrong"], 0)
        note = "# emulated GPUs: times say nothing about the speed of real ones"
        self.assertEqual(note in lines, octet_cli.EMULATED)
        self.assertTrue(any(line.startswith("# Avg wire bandwidth") for line in lines))
        self.assertTrue(any(line.endswith("0 OK, 6 steps verified") for line in lines))

    def test_json_when_interrupted(self):
        path = self.folder / "perf.json"
        args = ["perf", f"-g{self.ranks}", *self.SHAPE, "-b1", "-e900", "-i1", f"-J{path}"]
        with subprocess.Popen([octet_cli.OCTET, *args], stdout=subprocess.PIPE, text=True) as perf:
            for line in perf.stdout:
                if line.split()[0] == "3":  # the third number of tokens
                    break
            perf.send_signal(signal.SIGINT)
            perf.stdout.read()
        self.assertEqual(perf.returncode, -signal.SIGINT)
        rows = json.loads(path.read_text())["rows"]
        self.assertEqual([row["tokens"] for row in rows[:2]], [1, 2])

    def test_rows_and_progress_come_while_it_runs(self):
        terminal, stderr = pty.openpty()  # keeps the little that there is until it is read
        args = ["perf", f"-g{self.ranks}", *self.SHAPE, "-b1", "-e3", "-i1", "-n5"]
        with subprocess.Popen([octet_cli.OCTET, *args], stdout=subprocess.PIPE, stderr=stderr,
                              text=True) as perf:
            os.close(stderr)
            first = next(line for line in perf.stdout if not line.startswith("#"))
            perf.send_signal(signal.SIGINT)
            rest = perf.stdout.read()
        self.assertEqual(first.split()[0], "1")
        self.assertNotIn("# Wrong rows", rest)
        progress = os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        self.assertIn("\r\x1b[Klow_latency, 1 tokens: timed step 1/5", progress)

    def test_progress_counts_all_steps_of_a_kind(self):
        terminal, stderr = pty.openpty()
        args = ["perf", f"-g{self.ranks}", *self.SHAPE, "-b1", "-n3", "-c1"]
        done = subprocess.run([octet_cli.OCTET, *args], stdout=subprocess.PIPE, stderr=stderr,
                              check=False)
        os.close(stderr)
        progress = os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        self.assertEqual(done.returncode, 0, progress)
        for kind in ["step", "step by calls"]:
            for words in [f"timed {kind} 1/3", f"timed {kind} 2/3", f"verified {kind} 3/3"]:
                self.assertEqual(progress.count(f": {words}"), 1, progress)

    def test_emulated_gpus_have_small_defaults(self):
        if not octet_cli.EMULATED:
            self.skipTest("GPUs have the defaults of --help")
        small = "experts 32, topk 4, hidden 256, "
        for args in [["perf", "-n1", "-w0"],
                     ["trace", "--iters=1", "--warmup=0", f"--output={self.folder}/t.json"]]:
            with self.subTest(args=args):
                self.assertIn(small, octet(*args).stdout)
                self.assertIn("(on emulated GPUs 32, unless given)\n", octet(args[0], "--help").stdout)
        self.assertNotIn("on emulated GPUs", octet("run", "--help").stdout)
        self.assertIn("experts 64, topk 4, ", octet("perf", "-n1", "-w0", "--experts=64").stdout)
        self.assertIn(" N 256, K 256, ", octet("gemm", "--iters=1", "--warmup=0").stdout)

    def test_json_into_a_pipe_is_one(self):
        lines = self.perf("-b1", "-e2", "-J/dev/stdout").stdout
        self.assertEqual(len(json.loads(lines[lines.index("\n{") :])["rows"]), 2)

    def test_options(self):
        for args in [
            ["-b4", "-c0", "-dfp16", "--nofuse_expert", "--align=device"],
            ["-b0", "-e4", "-i4", "--drop=0.5"],
            ["-b4", "--strategy=direct,auto", "-c9"],
        ]:
            with self.subTest(args=args):
                data = [line for line in self.perf(*args).stdout.splitlines()
                        if not line.startswith("#")]
                self.assertEqual(len(data), 3 if "-c0" in args else 6)
                self.assertEqual(data[0].endswith("N/A"), "-c0" in args)

    def test_autos_choice_beside_the_same_by_name(self):
        path = self.folder / "perf.json"
        result = self.perf("-b4", "--strategy=low_latency,auto", f"-J{path}")
        data = [line.split() for line in result.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual([row[1] for row in data], ["low_latency"] * 3 + ["low_latency*"] * 3)
        rows = json.loads(path.read_text())["rows"]
        self.assertEqual([row["strategy"] for row in rows], ["low_latency", "low_latency"])
        self.assertEqual([row["auto_strategy"] for row in rows], [False, True])

    def test_what_does_not_exist_here_is_left_out(self):
        for peer in ["nccl", "rccl"]:
            result = octet("perf", f"-g{self.ranks}", *self.SHAPE, "-b2", f"--strategy={peer}")
            if result.returncode == 0:
                continue  # it does
            self.assertEqual(result.returncode, 77, result.stderr)
            self.assertEqual(result.stderr, "octet perf: none of the strategies exists here\n")
            self.assertIn(f"# {peer} is left out: ", result.stdout)
            lines = self.perf("-b2", f"--strategy={peer},direct").stdout.splitlines()
            self.assertIn(f"# {peer} is left out: ", lines[0])
            self.assertEqual([line.split()[1] for line in lines if not line.startswith("#")],
                             ["direct"] * 3)

    def test_replays_beside_calls(self):
        path = self.folder / "perf.json"
        result = self.perf("-b0", "-e3", "-i3", "-c2", "--graph", "-w0",
                           "--strategy=direct,low_latency,high_throughput,memcpy_peer",
                           f"-J{path}")
        data = [line.split() for line in result.stdout.splitlines() if not line.startswith("#")]
        names = [name + way for name in ["direct", "low_latency", "high_throughput"]
                 for way in ["", "+"]]
        kinds = len(["dispatch", "combine", "both"])  # a line each
        peers = ["memcpy_peer"] if len(data) > 2 * kinds * len(names) else []
        shown = [row[1] for row in data[::kinds]]
        self.assertEqual(shown, 2 * [*names, *peers])
        rows = json.loads(path.read_text())["rows"]
        self.assertEqual([row["graph"] for row in rows], [name.endswith("+") for name in shown])
        for row in rows:
            self.assertEqual(row["verified_steps"], 4)
            for kind in ["dispatch", "combine", "both"]:
                self.assertEqual((len(row[kind]["steps_us"]), row[kind]["wrong"]), (2, 0))

    def test_deadline(self):
        result = octet("perf", f"-g{self.ranks}", "-n1", "-T0.001")
        if result.returncode != 0:  # a GPU may be quick enough
            self.assertEqual(result.returncode, 4, result.stderr)


class TraceTest(GpuTest):
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
                for line in lines:
                    self.assertLessEqual(len(line.replace(str(self.folder), "")), 100, line)
                note = "# emulated GPUs: times say nothing about the speed of real ones"
                self.assertEqual(note in lines, octet_cli.EMULATED)
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


    def test_usage_of_products(self):
        for args, words in [
            (["--operation=sum"], "--operation 'sum' is not one of step, gemm"),
            (["--rows=8"], "--rows does not go with --operation=step"),
            (["--tiles=wide"], "--tiles does not go with --operation=step"),
            (["--operation=gemm", "--overlap_us=5"], "--overlap_us does not go with"),
            (["--operation=gemm", "--tiles=wide,few16"], "--tiles takes one tile shape"),
            (["--operation=gemm", "--rows=0"], "no expert has rows"),
            (["--operation=gemm", "--n=12", "--k=64"], "GroupedGemmConfig::n is 12"),
            (["--operation=gemm", "--output=/no/such/folder/file"], "cannot write"),
        ]:
            self.assert_refused(["trace", *args], words)

    def test_products(self):
        path = self.folder / "gemm.json"
        for args in [[], ["--tiles=few16", "--dtype=fp8", "--epilogue=swiglu", "--blocks=2"]]:
            with self.subTest(args=args):
                result = octet("trace", "--operation=gemm", "--rows=70,0,3", "--n=144", "--k=64",
                               "--iters=2", "--warmup=0", f"--output={path}", *args)
                self.assertEqual(result.returncode, 0, result.stderr)
                lines = result.stdout.splitlines()
                self.assertTrue(all(len(line) <= 100 for line in lines), result.stdout)
                self.assertTrue(any(line.startswith("# tracing costs") for line in lines))
                works = {tuple(line.split()[:2]): line.split()[2:]
                         for line in lines if not line.startswith("#")}
                events = json.loads(path.read_text())["traceEvents"]
                threads = {event["tid"]: event["args"]["name"] for event in events
                           if event["name"] == "thread_name"}
                slices = [event for event in events if event["ph"] == "X"]
                found = {}
                for event in slices:
                    name = threads[event["tid"]]
                    block, track = event["tid"] // 2, ["multiply", "load"][event["tid"] % 2]
                    self.assertEqual(name, f"block {block} ({track})")
                    self.assertEqual(event["cat"], "gemm")
                    self.assertEqual(list(event["args"]), ["expert", "row", "rows", "column"])
                    key = track, event["name"]
                    found[key] = found.get(key, 0) + 1
                self.assertEqual(found, {key: int(cells[0]) for key, cells in works.items()})
                names = {("multiply", "wait"), ("multiply", "multiply")}
                others = {("multiply", "epilogue"), ("load", "load"), ("load", "wait")}
                self.assertLessEqual(names, found.keys())
                self.assertLessEqual(found.keys(), names if octet_cli.EMULATED else names | others)
                tiles = [event["args"] for event in slices if event["name"] == "multiply"]
                self.assertEqual({tile["expert"] for tile in tiles}, {0, 2})
                places = {(tile["row"], tile["column"]) for tile in tiles}
                self.assertEqual(len(places), len(tiles))
                self.assertEqual(sum(tile["rows"] for tile in tiles if tile["column"] == 0), 73)

    def test_layouts_that_are_used_again_are_not_exchanged(self):
        for args, exchanges in [([], True), (["--cached"], False)]:
            table = self.trace("--strategy=high_throughput", *args).stdout
            self.assertEqual("\n  exchange " in table, exchanges)

    def test_no_trace_overwrites_another_kind(self):
        product = ["--operation=gemm", "--rows=3", "--n=16", "--k=16", "--iters=1"]
        shape = [f"--ranks={self.ranks}", *SMALL]
        for args, name in [(shape, ""), ([*shape, "--overlap_us=1000"], "_overlap"),
                           (product, "_gemm"),
                           ([*shape, "--operation=gemm_combine", "--intermediate=32"],
                            "_gemm_combine")]:
            result = octet("trace", *args, cwd=self.folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"# octet_trace{name}.json is the trace", result.stdout)
            self.assertTrue((self.folder / f"octet_trace{name}.json").exists())

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


class TuneTest(GpuTest):
    SHAPE = ["-g1", "--experts=8", "--topk=2", "--hidden=64", "-b8", "-n2", "-w1", "--budget=1"]

    def test_usage(self):
        bad = self.file("bad.json", b'{"schema": 1, "entries": [{"blocks": 3}]}')
        for flag, words in [
            ("--budget=0", "--budget must be more than 0"),
            ("--strategy=direct,auto", "--strategy takes one strategy"),
            ("--strategy=fast", "strategy 'fast' is not one of"),
            ("--blocks=4", "unknown flag '--blocks'"),
            ("--cached", "unknown flag '--cached'"),
            ("--operation=sum", "--operation 'sum' is not one of step, gemm"),
            ("--rows=8", "--rows does not go with --operation=step"),
            ("--output=/no/such/folder/file", "cannot write /no/such/folder/file"),
            (f"--output={bad}", f"tuning {bad}: entries[0]: field 'platform' is missing"),
        ]:
            self.assert_refused(["tune", "-g1", flag], words)
        for args, words in [
            (["--budget=1"], "--budget does not go with --operation=gemm"),
            (["-b8"], "--begin does not go with --operation=gemm"),
            (["--tiles=wide"], "unknown flag '--tiles'"),
            (["--rows=0"], "no expert has rows"),
            (["--n=12"], "GroupedGemmConfig::n is 12"),
            (["--dtype=fp4"], "dtype 'fp4' is not one of"),
            (["--epilogue=gelu"], "--epilogue has 'gelu'"),
            ([f"--output={bad}"], f"tuning {bad}: entries[0]: field 'platform' is missing"),
        ]:
            self.assert_refused(["tune", "--operation=gemm", "--k=64", *args], words)

        for operation in ["dispatch_gemm", "gemm_combine"]:
            self.assert_refused(["tune", "-g1", f"--operation={operation}", "--budget=1"],
                                "--budget goes with --operation=step only")

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
        self.assertEqual("# emulated GPUs: times" in result.stdout, octet_cli.EMULATED)
        for line in result.stdout.splitlines():
            self.assertLessEqual(len(line.replace(str(self.folder), "")), 100, line)
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

    def test_what_is_not_faster_is_not_kept(self):
        name = json.loads(self.json_of("topo.json", "--iters=1"))["platform"]
        entry = {"platform": name["name"], "gpu": name["gpus"][0]["name"], "ranks": 1,
                 "strategy": "direct", "rows": [16, 31], "row_bytes": [128, 255], "blocks": 2,
                 "send_blocks": 1, "waves": 1, "row_parts": 1}
        other = {**entry, "rows": [32, 63]}
        path = self.file("tuning.json", json.dumps({"schema": 1, "entries": [entry, other]}).encode())
        result = octet("tune", *self.SHAPE, "--budget=1e-9", "--strategy=direct", f"--output={path}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("nothing is faster than the built-in choice", result.stdout)
        self.assertIn("; out of time\n", result.stdout)
        self.assertEqual([entry["rows"] for entry in json.loads(path.read_text())["entries"]],
                         [[32, 63]])

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

    PRODUCT = ["--rows=3x40", "--n=64", "--k=64", "--epilogue=swiglu", "--iters=1", "--warmup=0",
               "--samples=4"]

    def test_tile_shape_of_a_product(self):
        found = self.tune_gemm()
        gpu = json.loads(self.json_of("topo.json", "--iters=1"))["platform"]["gpus"][0]["name"]
        built_in = self.tiles_of("none")
        # The shape that was found comes first, then the other extreme.
        for tiles in [found or built_in, "wide", "few16"]:
            entry = {"gpu": gpu, "dtype": "bf16", "n": 64, "k": 64, "rows": [33, 64],
                     "activation": "swiglu", "tiles": tiles}
            data = {"schema": 1, "entries": [], "gemm": [entry]}
            self.assertEqual(self.tiles_of(self.file("used.json", json.dumps(data).encode())), tiles)

    def tune_gemm(self):
        """The tile shape that `tune` has written; None if the built-in one stays."""
        launch = {"platform": "nvidia", "gpu": "some GPU", "ranks": 8, "strategy": "auto",
                  "rows": [1, 1], "row_bytes": [2, 3], "format": "same", "received": "packed",
                  "chosen": "direct"}
        other = {"gpu": "some GPU", "dtype": "fp8", "n": 64, "k": 64, "rows": [33, 64],
                 "activation": "none", "tiles": "few16"}
        path = self.file("tuning.json", json.dumps(
            {"schema": 1, "entries": [launch], "gemm": [other]}).encode())
        result = octet("tune", "--operation=gemm", *self.PRODUCT, f"--output={path}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("# 3 experts, 120 rows, N 64, K 64, bf16, activation swiglu\n", result.stdout)
        lines = [line.split() for line in result.stdout.splitlines()]
        self.assertIn(["#", "tiles", "time", "built-in"], lines)
        trials = {line[0]: float(line[1]) for line in lines if line[0] != "#"}
        self.assertEqual([*trials], ["wide", "medium", "few64", "few32", "few16"])
        table = json.loads(path.read_text())
        self.assertEqual((table["entries"], table["gemm"][0]), ([launch], other))
        if ": taken" not in result.stdout:
            self.assertEqual(len(table["gemm"]), 1)
            return None
        entry = table["gemm"][1]
        self.assertEqual((entry["rows"], entry["activation"]), ([33, 64], "swiglu"))
        self.assertEqual(trials[entry["tiles"]], min(trials.values()))
        return entry["tiles"]

    def tiles_of(self, tuning):
        """What `octet gemm` chooses by this table."""
        result = octet("gemm", *self.PRODUCT, env={"OCTET_TUNING": str(tuning)})
        self.assertEqual(result.returncode, 0, result.stderr)
        return next(line.split()[0] for line in result.stdout.splitlines() if line[0] != "#").strip("*")

    def json_of(self, name, *args, env=None):
        shape = ["--ranks=1", "--experts=8", "--topk=2", "--hidden=64", "--max_tokens=8"]
        result = octet("run", *shape, "--iters=1", f"--json={self.folder / name}", *args, env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return (self.folder / name).read_text()

    def test_malformed_file(self):
        path = self.file("tuning.json", b"{")
        self.assert_refused(["run", "--ranks=1", *SMALL],
                            f"tuning {path} is no JSON: parse error at line 1",
                            env={"OCTET_TUNING": str(path)})


if __name__ == "__main__":
    octet_cli.run_tests()
