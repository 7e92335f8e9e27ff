"""README.md's commands work as they are written there, on emulated GPUs.

    readme_test.py OCTET OCTET_BENCH [unittest arguments]

How a fenced block of README.md is treated, by the words behind its fence:

    sh        commands, run as one script in bash
    console   lines behind "$ " are commands, run as one script; a "\\" at the end of a line
              goes on; all other lines are output, which is not compared
    gpu       a second word, "sh gpu" or "console gpu": what needs a real GPU, or minutes; it is
              not run, but looked at
    text      no commands; a line that begins with "$ " is a mistake
    others    no commands; a line that begins with "$ " or with one of our programs is a mistake

Blocks are run from the first to the last in one folder, in which the source tree's files are and in
which files that one command writes are found by the next. `octet` and `octet_bench` are those of
the build. Each command has to succeed, or to end with code N if its line ends with the comment
"# exit code N". So that this takes no more than two minutes on two cores,
commands that take longer belong into a "gpu" block.

Scripts of the tree that build or install (BUILDS) are not run, but looked at, and so is every
command in an sh or console block of the other pages (CONTRIBUTING.md, docs/). To look at a command:
its program exists (build/PRESET/... in this build), scripts can be parsed by bash, and flags are
known: of `octet` by the command's --help, of scripts by their text, and presets by
CMakePresets.json.

Exit code 77 where no Python has Matplotlib or SciPy.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

from need_modules import need_modules

ROOT = pathlib.Path(__file__).resolve().parents[3]
OCTET = ""
BENCH = ""
BUILDS = {"tools/demo.sh", "tools/layer_demo.sh", "tools/test.sh", "tools/fuzz.sh",
          "tools/install_packages.sh", "tools/setup_rocm.sh", ".ci/run"}
# Programs that build, install or fetch. Of their arguments, presets are looked at.
BUILDERS = {"cmake", "ctest", "cpack", "ninja", "git", "apt-get", "docker", "sudo"}
PROMPT = re.compile(r"\$ ")
# "octet run: ..." is a message of the program.
PROGRAM = re.compile(r"(octet(_bench)?|python3|bash|cmake|ctest|git)( (?!\w+:)|$)|(tools|\.ci)/\S")
EXIT_CODE = re.compile(r"\s+# exit code (\d+)$")
FENCE = re.compile(r"^ {0,3}(```+|~~~+) *([^`]*)$")


def build_folder():
    return pathlib.Path(OCTET).resolve().parents[1]


class Block:
    """The commands of a fenced block. `words`: behind its fence."""

    def __init__(self, line, words):
        self.line = line
        self.words = words
        self.lines = []

    def mistakes(self):
        """Commands in a block that is not for them."""
        return [f"line {self.line + i}: a command in a block that is neither sh nor console: {line}"
                for i, line in enumerate(self.lines, start=1)
                if PROMPT.match(line) or (self.words[:1] != ["text"] and PROGRAM.match(line))]

    def is_script(self):
        return self.words[:1] in (["sh"], ["console"])

    def needs_gpu(self):
        return "gpu" in self.words

    def commands(self):
        """Lines of a script, with those put together that a backslash breaks."""
        joined, goes_on = [], False
        for line in self.lines:
            if goes_on:
                joined[-1] += "\n" + line
            elif self.words[0] == "sh":
                joined.append(line)
            elif line.startswith("$ "):
                joined.append(line[2:])
            else:
                continue
            goes_on = line.endswith("\\")
        return [line for line in joined if line.strip() and not line.lstrip().startswith("#")]


def blocks_of(text):
    found, fence = [], None
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if fence is None and match:
            fence = match[1]
            found.append(Block(number, match[2].split()))
        elif match and match[1].startswith(fence) and not match[2]:
            fence = None
        elif fence is not None:
            found[-1].lines.append(line)
    return found


def words_of(command):
    """The simple commands of a line, each as a list of words, without variables set in front."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    found = [[]]
    for word in lexer:
        if set(word) <= set("();|&"):
            found.append([])
        elif not (not found[-1] and re.match(r"\w+=", word)):
            found[-1].append(word)
    return [words for words in found if words]


def is_build(words):
    program = words[1] if words[0] == "bash" and len(words) > 1 else words[0]
    return program.removeprefix("./") in BUILDS or words[0] in BUILDERS


