"""The shared library: found, loaded once, and called so that errors become exceptions."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any, Dict, List, Optional, Tuple

from . import _abi
from ._errors import Failure, error_of

KINDS = ("error", "wait", "input")


def _candidates():
    named = os.environ.get("OCTET_LIBRARY")
    if named:
        return [named]
    package = pathlib.Path(__file__).resolve().parent
    # In the package; as installed, in lib/ beside lib/python3/dist-packages/; on the system.
    files = [package / "liboctet.so.0", package.parents[2] / "liboctet.so.0"]
    return [str(path) for path in files if path.exists()] + ["liboctet.so.0"]


def _load() -> ctypes.CDLL:
    problems = []
    for name in _candidates():
        try:
            loaded = ctypes.CDLL(name)
        except OSError as error:
            problems.append(str(error))
            continue
        for function, (result, arguments) in _abi.FUNCTIONS.items():
            pointer = getattr(loaded, function)
            pointer.restype = result
            pointer.argtypes = arguments
        return loaded
    raise ImportError("liboctet.so.0 cannot be loaded (" + "; ".join(problems) +
                      "): set OCTET_LIBRARY to its path")


lib = _load()
PLATFORM: str = lib.octet_platform().decode()
VERSION: str = lib.octet_version().decode()


def _last_failure() -> Optional[Failure]:
    found = _abi.octet_failure()
    if lib.octet_last_failure(ctypes.byref(found)) != _abi.OCTET_OK:
        return None
    return Failure(kind=KINDS[found.kind], rank=found.rank, peer=found.peer, index=found.index,
                   expected=found.expected, seen=found.seen, waited=found.waited_ns / 1e9,
                   phase=found.phase.decode(), flag=found.flag.decode(),
                   object=found.object.decode())


def last_error(code: int):
    return error_of(code, lib.octet_last_error().decode(errors="replace"), _last_failure())


def check(code: int) -> None:
    """Raises the error of a call that has just returned `code` on this thread."""
    if code:
        raise last_error(code)


def fail(code: int, message: str) -> int:
    """What a function returns that the library has called, and that has failed."""
    if lib.octet_last_error().decode(errors="replace") == message:
        return code  # with all that the library knows of it
    return lib.octet_fail(code, message.encode())


def value_of(kind: str, name: Any) -> int:
    """The number of an enumerator; numbers stay what they are."""
    if not isinstance(name, str):
        return int(name)
    value = ctypes.c_int32()
    check(lib.octet_value_of_name(kind.encode(), name.encode(), ctypes.byref(value)))
    return value.value


def name_of(kind: str, value: int) -> str:
    name = ctypes.c_char_p()
    check(lib.octet_name_of_value(kind.encode(), value, ctypes.byref(name)))
    return (name.value or b"").decode()


def fill(struct: Any, members: Dict[str, Any], kinds: Dict[str, str], what: str) -> Any:
    """Sets members of a struct by name; `kinds` says of which kind those with names are."""
    known = {name for name, *_ in struct._fields_} - {"size"}
    for name, value in members.items():
        if name not in known:
            raise TypeError(f"{what} has no '{name}'; it has {', '.join(sorted(known))}")
        if name == "placement" and value is not None:
            struct.kept, struct.placement_slots = flat_placement(value, what)
            struct.placement = ctypes.addressof(struct.kept)
        else:
            setattr(struct, name, value_of(kinds[name], value) if name in kinds else value)
    return struct


def flat_placement(placement: Any, what: str) -> Tuple[Any, int]:
    """A placement, the experts in the slots of each rank, as one array; and the slots of a rank."""
    ranks = [[int(expert) for expert in slots] for slots in placement]
    if not ranks or not ranks[0] or any(len(slots) != len(ranks[0]) for slots in ranks):
        raise TypeError(f"{what}: a placement is a list for each rank of the experts in its slots, "
                        "-1 where there is none, as many of each rank")
    flat = [expert for slots in ranks for expert in slots]
    return (ctypes.c_int32 * len(flat))(*flat), len(ranks[0])


def placement_of(flat: Any, num_ranks: int, slots: int) -> List[List[int]]:
    return [list(flat[rank * slots:(rank + 1) * slots]) for rank in range(num_ranks)]
