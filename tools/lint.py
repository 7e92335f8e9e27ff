#!/usr/bin/env python3
"""Runs clang-tidy over the sources of a build, but not over those that it has passed before.

    tools/lint.py [--build-dir=FOLDER] [--jobs=N] [FILE...]

Without a FOLDER the build is that of the CMake preset `lint`, build/lint, which is configured first; only
its precompiled headers are built. Without FILEs all sources of the build in runtime, kernels, tools,
tests, bench and docs are checked. The exit code is 1 when clang-tidy fails for one; what it says goes to
standard output.

Most of clang-tidy's time goes into headers, so the sources of a folder that are compiled alike are given
to it as one, as OCTET_UNITY compiles them. Where it says anything, each is asked about by itself. Its
neighbours may hide that a source lacks an include: one that follows others which include what it does
not is compiled by itself, too, without making code. What precompiled headers may hide, those of other
projects, tests/house looks for (lacking.py). They may also hide a bad name in a header, since clang-tidy
says nothing of a name that a macro's arguments use: names in headers are looked at before, without any
source, and a source with a header of which something is said is asked about by itself. There, too,
belongs what is wrong in headers alone: sources that are read as one would be taken for such.

A stamp is an empty file. Its name is the SHA-256 of everything that clang-tidy's answer follows
from: clang-tidy with its libraries, every .clang-tidy above the source and what it includes, the
compile commands, and the paths and contents of the source and of all that it includes, system
headers too. It says that clang-tidy had nothing to say about exactly that. Paths are those within
the checkout, so that stamps also hold in another one.

clang-scan-deps lists what a source includes. It looks at what is on disk now, so that a header that
comes to lie before another in the include path is seen, and nothing but precompiled headers need
have been built. A source that it cannot scan is checked and gets no stamp. What it does not tell: a
header that __has_include looks for and that nothing includes.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("runtime", "kernels", "tools", "tests", "bench", "docs")
PRECOMPILED = ("octet_precompiled", "octet_unoptimized_precompiled", "octet_test_precompiled")
KEPT_DAYS = 30
MOST_AT_ONCE = 8  # sources that one process checks
HEADERS_AT_ONCE = 60
ABOUT_HEADERS = "google-global-names-in-headers"  # the check that takes a source for a header
UNIT = "octet_lint_unit.cc"  # the file that includes several sources; there is none on disk
# clang-tidy fills hundreds of megabytes: faults of small pages would be a fifth of its time.
MALLOC = ("glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864:"
          "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1073741824")


class Files:
    """Digests of files, and whether they are still what was digested."""

    def __init__(self):
        self._seen = {}

    @staticmethod
    def _state(path):
        if not os.path.isfile(path):
            return None
        stat = os.stat(path)
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    def digest(self, path):
        if path not in self._seen:
            state = self._state(path)  # before the content: a change in between is seen later
            digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() if state else None
            self._seen[path] = state, digest
        return self._seen[path][1]

    def unchanged(self, paths):
        return all(self._seen[path][0] == self._state(path) for path in paths)


@functools.cache
def configurations(folder):
    """Where clang-tidy looks for its configuration of a file in `folder`."""
    return [str(parent / ".clang-tidy") for parent in pathlib.Path(folder, "file").parents]


@functools.cache
def filters(path):
    """The regular expressions for paths of headers in a .clang-tidy."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return [re.compile(regex) for regex in
            re.findall(r"^\s*\w*HeaderFilterRegex:\s*['\"]?(.*?)['\"]?\s*$", text, re.MULTILINE)]


def separate_folders():
    """The folders whose files name things alike, of OctetTargets.cmake."""
    try:
        text = (ROOT / "cmake/OctetTargets.cmake").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return re.search(r"set\(octet_separate_folders ([^)]*)\)", text)[1].split()


def plain_command(words, source):
    """A compile command without what it makes and of what."""
    return [word for number, word in enumerate(words)
            if word not in ("-o", "-c", source) and (number == 0 or words[number - 1] != "-o")]


