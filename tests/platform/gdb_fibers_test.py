#!/usr/bin/env python3
"""gdb at a lane inside an emulated kernel: gdb_fibers_test.py OCTET GDB_FIBERS.

Exit code 77 (skipped) where there is no gdb or it may not trace.
"""

import re
import shutil
import subprocess
import sys


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
    commands = [
        "break %s if %s" % (where, condition), "run",
        'printf "at %d %d %d %d\\n", $octet("device"), $octet("block"), $octet("lane"), '
        '$octet("thread")', "bt", "octet-lanes", "octet-bt 1 0 0 0 1", "delete", "continue",
        "octet-lanes"
    ]
    argv = ["gdb", "-q", "-batch", "-nx", "-x", script]
    for command in commands:
        argv += ["-ex", command]
    argv += ["--args", octet, "run", "--ranks=2", "--experts=8", "--topk=2", "--hidden=64",
             "--max_tokens=8", "--tokens=8", "--iters=1", "--timeout_ms=100000",
             "--strategy=direct", "--blocks=8", "--waves=8"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    output = result.stdout + result.stderr
    if "ptrace: Operation not permitted" in output:
        print("gdb may not trace")
        return 77
    for wanted in [
            r"^at 1 4 3 \d+$",
            r"^#0 .*CombineReceiver::Await .*protocol\.h:\d+$",
            r"^device 1 grid 0: .*octet::direct::.*Combine",
            r"^  block .* wave .* lane .*: waits for its wave protocol\.h:\d+$",
            r"^  block .* wave .* lane .*: not started$",
            r"^#\d+ .*octet::device::BeginCall .*call_epoch_device\.h:\d+$",
            r"^# All of \d+ steps equal the reference to the bit",
            r"no emulated machine is running|no kernel is running",
    ]:
        if not re.search(wanted, output, re.MULTILINE):
            print(output)
            print("not found:", wanted)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
