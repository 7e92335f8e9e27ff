"""ExpertParallel, GroupedGemm and RoutedExperts."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional

from . import _abi
from ._array import BITS, Array, pointer
from ._domain import Domain, Rank
from ._library import check, fill, lib, name_of, placement_of
from ._placement import Loads, loads_of

EP_KINDS = {name: name for name in (
    "dtype", "strategy", "combine_order", "combine_method", "dispatch_format", "output",
    "scale_format", "failure_policy", "duplicates")}
GEMM_KINDS = {"dtype": "dtype", "output": "gemm_output", "format": "gemm_format",
              "scale_format": "scale_format", "activation": "gemm_activation"}
EXPERTS_KINDS = {"first_format": "gemm_format", "second_format": "gemm_format",
                 "weights_in": "weights_in",
                 "dispatch_gemm": "fusion", "gemm_combine": "fusion"}
# Short names of the library's flags, and DLPack's.
_DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16"}
_SHORT = {long: short for short, long in _DTYPE_NAMES.items()}


def short_dtype(config: Dict[str, Any]) -> Dict[str, Any]:
    if config.get("dtype") in _SHORT:
        config = {**config, "dtype": _SHORT[config["dtype"]]}
    return config


def dtype_name(code: int) -> str:
    return _DTYPE_NAMES[name_of("dtype", code)]


def config_of(struct, kinds: Dict[str, str], num_ranks: int = 0) -> Dict[str, Any]:
    """A struct of the library's as a dict, with names in place of numbers."""
    members = {name: getattr(struct, name) for name, *_ in struct._fields_
               if name not in ("size", "placement_slots")}
    if members.get("placement"):
        slots = struct.placement_slots
        flat = (ctypes.c_int32 * (num_ranks * slots)).from_address(struct.placement)
        members["placement"] = placement_of(flat, num_ranks, slots)
    named = {name: name_of(kinds[name], value) if name in kinds else value
             for name, value in members.items()}
    if "dtype" in named:
        named["dtype"] = _DTYPE_NAMES[named["dtype"]]
    return named


def _options(name: str):
    return _abi.octet_ep_options(name=name.encode() if name else None)


class Handle:
    """Identifies a dispatch to its combine."""

    __slots__ = ("words",)

    def __init__(self, words: _abi.octet_dispatch_handle):
        self.words = _abi.octet_dispatch_handle.from_buffer_copy(words)


class Received:
    """The rows that a dispatch has delivered, as Arrays in memory of the ExpertParallel.

    They are valid in stream order until the rank's next dispatch (octet/received.h). L local
    experts, R ranks, H elements of a row.

    x                [max_rows][H] of the dtype, expert by expert; other formats: uint8
    scales           [max_rows][scale_words] of int32, or None
    expert_counts    [L] of int32
    expert_offsets   [L + 1] of int32, or None
    sources          [max_rows][4] of int32: rank, token, k, local expert; -1 is padding
    source_offsets   [R + 1] of int32, of high_throughput
    row_weights      [max_rows] of float32, of high_throughput
    handle           for combine
    """

    def __init__(self, ep: ExpertParallel, rank: Rank, raw: _abi.octet_received):
        self.raw = raw
        self.handle = Handle(raw.handle)
        rows, owner = raw.max_rows, ep

        def view(address: Optional[int], shape, dtype: str) -> Optional[Array]:
            return Array(rank.domain, rank.rank, address, shape, dtype, owner) if address else None

        local = ep.local_experts
        is_dtype = raw.row_bytes == 2 * ep.hidden
        self.x = view(raw.x, (rows, ep.hidden if is_dtype else raw.row_bytes),
                      ep.dtype if is_dtype else "uint8")
        self.scales = view(raw.scales, (rows, ep.scale_words), "int32")
        self.expert_counts = view(raw.expert_counts, (local,), "int32")
        self.expert_offsets = view(raw.expert_offsets, (local + 1,), "int32")
        self.sources = view(raw.sources, (rows, 4), "int32")
        self.source_offsets = view(raw.source_offsets, (rank.domain.num_ranks + 1,), "int32")
        self.row_weights = view(raw.row_weights, (rows,), "float32")


