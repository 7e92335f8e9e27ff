"""Dispatch and combine as functions of arrays (octet/c/functional.h), for octet.jax and octet.torch."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional

from . import _abi
from ._array import Array
from ._domain import Domain
from ._errors import InvalidArgument
from ._experts import EP_KINDS, config_of, short_dtype
from ._library import check, fill, lib

FORWARD, BACKWARD = 0, 1  # lines of tickets


class Functional:
    """An octet_functional: config is that of ExpertParallel. Not in a run."""

    def __init__(self, domain: Domain, name: str, config: Dict[str, Any]):
        struct = fill(_abi.octet_ep_config(), short_dtype(config), EP_KINDS, "ExpertParallel")
        options = _abi.octet_ep_options(name=name.encode() if name else None)
        self.handle = ctypes.c_void_p()
        self.domain = domain
        check(lib.octet_functional_create(domain.handle, ctypes.byref(struct),
                                          ctypes.byref(options), ctypes.byref(self.handle)))
        ep = lib.octet_functional_ep(self.handle)
        info = _abi.octet_ep_info()
        check(lib.octet_ep_get_info(ep, ctypes.byref(info)))
        made = _abi.octet_ep_config()
        check(lib.octet_ep_get_config(ep, ctypes.byref(made)))
        self.config: Dict[str, Any] = config_of(made, EP_KINDS)  # with every choice made
        self.local_experts: int = info.local_experts
        self.max_rows: int = info.max_rows
        self.hidden: int = self.config["hidden"]
        self.topk: int = self.config["topk"]
        self.dtype: str = self.config["dtype"]
        self.strategy: str = self.config["strategy"]

    def __del__(self, destroy=lib.octet_functional_destroy):  # at the interpreter's end, too
        destroy(getattr(self, "handle", None))

    @property
    def high_throughput(self) -> bool:
        return self.strategy == "high_throughput"

    def rows(self, rank: int) -> Optional[Array]:
        """The memory of a rank where rows arrive, or None: it is not the same for all dispatches."""
        address = ctypes.c_void_p()
        check(lib.octet_functional_rows(self.handle, rank, ctypes.byref(address)))
        if not address.value:
            return None
        return Array(self.domain, rank, address.value, (self.max_rows, self.hidden), self.dtype,
                     self)

    def check(self) -> None:
        """Raises if a combine had another ticket than the last of its line."""
        check(lib.octet_functional_check(self.handle))

    def check_tokens(self, x, topk_idx, topk_weights) -> None:
        """Raises InvalidArgument unless these have the shapes and dtypes of a dispatch."""
        tokens = x.shape[0] if len(x.shape) == 2 else 0
        check_array("x", x, self.dtype, (tokens, self.hidden), "[T][H]")
        check_array("topk_idx", topk_idx, "int32", (tokens, self.topk), "[T][K]")
        if topk_weights is not None:
            check_array("topk_weights", topk_weights, "float32", (tokens, self.topk), "[T][K]")
        if tokens > self.config["max_tokens_per_rank"]:
            raise InvalidArgument(f"x has {tokens} tokens of a rank, and max_tokens_per_rank is "
                                  f"{self.config['max_tokens_per_rank']}")

    def check_rows(self, what: str, rows) -> None:
        check_array(what, rows, self.dtype, (self.max_rows, self.hidden), "[max_rows][H]")


def check_array(what: str, array, dtype: str, shape, meaning: str) -> None:
    """Raises InvalidArgument unless an array of JAX or PyTorch has this dtype and shape."""
    have = str(array.dtype).rsplit(".", maxsplit=1)[-1]
    if have != dtype:
        raise InvalidArgument(f"{what} is of {have}, and must be of {dtype}")
    if tuple(array.shape) != tuple(shape):
        raise InvalidArgument(f"{what} has the shape {tuple(array.shape)}, and must be "
                              f"{meaning}, {tuple(shape)}")
