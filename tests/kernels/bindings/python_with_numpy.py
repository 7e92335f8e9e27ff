"""For tests of the Python package: goes on in a Python that has NumPy, or skips."""

import importlib.util
import os
import subprocess
import sys


def go_on_with_numpy():
    """Returns in a Python with NumPy: this one, or Debian's. Otherwise ends with ctest's 77."""
    if importlib.util.find_spec("numpy") is not None:
        return
    other = "/usr/bin/python3"
    if sys.executable != other and os.path.exists(other) and subprocess.run(
            [other, "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
        os.execv(other, [other, *sys.argv])
    print("skipped: no Python here has NumPy")
    sys.exit(77)
