"""A program one of whose threads is stuck: it says so, and ends.

    octet_stuck_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
import time
import unittest

import octet_cli
from octet_cli import SMALL, GpuTest

PTRACE_DETACH = 17
PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
WALL = 0x40000000

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


def ptrace(request, thread):
    if LIBC.ptrace(request, thread, None, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def freeze(thread):
    """Stops one thread of a child, as a debugger does; the others go on."""
    ptrace(PTRACE_SEIZE, thread)
    ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)


def thread_named(process, name):
    tasks = f"/proc/{process.pid}/task"
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/comm", encoding="utf-8") as comm:
            if comm.read().strip() == name:
                return int(task)
    return None


class StuckTest(GpuTest):
    def setUp(self):
        super().setUp()
        self.stderr = tempfile.TemporaryFile("w+")
        self.addCleanup(self.stderr.close)

    def start(self, *args):
        process = subprocess.Popen([octet_cli.OCTET, *args], stdout=subprocess.DEVNULL,
                                   stderr=self.stderr,
                                   env={"OCTET_TIMEOUT_MS": "500", **os.environ})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def said(self):
        self.stderr.seek(0)
        return self.stderr.read()

    def await_words(self, process, words, seconds):
        """True if `words` come to stderr while the process runs."""
        latest = time.monotonic() + seconds
        while time.monotonic() < latest and process.poll() is None:
            if words in self.said():
                return True
            time.sleep(0.05)
        return words in self.said()

    def start_and_freeze_rank_0(self, *args):
        """Returns the process and the thread. It has to be between two calls: a thread that holds
        a lock of the driver or of the emulation keeps the others from noticing anything. If nobody
        does, another process is started."""
        for _ in range(20):
            self.stderr.seek(0)
            self.stderr.truncate()
            process = self.start(*args)
            thread = None
            while thread is None:
                time.sleep(0.3)
                self.assertIsNone(process.poll(), self.said())
                thread = thread_named(process, "octet-rank-0")
            try:
                freeze(thread)
            except PermissionError as error:
                process.kill()
                raise unittest.SkipTest("threads may not be traced") from error
            if self.await_words(process, "for rank 0", 12):
                return process, thread
            process.kill()
            self.end_of(process, thread, 60)
        self.fail("nobody has noticed: " + self.said())

    def end_of(self, process, thread, seconds):
        """The exit code. The frozen thread ends with its process, and its tracer is told first."""
        latest = time.monotonic() + seconds
        while time.monotonic() < latest:
            try:
                os.waitpid(thread, WALL | os.WNOHANG)
            except ChildProcessError:
                pass
            if process.poll() is not None:
                return process.returncode
            time.sleep(0.05)
        return None

    def test_a_frozen_rank(self):
        for args in [
            ("run", "--iters=100000"),
            ("perf", "-b", "8", "-e", "8", "-n", "100000"),
        ]:
            with self.subTest(args=args):
                small = [flag for flag in SMALL if not flag.startswith(("--iters", "--max_tokens"))]
                process, thread = self.start_and_freeze_rank_0(*args, "--ranks=2", *small)
                # Told while the process still runs and the thread is still frozen.
                self.assertIsNone(process.poll(), self.said())
                self.assertRegex(self.said(), r"(?m)^octet: .*rank 1: .* for rank 0")
                code = self.end_of(process, thread, 60)
                self.assertEqual(code, 4, self.said())
                self.assertIn("a rank's thread or stream is stuck", self.said())

    def test_a_frozen_rank_that_goes_on(self):
        process, thread = self.start_and_freeze_rank_0("run", "--iters=100000", "--ranks=2",
                                                       *SMALL[:-2])
        ptrace(PTRACE_DETACH, thread)
        # The error of the run, as if the thread had only been slow.
        self.assertEqual(process.wait(60), 4)
        self.assertRegex(self.said(), r"(?m)^octet run: .*for rank 0")
        self.assertNotIn("is stuck", self.said())

    def test_a_failure_is_printed_once(self):
        # Too short on purpose; GPUs may be quick enough.
        process = self.start("run", "--ranks=2", *SMALL, "--iters=2000", "--timeout_ms=1")
        code = process.wait(120)
        if code != 4:
            self.skipTest(f"no wait has expired: exit code {code}")
        self.assertEqual(self.said().count("octet run: "), 1, self.said())
        self.assertNotIn("octet: ", self.said())


if __name__ == "__main__":
    octet_cli.run_tests()
