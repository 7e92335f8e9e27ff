"""Processes of a World under mpirun, for tests that kill or stop them."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

# More than the deadline: this machine may be busy.
SLACK_MS = 3000
# Open MPI's: as root, more processes than cores; with `recovery` others outlive a process.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "0",  # Octet yields itself between its polls
    "OMPI_MCA_pml": "ob1",  # what looks for other networks takes a tenth of each start
    "OMPI_MCA_btl": "self,vader",
    "HWLOC_COMPONENTS": "no_os,stop",  # what looks at caches and buses takes a fifth
    "HWLOC_PLUGINS_PATH": "/dev/null",
}


def lives(pid):
    """Whether the process runs or is stopped; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


class Job:
    """A World of `nodes` processes that mpirun starts, and what they have printed.

    They print to a file: an mpirun whose processes have died sometimes waits for itself for ever or
    falls over, and passes on nothing from then on. What it says itself goes to the test's output.
    """

    def __init__(self, mpirun, nodes, command, recovery=True):
        environment = {**os.environ, **ENVIRONMENT,
                       "OMPI_MCA_orte_enable_recovery": "1" if recovery else "0"}
        self.nodes = nodes
        self.output = tempfile.NamedTemporaryFile()
        to_file = ["sh", "-c", 'exec "$@" >>"$0" 2>&1', self.output.name]
        self.process = subprocess.Popen([mpirun, "-n", str(nodes), *to_file, *command],
                                        env=environment)

    @property
    def lines(self):
        """Whole lines: a process may be amid the last one."""
        printed = pathlib.Path(self.output.name).read_text(errors="replace")
        return printed[:printed.rfind("\n") + 1].splitlines()

    def wait_for(self, pattern, count, seconds=60):
        """Returns the first `count` matches."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [match for match in map(re.compile(pattern).fullmatch, self.lines)
                     if match]
            if len(found) >= count:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{count} times {pattern} in:\n" + "\n".join(self.lines))

    def pids(self):
        return {int(match[1]): int(match[2])
                for match in self.wait_for(r"node (\d) pid (\d+)", self.nodes, seconds=180)}

    def await_end(self, pids):
        """Waits until mpirun has ended, after its processes. When these leave without PMIx, its
        server sometimes locks a mutex twice, and mpirun waits for itself for ever.
        """
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            if any(lives(pid) for pid in pids):
                raise
            self.process.kill()
            self.process.wait()

    def close(self, pids=()):
        for pid in pids:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()


class DeathTestCase(unittest.TestCase):
    """Tests of processes that print

        node N pid P
        node N goes                               when others may be struck
        node N failed after ms M: STATUS          of the call that failed
        node N then: STATUS                       of the next one
        node N ends
    """

    timeout_ms = 3000  # NodeOptions::timeout of the processes

    def start_job(self, mpirun, nodes, command, recovery=True):
        job = Job(mpirun, nodes, command, recovery)
        self.addCleanup(job.close)
        pids = job.pids()
        self.addCleanup(job.close, pids.values())
        job.wait_for(r"node \d goes", nodes)
        return job, pids

    def check_survivors(self, job, pids, victim):
        """All others give up the victim in time, and say what must be done."""
        name = rf"node {victim} \(host \S+, process {pids[victim]}\) has died or been stopped: .*"
        survivors = {str(node) for node in pids} - {str(victim)}
        failed = job.wait_for(rf"node (\d) failed after ms (\d+): UNAVAILABLE: {name}",
                              len(survivors))
        self.assertEqual({match[1] for match in failed}, survivors)
        for match in failed:
            self.assertLess(int(match[2]), self.timeout_ms + SLACK_MS, match[0])
        then = job.wait_for(r"node (\d) then: FAILED_PRECONDITION: the World has to be started "
                            rf"again, all {len(pids)} processes of it: {name}", len(survivors))
        self.assertEqual({match[1] for match in then}, survivors)
        job.wait_for(r"node \d ends", len(survivors))

    def check_none_left(self, pids):
        end = time.monotonic() + 10
        while any(lives(pid) for pid in pids.values()) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual([pid for pid in pids.values() if lives(pid)], [])