class Look:
    """What is wrong with a command that is not run."""

    def __init__(self, root=ROOT):
        self.root = root
        self.helps = {}

    def help_of(self, *command):
        if command not in self.helps:
            shown = subprocess.run([*command, "--help"], capture_output=True, text=True,
                                   check=False)
            self.helps[command] = shown.stdout + shown.stderr
        return self.helps[command]

    def mistakes(self, command):
        return [mistake for words in words_of(command) for mistake in self.in_words(words)]

    def in_words(self, words):
        program, arguments = words[0], words[1:]
        if program in ("bash", "python3") and arguments:
            program, arguments = arguments[0], arguments[1:]
        if program == "octet":
            return self.in_octet(arguments)
        if program == "octet_bench":
            return [f"octet_bench has no {flag}" for flag in self.flags(arguments)
                    if not flag.startswith("--benchmark_") and flag not in self.help_of(BENCH)]
        if program in BUILDERS:
            return self.in_presets(arguments)
        if "/" in program:
            return self.in_script(program, arguments)
        # A program of the machine that runs ours: compute-sanitizer ... octet ...
        return self.in_words(words[words.index("octet"):]) if "octet" in words[1:] else []

    @staticmethod
    def flags(arguments):
        return [re.match(r"--?[\w-]+", word)[0] for word in arguments
                if re.match(r"--?[A-Za-z][\w-]*", word)]

    def in_octet(self, arguments):
        commands = re.findall(r"^  (\w+) ", self.help_of(OCTET), re.MULTILINE)
        if not arguments or arguments[0] in ("--help", "--version"):
            return []
        if arguments[0] not in commands:
            return [f"octet has no command {arguments[0]}"]
        shown = self.help_of(OCTET, arguments[0])
        return [f"octet {arguments[0]} has no {flag}" for flag in self.flags(arguments[1:])
                if flag != "--help" and not self.knows(shown, flag)]

    @staticmethod
    def knows(shown, flag):
        """--name, --noname of a switch, or -n with its value behind it."""
        names = set(re.findall(r"--?[A-Za-z][\w-]*", shown))
        short = not flag.startswith("--") and flag[:2] in names
        return flag in names or flag.replace("--no", "--", 1) in names or short

    def in_script(self, program, arguments):
        if program.startswith("build/"):
            path = build_folder() / program.split("/", 2)[-1]
            return [] if path.is_file() else [f"there is no {program}"]
        path = self.root / program
        if not path.is_file():
            return [f"there is no {program}"]
        text = path.read_text(encoding="utf-8")
        found = [f"{program} has no {flag}" for flag in self.flags(arguments) if flag not in text]
        if text.startswith("#!/bin/bash"):
            parsed = subprocess.run(["bash", "-n", path], capture_output=True, text=True,
                                    check=False)
            found += [parsed.stderr] if parsed.returncode != 0 else []
        return found

    def in_presets(self, arguments):
        presets = json.loads((self.root / "CMakePresets.json").read_text(encoding="utf-8"))
        names = {preset["name"] for kind in presets.values() if isinstance(kind, list)
                 for preset in kind}
        found = []
        for i, word in enumerate(arguments):
            if word == "--preset" or word.startswith("--preset="):
                name = word[9:] or arguments[i + 1]
                found += [] if name in names else [f"CMakePresets.json has no preset {name}"]
        return found


def is_run(command):
    return not any(is_build(words) for words in words_of(command))


