"""Builds liboctet_jax.so, the handlers of XLA's FFI that octet.jax needs, for the JAX of this Python.

    build_jax.py [FOLDER]         writes FOLDER/liboctet_jax.so, else one beside this script's octet/

Prints its path, or why there is none: no JAX, no C++ compiler ($CXX, else c++). Exit code 77 then.
pip does the same when it installs octet.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent / "jax" / "octet_jax.cc"
HEADERS = HERE.parent / "c" / "include"


def build(folder):
    """Returns the path of the library and None, or None and a sentence."""
    try:
        import jax  # pylint: disable=import-outside-toplevel
        headers = jax.ffi.include_dir()
    except (ImportError, AttributeError) as error:
        return None, f"octet.jax is left out: this Python has no JAX with jax.ffi ({error})"
    if not (pathlib.Path(headers) / "xla" / "ffi" / "api" / "ffi.h").exists():
        return None, f"octet.jax is left out: {headers} has no xla/ffi/api/ffi.h"
    if not SOURCE.exists():
        return None, f"octet.jax is left out: there is no {SOURCE}"
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        return None, f"octet.jax is left out: there is no C++ compiler, {compiler[0]}"
    target = pathlib.Path(folder) / "liboctet_jax.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
               "-I", str(HEADERS), "-isystem", headers, str(SOURCE), "-o", str(target), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, f"octet.jax is left out: {shlex.join(command)}\n{done.stderr}"
    return target, None


if __name__ == "__main__":
    path, problem = build(sys.argv[1] if len(sys.argv) > 1 else HERE / "octet")
    print(path or problem)
    sys.exit(0 if path else 77)