class _HasRows:
    """What ExpertParallel and RoutedExperts know of their rows."""

    local_experts: int
    max_rows: int
    expert_out_rows: int
    scale_words: int
    hidden: int
    topk: int
    dtype: str

    def _take(self, info: _abi.octet_ep_info) -> None:
        self.local_experts = info.local_experts
        self.max_rows = info.max_rows
        self.expert_out_rows = info.expert_out_rows
        self.scale_words = info.scale_words
        self._row_bytes = info.dispatch_row_bytes

    def _dispatch_args(self, rank: Rank, x, topk_idx, topk_weights, num_tokens, x_scales=None):
        if self._row_bytes == 2 * self.hidden:
            address = pointer(x, "x", rank, BITS[self.dtype], ("T", self.hidden))
        else:
            address = pointer(x, "x", rank, ("uint8", "int8"), ("T", self._row_bytes))
        tokens = x.shape[0] if num_tokens is None else num_tokens
        return _abi.octet_dispatch_args(
            x=address, num_tokens=tokens,
            topk_idx=pointer(topk_idx, "topk_idx", rank, "int32", ("T", self.topk)),
            topk_weights=pointer(topk_weights, "topk_weights", rank, "float32", ("T", self.topk)),
            x_scales=pointer(x_scales, "x_scales", rank, ("int32", "float32", "uint8"), None))


class ExpertParallel(_HasRows):
    """Dispatch and combine of a Mixture-of-Experts layer: octet/expert_parallel.h.

    config: num_experts (E, over all ranks), topk (K), hidden (H), max_tokens_per_rank (M) are
    required; the others are those of octet_ep_config, by their names: dtype="bfloat16",
    strategy="low_latency", combine_order="flat" ... and placement=[[0, 3], [1, 2]], the experts in
    the slots of each rank. Not in a run.

    local_experts, max_rows, expert_out_rows, scale_words: numbers of what a rank receives.
    """

    def __init__(self, domain: Domain, *, name: str = "", **config):
        struct = fill(_abi.octet_ep_config(), short_dtype(config), EP_KINDS, "ExpertParallel")
        self._handle = ctypes.c_void_p()
        check(lib.octet_ep_create(domain.handle, ctypes.byref(struct),
                                  ctypes.byref(_options(name)), ctypes.byref(self._handle)))
        info = _abi.octet_ep_info()
        check(lib.octet_ep_get_info(self._handle, ctypes.byref(info)))
        self._take(info)
        self.config: Dict[str, Any] = self._config(domain)  # with every choice made
        self.hidden = self.config["hidden"]
        self.topk = self.config["topk"]
        self.dtype: str = self.config["dtype"]

    def _config(self, domain: Domain) -> Dict[str, Any]:
        struct = _abi.octet_ep_config()
        check(lib.octet_ep_get_config(self._handle, ctypes.byref(struct)))
        return config_of(struct, EP_KINDS, domain.num_ranks)

    def __del__(self):
        lib.octet_ep_destroy(getattr(self, "_handle", None))

    def dispatch(self, rank: Rank, x, topk_idx, topk_weights=None, *,
                 num_tokens: Optional[int] = None, x_scales=None) -> Received:
        """Sends this rank's tokens to the ranks of their experts, and receives its experts' rows.

        x             [T][H] of the dtype (bfloat16 may come as its bits, uint16)
        topk_idx      [T][K] of int32: experts, -1 drops a choice
        topk_weights  [T][K] of float32, or None: all are 1
        num_tokens    T, if the arrays have more rows

        Enqueues and returns. The arrays are memory of the rank's GPU and must stay as they are
        until the combine. All ranks make the same calls in the same order. Raises InvalidArgument.
        """
        args = self._dispatch_args(rank, x, topk_idx, topk_weights, num_tokens, x_scales)
        received = _abi.octet_received()
        check(lib.octet_ep_dispatch(self._handle, rank.handle, ctypes.byref(args),
                                    ctypes.byref(received)))
        rank._keep(self)
        return Received(self, rank, received)

    def combine(self, rank: Rank, received, expert_out, y, *, bias=None,
                unweighted: bool = False) -> None:
        """y[t] = Σ_k weight[t][k] · (output of choice k), in float32, rounded once.

        received    what dispatch has returned, or its handle
        expert_out  [expert_out_rows][H] of the dtype, each row where received.x has its row
        y           [T][H] of the dtype
        bias        [H] of the dtype, or None
        """
        handle = getattr(received, "handle", received)
        kinds = BITS[self.dtype]
        args = _abi.octet_combine_args(
            expert_out=pointer(expert_out, "expert_out", rank, kinds, ("rows", self.hidden)),
            y=pointer(y, "y", rank, kinds, ("T", self.hidden)),
            bias=pointer(bias, "bias", rank, kinds, (self.hidden,)), unweighted=unweighted)
        check(lib.octet_ep_combine(self._handle, rank.handle, ctypes.byref(handle.words),
                                   ctypes.byref(args)))
        rank._keep(self)


    def loads(self) -> Loads:
        """The rows of each expert, with the member count_loads. Any thread, also during a run."""
        return loads_of(lib.octet_ep_loads, self._handle, self.config["num_experts"])


