"""tools/compute_sanitizer.py, with a program in place of compute-sanitizer.

    compute_sanitizer_test.py [unittest arguments]
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "tools" / "compute_sanitizer.py"
FINE = 'echo "========= ERROR SUMMARY: 0 errors"'


class ComputeSanitizerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octet_sanitizer_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, body, *arguments):
        """Runs the script; `body` is what compute-sanitizer does, $2 being the tool."""
        tool = self.folder / "compute-sanitizer"
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run([sys.executable, SCRIPT, *arguments], env=environment,
                              capture_output=True, text=True, timeout=60, check=False)

    def row(self, result, case):
        rows = [line for line in result.stdout.splitlines() if line.startswith(case + "  ")]
        self.assertEqual(len(rows), 1, result.stdout)
        return rows[0][len(case):]

    def test_all_cases_with_all_tools(self):
        result = self.run_script(f'echo "$2 $*" >> {self.folder}/runs\n{FINE}', "octet")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        runs = (self.folder / "runs").read_text().splitlines()
        for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
            own = [run for run in runs if run.startswith(tool)]
            for words in ("=direct", "=high_throughput", "=low_latency", "gemm --tiles=all",
                          "--dtype=fp8", "dispatch_gemm --fusion=none",
                          "dispatch_gemm --fusion=tiles", "dispatch_gemm --fusion=serial",
                          "gemm_combine --fusion=none", "gemm_combine --fusion=tiles",
                          "gemm_combine --fusion=serial", "gemm_combine --fusion=epilogue",
                          "octet layer", "--weights=fp8"):
                self.assertTrue(any(words in run for run in own), f"{tool}: {words}")
        self.assertIn(f"# {len(runs)} runs, 0 not ok", result.stdout)
        self.assertEqual(self.row(result, "direct").split()[0::3], ["ok"] * 4)

    def test_each_thing_that_goes_wrong_is_a_cell_and_the_exit_code(self):
        for body, cell in (
                ('echo "========= ERROR SUMMARY: 3 errors"', "3 errors"),
                ('echo "========= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)"',
                 "2 errors"),
                (FINE + "; exit 4", "exit code 4"),
                (FINE + "; sleep 60", "hang"),
                (FINE + "; sleep 60 & wait", "hang"),
                ("true", "no summary")):
            logs = self.folder / "logs"
            result = self.run_script(f"echo told; {body}", "octet", "--tools=synccheck",
                                     "--cases=^direct$", "--timeout=1", f"--logs={logs}")
            self.assertEqual(result.returncode, 1, body)
            self.assertIn(cell, self.row(result, "direct"))
            self.assertIn("# 1 runs, 1 not ok", result.stdout)
            self.assertIn(f"# synccheck: direct: {cell}\n# octet run", result.stdout)
            self.assertIn("told", (logs / "direct.synccheck.txt").read_text())

    def test_one_run_that_is_not_ok_among_others(self):
        result = self.run_script(f'case "$2$*" in racecheck*=low*) exit 3;; esac; {FINE}', "octet",
                                 "--cases=^(direct|low_latency)$")
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("exit", self.row(result, "direct"))
        self.assertEqual(self.row(result, "low_latency").count("ok"), 3)
        self.assertIn("exit code 3", self.row(result, "low_latency"))

    def test_the_false_alarm_is_one_where_it_is_known_and_alone(self):
        function = "bool octet::device::AwaitFlags<(bool)0>(const octet::CallParams &)+0x10"
        alarm = (f"echo '= Error: Race reported between Write access at {function} in c.h:74'\n"
                 f"echo '=     and Read access at {function} in c.h:77 [4 hazards]'\n")
        summary = "echo '= RACECHECK SUMMARY: {0} hazards displayed ({0} errors, 0 warnings)'"
        for case, displayed, cell in (("gemm_combine, serial", 2, "ok*"),
                                      ("gemm_combine, serial", 3, "3 errors"),
                                      ("high_throughput", 2, "2 errors")):
            result = self.run_script(alarm * 2 + summary.format(displayed), "octet",
                                     f"--cases=^{case}$", "--tools=racecheck")
            self.assertIn(f" {cell} ", self.row(result, case))
            self.assertEqual(result.returncode, 0 if cell == "ok*" else 1)
            self.assertEqual("false alarm" in result.stdout, cell == "ok*")

    def test_nothing_to_run(self):
        for arguments in ([], ["octet", "--cases=no such"], ["octet", "--tools=lint"]):
            result = self.run_script(FINE, *arguments)
            self.assertEqual(result.returncode, 2, result.stdout)


if __name__ == "__main__":
    unittest.main()
