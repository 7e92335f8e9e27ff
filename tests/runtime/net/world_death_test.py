"""Processes of a World that die or are stopped.

    world_death_test.py MPIRUN WORLD_MEMBER TRANSPORT [unittest arguments]
"""

import os
import pathlib
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "nodes"))
from world_job import SLACK_MS, DeathTestCase, Job, lives  # noqa: E402

MPIRUN = MEMBER = TRANSPORT = ""
NODES = 3
ARRIVAL_MS = 3000  # world_member's arrival_timeout when one is absent
END_MS = 15000  # the same when one stays


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
                job.await_end(pids.values())
                self.check_none_left(pids)

    def test_stopped(self):
        job, pids = self.strike(1, signal.SIGSTOP)
        self.check_survivors(job, pids, 1)
        # mpirun waits for the one that is stopped.
        self.assertTrue(lives(pids[1]))
        os.kill(pids[1], signal.SIGKILL)
        job.await_end(pids.values())
        self.check_none_left(pids)

    def check_stopped_for_a_while(self, fault, first_code):
        """The one that goes on finds that the others have given it up."""
        job, pids = self.start_with(fault, 1)
        self.check_survivors(job, pids, 1)
        os.kill(pids[1], signal.SIGCONT)
        own = rf"node 1 \(host \S+, process {pids[1]}\) has died or been stopped: .*"
        again = rf"the World has to be started again, all {NODES} processes of it: {own}"
        first = own if first_code == "UNAVAILABLE" else again
        job.wait_for(rf"node 1 failed after ms \d+: {first_code}: {first}", 1)
        job.wait_for(rf"node 1 then: FAILED_PRECONDITION: {again}", 1)
        job.await_end(pids.values())
        self.check_none_left(pids)

    def test_stopped_for_a_while_amid_a_call(self):
        self.check_stopped_for_a_while("stops", "UNAVAILABLE")

    def test_stopped_for_a_while_between_two_calls(self):
        """No call is in progress that could return the reason."""
        self.check_stopped_for_a_while("stops_between", "FAILED_PRECONDITION")

    def test_without_recovery_the_launcher_ends_all(self):
        job, pids = self.strike(1, signal.SIGKILL, recovery=False)
        job.process.wait(20)
        self.assertNotEqual(job.process.returncode, 0)
        self.check_none_left(pids)

    def start_with(self, fault, victim):
        job = Job(MPIRUN, NODES, [MEMBER, str(self.timeout_ms), TRANSPORT, fault, str(victim)])
        self.addCleanup(job.close)
        pids = job.pids()
        self.addCleanup(job.close, pids.values())
        return job, pids

    def check_ended(self, job, pids, victim=None):
        """All but the victim end by themselves, and none of them by a signal."""
        self.check_none_left({node: pid for node, pid in pids.items() if node != victim})
        if victim is not None:
            os.kill(pids[victim], signal.SIGKILL)
        job.await_end(pids.values())
        self.assertEqual([line for line in job.lines if "*** Process received signal" in line], [])

    def check_not_created(self, fault, victim, words, again):
        job, pids = self.start_with(fault, victim)
        status = rf"node (\d) is not created after ms (\d+): DEADLINE_EXCEEDED: {words}"
        found = job.wait_for(status, NODES - 1, seconds=30)
        for match in found:
            self.assertLess(int(match[2]), ARRIVAL_MS + SLACK_MS, match[0])
        job.wait_for(rf"node \d again: {again}", NODES - 1, seconds=30)
        self.check_ended(job, pids, victim)

    def test_a_process_that_does_not_create_the_world(self):
        for victim in (0, NODES - 1):
            with self.subTest(victim=victim):
                self.check_not_created(
                    "absent", victim,
                    rf"process \d of {NODES} has waited \d+\.\d s in MPI_Init_thread for the "
                    "others: all must call World::Create, .*",
                    "FAILED_PRECONDITION: MPI_Init_thread has not returned .*")

    def test_a_process_that_does_not_create_the_world_but_has_mpi(self):
        self.check_not_created(
            "absent_own", 1,
            rf"process \d of {NODES} has waited \d+\.\d s in MPI_Comm_idup for the others: all "
            "must call World::Create, .*",
            rf"DEADLINE_EXCEEDED: process \d of {NODES} has waited \d+\.\d s in MPI_Comm_idup .*")

    def test_a_process_that_stays_in_the_end(self):
        """The others have nothing left to do and do not wait for ever."""
        job, pids = self.start_with("stays", 1)
        found = job.wait_for(r"node \d ends after ms (\d+): OK", NODES)
        for match in found:
            self.assertLess(int(match[1]), END_MS + SLACK_MS, match[0])
        job.wait_for(r"octet: the World's end: MPI_Finalize has not returned within 15\.0 s on "
                     rf"node 1 of {NODES}: .*", 1, seconds=5)
        self.check_ended(job, pids)

    def test_a_machine_that_is_suspended_amid_an_exchange(self):
        """What passes meanwhile is not held against the exchange."""
        if TRANSPORT != "nccl":
            self.skipTest("the deadline of the wait is a GPU's, whose clock goes on")
        job, pids = self.start_with("late", 1)
        job.wait_for(r"node \d goes", NODES)
        time.sleep(0.3)  # the others wait
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self.timeout_ms / 1000 + 2)
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
        job.wait_for(r"node \d ends after ms \d+: OK", NODES)
        self.check_ended(job, pids)

    def test_a_call_of_mpi_that_does_not_return(self):
        """The World of that process ends, too, and so does the process."""
        for fault in ("hangs", "hangs_amid"):
            with self.subTest(fault=fault):
                job, pids = self.start_with(fault, 1)
                job.wait_for(r"node 1 failed after ms \d+: .*", 1)
                job.wait_for(r"octet: the World's end: a call of MPI has not returned within "
                             rf"3\.00? s on node 1 of {NODES}: .*", 1, seconds=30)
                job.wait_for(r"node \d ends", NODES)
                self.check_none_left(pids)

    def test_killed_among_slow_processes(self):
        """Each look at what has come takes longer than the time between two signs of life."""
        job, pids = self.start_with("slow", 2)
        job.wait_for(r"node \d goes", NODES)
        os.kill(pids[2], signal.SIGKILL)
        name = rf"node 2 \(host \S+, process {pids[2]}\) has died or been stopped: "
        found = job.wait_for(rf"node (\d) failed after ms (\d+): UNAVAILABLE: {name}.*", NODES - 1,
                             seconds=30)
        self.assertEqual({match[1] for match in found}, {"0", "1"})
        self.assertTrue(any(re.search("no sign of life for ", match[0]) for match in found))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: world_death_test.py MPIRUN WORLD_MEMBER TRANSPORT [unittest arguments]")
    MPIRUN, MEMBER, TRANSPORT = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
