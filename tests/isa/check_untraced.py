#!/usr/bin/env python3
"""Shows that kernels which are not traced pay nothing for those that are.

  check_untraced.py strip KERNELS.hip STRIPPED.hip    takes every line of tracing out of the source,
                                                      and of what it includes
  check_untraced.py compare ASSEMBLY.s STRIPPED.s...  pairs of what the compiler makes of them

The kernels that are instantiated with NoTracer must be the same, instruction by instruction, in
both; those with Tracer must not, or nothing was stripped. Prints the kernels; exit code 1 and a line
per error when something is wrong.
"""

import pathlib
import re
import sys

RECORDS = "if constexpr (Trace::kRecords) {"
INCLUDE = re.compile(r'^#include "(kernels/[^"]+)"$', re.MULTILINE)
LABEL = re.compile(r"\.L\w+")


def strip(source, root):
    """`root`: where included files are looked for. Those with tracing are pasted in, stripped."""
    def paste(include):
        text = (root / include[1]).read_text(encoding="utf-8")
        return strip(text, root) if re.search(r"\btrace\.St", text) else include[0]

    source = INCLUDE.sub(paste, source)
    while RECORDS in source:
        begin = source.index(RECORDS)
        end = begin + len(RECORDS)
        depth = 1
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        source = source[:begin] + source[end:]
    source = re.sub(r"\btrace\.Stop\([^;]*;", ";", source)
    source = re.sub(r"\btrace\.Start\(\)", "0", source)
    if re.search(r"\btrace\.", source):
        raise ValueError("some tracing is left: " + re.search(r".*\btrace\..*", source)[0])
    return source


def kernels(path):
    """Instructions by the kernels' mangled names. Numbers of labels are not compared."""
    found = {}
    current = None
    with open(path, encoding="utf-8") as file:
        for line in file:
            function = re.match(r"(_Z\w+):\s*; @", line)
            if function:
                current = found.setdefault(function[1], [])
            elif line.startswith(".Lfunc_end"):
                current = None
            elif current is not None:
                text = line.split(";")[0].strip()
                if text and not text.startswith("."):
                    current.append(LABEL.sub(".L", text))
    return found


def compare(pairs):
    errors = []
    for with_path, without_path in pairs:
        ours, stripped = kernels(with_path), kernels(without_path)
        compared = 0
        for name, instructions in ours.items():
            untraced = "8NoTracer" in name
            if not untraced and "6Tracer" not in name:
                continue
            same = instructions == stripped.get(name)
            print(f"{len(instructions):6} instructions, {len(stripped.get(name, [])):6} without "
                  f"tracing: {name}")
            if same != untraced:
                errors.append(f"{name}: {'differs from' if untraced else 'is the same as'} the "
                              "kernel without a line of tracing")
            compared += 1
        if compared == 0:
            errors.append(f"{with_path} has no kernel with a tracer")
    return errors


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "strip":
        kernels_file = pathlib.Path(sys.argv[2]).resolve()
        root = next((folder for folder in kernels_file.parents if (folder / "kernels").is_dir()),
                    kernels_file.parent)
        source = strip(kernels_file.read_text(encoding="utf-8"), root)
        pathlib.Path(sys.argv[3]).write_text(source, encoding="utf-8")
        return 0
    if len(sys.argv) >= 4 and len(sys.argv) % 2 == 0 and sys.argv[1] == "compare":
        errors = compare(list(zip(sys.argv[2::2], sys.argv[3::2])))
        for error in errors:
            print(error, file=sys.stderr)
        return 1 if errors else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
