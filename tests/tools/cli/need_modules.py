"""Finds a Python that has the modules a test needs."""

import importlib.util
import os
import subprocess
import sys

DISTRIBUTIONS = "/usr/bin/python3"


def need_modules(*names):
    """Goes on if this Python has them, else with the distribution's; without: exit code 77."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return
    probe = [DISTRIBUTIONS, "-c", f"import {', '.join(names)}"]
    if sys.executable != DISTRIBUTIONS and os.path.exists(DISTRIBUTIONS):
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            os.execv(DISTRIBUTIONS, [DISTRIBUTIONS, *sys.argv])
    print(f"skipped: no Python here has {', '.join(missing)}")
    sys.exit(77)