class GroupedGemm:
    """The products of the experts of one GPU, in one launch: octet/grouped_gemm.h.

    config: experts (L), max_rows, n, k are required; dtype, output, format, activation and so on are
    those of octet_gemm_config. Made in a run, before anything is enqueued, for the rank's GPU.
    """

    def __init__(self, rank: Rank, **config):
        config = short_dtype(config)
        struct = fill(_abi.octet_gemm_config(), config, GEMM_KINDS, "GroupedGemm")
        self._handle = ctypes.c_void_p()
        check(lib.octet_gemm_create(rank.handle, ctypes.byref(struct),
                                    ctypes.byref(self._handle)))
        fp8 = struct.format == _abi.OCTET_FORMAT_FP8
        self._kinds = ("uint8",) if fp8 else BITS[dtype_name(struct.dtype)]
        self._out = (("float32",) if struct.output == _abi.OCTET_OUTPUT_FLOAT32
                     else BITS[dtype_name(struct.dtype)])
        swiglu = struct.activation == _abi.OCTET_SWIGLU
        self._columns = struct.n // 2 if swiglu else struct.n
        self._shape = (struct.experts, struct.n, struct.k)

    def __del__(self):
        lib.octet_gemm_destroy(getattr(self, "_handle", None))

    def run(self, rank: Rank, a, b, expert_offsets, out, *, expert_counts=None, bias=None,
            row_scale=None, a_scales=None, b_scales=None, rows: int = 0) -> None:
        """out[row] = epilogue(a[row] · b[e]ᵀ) for the rows of expert e.

        a               [max_rows][k] of the dtype, or uint8 with format "fp8"
        b               [L][n][k] of the same
        expert_offsets  [L + 1] of int32: first row of each expert
        expert_counts   [L] of int32, or None: up to the next offset
        out             [max_rows][n] (n / 2 with activation "swiglu")
        bias            [L][n] of float32, or None; row_scale: [max_rows] of float32, or None
        """
        experts, n, k = self._shape
        args = _abi.octet_gemm_args(
            a=pointer(a, "a", rank, self._kinds, ("rows", k)),
            b=pointer(b, "b", rank, self._kinds, (experts, n, k)),
            a_scales=pointer(a_scales, "a_scales", rank, ("int32", "float32"), None),
            b_scales=pointer(b_scales, "b_scales", rank, ("int32", "float32"), None),
            expert_offsets=pointer(expert_offsets, "expert_offsets", rank, "int32", (experts + 1,)),
            expert_counts=pointer(expert_counts, "expert_counts", rank, "int32", (experts,)),
            bias=pointer(bias, "bias", rank, "float32", (experts, n)),
            row_scale=pointer(row_scale, "row_scale", rank, "float32", ("rows",)),
            out=pointer(out, "out", rank, self._out, ("rows", self._columns)), rows=rows)
        check(lib.octet_gemm_run(self._handle, rank.handle, ctypes.byref(args)))
        rank._keep(self)


