"""octet perf --operation=dispatch_gemm and gemm_combine, as their users see them.

    fused_cli_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on.
"""

import json
import statistics

import octet_cli
from octet_cli import CliTest, GpuTest, octet

OPERATIONS = ["dispatch_gemm", "gemm_combine"]


class UsageTest(CliTest):
    def test_usage(self):
        text = octet("perf", "--help").stdout
        for flag in ["--operation=step", "--intermediate=2048", "--fusion=all", "--epilogue=none",
                     "--weights_in=combine"]:
            self.assertIn(f"  {flag}\n", text)

    def test_flags_belong_to_an_operation(self):
        for flag in ["--intermediate=64", "--fusion=none", "--epilogue=none", "--weights_in=combine"]:
            name = flag.split("=", maxsplit=1)[0]
            self.assert_refused(["perf", "-g1", flag], f"{name} does not go with --operation=step")
        for flag in ["--graph", "--align=device", "--expert=id", "--fuse_expert=false",
                     "--received=packed", "--duplicates=fill", "--host_totals", "--cached",
                     "--failure_policy=abort", "--statistics"]:
            name = flag.split("=", maxsplit=1)[0]
            self.assert_refused(["perf", "-g1", "--operation=gemm_combine", flag],
                                f"{name} does not go with --operation=gemm_combine")
        self.assert_refused(["perf", "-g1", "--operation=gemm_combine", "--epilogue=none"],
                            "--epilogue does not go with --operation=gemm_combine")

    def test_values(self):
        for flag, words in [
            ("--operation=gemm", "--operation 'gemm' is not one of step, dispatch_gemm, gemm_combine"),
            ("--intermediate=12", "--intermediate=12 is not a positive multiple of 8"),
            ("--intermediate=0", "--intermediate=0 is not a positive multiple of 8"),
            ("--fusion=none,half", "--fusion 'half' is not one of auto, none, tiles, serial, epilogue, "
             "all"),
            ("--epilogue=bias", "--epilogue 'bias' is not one of none, swiglu"),
            ("--weights_in=y", "weights_in 'y' is not one of combine, first_product"),
            ("--strategy=nccl", "strategy 'nccl' is not one of"),
            ("--strategy=direct,low_latency", "is not one of"),
        ]:
            self.assert_refused(["perf", "-g1", "--operation=dispatch_gemm", flag], words)


