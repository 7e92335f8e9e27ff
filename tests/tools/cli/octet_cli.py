"""What the tests of the program as its users see it share."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

OCTET = ""
GPUS = 0
EMULATED = False
SMALL = ["--experts=16", "--topk=4", "--hidden=128", "--max_tokens=24", "--iters=2", "--warmup=1"]
HERE = pathlib.Path(__file__).resolve().parent


def octet(*args, env=None, cwd=None):
    return subprocess.run(
        [OCTET, *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )


def npy(shape, values, kind="<i4"):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    code = {"<i4": "i", "<i8": "q", "<f4": "f"}[kind]
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    return magic + header + struct.pack(f"<{len(values)}{code}", *values)


def python_with_numpy():
    for python in [sys.executable, shutil.which("python3"), "/usr/bin/python3"]:
        if not python or not os.path.exists(python):
            continue
        probe = subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False)
        if probe.returncode == 0:
            return python
    return None


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="octet_cli_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.ranks = min(GPUS, 4)

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def run_small(self, *args, code=0, env=None):
        result = octet("run", f"--ranks={self.ranks}", *SMALL, *args, env=env)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def assert_refused(self, args, words, code=2, env=None):
        """One line on stderr with `words` in it, nothing on stdout."""
        result = octet(*args, env=env)
        with self.subTest(args=args):
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertTrue(result.stderr.startswith("octet"), result.stderr)
            self.assertIn(words, result.stderr)


class GpuTest(CliTest):
    """Skipped where there is no GPU."""


def run_tests():
    """Of the program that the first argument names. Exit code 77 where there is no GPU."""
    global OCTET, GPUS, EMULATED
    if len(sys.argv) < 2:
        sys.exit(f"usage: {pathlib.Path(sys.argv[0]).name} OCTET [unittest arguments]")
    OCTET = sys.argv.pop(1)
    topo = octet("topo")
    if topo.returncode == 0:
        rows = [line for line in topo.stdout.split("# peer access")[0].splitlines()
                if not line.startswith("#")]
        GPUS = len(rows)
        EMULATED = topo.stdout.startswith("# platform emulation")
    if GPUS == 0:
        for tests in GpuTest.__subclasses__():
            tests.__unittest_skip__ = True
            tests.__unittest_skip_why__ = "no GPU"
    program = unittest.main(exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(0 if GPUS > 0 else 77)
