"""Octet in programs of PyTorch that drive all GPUs from one process, with a thread for each GPU.

    import torch, octet.torch

    node = octet.torch.Node([0, 1, 2, 3])                  # ranks 0 to 3
    ep = octet.torch.ExpertParallel(node, num_experts=256, topk=8, hidden=7168,
                                    max_tokens_per_rank=4096)

    def layer(x, topk_idx, topk_weights, w):               # on the thread of x's GPU
        received = octet.torch.dispatch(ep, x, topk_idx, topk_weights)
        out = my_experts(received, w)                      # [max_rows][H], as received.x
        return octet.torch.combine(ep, received, out)

A call is one of the rank whose GPU has x, on torch's current stream there. Ranks wait for each other
on the host, so that all threads make the same calls: a rank without a thread of its own ends them
with DeadlineExceeded. Calls are operators of torch (torch.ops.octet): torch.compile takes them as
they are, autograd knows their backward, and torch.cuda.graph captures them, on all threads at once
and with capture_error_mode="thread_local".
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple

import torch

from . import _abi, _domain, _layer
from ._errors import FailedPrecondition, InvalidArgument, Unimplemented
from ._functional import BACKWARD, FORWARD, Functional, check_array
from ._library import PLATFORM, check, lib

__all__ = ["ExpertParallel", "MoeLayer", "Node", "Received", "combine", "dispatch", "moe_layer"]

if PLATFORM == "emulation":
    raise ImportError("octet.torch needs a liboctet for GPUs, and this one emulates them: set "
                      "OCTET_LIBRARY to another")

# Objects by the number that operators name them by.
_objects: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def _object(number: int) -> Any:
    found = _objects.get(number)
    if found is None:
        raise FailedPrecondition(f"octet.torch: object {number} is no more")
    return found


class Node:
    """GPUs as the ranks of a node of Octet's: devices[r] is torch's number of rank r's GPU."""

    def __init__(self, devices: Sequence[int], *, timeout: float = 0.0, on_failure: Any = "print"):
        self.devices = list(devices)
        if len(set(self.devices)) != len(self.devices):
            raise InvalidArgument("each GPU is one rank: devices names one twice")
        for device in self.devices:  # their contexts must be torch's
            torch.zeros(1, device=f"cuda:{device}")
        self.node = _domain.Node.adopt(self.devices, timeout=timeout, on_failure=on_failure)
        self._rank_of = {device: rank for rank, device in enumerate(self.devices)}
        self._checked: weakref.WeakSet = weakref.WeakSet()

    def settle(self) -> None:
        """Waits for all that calls have enqueued, and raises the cause of a failure, after which
        the next call is correct. When no thread is in a call."""
        self.node.settle()
        for functional in self._checked:
            functional.check()

    def _call(self, tensor: torch.Tensor, body: Callable[[Any], int]) -> None:
        """Calls body(rank's handle) for the rank that has `tensor`, on torch's stream."""
        device = tensor.device.index
        if tensor.device.type != "cuda" or device not in self._rank_of:
            raise InvalidArgument(f"the tensors are on {tensor.device}, which is none of the node's "
                                  f"GPUs, {self.devices}")
        stream = torch.cuda.current_stream(device).cuda_stream
        self.node.call(self._rank_of[device], stream, lambda rank: check(body(rank.handle)))

    def _add(self, each: Any) -> int:
        number = max(_objects, default=0) + 1
        _objects[number] = each
        return number


class Received(NamedTuple):
    """What a dispatch has delivered to a rank.

    x               [max_rows][H], the rows expert by expert; zeros behind the last one
    expert_counts   [L] of int32
    expert_offsets  [L + 1] of int32, first row of each expert: offs of torch._grouped_mm is [1:]
    sources         [max_rows][4] of int32: rank, token, k, local expert; -1 behind the last row
    row_weights     [max_rows] of float32, 0 behind the last row; empty unless high_throughput. A
                    constant for autograd
    topk_idx, topk_weights, ticket   for combine
    """

    x: torch.Tensor
    expert_counts: torch.Tensor
    expert_offsets: torch.Tensor
    sources: torch.Tensor
    row_weights: torch.Tensor
    topk_idx: torch.Tensor
    topk_weights: Optional[torch.Tensor]
    ticket: torch.Tensor


