"""The files of the source tree: a mapping from path to text, which tests can alter."""

import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Inputs and outputs of programs, which are what they are.
DATA = re.compile(r"^tests/fuzz/corpus/|\.(svg|png|npy)$")
CODE = (".cc", ".h", ".hip")


def _paths(root):
    """Files that git tracks or would track; without git, all but what builds and caches leave."""
    if shutil.which("git"):
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"], capture_output=True, text=True, check=False)
        if listed.returncode == 0 and listed.stdout:
            return [path for path in listed.stdout.split("\0") if path]
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders
                      if not name.startswith(".git") and name not in (".cache", "__pycache__")]
        if pathlib.Path(folder) == root:
            folders[:] = [name for name in folders if name != "build"]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return found


def read_tree(root=ROOT):
    tree = {}
    for path in sorted(set(_paths(root))):
        file = root / path
        if DATA.search(path) or not file.is_file():  # git lists a file that is deleted, too
            continue
        tree[path] = file.read_text(encoding="utf-8")
    return tree


def code(tree, *prefixes, kinds=CODE):
    """Paths of source files below any of `prefixes`; all without one."""
    return [path for path in tree
            if path.endswith(kinds) and (not prefixes or path.startswith(prefixes))]


def numbered(text):
    return enumerate(text.splitlines(), start=1)


def without_comments(text):
    """C++ without comments, strings and character literals; line breaks stay."""
    comments = r"//[^\n]*|/\*.*?\*/"
    strings = r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"'
    characters = r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # not the ' in 10'000
    pattern = re.compile("|".join([comments, strings, characters]), re.DOTALL)

    def blank(match):
        kept = '""' if match[0][0] in "\"R" else " "
        return kept + "\n" * match[0].count("\n")

    return pattern.sub(blank, text)
