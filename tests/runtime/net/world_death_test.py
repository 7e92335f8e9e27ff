"""Processes of a World that die or are stopped.

    world_death_test.py MPIRUN WORLD_MEMBER TRANSPORT [unittest arguments]
"""

import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from world_job import DeathTestCase, lives  # noqa: E402

MPIRUN = MEMBER = TRANSPORT = ""
NODES = 3


class DeathTest(DeathTestCase):
    def start(self, recovery=True):
        return self.start_job(MPIRUN, NODES, [MEMBER, str(self.timeout_ms), TRANSPORT], recovery)

    def strike(self, victim, number, recovery=True):
        job, pids = self.start(recovery)
        time.sleep(0.2)  # amid exchanges
        os.kill(pids[victim], number)
        return job, pids

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
    if len(sys.argv) < 4:
        sys.exit("usage: world_death_test.py MPIRUN WORLD_MEMBER TRANSPORT [unittest arguments]")
    MPIRUN, MEMBER, TRANSPORT = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
