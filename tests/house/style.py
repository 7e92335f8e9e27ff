"""What holds for every file: text, guards, conditionals, and the headers that each platform has."""

import re

from includes import C_INTERFACE, EXAMPLE, PLATFORM, PLATFORMS, platform_headers
from tree import code, numbered, without_comments

CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else)\b(.*)")


def _guards(path):
    """A guard is the path as the tree has it; of a public header, also as users include it."""
    names = {path, re.sub(r"^.*/include/octet/", "", path), path.replace(EXAMPLE, "tests/package/")}
    return {"OCTET_" + re.sub(r"[/.]", "_", name).upper() + "_" for name in names}


def header_guards(tree):
    """Headers are guarded by the name of their path."""
    found = []
    for path in code(tree, kinds=(".h",)):
        expected = _guards(path)
        lines = [line for line in tree[path].splitlines() if line and not line.startswith("//")]
        end = tree[path].rstrip().splitlines()[-1]
        if not any(lines[:2] == [f"#ifndef {guard}", f"#define {guard}"]
                   and end == f"#endif  // {guard}" for guard in expected):
            found.append(f"{path}: its guard is not {' or '.join(sorted(expected))}")
    return found


def no_conditionals(tree):
    """Kernels and what they share have no preprocessor conditionals: the include path decides."""
    paths = [path for path in code(tree, "kernels/", "runtime/device/")
             if not path.startswith(C_INTERFACE)]  # which C++ includes, too
    paths += [path for path in code(tree, "tools/", "tests/", "bench/", "docs/", kinds=(".hip",))]
    found = []
    for path in paths:
        for line, text in numbered(tree[path]):
            match = CONDITIONAL.match(text)
            if match and not (path.endswith(".h") and match[1] == "ifndef"
                              and match[2].strip() in _guards(path)):
                found.append(f"{path}:{line}: {text.strip()}")
    return found


def whitespace(tree):
    """No tabs, no blanks at the end of a line, one line break at the end of a file."""
    found = []
    for path, text in tree.items():
        if path == "LICENSE" or path.endswith(".json") and path.startswith("bench/"):
            continue
        for line, content in numbered(text):
            if "\t" in content:
                found.append(f"{path}:{line}: a tab")
            if content != content.rstrip():
                found.append(f"{path}:{line}: blanks at the end")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            found.append(f"{path}: must end with one line break")
    return found


COLUMNS = 100


def columns(tree):
    """C++ has at most 100 columns: clang-format leaves comments as they are."""
    return [f"{path}:{line}: {len(text)} columns" for path in code(tree)
            for line, text in numbered(tree[path]) if len(text) > COLUMNS]


def no_typedefs(tree):
    """Types are named by `using`. (The check that clang-tidy has takes half of all its checks' time.)"""
    return [f"{path}:{line}: {text.strip()}"
            for path in code(tree) if not path.startswith(C_INTERFACE)  # which is C
            for line, text in numbered(without_comments(tree[path]))
            if re.search(r"\btypedef\b", text)]


TEST_LINES = 80


def test_size(tree):
    """A test has at most 80 lines; clang-tidy, which sees to functions, leaves out macros."""
    found = []
    for path in code(tree, "tests/", kinds=(".cc",)):
        begin = None
        for line, text in numbered(tree[path]):
            if re.match(r"(TYPED_)?TEST(_F|_P)?\(", text):
                begin = line
            if begin is not None and text == "}":
                if line - begin + 1 > TEST_LINES:
                    found.append(f"{path}:{begin}: {line - begin + 1} lines")
                begin = None
    return found


def same_headers(tree):
    """Every platform has the same headers, but for those that only tests of one platform know."""
    own = {"emulation": {"emulation.h"}}
    headers = {name: set(found) - own.get(name, set())
               for name, found in platform_headers(tree).items()}
    everything = set().union(*headers.values())
    return [f"{PLATFORM}{platform} has no {name}" for platform in PLATFORMS
            for name in sorted(everything - headers[platform])]


def _skip_angles(text):
    """`text` without what stands in <>, as far as templates have it."""
    while True:
        shorter = re.sub(r"<[^<>;{}()]*(?:\([^()]*\)[^<>;{}()]*)*>", " ", text)
        if shorter == text:
            return text
        text = shorter


def _needed_arguments(text):
    """How many parameters of a declaration, from behind its '(', have no default."""
    parameters, depth = [""], 1
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth == 0:
            break
        if character == "," and depth == 1:
            parameters.append("")
        else:
            parameters[-1] += character
    return sum(1 for parameter in parameters if parameter.strip() and "=" not in parameter)


def _declared(statement):
    """The name that a declaration at namespace scope introduces: name, or name/parameters."""
    attributes = r"\balignas\s*\([^()]*\)|__\w+__\s*(\([^()]*\))?"
    statement = " ".join(_skip_angles(re.sub(attributes, " ", statement)).split())
    types = "enum class|enum|struct|class|concept|union"
    match = re.match(rf"(?:template )?(?:{types}) (\w+)", statement)
    if match:
        return match[1]
    match = re.match(r"(?:template )?using (\w+) ?=", statement)
    if match:
        return match[1]
    match = re.match(r"[^=()]*?(\w+) ?=", statement)
    if match:
        return match[1]
    match = re.match(r"[^()]*?(operator ?\W+|\w+) ?\((.*)", statement)
    if match:
        return f"{match[1]}/{_needed_arguments(match[2])}"
    return None


def declared_names(text):
    """Names that a header declares in its namespaces, except in those called `internal`."""
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", without_comments(text), flags=re.MULTILINE)
    found, spaces, depth, statement = set(), [], 0, ""
    for character in text:
        if character == "{":
            match = re.search(r"(?:inline )?namespace ([\w:]*)\s*$", statement)
            if match and depth == 0:
                spaces.append(match[1])
                statement = ""
                continue
            if depth == 0 and "internal" not in spaces:
                name = _declared(statement)
                if name:
                    found.add(name)
            depth += 1
            statement = ""
        elif character == "}":
            if depth == 0:
                spaces.pop()
            else:
                depth -= 1
            statement = ""
        elif character == ";":
            if depth == 0 and "internal" not in spaces:
                name = _declared(statement)
                if name:
                    found.add(name)
            statement = ""
        elif depth == 0:
            statement += character
    return found


def same_names(tree):
    """A header declares the same names on each platform, functions with as many parameters."""
    found = []
    headers = platform_headers(tree)
    for header in sorted(set.intersection(*map(set, headers.values()))):
        names = {path: declared_names(tree[path])
                 for path in (headers[platform][header] for platform in PLATFORMS)}
        everything = set().union(*names.values())
        for path, declared in names.items():
            missing = sorted(everything - declared)
            if missing:
                found.append(f"{path} does not declare {', '.join(missing)}")
    return found