class Linter:
    def __init__(self, arguments):
        self.build = pathlib.Path(arguments.build_dir).resolve()
        self.tidy = arguments.clang_tidy
        self.scanner = arguments.clang_scan_deps
        self.jobs = arguments.jobs
        self.stamps = pathlib.Path(arguments.stamps)
        self.files = Files()
        self.commands = {}  # of each source
        self.precompiled = {}  # the command that makes each precompiled header
        for entry in json.loads((self.build / "compile_commands.json").read_text()):
            folder = entry["directory"]
            words = entry.get("arguments") or shlex.split(entry["command"])
            output = words[words.index("-o") + 1] if "-o" in words else ""
            if output.endswith(".pch"):
                self.precompiled[os.path.join(folder, output)] = words
            source = os.path.abspath(os.path.join(folder, entry["file"]))
            self.commands.setdefault(source, []).append((folder, words))
        self.separate = separate_folders()
        self.included = {}  # of each source that could be scanned, a list for each command
        self.misnamed = set()  # headers that have to be looked at with each of their sources
        self._roots = [(re.compile(re.escape(str(path)) + r"(?![\w.+-])"), name)
                       for path, name in ((self.build, "<build>"), (ROOT, "<root>"))]

    def _portable(self, text):
        for root, name in self._roots:
            text = root.sub(name, text)
        return text

    @functools.cached_property
    def tool(self):
        """Digests of clang-tidy, the libraries that it loads, and this program."""
        binary = os.path.realpath(shutil.which(self.tidy))
        loaded = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
        libraries = re.findall(r"=> (/\S+)", loaded.stdout)
        return [self.files.digest(path) for path in [binary, *libraries, __file__]]

    def scan(self, sources):
        """What each source's commands include: source -> a list of paths for each command."""
        commands = [(source, folder, words) for source in sources
                    for folder, words in self.commands[source]]
        # Each output is called by its number, and clang-tidy defines one macro more.
        database = [{"directory": folder, "file": source,
                     "arguments": [*words, "-D__clang_analyzer__", "-o", f"{number}"]}
                    for number, (source, folder, words) in enumerate(commands)]
        with tempfile.NamedTemporaryFile("w", prefix="octet_lint_", suffix=".json") as file:
            json.dump(database, file)
            file.flush()
            try:
                done = subprocess.run(
                    [self.scanner, "-j", f"{self.jobs}", "-compilation-database", file.name],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            except FileNotFoundError:
                print(f"lint.py: no {self.scanner}, so that stamps are not used", file=sys.stderr)
                return {}
        included = {}
        for rule in done.stdout.replace("\\\n", " ").splitlines():
            target, _, paths = rule.partition(": ")
            included[target] = [re.sub(r"\\([ #])", r"\1", path).replace("$$", "$")
                                for path in re.findall(r"(?:\\[ #]|\S)+", paths)]
        found = {}
        for number, (source, folder, _) in enumerate(commands):
            found.setdefault(source, []).append(
                [os.path.join(folder, path) for path in included[f"{number}"]]
                if f"{number}" in included else None)
        return {source: paths for source, paths in found.items() if None not in paths}

    def key(self, source, included):
        """(name of the stamp, the files that it stands for); None where something is unknown."""
        parts = [self.tool, self._portable(source)]
        paths = {source}.union(*included)
        # Checks of names read the configuration of the header that a name is in.
        configured = sorted({path for folder in {os.path.dirname(path) for path in paths}
                             for path in configurations(os.path.abspath(folder))})
        existing = [path for path in configured if self.files.digest(path)]
        regexes = [regex for path in existing for regex in filters(path)]
        parts.append([[self._portable(path), self.files.digest(path)] for path in existing])
        for (folder, words), dependencies in zip(self.commands[source], included, strict=True):
            if any(word.endswith("=native") for word in words):
                return None  # the processor is not in the key
            headers = [words[i + 2] for i, word in enumerate(words) if word == "-include-pch"]
            if not self.precompiled.keys() >= set(headers):
                return None
            commands = [words, *(self.precompiled[header] for header in headers)]
            parts.append([self._portable(folder),
                          [[self._portable(word) for word in words] for words in commands]])
            for path in dependencies:
                if not self.files.digest(path):
                    return None
                # The filters see where the checkout lies.
                parts.append([self._portable(path), self.files.digest(path),
                              [bool(regex.search(path)) for regex in regexes]])
        name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return name, [*paths, *configured]

    def compiled_like(self, source):
        """What sources have in common that may be one for the compiler; None for one that may not."""
        parent = os.path.dirname(source)
        if (len(self.commands[source]) != 1 or not source.endswith(".cc")
                or os.path.relpath(parent, ROOT) in self.separate
                or not self.misnamed.isdisjoint(self.headers(source))):
            return None
        (folder, words), = self.commands[source]
        return parent, folder, tuple(plain_command(words, source))

    def groups(self, sources):
        """Lists of sources that one process checks: as one file where that is possible."""
        alike, alone = {}, []
        for source in sources:
            key = self.compiled_like(source)
            (alone if key is None else alike.setdefault(key, [])).append(source)
        found = []
        for members in alike.values():
            count = -(-len(members) // MOST_AT_ONCE)
            found += [members[number::count] for number in range(count)]
        alone += [source for group in found if len(group) == 1 for source in group]
        size = max(1, min(MOST_AT_ONCE, len(alone) // (2 * self.jobs)))
        return ([group for group in found if len(group) > 1]
                + [alone[first:first + size] for first in range(0, len(alone), size)])

    def as_one(self, paths, source, scratch):
        """Arguments for clang-tidy that make it read `paths` as one file beside `source`, which is
        compiled like that."""
        (folder, words), = self.commands[source]
        words = plain_command(words, source)
        unit = os.path.join(os.path.dirname(source), UNIT)
        content, database, overlay = (os.path.join(scratch, name) for name in
                                      (UNIT, "compile_commands.json", "overlay.json"))
        pathlib.Path(content).write_text("".join(
            f'// NOLINTNEXTLINE(bugprone-suspicious-include)\n#include "{path}"\n'
            for path in paths), encoding="utf-8")
        pathlib.Path(database).write_text(json.dumps(
            [{"directory": folder, "file": unit, "arguments": [*words, "-c", unit]}]),
            encoding="utf-8")
        pathlib.Path(overlay).write_text(json.dumps(
            {"version": 0, "roots": [{"name": unit, "type": "file", "external-contents": content}]}),
            encoding="utf-8")
        return [f"--vfsoverlay={overlay}", "-p", scratch, unit]

    def misnamed_headers(self, sources):
        """Of the headers of sources that will be read as one, those with names that are bad."""
        own = re.compile(re.escape(str(ROOT)) + rf"/({'|'.join(FOLDERS)})/.*\.h$")
        alike, seen = {}, set()
        for group in self.groups(sources):
            if len(group) > 1 and self.compiled_like(group[0]):
                alike_as = self.compiled_like(group[0])[1:]
                first, paths = alike.setdefault(alike_as, (group[0], []))
                for source in group:
                    for path in self.included.get(source, [[]])[0]:
                        if own.match(path) and path not in seen:
                            seen.add(path)
                            paths.append(path)
        parts = [(first, paths[begin:begin + HEADERS_AT_ONCE]) for first, paths in alike.values()
                 for begin in range(0, len(paths), HEADERS_AT_ONCE)]

        def names(part):
            first, paths = part
            with tempfile.TemporaryDirectory(prefix="octet_lint_") as scratch:
                code, said = self.tidy_says(
                    [f"-checks=-*,readability-identifier-naming,{ABOUT_HEADERS}",
                     *self.as_one(paths, first, scratch)])
            if not code and not said:
                return []
            middle = len(paths) // 2  # headers may not go together, too
            return paths if middle == 0 else [
                *names((first, paths[:middle])), *names((first, paths[middle:]))]

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return {path for paths in pool.map(names, parts) for path in paths}

    def headers(self, source):
        """What a source includes; nothing where that is unknown."""
        return set().union(*self.included.get(source, [])) - {source}

    def hiding(self, sources):
        """Those of the sources that would not be seen to lack an include after the ones before."""
        before, found = set(), set()
        for number, source in enumerate(sources):
            if number and (source not in self.included or not before <= self.headers(source)):
                found.add(source)
            before |= self.headers(source)
        return found

    def compiler_says(self, source):
        (folder, words), = self.commands[source]
        done = subprocess.run([*plain_command(words, source), "-fsyntax-only", source], text=True,
                              cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"GLIBC_TUNABLES": MALLOC, **os.environ}, check=False)
        return done.returncode, done.stdout

    def tidy_says(self, arguments):
        """(exit code, what clang-tidy says)."""
        environment = {"GLIBC_TUNABLES": MALLOC, **os.environ}
        done = subprocess.run([self.tidy, "-quiet", *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                              check=False)
        # Otherwise standard error counts the warnings that nobody wants to see.
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    def check(self, sources):
        """(source, exit code, what clang-tidy says) of each source of a group.

        One process reads headers and asks for memory once for all. Where it says anything, each
        source is asked about by itself.
        """
        alone = ["-p", str(self.build)]
        keys = {self.compiled_like(source) for source in sources}
        if len(sources) > 1 and len(keys) == 1 and None not in keys:
            sources = sorted(sources, key=lambda source: (len(self.headers(source)), source))
            with tempfile.TemporaryDirectory(prefix="octet_lint_") as scratch:
                code, said = self.tidy_says([f"-checks=-{ABOUT_HEADERS}",
                                             *self.as_one(sources, sources[0], scratch)])
            if not code and not said:
                hiding = self.hiding(sources)
                return [(source, *(self.compiler_says(source) if source in hiding else (0, "")))
                        for source in sources]
        else:
            code, said = self.tidy_says([*alone, *sources])
        if len(sources) > 1 and (code or said):
            return [(source, *self.tidy_says([*alone, source])) for source in sources]
        return [(source, code, said) for source in sources]

    def forget_old_stamps(self):
        for stamp in self.stamps.iterdir():
            if stamp.stat().st_mtime < time.time() - KEPT_DAYS * 24 * 3600:
                stamp.unlink(missing_ok=True)

    def run(self, sources):
        begin = time.monotonic()
        self.stamps.mkdir(parents=True, exist_ok=True)
        self.included = self.scan(sources)
        keys = {source: self.key(source, included) for source, included in self.included.items()}
        unchecked = []
        for source in sources:
            stamp = self.stamps / keys[source][0] if keys.get(source) else None
            if stamp and stamp.exists():
                stamp.touch()
            else:
                unchecked.append(source)
        self.misnamed = self.misnamed_headers(unchecked)
        failed = number = 0
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            running = [pool.submit(self.check, group) for group in self.groups(unchecked)]
            for done in concurrent.futures.as_completed(running):
                for source, code, said in done.result():
                    number += 1
                    print(f"[{number}/{len(unchecked)}, {time.monotonic() - begin:.0f}s] "
                          f"{os.path.relpath(source, ROOT)}", file=sys.stderr)
                    if said:
                        print(said, flush=True)
                    failed += code != 0
                    # What was edited meanwhile is not what was checked.
                    if code == 0 and not said and keys.get(source):
                        name, paths = keys[source]
                        if self.files.unchanged(paths):
                            (self.stamps / name).touch()
        self.forget_old_stamps()
        print(f"lint.py: {len(unchecked)} files checked, {failed} failed; "
              f"{len(sources) - len(unchecked)} had stamps; {time.monotonic() - begin:.0f} s",
              file=sys.stderr)
        return 1 if failed else 0


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--build-dir", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--stamps", default=str(cache / "octet/lint"), metavar="FOLDER",
                        help="where stamps are kept (%(default)s)")
    parser.add_argument("--clang-tidy", default="clang-tidy-22", metavar="PROGRAM")
    parser.add_argument("--clang-scan-deps", default="clang-scan-deps-22", metavar="PROGRAM")
    arguments = parser.parse_args()
    if not shutil.which(arguments.clang_tidy):
        parser.exit(2, f"lint.py: no {arguments.clang_tidy}\n")
    if not arguments.build_dir:
        arguments.build_dir = str(ROOT / "build/lint")
        for command in (["cmake", "--preset", "lint"],
                        ["cmake", "--build", "build/lint", "--target", *PRECOMPILED]):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                parser.exit(2, f"lint.py: {shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    try:
        linter = Linter(arguments)
    except FileNotFoundError as error:
        parser.exit(2, f"lint.py: no {error.filename}: configure the build first\n")
    linted = re.compile(re.escape(str(ROOT)) + rf"/({'|'.join(FOLDERS)})/.*\.(cc|hip)$")
    sources = list(dict.fromkeys(map(os.path.abspath, arguments.files)))
    for source in sources:
        if source not in linter.commands:
            parser.exit(2, f"lint.py: {source} is no source of {arguments.build_dir}\n")
    sys.exit(linter.run(sources or sorted(filter(linted.match, linter.commands))))


if __name__ == "__main__":
    main()
