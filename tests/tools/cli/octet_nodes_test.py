"""`octet` on several nodes: processes under mpirun, with emulated GPUs.

    octet_nodes_test.py MPIRUN OCTET [unittest arguments]
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import octet_cli
from octet_cli import HERE, npy, python_with_numpy

sys.path.insert(0, str(HERE.parents[1] / "support" / "nodes"))
from world_job import ENVIRONMENT, Job, lives

MPIRUN = OCTET = ""
SHAPE = ["--experts=24", "--topk=4", "--hidden=144", "--max_tokens=8"]
STEPS = ["--iters=2", "--warmup=0"]
TIMEOUT_MS = 3000
# More than the deadline: this machine may be busy.
SLACK_S = 10


def launch(*parts, env=None):
    """Runs octet as several processes: (number of them, arguments) each."""
    command = [MPIRUN]
    for number, args in parts:
        command += [":"] * (len(command) > 1) + ["-n", str(number), OCTET, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200,
                          env={**os.environ, **ENVIRONMENT, **(env or {})})


def said(result):
    """What the processes have written to stderr; mpirun writes as well."""
    return [line for line in result.stderr.splitlines() if line.startswith("octet")]


def rows_of(text):
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


class NodesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="octet_nodes_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def on(self, nodes, *args, code=0, env=None):
        result = launch((nodes, args), env=env)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        if code == 0:
            self.assertEqual(said(result), [])
        for line in result.stdout.splitlines():
            self.assertLessEqual(len(line), 100, line)
        return result

    def assert_refused(self, args, words, nodes=2):
        with self.subTest(args=args):
            result = self.on(nodes, *args, code=2)
            self.assertEqual(result.stdout, "")
            self.assertEqual(len(said(result)), 1, result.stderr)
            self.assertIn(words, said(result)[0])


class RunTest(NodesTest):
    def test_one_table_for_all_ranks(self):
        for nodes, ranks, args in [
            (2, 2, ["--strategy=direct", "--nofuse_expert"]),
            (2, 2, ["--strategy=high_throughput", "--format=fp8", "--warmup=1"]),
            (3, 1, ["--strategy=low_latency", "--drop=0.5", "--align=device"]),
        ]:
            with self.subTest(args=args):
                path = self.folder / "run.json"
                result = self.on(nodes, "run", f"--ranks={ranks}", *SHAPE, *STEPS, *args,
                                 f"--json={path}")
                self.assertIn(f"# octet run: {nodes} nodes of {ranks} ranks", result.stdout)
                number = nodes * ranks
                rows = rows_of(result.stdout)
                steps, calls = rows[: number + 1], rows[number + 1:]
                for table in (steps, calls):
                    self.assertEqual([row[0] for row in table], [*map(str, range(number)), "all"])
                    self.assertEqual([row[1] for row in table],
                                     [*(str(rank // ranks) for rank in range(number)), "-"])
                self.assertEqual({row[-1] for row in steps}, {"yes"})
                for column in [2, 3, 4]:
                    self.assertAlmostEqual(sum(float(row[column]) for row in steps[:-1]),
                                           float(steps[-1][column]), delta=0.5)
                self.check_report(json.loads(path.read_text()), nodes, ranks)

    def check_report(self, report, nodes, ranks):
        self.assertEqual([node["node"] for node in report["nodes"]], list(range(nodes)))
        self.assertEqual(len({node["process"] for node in report["nodes"]}), nodes)
        (run,) = report["runs"]
        self.assertEqual((run["config"]["nodes"], run["config"]["ranks"]), (nodes, nodes * ranks))
        self.assertEqual(run["config"]["combine_order"], "per_node")
        self.assertEqual(len(run["ranks"]), nodes * ranks)
        self.assertEqual(len(run["steps_by_calls"]), 2)
        self.assertNotIn("steps_by_phases", run)
        self.assertIs(run["total"]["verification"]["bitwise"], True)
        for step in run["steps"]:
            self.assertEqual(max(rank["all_us"] for rank in step["ranks"]), step["all_us"])
            self.assertGreater(sum(rank["rail_bytes"] for rank in step["ranks"]), 0)

    def test_inputs_do_not_depend_on_where_ranks_are(self):
        args = ["run", *SHAPE, *STEPS, "--strategy=direct"]
        alone = octet_cli.octet(*args, "--ranks=4")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        tokens_and_received = [(row[1], row[3]) for row in rows_of(alone.stdout)[:5]]
        for nodes, ranks in [(2, 2), (4, 1)]:
            rows = rows_of(self.on(nodes, *args, f"--ranks={ranks}").stdout)[:5]
            self.assertEqual([(row[2], row[4]) for row in rows], tokens_and_received)

    def test_ceilings(self):
        result = self.on(2, "run", "--ranks=1", *SHAPE, *STEPS, "--ceilings")
        self.assertIn("# ceilings of this run: a single rank has no links", result.stdout)

    def test_heap(self):
        self.on(2, "run", "--ranks=2", *SHAPE, *STEPS, "--heap_mb=8")

    def test_recorded_routing(self):
        paths = []
        for node in range(2):
            paths.append(self.folder / f"routing{node}.npy")
            paths[-1].write_bytes(npy((4, 1, 2), [0, 1, 2, 3, 4, 5, 6 + node, 5]))
        args = ["run", "--ranks=2", "--experts=8", "--hidden=64", *STEPS]
        self.on(2, *args, f"--routing=file:{paths[0]}")
        # The same name is another file on another machine.
        script = self.folder / "octet.sh"
        script.write_text("\n".join(["#!/bin/sh",
                                     f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] || cd {self.folder}/b',
                                     f'exec {OCTET} "$@"', ""]))
        script.chmod(0o755)
        (self.folder / "b").mkdir()
        (self.folder / "b/routing.npy").symlink_to(paths[1])
        (self.folder / "routing.npy").symlink_to(paths[0])
        result = subprocess.run([MPIRUN, "-n", "2", script, *args, "--routing=file:routing.npy"],
                                cwd=self.folder, env={**os.environ, **ENVIRONMENT}, text=True,
                                capture_output=True, check=False, timeout=100)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("the nodes differ in the recorded routing", said(result)[0])


class DumpTest(NodesTest):
    """Dumps of several nodes, against NumPy alone."""

    def dump(self, name, nodes, ranks, *args):
        path = self.folder / name
        self.on(nodes, "run", f"--ranks={ranks}", *SHAPE, "--iters=1", "--warmup=0",
                f"--dump={path}", *args)
        return path

    def check(self, *paths):
        python = python_with_numpy()
        if python is None:
            self.skipTest("no NumPy")
        result = subprocess.run([python, HERE / "check_dump.py", *paths], capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("to the bit"), len(paths))
        return result.stdout

    def test_dumps(self):
        runs = [
            (2, 2, ["--strategy=direct", "--slots=atomic", "--drop=0.3"]),
            (2, 2, ["--strategy=high_throughput", "--rail_rows=blocks", "--format=fp8",
                    "--duplicates=index", "--expert_alignment=8", "--tokens=8,0,3,5"]),
            (2, 2, ["--strategy=high_throughput", "--received=deduplicated", "--dtype=fp16",
                    "--rail_chunk=3",
                    "--combine_method=pull"]),
            (2, 1, ["--strategy=high_throughput", "--format=bytes", "--intranode_order=flat"]),
            (3, 2, ["--strategy=low_latency", "--received=rank_major", "--format=quantized_fp8",
                    "--scales=ue8m0", "--intranode_order=flat", "--tokens=0,1,2,3,4,8"]),
            (3, 1, ["--strategy=low_latency", "--rail_rows=counted", "--received=expert_major",
                    "--rail_chunk=2",
                    "--expert=rank", "--nofuse_expert"]),
        ]
        paths = [self.dump(f"dump{i}", nodes, ranks, *args)
                 for i, (nodes, ranks, args) in enumerate(runs)]
        text = self.check(*paths)
        for nodes, ranks, _ in runs:
            self.assertIn(f"{nodes} nodes, {nodes * ranks} ranks, ", text)

    def test_an_older_dump_is_replaced(self):
        path = self.dump("dump", 2, 2, "--format=fp8")
        self.dump("dump", 2, 1)
        self.check(path)
        self.assertFalse(list(path.glob("rank2_*")))

    def test_what_is_wrong_in_a_dump_is_found(self):
        python = python_with_numpy()
        if python is None:
            self.skipTest("no NumPy")
        path = self.dump("dump", 2, 2, "--strategy=high_throughput", "--format=fp8",
                         "--duplicates=index", "--tokens=8")
        for rank in (0, 3):
            for file in sorted(path.glob(f"rank{rank}_*.npy")):
                data = file.read_bytes()
                file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
                result = subprocess.run([python, HERE / "check_dump.py", path],
                                        capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, 1, file)
                file.write_bytes(data)
        self.check(path)

    def test_one_rank_on_each_node_is_like_one_node(self):
        """The sums of nodes of one rank are those of ranks."""
        several = self.dump("several", 3, 1, "--strategy=low_latency", "--intranode_order=flat")
        alone = self.folder / "alone"
        result = octet_cli.octet("run", "--ranks=3", *SHAPE, "--iters=1", "--warmup=0",
                                 f"--dump={alone}", "--strategy=low_latency",
                                 "--combine_order=per_rank")
        self.assertEqual(result.returncode, 0, result.stderr)
        for rank in range(3):
            for name in ["x", "topk_idx", "topk_weights", "y"]:
                file = f"rank{rank}_{name}.npy"
                self.assertEqual((several / file).read_bytes(), (alone / file).read_bytes(), file)


class PerfTest(NodesTest):
    ARGS = ["perf", "--ranks=2", "--experts=8", "--hidden=256", "-b8", "-n2", "-w1", "-c1"]

    def test_columns(self):
        path = self.folder / "perf.json"
        result = self.on(2, *self.ARGS, "-e16", "--strategy=auto,all", f"-J{path}")
        self.assertIn("# memcpy_peer is left out: it is for one node", result.stdout)
        self.assertIn("# Wrong rows          : 0 OK", result.stdout)
        rows = rows_of(result.stdout)
        kinds = ["dispatch", "combine", "both", "cross", "return"]
        self.assertEqual([row[2] for row in rows], kinds * 8)  # 2 sizes, auto and 3 strategies
        report = json.loads(path.read_text())
        self.assertEqual(len(report["nodes"]), 2)
        for i, row in enumerate(report["rows"]):
            lines = dict(zip(kinds, rows[5 * i: 5 * i + 5]))
            for kind, rail in [("dispatch", "cross"), ("combine", "return")]:
                figures, alone = row[kind], row[rail]
                self.assertGreater(figures["rail_bytes"], 0)
                self.assertGreater(figures["link_bytes"], 0)
                self.assertEqual(figures["wrong"], 0)
                self.assertAlmostEqual(figures["rail_ceiling_ratio"],
                                       alone["us"]["median"] / figures["us"]["median"])
                self.assertEqual(len(alone["exchanges_us"]), 2)
                self.assertEqual(lines[kind][-1], "0")
                self.assertAlmostEqual(float(lines[kind][4]), figures["rail_bytes"] / 1e6,
                                       delta=1e-3)
            # What crosses in the last dispatch; with counts, some bytes more.
            blocks = row["rail_rows"] == "blocks"
            self.assertEqual(blocks, row["strategy"] == "low_latency")
            if blocks:
                self.assertEqual(row["cross"]["rail_bytes"], row["dispatch"]["rail_bytes"])
                self.assertEqual(row["return"]["rail_bytes"], row["combine"]["rail_bytes"])
                self.assertEqual(row["return"]["rail_bytes"], row["tokens"] * 512)

    def test_graph(self):
        result = self.on(2, *self.ARGS, "--strategy=low_latency", "--graph")
        rows = rows_of(result.stdout)
        self.assertEqual([row[1] for row in rows], ["low_latency"] * 5 + ["low_latency+"] * 5)
        self.on(2, *self.ARGS, "--strategy=high_throughput", "--graph", "--rail_rows=blocks")
        self.on(2, *self.ARGS, "--strategy=high_throughput", "--graph", "--rail_rows=blocks",
                "--rail_chunk=5")

    def test_a_size_that_fails_is_left_out_on_all(self):
        result = self.on(2, *self.ARGS, "-e1024", "-f128", "--strategy=low_latency,direct")
        self.assertEqual({row[0] for row in rows_of(result.stdout)}, {"8", "1024"})
        self.assertIn("# low_latency, 1024 tokens: ", result.stdout)


    def test_a_size_that_fails_on_one_node_is_left_out_on_all(self):
        perf = [OCTET, *self.ARGS, "-e1024", "-f128", "--strategy=low_latency,direct"]
        little = ["env", "OCTET_EMULATION_MEMORY_MB=8"]
        result = subprocess.run([MPIRUN, "-n", "1", *perf, ":", "-n", "1", *little, *perf],
                                capture_output=True, text=True, check=False, timeout=200,
                                env={**os.environ, **ENVIRONMENT})
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("# low_latency, 1024 tokens: node 0: ", result.stdout)  # of both
        self.assertIn("# direct, 1024 tokens: node 1: rank ", result.stdout)
        first, second = said(result)
        self.assertEqual(first, second)


class LayerTest(NodesTest):
    ARGS = ["layer", "--experts=12", "--topk=3", "--tokens=5", "--iters=2", "--warmup=0"]

    def test_one_table_for_all_ranks(self):
        path = self.folder / "layer.json"
        for family, flags in [("qwen3_moe", ["--strategy=low_latency", "--graph"]),
                              ("deepseek_v3", ["--shared_experts=1", "--weights=fp8"]),
                              ("mixtral", ["--strategy=high_throughput"])]:
            with self.subTest(family=family):
                result = self.on(2, *self.ARGS, "--ranks=2", f"--family={family}", *flags,
                                 f"--json={path}")
                self.assertIn("# octet layer on 2 nodes, 4 x ", result.stdout)
                self.assertIn("of 20 tokens to the bit, 0 wrong", result.stdout)
                report = json.loads(path.read_text())
                self.assertEqual((report["ranks"], report["tokens"]), (4, 20))
                self.assertEqual([node["node"] for node in report["nodes"]], [0, 1])
                self.assertEqual(report["check"]["routed"], 20)
                self.assertEqual(report["check"]["wrong"], 0)
                parts = {row["part"] for row in report["rows"]}
                self.assertLessEqual({"router", "dispatch", "gate+up", "combine", "layer"}, parts)
                self.assertEqual("graph" in parts, "--graph" in flags)

    def test_more_ranks_than_a_node_may_have(self):
        result = self.on(3, "layer", "--experts=18", "--topk=2", "--tokens=2", "--iters=0",
                         "--ranks=6")
        self.assertIn("36 tokens on 18 ranks", result.stdout)

    @unittest.skipUnless(python_with_numpy(), "no NumPy")
    def test_files_are_those_of_one_node_with_as_many_ranks(self):
        make_x = ("import sys; import numpy as np; "
                  "x = np.random.default_rng(3).standard_normal((17, 256)); "
                  "np.save(sys.argv[1], x.astype(np.float32))")
        subprocess.run([python_with_numpy(), "-c", make_x, self.folder / "x.npy"], check=True)
        args = [*self.ARGS[:3], "--iters=0", "--ranks=1", f"--input={self.folder}/x.npy"]
        files = {}
        for nodes in (1, 3):
            out = self.folder / str(nodes)
            out.mkdir()
            flags = [f"--output={out}/out.npy", f"--dump={out}"]
            if nodes == 1:
                alone = octet_cli.octet(*args, "--ranks=3", *flags)
                self.assertEqual(alone.returncode, 0, alone.stderr)
            else:
                self.on(nodes, *args, *flags)
            files[nodes] = {path.name: path.read_bytes() for path in out.iterdir()}
        self.assertEqual(sorted(files[1]), ["logits.npy", "out.npy", "topk_idx.npy",
                                            "topk_weights.npy", "x.npy", "y.npy"])
        self.assertEqual(files[1], files[3])


class TopoTest(NodesTest):
    def test_nodes_and_rails(self):
        result = self.on(3, "topo", env={"OCTET_EMULATION_DEVICES": "2"})
        self.assertTrue(result.stdout.startswith("# 3 nodes of up to 2 ranks\n"))
        tables = result.stdout.split("#\n#")
        nodes = rows_of(tables[0])
        self.assertEqual([row[0] for row in nodes], ["0", "1", "2"])
        self.assertEqual({row[2] for row in nodes}, {"2"})
        self.assertIn("carried by mpi\n", tables[1])
        rails = rows_of("#" + tables[1])
        self.assertEqual([row[:4] for row in rails],
                         [[str(rail), str(node), str(2 * node + rail), str(rail)]
                          for rail in range(2) for node in range(3)])
        self.assertEqual(result.stdout.count("# platform emulation"), 3)


class RefusalTest(NodesTest):
    def test_what_several_nodes_do_not_have(self):
        for command in ["trace", "tune", "gemm"]:
            self.assert_refused([command], f"octet {command}: node 0: this command is for one node")
        run = ["run", "--ranks=2", *SHAPE]
        for flag, words in [
            ("--cached", "--cached is for one node"),
            (f"--trace={self.folder}/trace.json", "--trace is for one node"),
            ("--schedule=7", "a schedule is for one node"),
            ("--combine_order=flat", "--intranode_order is the order within a node"),
            ("--intranode_order=per_node", "not one of auto, flat, per_rank"),
            ("--failure_policy=mask", "failure_policy mask is for a single node"),
            ("--experts=9", "num_experts is 9; it must be divisible by the 2 nodes"),
            ("--experts=6", "within a node"),
            ("--tokens=1,2", "numbers of tokens are given for 2 ranks; 4 are to run"),
            ("--ranks=17", "--ranks=17 is not from 1 to 16"),
            ("--hiden=8", "did you mean '--hidden'?"),
            ("--json=/no/such/folder/file", "cannot write /no/such/folder/file"),
        ]:
            self.assert_refused([*run, flag], words)
        for flags, words in [
            (["--graph"], "--graph over several nodes needs --rail_rows=blocks"),
            (["--operation=dispatch_gemm"], "--operation=step is the only one for several nodes"),
        ]:
            self.assert_refused([*PerfTest.ARGS, *flags], words)
        for flags, words in [
            (["--contenders=nccl+cublas"], "--contenders is for one node, and 2 have been started"),
            (["--experts=6", "--topk=2"], "num_experts is 3; it must be divisible by the 2 ranks"),
            (["--model=nowhere"], "nowhere"),
            (["--fusion=tiles"], "--fusion is tiles"),
            (["--graph"], "--graph over several nodes needs --rail_rows=blocks"),
        ]:
            self.assert_refused(["layer", "--ranks=2", *flags], words)
        self.assert_refused([*PerfTest.ARGS, "--strategy=fast"], "fast")
        self.assert_refused(["run", "--soak=3", "--ranks=2", "--schedule=7"],
                            "a schedule is for one node")
        self.assert_refused(["run", "--soak=3", "--ranks=2", "--schedule=never"], "schedule")
        self.assert_refused(["rnu"], "unknown command 'rnu'; did you mean 'run'?")

    def test_what_one_node_does_not_have(self):
        for flag in ["--rail_rows=blocks", "--rail_chunk=8", "--intranode_order=flat", "--rail_transport=mpi"]:
            result = octet_cli.octet("run", "--ranks=1", flag)
            self.assertEqual(result.returncode, 2)
            self.assertIn("is for several nodes, and this is one", result.stderr)

    def test_help_is_printed_once(self):
        for args in [["--help"], ["run", "--help"], ["--version"]]:
            alone = octet_cli.octet(*args)
            self.assertEqual(self.on(2, *args).stdout, alone.stdout)

    def test_one_process_is_one_node(self):
        result = self.on(1, "run", "--ranks=2", *SHAPE, *STEPS)
        self.assertIn("# octet run: 2 ranks on", result.stdout)

    def test_processes_with_different_command_lines(self):
        run = ["run", "--ranks=2", *SHAPE, *STEPS]
        for other, words in [
            ([*run, "--hidden=64"], "the nodes differ in the command line: --hidden=64 only on "),
            ([*run[:-1], "--warmup=1"], "the nodes differ in the command line: --warmup=0 on node "
                                        "0, --warmup=1 on node 1"),
            (["perf", *run[1:2]], "the nodes differ in the command line: run only on node 0; "),
            (["run", "--ranks=1", *run[2:]], "the nodes differ in the number of ranks: 2 on "),
            ([*run, "--hiden=8"], "node 1: unknown flag '--hiden'"),
            ([*run, "--topk=99"], "node 1: topk is 99"),
        ]:
            with self.subTest(other=other):
                result = launch((1, run), (1, other))
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertIn(words, " ".join(said(result)))

    def test_without_the_program_that_knows_mpi(self):
        alone = self.folder / "octet"
        shutil.copy(OCTET, alone)
        result = subprocess.run([MPIRUN, "-n", "2", alone, "topo"], capture_output=True, text=True,
                                check=False, env={**os.environ, **ENVIRONMENT})
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"octet: process \d of 2 cannot join the others, which "
                                        rf"{alone}_mpi is for: No such file")

    def test_a_launcher_that_mpi_does_not_know(self):
        result = octet_cli.octet("topo", env={**ENVIRONMENT, "PMI_SIZE": "2", "PMI_RANK": "0"})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("the launcher has started 2 processes, but MPI joins 1", result.stderr)


class FailureTest(NodesTest):
    def test_a_process_that_is_killed(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                self.kill(victim, 3)

    @staticmethod
    def child(shell):
        """The process that the shell waits for, which is octet."""
        children = pathlib.Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(children[0])

    def pids(self, mpirun):
        """{node: process} of those that mpirun has started."""
        found = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rsplit(")", 1)[1].split()
                for variable in (stat.parent / "environ").read_bytes().split(b"\0"):
                    if int(fields[1]) == mpirun and variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found[int(variable.split(b"=")[1])] = self.child(int(stat.parent.name))
        return found

    def kill(self, victim, nodes):
        """Amid steps. The others say so in time, each in a line, and end with the code for it."""
        tells_code = ["sh", "-c", '"$0" "$@"; echo "exit code $?"']
        job = Job(MPIRUN, nodes, [*tells_code, OCTET, "perf", "--ranks=1", "--experts=6", "--topk=2",
                                  "--hidden=64", "-b4", "-n1000000", "-c0",
                                  f"-T{TIMEOUT_MS / 1000}"])
        self.addCleanup(job.close)
        job.wait_for(r"#\(/rank\) .*", 1)  # the head of the table
        time.sleep(1)
        pids = self.pids(job.process.pid)
        self.addCleanup(job.close, pids.values())
        self.assertEqual(set(pids), set(range(nodes)), job.lines)
        os.kill(pids[victim], signal.SIGKILL)
        start = time.monotonic()
        job.process.wait(TIMEOUT_MS / 1000 + 60)
        self.assertLess(time.monotonic() - start, TIMEOUT_MS / 1000 + SLACK_S)
        lines = [line for line in job.lines if line.startswith("octet")]
        self.assertEqual(len(lines), nodes - 1, job.lines)  # one for each that lives
        for line in lines:
            self.assertRegex(line, rf"octet perf: auto, 4 tokens: node {victim} \(host \S+, process "
                                   rf"{pids[victim]}\) has died or been stopped")
        self.assertEqual([pid for pid in pids.values() if lives(pid)], [])
        codes = [line for line in job.lines if line.startswith("exit code ")]
        self.assertEqual(sorted(codes), ["exit code 137"] + ["exit code 4"] * (nodes - 1))

    def test_deadline(self):
        """An error of one node, on all of them, with its name and the same exit code."""
        result = launch((2, ["run", "--ranks=2", "--timeout_ms=1", "--iters=3"]))
        if result.returncode == 0:
            return  # quick enough
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertEqual(len(said(result)), 2, result.stderr)
        for line in said(result):
            self.assertRegex(line, r"octet run: .*node \d: rank \d")


class SoakTest(NodesTest):
    def test_random_shapes(self):
        path = self.folder / "soak.json"
        result = self.on(2, "run", "--soak=3", "--ranks=2", "--seed=5", f"--json={path}")
        self.assertIn("equal the reference to the bit; 0 errors\n", result.stdout)
        soak = json.loads(path.read_text())["soak"]
        self.assertEqual((soak["errors"], soak["nodes"]), (0, 2))
        self.assertGreater(soak["total"]["shapes"], 0)

    def test_the_first_error_ends_it(self):
        result = launch((2, ["run", "--soak=60", "--ranks=2", "--timeout_ms=1"]))
        if result.returncode == 0:
            return  # quick enough
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("then 1 ERROR", result.stdout)
        self.assertIn("\nmpirun -n 2 octet run --ranks=2 ", result.stderr)


def main():
    global MPIRUN, OCTET
    if len(sys.argv) < 3:
        sys.exit("usage: octet_nodes_test.py MPIRUN OCTET [unittest arguments]")
    MPIRUN, OCTET = sys.argv.pop(1), str(pathlib.Path(sys.argv.pop(1)).resolve())
    octet_cli.OCTET = OCTET
    unittest.main()


if __name__ == "__main__":
    main()
