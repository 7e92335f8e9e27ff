"""octet balance, and --placement of other commands.

    balance_cli_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on; what needs none is checked anyway.
"""

import json

import octet_cli
from octet_cli import CliTest, GpuTest, npy, octet


def rows_of(table):
    """(before, after): the rows of each rank."""
    lines = [line.split() for line in table.splitlines() if not line.startswith("#")]
    return [float(line[2]) for line in lines], [float(line[5]) for line in lines]


class BalanceTest(CliTest):
    def balance(self, *args, code=0):
        result = octet("balance", *args)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout

    def test_loads_of_a_file(self):
        loads = self.file("loads.npy", npy((6,), [900, 100, 100, 100, 50, 50], "<i8"))
        output = self.folder / "p.json"
        table = self.balance("--experts=6", "--ranks=3", "--slots=3", f"--loads={loads}",
                             f"--output={output}")
        before, after = rows_of(table)
        self.assertEqual(before, [1000, 200, 100])
        self.assertEqual(sum(after), 1300)
        self.assertLessEqual(max(after), 450)
        self.assertIn(f"6 experts on 3 ranks with 3 slots; loads of {loads}", table.replace("\n# ", ""))
        self.assertIn("max / mean: 2.308 before", table)
        written = json.loads(output.read_text(encoding="utf-8"))
        self.assertEqual([written["schema"], written["experts"]], [1, 6])
        self.assertEqual([len(rank) for rank in written["ranks"]], [3, 3, 3])
        self.assertEqual([rank.count(0) for rank in written["ranks"]], [1, 1, 1])
        # Others can begin with the file, as .npy too.
        again = self.folder / "p.npy"
        table = self.balance("--experts=6", "--ranks=3", "--slots=3", f"--loads={loads}",
                             f"--placement={output}", f"--output={again}")
        self.assertEqual(rows_of(table)[0], after)
        table = self.balance("--experts=6", "--ranks=3", "--slots=3", f"--loads={loads}",
                             f"--placement={again}")
        self.assertEqual(rows_of(table)[0], after)

    def test_parts_are_added(self):
        one = self.file("one.npy", npy((4,), [5, 5, 1, 9], "<i8"))
        two = self.file("two.npy", npy((2, 4), [1, 2, 1, 4, 4, 3, 0, 5], "<i8"))
        floats = self.file("floats.npy", npy((4,), [5, 5, 1, 9], "<f4"))
        tables = [self.balance("--experts=4", "--ranks=2", f"--loads={file}").splitlines()[1:]
                  for file in (one, two, floats)]
        self.assertEqual(tables[0], tables[1])
        self.assertEqual(tables[0], tables[2])

    def test_a_routing(self):
        args = ["--experts=60", "--ranks=8", "--routing=zipf:1.2", "--tokens=64", "--topk=4"]
        before, after = rows_of(self.balance(*args))
        self.assertEqual(sum(before), 8 * 64 * 4)
        self.assertGreater(max(before), 1.3 * 256)
        self.assertLess(max(after), 1.05 * 256)
        self.assertEqual(self.balance(*args), self.balance(*args))
        recorded = self.file("topk.npy", npy((4, 2), [0, 1, 0, 2, 0, 3, 0, -1]))
        before, _ = rows_of(self.balance("--experts=4", "--ranks=2", f"--routing=file:{recorded}"))
        self.assertEqual(before, [5, 2])

    def test_simulation(self):
        args = ["--experts=64", "--ranks=8", "--routing=zipf:1.2", "--tokens=64", "--topk=4"]
        plain = self.balance(*args)
        table = self.balance(*args, "--simulate", "--steps=4", "--replan=2", "--hidden=128")
        self.assertTrue(table.startswith(plain))
        said = table[len(plain):].replace("\n# ", " ")
        self.assertIn("4 steps, us of dispatch, products and combine. Computed, not measured", said)
        self.assertIn("--link_gbps=345.5", said)
        rows = {line.split()[0]: [float(cell) for cell in line.split()[1:]]
                for line in table[len(plain):].splitlines() if not line.startswith("#")}
        self.assertEqual(list(rows), ["in_order", "planned_once", "every_2_steps", "equal_shares"])
        self.assertLess(rows["planned_once"][4], rows["in_order"][4])
        for step, slowest, *_ in rows.values():
            self.assertLessEqual(step, slowest)

    def test_refusals(self):
        loads = self.file("loads.npy", npy((6,), [1, 2, 3, 4, 5, -6], "<i8"))
        bytes_ = self.file("bytes.npy", npy((6,), [1] * 6, "<i8").replace(b"<i8", b"|u1"))
        bad = self.file("bad.json", b'{"schema": 1, "experts": 6, "ranks": [[0, 1, 2], [3, 4]]}')
        for args, words in [
            ([], "--loads=FILE.npy or --routing is needed"),
            ([f"--loads={loads}"], "the load of expert 5 is -6; loads must be"),
            ([f"--loads={loads}", "--routing=uniform", "--topk=2"], "--routing does not go with --loads"),
            ([f"--loads={loads}", "--experts=7"], "shape (6) is neither [experts] nor"),
            ([f"--loads={bytes_}"], "bytes"),
            (["--loads=/no/such"], "/no/such"),
            (["--routing=zipf:1", "--slots=1"], "2 ranks with 1 slots have 2 for 6 experts"),
            (["--routing=zipf:1", "--slots=-1"], "slots_per_rank is -1"),
            (["--routing=zipf:1", "--topk=7"], "--topk=7 is not from 1 to 6"),
            (["--routing=zipf:1", f"--placement={bad}"], "rank 1 has 2 slots, and rank 0 has 3"),
            (["--routing=zipf:1", "--steps=3"], "--steps goes with --simulate only"),
            ([f"--loads={loads}", "--simulate"], "--loads does not go with --simulate"),
            (["--routing=zipf:1", "--simulate", "--tflops=0"], "--tflops=0 is not a positive"),
            (["--routing=zipf:1", "--output=/no/such/p.json"], "cannot write /no/such/p.json"),
        ]:
            args = args if any("experts" in arg for arg in args) else ["--experts=6", *args]
            if any("routing" in arg for arg in args) and not any("topk" in arg for arg in args):
                args = ["--topk=2", *args]
            self.assert_refused(["balance", "--ranks=2", *args], words)
        self.assert_refused(["balance", "--ranks=0"], "--ranks=0 is not from 1 to 1024")


