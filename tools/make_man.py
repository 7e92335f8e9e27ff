"""Writes a manual page from what a program says about itself.

    make_man.py PROGRAM VERSION SUMMARY OUT.1

PROGRAM must understand --help. Each line "  NAME   text" below "commands:" names a command, whose own
--help becomes a section.
"""

import pathlib
import re
import subprocess
import sys


def help_text(program, *command):
    words = [program, *command, "--help"]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def escaped(line):
    """The line as troff prints it unchanged: dashes stay dashes, no request at its beginning."""
    line = line.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + line if line.startswith(".") else line


def section(title, text):
    """Text under a heading, its lines and columns as they are."""
    lines = [escaped(line) for line in text.strip("\n").splitlines()]
    return "\n".join([f".SH {escaped(title)}", ".nf", *lines, ".fi", ""])


def page(program, version, summary):
    name = pathlib.Path(program).name
    text = help_text(program)
    commands = re.findall(r"^  (\S+) +\S", text.partition("\ncommands:\n")[2].partition("\n\n")[0],
                          re.MULTILINE)
    parts = [f'.TH {escaped(name.upper())} 1 "" "Octet {version}"\n',
             f".SH NAME\n{escaped(name)} \\- {escaped(summary)}\n",
             section("DESCRIPTION", text)]
    parts += [section(f"{name} {command}", help_text(program, command)) for command in commands]
    return "".join(parts)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    program, version, summary, out = sys.argv[1:]
    pathlib.Path(out).write_text(page(program, version, summary))


if __name__ == "__main__":
    main()