class RoutedExperts(_HasRows):
    """The experts together with the dispatch before them and the combine after them.

    ep: the configuration of an ExpertParallel, as a dict; intermediate (I); the others are those of
    octet_experts_config: octet/routed_experts.h. Not in a run.
    """

    def __init__(self, domain: Domain, *, ep: Dict[str, Any], name: str = "", **config):
        ep_struct = fill(_abi.octet_ep_config(), short_dtype(ep), EP_KINDS, "ep")
        struct = fill(_abi.octet_experts_config(ep=ctypes.pointer(ep_struct)), config,
                      EXPERTS_KINDS, "RoutedExperts")
        self._handle = ctypes.c_void_p()
        check(lib.octet_experts_create(domain.handle, ctypes.byref(struct),
                                       ctypes.byref(_options(name)), ctypes.byref(self._handle)))
        info = _abi.octet_ep_info()
        check(lib.octet_experts_get_info(self._handle, ctypes.byref(info)))
        self._take(info)
        self.hidden, self.topk = ep_struct.hidden, ep_struct.topk
        self.dtype = dtype_name(ep_struct.dtype)
        self.intermediate: int = struct.intermediate
        self._n1 = self.intermediate * (1 if struct.no_activation else 2)

    def __del__(self):
        lib.octet_experts_destroy(getattr(self, "_handle", None))

    def dispatch_gemm(self, rank: Rank, x, topk_idx, topk_weights, w1, h, *,
                      num_tokens: Optional[int] = None, bias=None) -> Received:
        """h[row] = activation(x[token] · w1[expert]ᵀ) for every row received.

        x, topk_idx, topk_weights  as in ExpertParallel.dispatch
        w1    [L][2·I][H] of the dtype; gate and up alternate, eight rows each
        h     [max_rows][I] of the dtype, written
        bias  [L][2·I] of float32, or None
        """
        kinds, local = BITS[self.dtype], self.local_experts
        dispatch = self._dispatch_args(rank, x, topk_idx, topk_weights, num_tokens)
        args = _abi.octet_dispatch_gemm_args(
            dispatch=ctypes.pointer(dispatch),
            b=pointer(w1, "w1", rank, kinds, (local, self._n1, self.hidden)),
            bias=pointer(bias, "bias", rank, "float32", (local, self._n1)),
            out=pointer(h, "h", rank, kinds, ("rows", self.intermediate)))
        received = _abi.octet_received()
        check(lib.octet_experts_dispatch_gemm(self._handle, rank.handle, ctypes.byref(args),
                                              ctypes.byref(received)))
        rank._keep(self)
        return Received(self, rank, received)

    def gemm_combine(self, rank: Rank, received: Received, h, w2, y, *, bias=None,
                     y_bias=None) -> None:
        """y[token] = Σ_k weight · (h[row] · w2[expert]ᵀ).

        h     [max_rows][I] of the dtype, w2: [L][H][I], y: [T][H]
        bias  [L][H] of float32, or None; y_bias: [H] of the dtype, or None
        """
        kinds, local = BITS[self.dtype], self.local_experts
        args = _abi.octet_gemm_combine_args(
            a=pointer(h, "h", rank, kinds, ("rows", self.intermediate)),
            b=pointer(w2, "w2", rank, kinds, (local, self.hidden, self.intermediate)),
            bias=pointer(bias, "bias", rank, "float32", (local, self.hidden)),
            y_bias=pointer(y_bias, "y_bias", rank, kinds, (self.hidden,)),
            y=pointer(y, "y", rank, kinds, ("T", self.hidden)))
        check(lib.octet_experts_gemm_combine(self._handle, rank.handle,
                                             ctypes.byref(received.raw), ctypes.byref(args)))
        rank._keep(self)
