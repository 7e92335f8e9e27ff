"""Writes octet/_abi.py, the declarations of <octet/octet.h> for ctypes.

    make_abi.py [--check]

With --check, nothing is written, and the exit code is 1 if the file is not what it should be.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = [HERE.parent / "c" / "include" / "octet" / "c" / name for name in ("core.h", "functional.h", "layers.h")]
TARGET = HERE / "octet" / "_abi.py"

NUMBERS = {"int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64",
           "uint64_t": "c_uint64", "float": "c_float"}

HEAD = '''\
"""The declarations of <octet/octet.h>, made from it by make_abi.py: do not edit."""

# pylint: skip-file
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32,
                    c_uint64, c_void_p, sizeof)


class Sized(Structure):
    """A struct whose first member is its size."""

    def __init__(self, **members):
        super().__init__(size=sizeof(self), **members)


'''


class Types:
    """What types of C are for ctypes."""

    def __init__(self):
        self.structs, self.functions = set(), set()

    def of(self, text, member):
        """Of a parameter, or with `member` of what a struct has."""
        text = text.strip()
        if text in NUMBERS:
            return NUMBERS[text]
        if text in self.structs or text in self.functions:
            return text
        if text == "void":
            return "None"
        if text == "const char*":
            return "c_char_p"
        pointee = text.rstrip("*").replace("const ", "").strip()
        stars = text.count("*")
        if stars == 1 and pointee in self.structs:
            return f"POINTER({pointee})"
        if stars == 2:
            return f"POINTER({'c_char_p' if pointee == 'char' else 'c_void_p'})"
        if stars == 1 and pointee in NUMBERS and "const" not in text and not member:
            return f"POINTER({NUMBERS[pointee]})"
        if stars != 1:
            raise ValueError(f"no type of ctypes for '{text}'")
        return "c_void_p"  # a handle, or memory


def split(declaration):
    """'const void* x' -> ('const void*', 'x')"""
    match = re.fullmatch(r"\s*(.*?[\s*])(\w+)((?:\[\d+\])?)\s*", declaration, re.DOTALL)
    return " ".join(match[1].split()), match[2], match[3].strip("[]")


def parameters(text, types):
    if text.strip() == "void":
        return []
    return [types.of(split(each)[0], member=False) for each in text.split(",")]


def wrapped(first, words, last):
    """Lines of at most 100 columns: `first`, the words with commas, and `last`."""
    lines = [first]
    for index, word in enumerate(words):
        piece = word + (", " if index + 1 < len(words) else last)
        if len(lines[-1]) + len(piece.rstrip()) > 100:
            lines.append("    ")
        lines[-1] += piece
    if not words:
        lines[-1] += last
    return "\n".join(line.rstrip() for line in lines) + "\n"


def struct(name, body, types):
    lines = []
    for declaration in filter(str.strip, body.split(";")):
        kind, member, count = split(declaration)
        of = types.of(kind, member=True) + (f" * {count}" if count else "")
        lines.append(f'        ("{member}", {of}),\n')
    base = "Sized" if lines[0] == '        ("size", c_uint64),\n' else "Structure"
    types.structs.add(name)
    return f"class {name}({base}):\n    _fields_ = [\n{''.join(lines)}    ]\n\n\n"


PIECES = re.compile(
    r"enum \w+ \{(?P<enum>[^}]*)\};"
    r"|typedef struct (?P<struct>\w+) \{(?P<body>[^}]*)\} \w+;"
    r"|typedef (?P<returns>[^;{]*?)\(\*(?P<function>\w+)\)\((?P<arguments>[^)]*)\);"
    r"|OCTET_API (?P<result>[^;(]*?)(?P<call>\w+)\((?P<parameters>[^)]*)\);")


def generate(text):
    text = re.sub(r"//[^\n]*", "", text)
    types, enums, structs, calls = Types(), [], [], []
    for piece in PIECES.finditer(text):
        if piece["enum"] is not None:
            enums += [" ".join(each.split()) + "\n" for each in piece["enum"].split(",")]
        elif piece["struct"]:
            structs.append(struct(piece["struct"], piece["body"], types))
        elif piece["function"]:
            types.functions.add(piece["function"])
            words = [types.of(piece["returns"], False), *parameters(piece["arguments"], types)]
            structs.append(wrapped(f"{piece['function']} = CFUNCTYPE(", words, ")") + "\n\n")
        else:
            result = types.of(piece["result"], member=False)
            words = parameters(piece["parameters"], types)
            calls.append(wrapped(f'    "{piece["call"]}": ({result}, [', words, "]),"))
    return (HEAD + "".join(enums) + "\n\n" + "".join(structs) +
            "FUNCTIONS = {\n" + "".join(calls) + "}\n")


def main():
    text = generate("".join(header.read_text(encoding="utf-8") for header in HEADERS))
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if TARGET.read_text(encoding="utf-8") == text else
                 f"{TARGET} is not what octet.h says: run {pathlib.Path(__file__).name}")
    if sys.argv[1:]:
        sys.exit(__doc__)
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
