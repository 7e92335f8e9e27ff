"""Errors: the Status of the library as exceptions."""

from __future__ import annotations

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Failure:
    """What a failed run was about, as values (octet/node_failure.h).

    kind is "error", "wait" (a wait that expired) or "input" (data that a kernel refused).
    """

    kind: str
    rank: int
    peer: int  # -1: none is known
    index: int
    expected: int
    seen: int
    waited: float  # seconds
    phase: str
    flag: str
    object: str  # the name of the object whose call it was, or ""


class Error(RuntimeError):
    """An error of Octet. str() is its sentence, code its number, failure its values, if any."""

    code = 2  # of this class

    def __init__(self, message: str, code: Optional[int] = None,
                 failure: Optional[Failure] = None):
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.failure = failure


class Cancelled(Error):
    code = 1


class InvalidArgument(Error, ValueError):
    code = 3


class DeadlineExceeded(Error, TimeoutError):
    code = 4


class NotFound(Error, FileNotFoundError):
    code = 5


class ResourceExhausted(Error, MemoryError):
    code = 8


class FailedPrecondition(Error):
    code = 9


class Aborted(Error):
    code = 10


class Unimplemented(Error, NotImplementedError):
    code = 12


class Internal(Error):
    code = 13


class Unavailable(Error):
    code = 14


class DataLoss(Error):
    code = 15


CLASSES = {error.code: error for error in (
    Cancelled, InvalidArgument, DeadlineExceeded, NotFound, ResourceExhausted, FailedPrecondition,
    Aborted, Unimplemented, Internal, Unavailable, DataLoss)}


def error_of(code: int, message: str, failure: Optional[Failure]) -> Error:
    return CLASSES.get(code, Error)(message, code, failure)
