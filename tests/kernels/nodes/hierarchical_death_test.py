"""Processes that die, are stopped or are late amid a dispatch or a combine over several nodes.

    hierarchical_death_test.py MPIRUN HIERARCHICAL_MEMBER [unittest arguments]
"""

import os
import pathlib
import random
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "nodes"))
from world_job import SLACK_MS, DeathTestCase, lives  # noqa: E402

MPIRUN = MEMBER = ""
NODES = 3
# Blocks of rows for which no host waits, and rows whose counts each host waits for.
BLOCKS = ("low_latency", "blocks", "0")
COUNTED = ("high_throughput", "counted", "0")
CHUNKS = ("high_throughput", "blocks", "3")  # of tokens, which cross beside a dispatch


class DeathTest(DeathTestCase):
    def start(self, way, victim, call, stands_ms=0):
        return self.start_job(MPIRUN, NODES, [MEMBER, str(self.timeout_ms), *way, str(victim), call,
                                              str(stands_ms)])

    def check_given_up(self, job, pids, victim):
        self.check_survivors(job, pids, victim)
        if lives(pids[victim]):  # mpirun waits for one that is stopped
            os.kill(pids[victim], signal.SIGKILL)
        job.await_end(pids.values())
        self.check_none_left(pids)

    def strike(self, number, cases):
        """The victim is amid the call when it is struck: the others wait for it."""
        for way, call, victim in cases:
            with self.subTest(way=way, call=call, victim=victim):
                job, pids = self.start(way, victim, call)
                job.wait_for(f"node {victim} stands in {call}", 1)
                os.kill(pids[victim], number)
                self.check_given_up(job, pids, victim)

    def test_killed(self):
        self.strike(signal.SIGKILL, ((BLOCKS, "dispatch", 0), (COUNTED, "dispatch", 1),
                                     (BLOCKS, "combine", 2), (COUNTED, "combine", 0),
                                     (CHUNKS, "dispatch", 2)))

    def test_stopped(self):
        self.strike(signal.SIGSTOP, ((COUNTED, "dispatch", 2), (BLOCKS, "combine", 1)))

    def test_struck_at_any_time(self):
        for seed, way, number in ((1, COUNTED, signal.SIGKILL), (2, BLOCKS, signal.SIGSTOP),
                                  (3, CHUNKS, signal.SIGKILL)):
            with self.subTest(seed=seed, number=number, way=way):
                job, pids = self.start(way, -1, "none")
                rng = random.Random(seed)
                victim = rng.randrange(NODES)
                time.sleep(rng.uniform(0.05, 0.6))
                os.kill(pids[victim], number)
                self.check_given_up(job, pids, victim)

    def test_late(self):
        """All name a rank of the node that is late, and the next step is correct."""
        for way in (BLOCKS, COUNTED, CHUNKS):
            for call in ("dispatch", "combine"):
                with self.subTest(way=way, call=call):
                    victim = 1
                    job, pids = self.start(way, victim, call, int(1.5 * self.timeout_ms))
                    failed = job.wait_for(r"node (\d) failed after ms (\d+): "
                                          r"DEADLINE_EXCEEDED: (.*)", NODES)
                    self.assertEqual({match[1] for match in failed}, {str(node) for node in pids})
                    for match in failed:
                        # After a failure streams have twice the timeout and 5 s to end.
                        self.assertLess(int(match[2]), 3 * self.timeout_ms + 5000 + SLACK_MS,
                                        match[0])
                        # Of the node itself, or of one that waited for a rail of it: host
                        # functions share a thread, so that rank 1 can be late, too.
                        self.assertRegex(match[3], rf"^node {victim}: .*rank \d|"
                                                   rf"rank \d of node {victim}")
                    job.wait_for(r"node \d then: OK", NODES)
                    job.wait_for(r"node \d ends", NODES)
                    job.await_end(pids.values())
                    self.check_none_left(pids)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: hierarchical_death_test.py MPIRUN HIERARCHICAL_MEMBER [unittest arguments]")
    MPIRUN, MEMBER = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