class PlacementTest(GpuTest):
    def setUp(self):
        super().setUp()
        self.shape = [f"--ranks={self.ranks}", f"--experts={2 * self.ranks + 1}", "--topk=2",
                      "--hidden=64", "--max_tokens=12", "--iters=1", "--warmup=1"]
        self.path = self.folder / "p.json"
        result = octet("balance", *self.shape[:3], "--routing=zipf:1.2", "--tokens=64",
                       f"--output={self.path}")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_run(self):
        report = self.folder / "run.json"
        for strategy in ["direct", "low_latency", "high_throughput"]:
            result = octet("run", *self.shape, f"--placement={self.path}", "--routing=zipf:1.2",
                           f"--strategy={strategy}", f"--json={report}")
            self.assertEqual(result.returncode, 0, result.stderr)
            config = json.loads(report.read_text(encoding="utf-8"))["runs"][0]["config"]
            self.assertEqual(config["placement"], str(self.path))
            self.assertEqual(config["experts"], 2 * self.ranks + 1)

    def test_perf(self):
        result = octet("perf", *[flag for flag in self.shape if "max_tokens" not in flag], "-b", "4",
                       f"--placement={self.path}", "--strategy=direct,memcpy_peer")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("other contenders know no placement", result.stdout.replace("\n# ", " "))

    def test_refusals(self):
        for flags, words in [
            ([], "divisible by the"),
            ([f"--placement={self.path}", "--experts=4"], "places "),
            (["--placement=/no/such"], "cannot read /no/such"),
            ([f"--placement={self.path}", "--expert=rank"], "--expert=rank does not go with"),
            ([f"--placement={self.path}", f"--dump={self.folder}"], "--dump does not go with"),
            ([f"--placement={self.path}", "--workload=challenge"], "does not go with --workload"),
        ]:
            if not flags and self.ranks == 1:
                continue
            shape = [] if "--workload=challenge" in flags else self.shape
            self.assert_refused(["run", *shape, *flags], words)


if __name__ == "__main__":
    octet_cli.run_tests()