class FusedTest(GpuTest):
    SHAPE = ["--experts=12", "--topk=3", "--hidden=256", "--intermediate=40", "-n3", "-w1"]

    def perf(self, operation, *args):
        """The report, after checks of what the table and the report have in common."""
        path = self.folder / "fused.json"
        result = octet("perf", f"--operation={operation}", f"-g{self.ranks}", *self.SHAPE, "-c2",
                       f"-J{path}", *args)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stderr)
        lines = result.stdout.splitlines()
        for line in lines:
            self.assertLessEqual(len(line), 100, line)
        report = json.loads(path.read_text())
        table = [line.split() for line in lines if not line.startswith("#")]
        rows = [(call, row) for call in report["calls"] for row in call["measurements"]]
        self.assertEqual([line[:3] for line in table],
                         [[str(call["tokens"]), call["strategy"],
                           row["what"] + "*" * row["chosen"]] for call, row in rows])
        for line, (_, row) in zip(table, rows):
            self.assertEqual(float(line[3]), round(row["us"]["median"], 1))
            self.assertEqual(line[9], "N/A" if row["wrong"] is None else str(row["wrong"]))
        return report

    def check_call(self, call, links, fusions):
        rows = {row["what"] + "*" * row["chosen"]: row for row in call["measurements"]}
        self.assertEqual(list(rows), [links, "gemm", *fusions])
        self.assertEqual(call["verified_steps"], 2)
        for name, row in rows.items():
            self.assertEqual(len(row["steps_us"]), 3)
            self.assertGreater(row["us"]["min"], 0)
            self.assertEqual(row["us"]["median"], statistics.median(row["steps_us"]))
            self.assertEqual(row["tflops"] is None, name == links)
            self.assertEqual(row["wire_gbps"] is None, name == "gemm")
            self.assertEqual(row["wrong"], None if name == "combine" else 0)
        parts = [rows[name]["us"]["median"] for name in [links, "gemm"]]
        for name in fusions:
            overlap = 1 - (rows[name]["us"]["median"] - max(parts)) / min(parts)
            self.assertAlmostEqual(rows[name]["overlap"], overlap)
        self.assertIsNone(rows[links]["overlap"])
        self.assertIsNone(rows["gemm"]["overlap"])

    def test_sizes(self):
        for operation, links in zip(OPERATIONS, ["dispatch", "combine"]):
            with self.subTest(operation=operation):
                report = self.perf(operation, "-b3", "-e9", "-f3", "--fusion=none,auto")
                self.assertEqual((report["schema"], report["program"]),
                                 (1, "octet perf --operation"))
                self.assertEqual([call["tokens"] for call in report["calls"]], [3, 9])
                for call in report["calls"]:
                    self.assertEqual((call["operation"], call["intermediate"]), (operation, 40))
                    chosen = [row["what"] for row in call["measurements"] if row["chosen"]]
                    self.check_call(call, links, ["none", f"{chosen[0]}*"])
                    # Every choice is a row of some GPU.
                    columns = 2 * 40 if operation == "dispatch_gemm" else 40
                    flops = 2 * call["tokens"] * 3 * 256 * columns
                    for row in call["measurements"][1:]:
                        self.assertAlmostEqual(row["tflops"] * row["us"]["median"], flops * 1e-6)
                        self.assertGreater(row["wire_gbps"] or 1, 0)

    def test_strategies_formats_and_epilogues(self):
        for args in [["--strategy=direct"], ["--strategy=low_latency", "--dtype=fp16"],
                     ["--strategy=high_throughput", "--weights_in=first_product"],
                     ["--strategy=high_throughput", "--format=fp8", "--combine_method=pull"],
                     ["--strategy=high_throughput", "--format=fp8", "--scales=ue8m0",
                      "--weights_in=first_product", "--expert_alignment=8"],
                     ["--strategy=high_throughput", "--routing=one_expert", "--drop=0.2"],
                     ["--strategy=high_throughput", "--max_blocks=2", "--combine_method=pull"]]:
            for operation, links in zip(OPERATIONS, ["dispatch", "combine"]):
                with self.subTest(operation=operation, args=args):
                    report = self.perf(operation, "-b7", "--fusion=none", *args)
                    self.check_call(report["calls"][0], links, ["none"])
        report = self.perf("dispatch_gemm", "-b7", "--fusion=none", "--epilogue=none")
        self.check_call(report["calls"][0], "dispatch", ["none"])
        self.assertEqual(report["calls"][0]["epilogue"], "none")

    def test_combines_in_one_kernel(self):
        for args in [[], ["--combine_method=pull", "--row_parts=3"], ["--max_blocks=2"],
                     ["--dtype=fp16", "--combine_order=flat", "--row_parts=2"]]:
            with self.subTest(args=args):
                report = self.perf("gemm_combine", "-b9", "--strategy=high_throughput", *args)
                flat = "--combine_order=flat" in args
                self.check_call(report["calls"][0], "combine",
                                ["none", "tiles", "serial"] + ["epilogue"] * flat + ["none*"])
                self.assertEqual([left["name"] for left in report["calls"][0]["left_out"]],
                                 [] if flat else ["epilogue"])

    def test_what_a_dispatch_can_do_without(self):
        for args in [[], ["--strategy=high_throughput", "--format=fp8", "--epilogue=none"]]:
            with self.subTest(args=args):
                report = self.perf("dispatch_gemm", "-b40", "--ablation",
                                   "--strategy=high_throughput", *args)
                call = report["calls"][0]
                ways = ["tiles", "1-stage", "by-token", "by-expert", "plain"]
                self.check_call(call, "dispatch", ["none", *ways])
        self.assert_refused(["perf", "-g1", "--operation=dispatch_gemm", "--ablation",
                             "--fusion=tiles"], "--ablation and --fusion exclude each other")
        self.assert_refused(["perf", "-g1", "--operation=gemm_combine", "--ablation"],
                            "--ablation does not go with --operation=gemm_combine")

    def test_traces(self):
        path = self.folder / "trace.json"
        for operation, names in zip(OPERATIONS, [{"send rows", "fill rows"},
                                                 {"combine send", "reduce", "wait pass"}]):
            for fusion in ["tiles", "none"]:
                with self.subTest(operation=operation, fusion=fusion):
                    result = octet("trace", f"--operation={operation}", f"--fusion={fusion}",
                                   f"--ranks={self.ranks}", "--experts=12", "--topk=3",
                                   "--hidden=256", "--intermediate=40", "--max_tokens=64",
                                   "--iters=2", "--warmup=1", "--strategy=high_throughput",
                                   f"--output={path}")
                    self.assertEqual((result.returncode, result.stderr), (0, ""), result.stderr)
                    for line in result.stdout.splitlines():
                        self.assertLessEqual(len(line), 100, line)
                    self.assertIn(f"# strategy high_throughput, fusion {fusion}\n", result.stdout)
                    self.assertIn("# tracing costs ", result.stdout)
                    self.assertIn(str(path), result.stdout)
                    events = json.loads(path.read_text())
                    events = events["traceEvents"] if isinstance(events, dict) else events
                    slices = [event for event in events if event["ph"] == "X"]
                    self.assertEqual({event["pid"] for event in slices}, set(range(self.ranks)))
                    seen = {event["name"] for event in slices}
                    self.assertIn("multiply", seen)
                    self.assertEqual(names <= seen, fusion == "tiles")
                    # Three threads for each block: what moves rows, multiplies and loads.
                    threads = {(event["pid"], event["tid"]): event["args"]["name"]
                               for event in events if event["name"] == "thread_name"}
                    for event in slices:
                        track = threads[event["pid"], event["tid"]].split("(")[1].rstrip(")")
                        self.assertEqual(event["name"] == "multiply", track == "multiply"
                                         and event["name"] not in {"wait", "epilogue"})
                        if operation == "gemm_combine":
                            self.assertNotIn("dispatch", event["cat"])

    def test_tunes(self):
        path = self.folder / "tuning.json"
        for operation in OPERATIONS:
            result = octet("tune", f"--operation={operation}", f"--ranks={self.ranks}",
                           *self.SHAPE, "-b5", f"--output={path}")
            self.assertEqual((result.returncode, result.stderr), (0, ""), result.stderr)
            self.assertEqual(result.stdout.count("# octet tune"), 1, result.stdout)
            lines = [line.split() for line in result.stdout.splitlines()
                     if not line.startswith("#")]
            self.assertEqual({line[0] for line in lines},
                             {"tiles"} if operation == "dispatch_gemm" else {"tiles", "serial"})
            self.assertLessEqual({"wide", "medium"}, {line[1] for line in lines})
            # Every value of each field was tried.
            tried = [{line[column] for line in lines if line[0] == "tiles"} for column in [2, 3]]
            self.assertEqual(tried, [{"2", "6", "10", "15", "22", "32", "45"},
                                     {"2", "5", "8", "12", "20", "30"}]
                             if operation == "dispatch_gemm" else
                             [{"6", "12", "18", "25", "35"}, {"1", "2", "4", "8"}])
            if operation == "dispatch_gemm":
                self.assertEqual([{line[column] for line in lines} for column in [4, 5, 6]],
                                 [{"1", "2"}, {"expert", "token"}, {"group", "expert"}])
            self.assertRegex(result.stdout, "# (tiles|serial) takes .* us, separate kernels .* us")
        tuning = json.loads(path.read_text())
        for entry in tuning.get("fused", []):
            self.assertIn(entry["call"], OPERATIONS)
            self.assertEqual((entry["intermediate"], entry["ranks"]), (40, self.ranks))

    def test_tune_is_for_one_strategy(self):
        self.assert_refused(["tune", "--ranks=1", "--operation=gemm_combine", "--strategy=direct"],
                            "tunes calls of high_throughput, not direct")
        self.assert_refused(["tune", "--ranks=1", "--operation=gemm_combine", "--fusion=none"],
                            "fusion")

    def test_trace_takes_one_fusion(self):
        self.assert_refused(["trace", "--ranks=1", "--operation=gemm_combine", "--fusion=all"],
                            "--fusion takes one way of making the call")
        self.assert_refused(["trace", "--ranks=1", "--operation=gemm_combine", "--overlap_us=5"],
                            "--overlap_us does not go with --operation=gemm_combine")
        self.assert_refused(["trace", "--ranks=1", "--intermediate=64"],
                            "--intermediate does not go with --operation=step")

    def test_nothing_verified(self):
        report = self.perf("dispatch_gemm", "-b2", "--fusion=none", "-c0")
        self.assertEqual([row["wrong"] for row in report["calls"][0]["measurements"]], [None] * 3)

    def test_a_fusion_that_cannot_be_is_left_out(self):
        report = self.perf("dispatch_gemm", "-b2", "--strategy=direct", "--fusion=all")
        self.assertEqual([left["name"] for left in report["calls"][0]["left_out"]], ["tiles"])
        report = self.perf("gemm_combine", "-b2", "--strategy=direct", "--fusion=all")
        self.assertEqual([left["name"] for left in report["calls"][0]["left_out"]],
                         ["tiles", "serial", "epilogue"])

    def test_the_parts_must_be_possible(self):
        result = octet("perf", "--operation=dispatch_gemm", "-g1", *self.SHAPE, "-b2",
                       "--strategy=direct", "--weights_in=first_product")
        self.assertEqual(result.returncode, 2)
        self.assertIn("weights_in is first_product; that needs the strategy high_throughput, not "
                      "direct", result.stderr)


if __name__ == "__main__":
    octet_cli.run_tests()
