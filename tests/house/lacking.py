"""Whether a file includes the headers of other projects that it uses, by itself or by a header of ours.

Builds compile with precompiled headers and several files as one, and clang-tidy reads them so, too: a
file that lacks an include finds the name there. These rules go by names, as library_names.py has them. A
file with kernels (.hip) is compiled by itself everywhere and needs none.
"""

import functools
import re

from includes import PLATFORM, includes_of, resolve
from library_names import CALLED, FAMILIES, HEADERS_OF, headers_of
from tree import code, without_comments

# Headers are found in the emulation, as where these files are compiled, and not on another platform.
ELSEWHERE = tuple(PLATFORM + name for name in ("amd/", "nvidia/", "gpu/"))
EXAMPLES = ("tests/package/example/", "kernels/bindings/c/include/", "kernels/bindings/c/example/")
QUALIFIED = re.compile(r"(?<![\w:])(?:::)?(std|absl|testing|nlohmann|CLI|benchmark)::([A-Za-z_]\w*)")
# A name without a namespace, class or object before it.
PLAIN = re.compile(r"(?<![\w.:])(?<!->)(?<!namespace )(?:::)?([A-Za-z_]\w*)\b(?!::)")
CALL = re.compile(rf"(?<![\w.:])(?<!->)(?:::)?({'|'.join(CALLED)})\(")
MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}")
NO_CODE = re.compile(r"^[ ]*#[ ]*(?:include|pragma).*", re.MULTILINE)


def _sources(tree):
    return [path for path in code(tree, kinds=(".cc", ".h"))
            if not path.startswith((*ELSEWHERE, *EXAMPLES))]


def _plain(text):
    return NO_CODE.sub("", without_comments(text))


def _others(tree):
    """path -> the headers of others that it names, or a header of ours that it includes by any way."""
    direct = {}
    for path in code(tree):
        ours, others = [], set()
        for include in includes_of(tree, path):
            targets = [target for target in resolve(tree, include)
                       if not target.startswith(ELSEWHERE)]
            ours += targets
            if not targets:
                others.add(include.name)
        direct[path] = ours, others
    found = {}
    for path in _sources(tree):
        files, queue = {path}, [path]
        while queue:
            for target in direct[queue.pop()][0]:
                if target not in files:
                    files.add(target)
                    queue.append(target)
        found[path] = set().union(*(direct[file][1] for file in files))
    return found


@functools.lru_cache(maxsize=4096)
def _macros(text):
    return re.findall(r"^[ ]*#[ ]*define[ ]+(\w+)", text, re.MULTILINE)


def _family(name):
    return next((headers for pattern, headers in FAMILIES.items() if re.fullmatch(pattern, name)), None)


@functools.lru_cache(maxsize=4096)
def _needs(text, macros):
    """(name, the headers of which it needs one; None where that is unknown) of what a file uses."""
    return list(_find_needs(_plain(text), macros))


def _find_needs(plain, macros):
    for name in sorted({f"{match[1]}::{match[2]}" for match in QUALIFIED.finditer(plain)}):
        namespace, last = name.split("::")
        if not re.search(rf"^namespace {namespace} {{[^}}]*\bclass {last};", plain, re.MULTILINE):
            yield name, headers_of(name)
    for name in sorted(set(CALL.findall(plain))):
        yield name, {CALLED[name]}
    for name in sorted(set(PLAIN.findall(plain))):
        if name in HEADERS_OF:
            yield name, headers_of(name)
        elif MACRO.fullmatch(name) and not name.startswith("OCTET_") and name not in macros:
            yield name, _family(name)


def others_headers(tree):
    """A name of the standard library, Abseil or another project needs a header that declares it."""
    macros = frozenset(name for path in code(tree) for name in _macros(tree[path]))
    found = []
    for path, others in _others(tree).items():
        for name, headers in _needs(tree[path], macros):
            if headers is None:
                found.append(f"{path}: give {name} a header in tests/house/library_names.py")
            elif not headers & others:
                found.append(f"{path}: {name} needs <{'> or <'.join(sorted(headers))}>")
    return found
