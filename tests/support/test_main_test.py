"""What `--source` of the test programs selects.

    test_main_test.py RUNTIME_TESTS [unittest arguments]
"""

import subprocess
import sys
import unittest

PROGRAM = ""


class SourceTest(unittest.TestCase):
    def selected(self, *args):
        """The test suites that are run, or the program's exit code and what it says."""
        result = subprocess.run([PROGRAM, "--gtest_list_tests", *args], capture_output=True,
                                text=True, check=False)
        if result.returncode != 0:
            return result.returncode, result.stderr
        suite, tests = "", set()
        for line in result.stdout.splitlines():
            name = line.split("#")[0].strip()
            if line.startswith("  "):
                tests.add(suite + name)
            else:
                suite = name
        return tests

    def test_tests_of_files(self):
        everything = self.selected()
        barrier = self.selected("--source=host_barrier_test.cc")
        launch = self.selected("--source=launch_test.cc")
        self.assertTrue(barrier and launch)
        self.assertFalse(barrier & launch)
        self.assertLess(barrier | launch, everything)
        self.assertEqual(self.selected("--source=host_barrier_test.cc,launch_test.cc"),
                         barrier | launch)

    def test_filter_and_source_both_hold(self):
        barrier = self.selected("--source=host_barrier_test.cc")
        one = sorted(barrier)[0]
        source = "--source=host_barrier_test.cc"
        self.assertEqual(self.selected(source, f"--gtest_filter={one}"), {one})
        self.assertEqual(self.selected(source, f"--gtest_filter=-{one}"), barrier - {one})
        self.assertEqual(self.selected(source, f"--gtest_filter=*-{one}:Other*"), barrier - {one})

    def test_no_test_is_an_error(self):
        for args in [["--source=barrier_test.cc"],  # the end of a file's name is not its name
                     ["--source=host_barrier_test.cc", "--gtest_filter=LaunchTest.*"]]:
            code, said = self.selected(*args)
            self.assertEqual(code, 2)
            self.assertIn("no test", said)

    def test_other_arguments_are_an_error(self):
        self.assertEqual(self.selected("--sources=a.cc")[0], 2)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
