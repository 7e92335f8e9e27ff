"""What holds for Markdown: width, the README's length, links, headings; files that text names."""

import posixpath
import re

from tree import CODE, numbered

COLUMNS = 120
README_LINES = 150
LINK = re.compile(r"(!?)\[([^\]\[]*(?:\[[^\]]*\][^\]\[]*)*)\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
URL = re.compile(r"https?://\S+")
HEADING = re.compile(r"^(#{1,6}) +(.+?)\s*#*$")
FLOORS = "runtime|kernels|tools|tests|bench|docs|cmake"
# A file of the tree that text names. `{a,b}`, `*` and <name> stand for several and are left alone.
KINDS = "cc|h|hip|py|sh|md|json|txt|cmake|in|svg"
NAMED = re.compile(rf"(?<![\w/.{{<-])((?:{FLOORS})/[\w./-]*\.(?:{KINDS}))(?![\w/*{{])")
# What was, not what is.
HISTORY = "CHANGELOG.md"
# Tests that plant names of files that do not exist.
PLANTERS = ("tests/house/", "tests/tools/cli/lint_test.py", "tests/tools/cli/readme_test.py")


def pages(tree):
    return [path for path in tree if path.endswith(".md")]


def prose(text):
    """(line, text) outside of fenced blocks."""
    fence = None
    for line, content in numbered(text):
        match = re.match(r"\s*(```+|~~~+)", content)
        if match and fence is None:
            fence = match[1]
        elif match and match[1].startswith(fence):
            fence = None
        elif fence is None:
            yield line, content


def width(tree):
    """Lines of at most 120 columns. Where a link or an address points to is not counted."""
    found = []
    for path in pages(tree):
        for line, content in numbered(tree[path]):
            shown = URL.sub("", LINK.sub(lambda match: f"[{match[2]}]()", content))
            if len(shown) > COLUMNS:
                found.append(f"{path}:{line}: {len(shown)} columns")
    return found


def readme_length(tree):
    """The README is for somebody who has five minutes."""
    lines = tree["README.md"].count("\n")
    return [f"README.md: {lines} lines, at most {README_LINES}"] if lines > README_LINES else []


def anchors(text):
    """What #anchors GitHub gives the headings of a page."""
    found, seen = set(), {}
    for _, content in prose(text):
        match = HEADING.match(content)
        if match:
            name = re.sub(r"[^\w\- ]", "", LINK.sub(r"\2", match[2]).lower()).replace(" ", "-")
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def links_of(tree, path):
    """(line, file, anchor) of each link of a page that stays in the tree."""
    for line, content in prose(tree[path]):
        shown = re.sub(r"`[^`]*`", lambda span: "`" * len(span[0]), content)
        for match in LINK.finditer(shown):
            target = match[3]
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            folder = posixpath.dirname(path)
            yield line, posixpath.normpath(posixpath.join(folder, file)) if file else path, anchor


def links(tree, exists):
    """Links lead to files and folders that exist, and to headings that they have."""
    found = []
    for path in pages(tree):
        for line, file, anchor in links_of(tree, path):
            if not exists(file):
                found.append(f"{path}:{line}: there is no {file}")
            elif anchor and file.endswith(".md") and anchor not in anchors(tree[file]):
                found.append(f"{path}:{line}: {file} has no heading #{anchor}")
    return found


def reachable(tree):
    """Links lead from the README to every page of docs/, directly or by way of others."""
    seen, queue = {"README.md"}, ["README.md"]
    while queue:
        page = queue.pop()
        targets = {file for _, file, _ in links_of(tree, page)}
        targets |= {name for name in NAMED.findall(tree[page])}
        for file in targets:
            if file in tree and file.endswith(".md") and file not in seen:
                seen.add(file)
                queue.append(file)
    return [f"{path}: nothing that the README leads to links to it" for path in pages(tree)
            if path.startswith("docs/") and path not in seen]


def named_files(tree, exists):
    """Files that pages and comments name exist."""
    found = []
    for path, text in tree.items():
        if path == HISTORY or not path.endswith((*CODE, ".md", ".py", ".sh", ".txt", ".cmake")):
            continue
        if path.startswith(PLANTERS):
            continue
        for line, content in numbered(text):
            for name in NAMED.findall(content):
                if not exists(name) and not name.startswith("build/"):
                    found.append(f"{path}:{line}: there is no {name}")
    return found