class ExpertParallel:
    """Dispatch and combine over the ranks of a Node: config is that of octet.ExpertParallel.

    Gradients need strategy="high_throughput".
    """

    def __init__(self, node: Node, *, name: str = "", **config):
        self.node = node
        self.functional = Functional(node.node, name, config)
        node._checked.add(self.functional)
        self.max_rows = self.functional.max_rows
        self.local_experts = self.functional.local_experts
        self.config = self.functional.config
        self.number = node._add(self)
        self._weights: Optional[ExpertParallel] = None
        if self.functional.high_throughput and not config.get("row_bytes"):
            self._weights = self._for_weights(config)

    def _for_weights(self, config) -> ExpertParallel:
        """For gradients of weights: rows of three numbers for each choice, whose sum is a float32."""
        pieces = -(-_PIECES * self.functional.topk // 8) * 8
        small = ExpertParallel.__new__(ExpertParallel)
        small.node = self.node
        small.functional = Functional(self.node.node, "gradients of weights", {
            **config, "hidden": pieces, "dtype": "bfloat16"})
        self.node._checked.add(small.functional)
        small.max_rows, small.local_experts = self.max_rows, self.local_experts
        small.number = self.node._add(small)
        return small


_PIECES = 3  # bfloat16 numbers that have the bits of a float32


def _pointer(tensor: Optional[torch.Tensor]) -> Optional[int]:
    return None if tensor is None or tensor.numel() == 0 else tensor.data_ptr()


def _contiguous(*tensors):
    for tensor in tensors:
        if tensor is not None and not tensor.is_contiguous():
            raise InvalidArgument("a tensor is not contiguous: make it so before the call")


def _delivered(ep: ExpertParallel, x: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    functional, rows, local = ep.functional, ep.max_rows, ep.local_experts
    ints = {"dtype": torch.int32, "device": x.device}
    floats = {"dtype": torch.float32, "device": x.device}
    return (x.new_empty((rows, functional.hidden)), torch.empty((local,), **ints),
            torch.empty((local + 1,), **ints), torch.empty((rows, 4), **ints),
            torch.empty((rows if functional.high_throughput else 0,), **floats),
            torch.empty((2,), **floats))


_SIX = Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@torch.library.custom_op("octet::dispatch", mutates_args=())
def _dispatch(ep: int, line: int, x: torch.Tensor, topk_idx: torch.Tensor,
              topk_weights: Optional[torch.Tensor]) -> _SIX:
    of = _object(ep)
    _contiguous(x, topk_idx, topk_weights)
    results = _delivered(of, x)
    rows, counts, offsets, sources, row_weights, ticket = map(_pointer, results)
    args = _abi.octet_dispatch_args(x=_pointer(x), num_tokens=x.shape[0],
                                    topk_idx=_pointer(topk_idx),
                                    topk_weights=_pointer(topk_weights))
    to = _abi.octet_delivery(x=rows, expert_counts=counts, expert_offsets=offsets, sources=sources,
                             row_weights=row_weights, ticket=ticket, zero_rest=1, line=line)
    of.node._call(x, lambda rank: lib.octet_functional_dispatch(
        of.functional.handle, rank, ctypes.byref(args), ctypes.byref(to)))
    return results


@_dispatch.register_fake
def _(ep, line, x, topk_idx, topk_weights):
    return _delivered(_object(ep), x)


@torch.library.custom_op("octet::combine", mutates_args=())
def _combine(ep: int, line: int, out: torch.Tensor, topk_idx: torch.Tensor,
             topk_weights: Optional[torch.Tensor], sources: torch.Tensor,
             ticket: torch.Tensor) -> torch.Tensor:
    of = _object(ep)
    _contiguous(out, topk_idx, topk_weights, ticket)
    y = out.new_empty((topk_idx.shape[0], of.functional.hidden))
    args = _abi.octet_delivered_args(
        ticket=_pointer(ticket), topk_idx=_pointer(topk_idx), topk_weights=_pointer(topk_weights),
        num_tokens=topk_idx.shape[0], expert_out=_pointer(out), y=_pointer(y),
        unweighted=line == BACKWARD, line=line)
    of.node._call(out, lambda rank: lib.octet_functional_combine(
        of.functional.handle, rank, ctypes.byref(args)))
    return y


@_combine.register_fake
def _(ep, line, out, topk_idx, topk_weights, sources, ticket):
    return out.new_empty((topk_idx.shape[0], _object(ep).functional.hidden))


def _check_gradient(ep: ExpertParallel) -> None:
    if not ep.functional.high_throughput:
        raise Unimplemented("gradients of dispatch and combine need strategy='high_throughput', and "
                            f"the ExpertParallel has {ep.config['strategy']}")


def _dispatch_context(ctx, inputs, output):
    ep, line, _, topk_idx, topk_weights = inputs
    ctx.ep, ctx.line = ep, line
    ctx.save_for_backward(topk_idx, topk_weights, output[3])


# The gradient of the ticket is the ticket of the dispatch that combine's backward has made: the
# rows' gradients lie as that one's rows.
def _dispatch_backward(ctx, d_rows, _counts, _offsets, _sources, _row_weights, ticket):
    _check_gradient(_object(ctx.ep))
    topk_idx, topk_weights, sources = ctx.saved_tensors
    if ticket is None:
        raise FailedPrecondition("the backward of a dispatch needs that of its combine")
    dx = _combine(ctx.ep, BACKWARD, d_rows.contiguous(), topk_idx, topk_weights, sources, ticket)
    return None, None, dx, None, None


_dispatch.register_autograd(_dispatch_backward, setup_context=_dispatch_context)


def _combine_context(ctx, inputs, output):
    ctx.ep, _, out, topk_idx, topk_weights, sources, _ = inputs
    ctx.save_for_backward(out if topk_weights is not None else None, topk_idx, topk_weights,
                          sources)


def _combine_backward(ctx, dy):
    ep = _object(ctx.ep)
    _check_gradient(ep)
    out, topk_idx, topk_weights, sources = ctx.saved_tensors
    rows, _, _, _, row_weights, ticket = _dispatch(ctx.ep, BACKWARD, dy.contiguous(), topk_idx,
                                                   topk_weights)
    if topk_weights is None:
        return None, None, rows, None, None, None, ticket
    values = torch.where(sources[:, 0] >= 0, (rows.float() * out.float()).sum(1), 0.0)
    d_weights = _to_sources(ep, values, topk_idx, sources)
    d_out = (rows.float() * row_weights[:, None]).to(out.dtype)
    return None, None, d_out, None, d_weights, None, ticket


_combine.register_autograd(_combine_backward, setup_context=_combine_context)


def _to_sources(ep: ExpertParallel, values: torch.Tensor, topk_idx: torch.Tensor,
                sources: torch.Tensor) -> torch.Tensor:
    """values[row] at the [token][k] of the rank that has sent the row: a combine of rows that have
    the value at place k and zeros elsewhere, in three pieces."""
    small = ep._weights
    tokens, topk = topk_idx.shape
    hidden = small.functional.hidden
    nothing = torch.zeros((tokens, hidden), dtype=torch.bfloat16, device=values.device)
    *_, ticket = _dispatch(small.number, FORWARD, nothing, topk_idx, None)
    rows = torch.zeros((small.max_rows, hidden), dtype=torch.bfloat16, device=values.device)
    choice = sources[:, 2:3].clamp(min=0).long()
    for piece in range(_PIECES):
        rounded = values.to(torch.bfloat16)
        rows.scatter_(1, choice + piece * topk, rounded[:, None])
        values = values - rounded.float()
    y = _combine(small.number, FORWARD, rows, topk_idx, None, sources, ticket)
    return y[:, :_PIECES * topk].float().view(tokens, _PIECES, topk).sum(1)


def dispatch(ep: ExpertParallel, x: torch.Tensor, topk_idx: torch.Tensor,
             topk_weights: Optional[torch.Tensor] = None) -> Received:
    """Sends a rank's tokens to the ranks of their experts, and receives its experts' rows.

    x             [T][H] of the dtype, on the rank's GPU; so are all
    topk_idx      [T][K] of int32, -1 drops a choice
    topk_weights  [T][K] of float32, or None: all are 1

    Differentiable in x. A combine is of the last dispatch before it: another order is an error
    (FailedPrecondition) of the next call, or of Node.settle.
    """
    ep.functional.check_tokens(x, topk_idx, topk_weights)
    results = _dispatch(ep.number, FORWARD, x, topk_idx, topk_weights)
    rows, counts, offsets, sources, row_weights, ticket = results
    return Received(rows, counts, offsets, sources, row_weights.detach(), topk_idx, topk_weights,
                    ticket)


def combine(ep: ExpertParallel, received: Received, out: torch.Tensor) -> torch.Tensor:
    """y[t] = Σ_k weight[t][k] · (output of choice k), in float32, rounded once: [T][H].

    out  [max_rows][H] of the dtype, each row where received.x has its row

    Differentiable in `out` and the weights that dispatch was given.
    """
    ep.functional.check_rows("out", out)
    return _combine(ep.number, FORWARD, out, received.topk_idx, received.topk_weights,
                    received.sources, received.ticket)


class MoeLayer:
    """A whole layer with Octet's own weights: config, load and load_model are octet.MoeLayer's."""

    def __init__(self, node: Node, *, name: str = "", **config):
        self.node = node
        self.layer = _layer.MoeLayer(node.node, name=name, **config)
        self.load, self.load_model = self.layer.load, self.layer.load_model
        self.config = self.layer.config
        self.number = node._add(self)


@torch.library.custom_op("octet::moe_layer", mutates_args=())
def _moe_layer(layer: int, x: torch.Tensor) -> torch.Tensor:
    of = _object(layer)
    _contiguous(x)
    y = torch.empty_like(x)
    of.node._call(x, lambda rank: lib.octet_layer_forward(of.layer._handle, rank, _pointer(x),
                                                          x.shape[0], _pointer(y)))
    return y


@_moe_layer.register_fake
def _(layer, x):
    return torch.empty_like(x)


def _no_gradient(ctx, dy):
    raise Unimplemented("moe_layer has no gradient, since its weights are Octet's: compose the layer "
                        "of dispatch, products and combine")


_moe_layer.register_autograd(_no_gradient)


def moe_layer(layer: MoeLayer, x: torch.Tensor) -> torch.Tensor:
    """layer(x) of a rank's tokens, [T][H] of the dtype: router, experts, shared experts."""
    tokens = x.shape[0] if x.dim() == 2 else 0
    check_array("x", x, layer.config["dtype"], (tokens, layer.config["hidden"]), "[T][H]")
    return _moe_layer(layer.number, x)
