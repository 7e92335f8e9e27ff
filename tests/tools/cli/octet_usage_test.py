"""The program as its users see it: exit codes, and what it says of mistakes.

    octet_usage_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on.
"""

import re
import subprocess

import octet_cli
from octet_cli import HERE, CliTest, GpuTest, npy, octet


def masked(line):
    """Without the numbers that depend on how much a kernel does."""
    return re.sub(r"\d+(\.\d+)? ms|\d+/ ?\d+\*?| +", "#", line.rstrip())


class DocumentedFailureTest(GpuTest):
    def test_the_deadline_in_debugging_md_is_what_is_printed(self):
        if not octet_cli.EMULATED:
            self.skipTest("GPUs have no schedules")
        page = (HERE.parents[2] / "docs" / "debugging.md").read_text(encoding="utf-8")
        block = re.search(r"```\n\$ octet (run [^`]*--timeout_ms=[^`]*)```", page)[1]
        command, _, said = block.replace("\\\n", "").partition("\n")
        for _ in range(3):
            result = octet(*command.split())
            self.assertEqual(result.returncode, 4, result.stderr)
            self.assertEqual([masked(line) for line in result.stderr.splitlines()],
                             [masked(line) for line in said.splitlines()], result.stderr)


class UsageTest(CliTest):
    def test_help(self):
        for args in [["--help"], ["-h"], ["help"], ["run", "--help"], ["topo", "--help"]]:
            result = octet(*args)
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout.startswith("usage: octet"))
            self.assertEqual(result.stderr, "")
        self.assertIn("--max_tokens=256\n", octet("run", "--help").stdout)

    def test_help_names_what_is_accepted(self):
        """What a flag refuses another word for is in its help."""
        for command, flag in [("run", "strategy"), ("run", "dtype"), ("run", "format"),
                              ("run", "received"), ("run", "slots"), ("perf", "align"),
                              ("gemm", "dtype"), ("gemm", "tiles"), ("gemm", "epilogue"),
                              ("layer", "family"), ("layer", "strategy"), ("layer", "shared")]:
            with self.subTest(command=command, flag=flag):
                said = octet(command, f"--{flag}=no_such").stderr
                names = re.search(r"'no_such'.* one of ([^\n;]+)", said)
                self.assertIsNotNone(names, said)
                text = octet(command, "--help").stdout
                of_flag = re.search(rf"--{flag}=.*\n((?:      .*\n)+)", text)[1]
                for name in names[1].split(", "):
                    self.assertIn(name, of_flag)

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
        self.assert_refused(["run", "hidden"], "'hidden' is not a flag")
        self.assert_refused(["run", "-x"], "'-x' is not a flag")
        self.assert_refused(["run", "--"], "'--' is not a flag")
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
            ("--expert=best", "expert 'best' is not one of id, rank"),
            ("--slots=x", "slots 'x' is not one of prefix, atomic"),
            ("--flags=x", "flags 'x' is not one of token, source"),
            ("--align=x", "align 'x' is not one of host, device"),
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

    def test_sizes(self):
        for args, words in [
            (["-b", "1M"], "--begin=1M is more than the 65536 tokens of a rank at most"),
            (["-b", "65K"], "--begin=65K is more than the 65536 tokens"),
            (["-b", "1", "-e", "1G"], "--end=1G is not a number of tokens (128, 4K)"),
        ]:
            self.assert_refused(["perf", *args], words)

    def test_gemm_values(self):
        for args, words in [
            (["--rows=5,6", "--experts=3"], "--experts=3 does not agree with --rows"),
            (["--rows=x"], "--rows has 'x', which is neither N nor LxN"),
            (["--rows=5", "--topk=2"], "--topk goes with --rows=routing only"),
            (["--rows=routing"], "--rows=routing needs --ranks"),
            (["--rows=routing", "--ranks=3"], "divisible by the 3 ranks"),
            (["--iters=0"], "--iters must be at least 1"),
            (["--epilogue=gelu"], "--epilogue has 'gelu'"),
            (["--tiles=huge"], "--tiles: tiles 'huge' is not one of"),
            (["--dtype=int4"], "--dtype 'int4' is not one of fp16, bf16, fp8"),
            (["--scales=ue8m0"], "--scales goes with --dtype=fp8 only"),
        ]:
            self.assert_refused(["gemm", *args], words)

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


if __name__ == "__main__":
    octet_cli.run_tests()
