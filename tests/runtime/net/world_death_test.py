"""Processes of a World that die or are stopped.

    world_death_test.py MPIRUN WORLD_MEMBER [unittest arguments]
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

MPIRUN = MEMBER = ""
NODES = 3
TIMEOUT_MS = 3000
# More than the deadline: this machine may be busy.
SLACK_MS = 3000
# Open MPI's: as root, more processes than cores; with `recovery` others outlive a process.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}


def lives(pid):
    """Whether the process runs or is stopped; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


class Job:
    """A World of NODES processes under mpirun, and what they have printed."""

    def __init__(self, recovery):
        environment = {**os.environ, **ENVIRONMENT,
                       "OMPI_MCA_orte_enable_recovery": "1" if recovery else "0"}
        self.process = subprocess.Popen([MPIRUN, "-n", str(NODES), MEMBER, str(TIMEOUT_MS)],
                                        env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, pattern, count, seconds=60):
        """Returns the first `count` matches."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [match for match in map(re.compile(pattern).fullmatch, list(self.lines))
                     if match]
            if len(found) >= count:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{count} times {pattern} in:\n" + "\n".join(self.lines))

    def pids(self):
        return {int(match[1]): int(match[2])
                for match in self.wait_for(r"node (\d) pid (\d+)", NODES)}

    def close(self, pids=()):
        for pid in pids:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stdout.close()


class DeathTest(unittest.TestCase):
    def start(self, recovery=True):
        job = Job(recovery)
        self.addCleanup(job.close)
        pids = job.pids()
        self.addCleanup(job.close, pids.values())
        job.wait_for(r"node \d goes", NODES)
        return job, pids

    def strike(self, victim, number, recovery=True):
        job, pids = self.start(recovery)
        time.sleep(0.2)  # amid exchanges
        os.kill(pids[victim], number)
        return job, pids

    def check_survivors(self, job, pids, victim):
        name = rf"node {victim} \(host \S+, process {pids[victim]}\) has died or been stopped: .*"
        survivors = {str(node) for node in pids} - {str(victim)}
        failed = job.wait_for(rf"node (\d) failed after ms (\d+): UNAVAILABLE: {name}",
                              NODES - 1)
        self.assertEqual({match[1] for match in failed}, survivors)
        for match in failed:
            self.assertLess(int(match[2]), TIMEOUT_MS + SLACK_MS, match[0])
        then = job.wait_for(r"node (\d) then: FAILED_PRECONDITION: the World has to be started "
                            rf"again, all {NODES} processes of it: {name}", NODES - 1)
        self.assertEqual({match[1] for match in then}, survivors)
        job.wait_for(r"node \d ends", NODES - 1)

    def check_none_left(self, pids):
        end = time.monotonic() + 10
        while any(lives(pid) for pid in pids.values()) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual([pid for pid in pids.values() if lives(pid)], [])

    def test_killed(self):
        for victim in (0, NODES - 1):
            with self.subTest(victim=victim):
                job, pids = self.strike(victim, signal.SIGKILL)
                self.check_survivors(job, pids, victim)
                job.process.wait(20)
                self.check_none_left(pids)

    def test_stopped(self):
        job, pids = self.strike(1, signal.SIGSTOP)
        self.check_survivors(job, pids, 1)
        # mpirun waits for the one that is stopped.
        self.assertTrue(lives(pids[1]))
        os.kill(pids[1], signal.SIGKILL)
        job.process.wait(20)
        self.check_none_left(pids)

    def test_stopped_for_a_while(self):
        """The one that goes on finds that the others have given it up."""
        job, pids = self.strike(1, signal.SIGSTOP)
        self.check_survivors(job, pids, 1)
        os.kill(pids[1], signal.SIGCONT)
        job.wait_for(r"node 1 failed after ms \d+: UNAVAILABLE: .*", 1)
        job.wait_for(r"node 1 then: FAILED_PRECONDITION: the World has to be started again.*", 1)
        job.process.wait(20)
        self.check_none_left(pids)

    def test_without_recovery_the_launcher_ends_all(self):
        job, pids = self.strike(1, signal.SIGKILL, recovery=False)
        job.process.wait(20)
        self.assertNotEqual(job.process.returncode, 0)
        self.check_none_left(pids)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: world_death_test.py MPIRUN WORLD_MEMBER [unittest arguments]")
    MPIRUN, MEMBER = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
