#!/usr/bin/env python3
"""Shows that kernels which are not traced pay nothing for those that are.

  check_untraced.py strip KERNELS.hip STRIPPED.hip    takes every line of tracing out of the source
  check_untraced.py compare ASSEMBLY.s STRIPPED.s...  pairs of what the compiler makes of them

The kernels that are instantiated with NoTracer must be the same, instruction by instruction, in
both; those with Tracer must not, or nothing was stripped. Prints the kernels; exit code 1 and a line
per error when something is wrong.
"""

import re
import sys

RECORDS = "if constexpr (Trace::kRecords) {"
LABEL = re.compile(r"\.L\w+")


def strip(source):
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
        with open(sys.argv[2], encoding="utf-8") as file:
            source = strip(file.read())
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            file.write(source)
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
