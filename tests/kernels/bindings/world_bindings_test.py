"""Two processes under mpirun, in C and in Python: a step, a rank that fails, a step again.

    world_bindings_test.py MPIRUN LIBRARY [unittest arguments]

LIBRARY is liboctet_mpi.so of a build.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from python_with_numpy import go_on_with_numpy

go_on_with_numpy()

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "support" / "nodes"))

from world_job import ENVIRONMENT  # noqa: E402

MPIRUN = ""
LIBRARY = pathlib.Path()
SECONDS = 120


class WorldTest(unittest.TestCase):
    def check(self, *command):
        done = subprocess.run([MPIRUN, "-n", "2", *map(str, command)], capture_output=True,
                              text=True, check=False, timeout=SECONDS,
                              env={**os.environ, **ENVIRONMENT})
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        lines = done.stdout.splitlines()
        self.assertEqual(sorted(line for line in lines if line.endswith("y is x")),
                         ["process 0 of 2: y is x", "process 1 of 2: y is x"])
        errors = sorted(line for line in lines if not line.endswith("y is x"))
        self.assertEqual(len(errors), 2, lines)
        for process, line in enumerate(errors):
            self.assertRegex(line, rf"^process {process}: .*this rank gives up")

    def test_c(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="octet_world_"))
        self.addCleanup(shutil.rmtree, folder)
        subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                        "-Wno-missing-field-initializers",
                        f"-I{SOURCE / 'kernels' / 'bindings' / 'c' / 'include'}",
                        HERE / "world_step.c", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}",
                        "-o", folder / "world_step"], check=True)
        self.check(folder / "world_step")

    def test_python(self):
        self.check(sys.executable, HERE / "world_step.py", LIBRARY)


def main():
    global MPIRUN, LIBRARY
    if len(sys.argv) < 3:
        sys.exit("usage: world_bindings_test.py MPIRUN LIBRARY [unittest arguments]")
    MPIRUN, LIBRARY = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()


if __name__ == "__main__":
    main()