def with_exit_code(command):
    match = EXIT_CODE.search(command)
    if not match:
        return command
    return f"code=0; {{ {EXIT_CODE.sub('', command)}\n}} || code=$?; [ $code = {match[1]} ]"


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="octet_readme_"))
        self.addCleanup(shutil.rmtree, self.folder)
        for path in ROOT.iterdir():
            if path.name not in ("build", ".git", ".cache"):
                (self.folder / path.name).symlink_to(path)
        (self.folder / "build").mkdir()
        for preset in ("emulation", "emulation-asan", "emulation-tsan", "emulation-weak"):
            (self.folder / "build" / preset).symlink_to(build_folder())
        programs = [str(pathlib.Path(program).parent) for program in (OCTET, BENCH)]
        self.env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.pathsep.join(
            [*programs, str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])}

    def run_script(self, block):
        lines = [with_exit_code(command) for command in block.commands() if is_run(command)]
        script = "\n".join(["set -euo pipefail", *lines])
        return subprocess.run(["bash", "-x", "-c", script], cwd=self.folder, env=self.env,
                              capture_output=True, text=True, check=False)

    def check(self, text):
        """What is wrong, a line each."""
        look, found = Look(), []
        for block in blocks_of(text):
            if not block.is_script():
                found += block.mistakes()
                continue
            for command in block.commands():
                if block.needs_gpu() or not is_run(command):
                    found += [f"line {block.line}: {command}: {mistake}"
                              for mistake in look.mistakes(command)]
            if not block.needs_gpu():
                result = self.run_script(block)
                if result.returncode != 0:
                    found.append(f"line {block.line}: exit code {result.returncode}:\n"
                                 f"{result.stdout[-1000:]}{result.stderr[-2000:]}")
        return found

    def test_commands_work_as_written(self):
        found = self.check((ROOT / "README.md").read_text(encoding="utf-8"))
        if found:
            self.fail("README.md:\n" + "\n".join(found))

    def test_commands_of_other_pages_are_known(self):
        look, found = Look(), []
        for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")]:
            for block in blocks_of(page.read_text(encoding="utf-8")):
                for command in block.commands() if block.is_script() else []:
                    found += [f"{page.name}:{block.line}: {command}: {mistake}"
                              for mistake in look.mistakes(command)]
        if found:
            self.fail("\n".join(found))

    def test_there_are_commands(self):
        blocks = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
        self.assertTrue(any(block.is_script() and not block.needs_gpu() for block in blocks))

    def assert_found(self, words, *lines):
        found = self.check("\n".join(lines))
        self.assertTrue(any(words in line for line in found), (lines, found))

    def test_what_is_right_passes(self):
        small = "octet run --ranks=2 --experts=4 --topk=2 --hidden=128 --max_tokens=8 --iters=1"
        self.assertEqual(self.check("\n".join([
            "```sh", f"{small} --json=a.json  # a comment", "test -s a.json", "```",
            "```console", "$ test -s a.json && octet \\", "topo", "octet: this is output", "```",
            "```sh gpu", "octet perf -b 1 -e 128 -f 2 --strategy=all -J perf.json && octet topo",
            "OCTET_TUNING=none octet run --soak=600 --nocheck", "```",
            "```console gpu", "$ compute-sanitizer --tool racecheck octet run --soak=1", "```",
            "```sh", "bash tools/test.sh --all", "cmake --preset emulation", "```",
            "```sh", "octet no_such_command  # exit code 2", "```",
            "```", "octet run: rank 0: a message", "```",
            "```text", "octet run   does this", "```", "```cpp", "int octet;", "```"])), [])

    def test_mistakes_are_found(self):
        for words, lines in [
                ("exit code", ["```sh", "octet run --no_such_flag", "```"]),
                ("exit code", ["```sh", "false", "true", "```"]),
                ("exit code", ["```console", "output", "$ test -e no_such_file", "```"]),
                ("exit code", ["```console", "$ octet no_such_command", "```"]),
                ("exit code", ["```console", "$ octet topo  # exit code 2", "```"]),
                ("exit code", ["```sh", "tools/text.sh", "```"]),
                ("octet run has no --no_such", ["```sh gpu", "octet run --no_such=1", "```"]),
                ("octet perf has no -z", ["```sh gpu", "octet perf -z 1", "```"]),
                ("no command preform", ["```console gpu", "$ octet preform", "```"]),
                ("octet run has no --bad", ["```sh gpu", "some-tool octet run --bad", "```"]),
                ("no build/emulation/no_such", ["```sh gpu", "build/emulation/no_such", "```"]),
                ("octet_bench has no --all_shops", ["```sh gpu", "octet_bench --all_shops", "```"]),
                ("there is no tools/text.sh", ["```sh gpu", "bash tools/text.sh", "```"]),
                ("no tools/plots.py", ["```sh gpu", "python3 tools/plots.py a b", "```"]),
                ("tools/test.sh has no --some", ["```sh", "tools/test.sh --some", "```"]),
                ("no preset imitation", ["```sh", "cmake --preset imitation", "```"]),
                ("neither sh nor console", ["```", "$ octet topo", "```"]),
                ("neither sh nor console", ["```text", "$ octet topo", "```"]),
                ("neither sh nor console", ["```", "octet run", "```"])]:
            with self.subTest(lines=lines):
                self.assert_found(words, *lines)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {pathlib.Path(sys.argv[0]).name} OCTET OCTET_BENCH [unittest arguments]")
    need_modules("matplotlib", "scipy")
    OCTET, BENCH = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
