#!/usr/bin/env python3
"""Shows that the assembly that is checked is what the build makes: check_built.py OBJECT CODE

OBJECT is what the build compiles from a file of kernels, CODE what has been made of their assembly.
Instructions and descriptors of the kernels must be the same bytes in both.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

SECTIONS = [".text", ".rodata"]


def tool(name):
    path = shutil.which(f"{name}-22") or shutil.which(name)
    if not path:
        sys.exit(f"check_built.py: no {name}")
    return path


def sections(folder, code):
    dumped = [folder / f"{code.name}{section}" for section in SECTIONS]
    subprocess.run([tool("llvm-objcopy"),
                    *(f"--dump-section={section}={path}" for section, path in zip(SECTIONS, dumped)),
                    code, "/dev/null"], check=True)
    return [path.read_bytes() for path in dumped]


def code_in(folder, built):
    """The code for GPUs of an object that is linked to a program."""
    bundle, code = folder / "bundle", folder / "built"
    subprocess.run([tool("llvm-objcopy"), f"--dump-section=.hip_fatbin={bundle}", built, "/dev/null"],
                   check=True)
    subprocess.run([tool("clang-offload-bundler"), "--unbundle", "--type=o", f"--input={bundle}",
                    "--targets=hipv4-amdgcn-amd-amdhsa--gfx942", f"--output={code}"], check=True)
    return code


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        built = sections(folder, code_in(folder, pathlib.Path(sys.argv[1])))
        checked = sections(folder, pathlib.Path(sys.argv[2]))
    different = [section for section, a, b in zip(SECTIONS, built, checked) if a != b]
    for section in different:
        print(f"{section} of {sys.argv[2]} is not what {sys.argv[1]} contains", file=sys.stderr)
    print(f"{len(checked[0])} bytes of instructions")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
