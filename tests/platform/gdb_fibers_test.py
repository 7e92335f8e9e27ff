#!/usr/bin/env python3
"""gdb at a lane inside an emulated kernel: gdb_fibers_test.py OCTET GDB_FIBERS.

Exit code 77 (skipped) where there is no gdb or it may not trace.
"""

import os
import re
import shutil
import subprocess
import sys


def debug(octet, script, commands):
    """What gdb prints, or None if it may not trace."""
    argv = ["gdb", "-q", "-batch", "-nx", "-x", script]
    for command in commands:
        argv += ["-ex", command]
    argv += ["--args", octet, "run", "--ranks=2", "--experts=8", "--topk=2", "--hidden=64",
             "--max_tokens=8", "--tokens=8", "--iters=1", "--timeout_ms=100000",
             "--strategy=direct", "--blocks=8", "--waves=8"]
    environment = {**os.environ, "OCTET_EMULATION_WORKERS": "2", "OCTET_EMULATION_DEVICES": "5"}
    result = subprocess.run(argv, capture_output=True, text=True, timeout=100, env=environment)
    output = result.stdout + result.stderr
    return None if "ptrace: Operation not permitted" in output else output


def contains(output, patterns):
    for wanted in patterns:
        if not re.search(wanted, output, re.MULTILINE):
            print(output)
            print("not found:", wanted)
            return False
    return True


def main():
    octet, script = sys.argv[1:]
    if shutil.which("gdb") is None:
        print("no gdb")
        return 77
    where = "protocol.h:WAIT"
    # The line at which a lane waits for its flag.
    with open(script.replace("runtime/platform/emulation/gdb_fibers.py",
                             "kernels/direct/protocol.h")) as source:
        for number, line in enumerate(source, 1):
            if "return device::WaveWaitEpochs(" in line:
                where = "direct/protocol.h:%d" % number
    condition = '$octet("device") == 1 && $octet("block") == 4 && $octet("lane") == 3'
    output = debug(octet, script, [
        "break %s if %s" % (where, condition), "run",
        'printf "at %d %d %d %d\\n", $octet("device"), $octet("block"), $octet("lane"), '
        '$octet("thread")', "bt", "octet-lanes", "octet-bt 1 0 0 0 1", "list", "delete", "continue",
        "octet-lanes"
    ])
    if output is None:
        print("gdb may not trace")
        return 77
    if not contains(output, [
            r"^at 1 4 3 \d+$",
            r"^#0 .*CombineReceiver::Await .*protocol\.h:\d+$",
            r"^\d+\s.*device::WaveWaitEpochs\(",
            r"^device 1 grid 0: .*octet::direct::.*Combine",
            r"^  block .* wave .* lane .*: waits for its wave protocol\.h:\d+$",
            r"^  block .* wave .* lane .*: not started$",
            r"^#\d+ .*octet::device::BeginCall .*call_epoch_device\.h:\d+$",
            r"^idle: device 2-4$",
            r"^# All of \d+ steps equal the reference to the bit",
            r"no emulated machine is running|no kernel is running",
    ]):
        return 1
    # A lane of device 1 has just begun to wait for rank 0, which is not let go on.
    output = debug(octet, script, [
        "break octet::emulation::Worker::WakePolling if wave->block->grid->device->id == 1 && "
        "wave->lanes[0].awaited_rank == 0 && wave->lanes[0].poll_address != 0",
        "run", "octet-lanes", "delete", "continue",
    ])
    return 0 if contains(output, [
        r"^device 1 grid 0: .*octet::direct::",
        r"^  block .* wave .* lane .*: waits for a value other than 0x\w+ at 0x\w+ on device 1 "
        r"wait\.h:\d+, for rank 0$",
        r"^device 1 waits for rank 0 \(\d+ lanes?\)",
        r"^idle: device 2-4$",
        r"^# All of \d+ steps equal the reference to the bit",
    ]) else 1


if __name__ == "__main__":
    sys.exit(main())
