"""Which expert lives where: octet/placement.h.

A placement is a list for each rank of the experts in its slots, -1 where there is none.
"""

from __future__ import annotations

import ctypes
from typing import List, NamedTuple, Sequence

from . import _abi
from ._errors import InvalidArgument
from ._library import check, flat_placement, lib, placement_of

Placement = List[List[int]]


class Loads(NamedTuple):
    """The rows that have come to each expert."""

    rows: List[int]    # in all
    window: List[int]  # of the last load_window dispatches; of the last one if that is 0


def loads_of(function, handle, num_experts: int) -> Loads:
    rows = (ctypes.c_int64 * num_experts)()
    window = (ctypes.c_int64 * num_experts)()
    check(function(handle, rows, window))
    return Loads(list(rows), list(window))


def plan_placement(loads: Sequence[float], num_ranks: int, slots_per_rank: int) -> Placement:
    """A placement that balances `loads`, rows of each expert: popular ones get replicas."""
    values = (ctypes.c_double * len(loads))(*loads)
    slots = (ctypes.c_int32 * max(num_ranks * slots_per_rank, 1))()
    check(lib.octet_plan_placement(values, len(loads), num_ranks, slots_per_rank, slots))
    return placement_of(slots, num_ranks, slots_per_rank)


def plan_moves(current: Placement, wanted: Placement, num_experts: int) -> List[Placement]:
    """The placements from `current` to `wanted`, each for MoeLayer.prepare and apply in turn."""
    begin, slots = flat_placement(current, "current")
    end, wanted_slots = flat_placement(wanted, "wanted")
    if len(current) != len(wanted) or slots != wanted_slots:
        raise InvalidArgument(
            f"wanted has {len(wanted)} ranks of {wanted_slots} slots, and current {len(current)} of "
            f"{slots}: fill up with -1")
    count = ctypes.c_int32()

    args = _abi.octet_move_args(
        num_experts=num_experts, num_ranks=len(current), slots_per_rank=slots,
        current=ctypes.cast(begin, ctypes.c_void_p), wanted=ctypes.cast(end, ctypes.c_void_p))

    def plan(steps, most: int) -> None:
        check(lib.octet_plan_moves(ctypes.byref(args), most, steps, ctypes.byref(count)))

    plan(None, 0)
    size = len(current) * slots
    steps = (ctypes.c_int32 * (count.value * size))()
    plan(steps, count.value)
    return [placement_of(steps[step * size:(step + 1) * size], len(current), slots)
            for step in range(count.value)]
