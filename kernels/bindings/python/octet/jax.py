"""Octet in programs of JAX: dispatch, combine, grouped products and layers under jit and shard_map.

    import jax, octet.jax
    from jax.sharding import Mesh, PartitionSpec as P

    mesh = Mesh(jax.local_devices(), "x")
    node = octet.jax.Node(mesh, "x")
    ep = octet.jax.ExpertParallel(node, num_experts=256, topk=8, hidden=7168,
                                  max_tokens_per_rank=4096)

    def moe(x, topk_idx, topk_weights, w):                # of one device
        received = octet.jax.dispatch(ep, x, topk_idx, topk_weights)
        out = my_experts(received, w)                     # [max_rows][H], as received.x
        return octet.jax.combine(ep, received, out)

    moe = jax.jit(jax.shard_map(moe, mesh=mesh, in_specs=P("x"), out_specs=P("x")))

All devices are in this process, each with XLA's own thread and stream. Shapes are static: max_rows
rows for any routing, and counts on the device. Errors of shapes, dtypes and meshes are raised when
a program is traced, those of a run when its results are awaited; Node.settle then says the cause.
docs/bindings.md has what works under which transformation.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pathlib
import weakref
from typing import Any, List, NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from . import _domain, _experts, _layer
from ._errors import FailedPrecondition, InvalidArgument, Unimplemented
from ._functional import BACKWARD, FORWARD, Functional, check_array
from ._library import PLATFORM, lib

__all__ = ["ExpertParallel", "GroupedGemm", "MoeLayer", "Node", "Received", "combine", "dispatch",
           "grouped_gemm", "moe_layer"]


def _load() -> ctypes.CDLL:
    """The handlers of XLA's FFI: kernels/bindings/jax, built where JAX is installed."""
    if PLATFORM == "emulation":
        raise ImportError("octet.jax needs a liboctet for GPUs, and this one emulates them: set "
                          "OCTET_LIBRARY to another")
    named = os.environ.get("OCTET_JAX_LIBRARY")
    package = pathlib.Path(__file__).resolve().parent
    files = [named] if named else [package / "liboctet_jax.so", package.parents[2] /
                                   "liboctet_jax.so"]
    found = next((str(file) for file in files if os.path.exists(file)), None)
    if found is None:
        raise ImportError(
            "liboctet_jax.so is missing: octet has been installed where JAX was not; install it "
            "again with JAX there, or set OCTET_JAX_LIBRARY to the file that "
            "kernels/bindings/python/build_jax.py builds")
    handlers = ctypes.CDLL(found)
    handlers.octet_jax_use.restype = ctypes.c_char_p
    handlers.octet_jax_use.argtypes = [ctypes.c_void_p]
    handlers.octet_jax_add.restype = ctypes.c_int64
    handlers.octet_jax_add.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
                                       ctypes.POINTER(ctypes.c_int32), ctypes.c_int32]
    handlers.octet_jax_remove.restype = None
    handlers.octet_jax_remove.argtypes = [ctypes.c_int64]
    missing = handlers.octet_jax_use(lib._handle)
    if missing:
        raise ImportError(f"liboctet has no {missing.decode()}: liboctet_jax.so is of a later "
                          "version of Octet")
    for name in ["dispatch", "dispatch_captured", "combine", "combine_captured", "layer",
                 "layer_captured", "gemm"]:
        jax.ffi.register_ffi_target(f"octet_jax_{name}",
                                    jax.ffi.pycapsule(getattr(handlers, f"octet_jax_{name}")),
                                    platform={"nvidia": "CUDA", "amd": "ROCM"}[PLATFORM])
    return handlers


_handlers = _load()


class Node:
    """The devices of a mesh's axis, as the ranks of a node of Octet's.

    mesh     of this process' GPUs, each of them once; `axis` is its only axis of more than one
    timeout  seconds of a wait on a GPU; 0: OCTET_TIMEOUT_MS, else 10
    """

    def __init__(self, mesh: jax.sharding.Mesh, axis: str, *, timeout: float = 0.0,
                 on_failure: Any = "print"):
        if axis not in mesh.shape:
            raise InvalidArgument(f"the mesh has no axis '{axis}'; it has "
                                  f"{', '.join(map(str, mesh.axis_names))}")
        devices = list(mesh.devices.flat)
        if len(devices) != mesh.shape[axis]:
            raise InvalidArgument(
                f"axis '{axis}' has {mesh.shape[axis]} of the mesh's {len(devices)} devices; the "
                "ranks of a node are all of them: use a mesh of one axis")
        local = jax.local_devices()
        for device in devices:
            if device not in local or device.platform != "gpu":
                raise InvalidArgument(f"{device} is no GPU of this process")
        self.mesh, self.axis = mesh, axis
        self.num_ranks = len(devices)
        self._ordinals = [device.local_hardware_id for device in devices]
        self.node = _domain.Node.adopt(self._ordinals, timeout=timeout, on_failure=on_failure)
        self._checked: weakref.WeakSet = weakref.WeakSet()

    def settle(self) -> None:
        """Waits for all that programs have enqueued, and raises the cause of a failure, after which
        the next program is correct. When no program of this node is running: await their results,
        or errors, first."""
        self.node.settle()
        for functional in self._checked:
            functional.check()

    def _register(self, handles: List[Any]) -> int:
        """The number by which programs name an object, of which rank r has handles[r]."""
        count = self.num_ranks
        number = _handlers.octet_jax_add(
            self.node.handle, (ctypes.c_void_p * count)(*handles),
            (ctypes.c_int32 * count)(*self._ordinals), count)
        if number < 0:
            raise InvalidArgument("octet.jax knows devices 0 to 63 only")
        return number

    def _check_axis(self, what: str) -> None:
        """Raises unless a program for one device of the axis is being traced."""
        try:
            size = lax.axis_size(self.axis)
        except NameError:
            if self.num_ranks == 1:
                return
            raise InvalidArgument(
                f"{what} is a call of each device: make it in a function that jax.shard_map maps "
                f"over axis '{self.axis}'") from None
        if size != self.num_ranks:
            raise InvalidArgument(f"{what} is mapped over {size} devices of axis '{self.axis}', and "
                                  f"the node has {self.num_ranks} ranks")


class _Registered:
    """An object that programs name by a number."""

    node: Node
    _number: int

    def __del__(self, remove=_handlers.octet_jax_remove):  # at the interpreter's end, too
        if getattr(self, "_number", None) is not None:
            remove(self._number)


def _varying(array) -> frozenset:
    """The axes over whose devices an array may differ, as far as shard_map checks that."""
    of = jax.typeof(array)
    manual = getattr(of, "manual_axis_type", None)
    return frozenset(getattr(of, "vma", ()) if manual is None else manual.varying)


def _call(node: Node, target: str, operands, results, *, aliases=None, **attributes):
    """A call of a handler; `results` are shapes and dtypes."""
    axes = [_varying(array) for array in operands]
    if any(axes):  # under shard_map's checks all operands must be alike
        operands = [array if node.axis in of else lax.pcast(array, node.axis, to="varying")
                    for array, of in zip(operands, axes)]
    made = jax.ffi.ffi_call(target, tuple(jax.ShapeDtypeStruct(*each) for each in results),
                            input_output_aliases=aliases)(
        *operands, **{name: np.int64(value) for name, value in attributes.items()})
    if any(axes):
        made = tuple(lax.pcast(array, node.axis, to="varying") for array in made)
    return made


# ---- dispatch and combine


class Received(NamedTuple):
    """What a dispatch has delivered to a device: arrays, which may be stored and carried.

    x               [max_rows][H], the rows expert by expert; zeros behind the last one
    expert_counts   [L] of int32, rows of each local expert: group_sizes of jax.lax.ragged_dot
    expert_offsets  [L + 1] of int32, first row of each expert; the last is the number of rows
    sources         [max_rows][4] of int32: rank, token, k, local expert; -1 behind the last row
    row_weights     [max_rows] of float32, 0 behind the last row; None unless high_throughput. A
                    constant for jax.grad
    topk_idx, topk_weights, ticket   for combine
    """

    x: jax.Array
    expert_counts: jax.Array
    expert_offsets: jax.Array
    sources: jax.Array
    row_weights: Optional[jax.Array]
    topk_idx: jax.Array
    topk_weights: Optional[jax.Array]
    ticket: jax.Array


class ExpertParallel(_Registered):
    """Dispatch and combine over the devices of a Node: config is that of octet.ExpertParallel.

    jax.grad needs strategy="high_throughput". Make it outside of functions that are traced.

    captured  XLA may capture the calls into command buffers, and replay them without Octet, so that
              the host's time for them falls away. See MoeLayer
    """

    def __init__(self, node: Node, *, name: str = "", captured: bool = False, **config):
        self.node = node
        self._kind = "_captured" if captured else ""
        self.functional = Functional(node.node, name, config)
        node._checked.add(self.functional)
        self.max_rows = self.functional.max_rows
        self.local_experts = self.functional.local_experts
        self.config = self.functional.config
        self._number = node._register([self.functional.handle] * node.num_ranks)
        self._lent = False

    def rows_buffer(self) -> jax.Array:
        """The memory where rows arrive, [ranks · max_rows][H] over the axis, for dispatch's `into`.

        Once for an object. Donate it to each program (donate_argnums), which returns received.x, and
        give that to the next.
        """
        node = self.node
        arrays = [self.functional.rows(rank) for rank in range(node.num_ranks)]
        if self._lent or any(array is None for array in arrays):
            raise FailedPrecondition(
                "the memory of rows has been given away: give received.x of the last program to the "
                "next" if self._lent else
                f"rows of {self.config['strategy']} do not always arrive in the same memory")
        self._lent = True
        return jax.make_array_from_single_device_arrays(
            (node.num_ranks * self.max_rows, self.functional.hidden),
            NamedSharding(node.mesh, PartitionSpec(node.axis)),
            [jax.dlpack.from_dlpack(array) for array in arrays])


def _none() -> jax.Array:
    return jnp.zeros((0,), jnp.float32)


def _dispatch_call(ep: ExpertParallel, line: int, x, topk_idx, topk_weights, into=None):
    functional = ep.functional
    operands = [x, topk_idx, _none() if topk_weights is None else topk_weights]
    if into is not None:
        operands.append(into)
    rows, local = ep.max_rows, ep.local_experts
    results = [((rows, functional.hidden), x.dtype), ((local,), jnp.int32),
               ((local + 1,), jnp.int32), ((rows, 4), jnp.int32),
               ((rows if functional.high_throughput else 0,), jnp.float32), ((2,), jnp.float32)]
    return _call(ep.node, "octet_jax_dispatch" + ep._kind, operands, results,
                 aliases=None if into is None else {3: 0}, object=ep._number, line=line,
                 zero_rest=into is None)


def _combine_call(ep: ExpertParallel, line: int, out, topk_idx, topk_weights, ticket):
    weights = _none() if topk_weights is None else topk_weights
    return _call(ep.node, "octet_jax_combine" + ep._kind, [out, topk_idx, weights, ticket],
                 [((topk_idx.shape[0], ep.functional.hidden), out.dtype)], object=ep._number,
                 line=line, unweighted=line == BACKWARD)[0]


def _check_gradient(ep: ExpertParallel) -> None:
    if not ep.functional.high_throughput:
        raise Unimplemented(
            f"gradients of dispatch and combine need strategy='high_throughput', and the "
            f"ExpertParallel has {ep.config['strategy']}")


# Differentiable in x. The cotangent of the ticket is the ticket of the dispatch that combine's
# backward pass has made: the rows' cotangents lie as that one's rows.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _dispatch(ep, x, topk_idx, topk_weights):
    return _dispatch_call(ep, FORWARD, x, topk_idx, topk_weights)


def _dispatch_forward(ep, x, topk_idx, topk_weights):
    _check_gradient(ep)
    return _dispatch_call(ep, FORWARD, x, topk_idx, topk_weights), (topk_idx, topk_weights)


def _dispatch_backward(ep, residuals, cotangents):
    topk_idx, topk_weights = residuals
    dx = _combine_call(ep, BACKWARD, cotangents[0], topk_idx, topk_weights, cotangents[5])
    return dx, None, None


_dispatch.defvjp(_dispatch_forward, _dispatch_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _combine(ep, out, topk_idx, topk_weights, ticket):
    return _combine_call(ep, FORWARD, out, topk_idx, topk_weights, ticket)


def _combine_forward(ep, out, topk_idx, topk_weights, ticket):
    _check_gradient(ep)
    y = _combine_call(ep, FORWARD, out, topk_idx, topk_weights, ticket)
    return y, (None if topk_weights is None else out, topk_idx, topk_weights)


def _combine_backward(ep, residuals, dy):
    out, topk_idx, topk_weights = residuals
    rows, _, _, sources, row_weights, ticket = _dispatch_call(ep, BACKWARD, dy, topk_idx,
                                                              topk_weights)
    if topk_weights is None:
        return rows, None, None, ticket
    rows = rows.astype(jnp.float32)
    d_out = (rows * row_weights[:, None]).astype(dy.dtype)
    d_weights = _to_sources(ep, jnp.sum(rows * out.astype(jnp.float32), axis=1), sources,
                            topk_idx.shape)
    # Other exchanges between ranks come before later calls: kernels of two libraries that wait for
    # other ranks must not wait for each other's place on a GPU.
    d_out, d_weights = lax.optimization_barrier((d_out, d_weights))
    return d_out, None, d_weights, ticket


_combine.defvjp(_combine_forward, _combine_backward)


def _to_sources(ep: ExpertParallel, values, sources, shape):
    """values[row] at the [token][k] of the rank that has sent the row."""
    tokens, topk = shape
    rank, token, choice, _ = jnp.moveaxis(sources, 1, 0)
    ranks = ep.node.num_ranks
    position = jnp.where(rank >= 0, (rank * tokens + token) * topk + choice, ranks * tokens * topk)
    at = jnp.zeros((ranks * tokens * topk,), jnp.float32).at[position].set(values, mode="drop")
    if ranks > 1:  # of each place one rank has the value
        at = lax.psum_scatter(at, ep.node.axis, scatter_dimension=0, tiled=True)
    return at.reshape(tokens, topk)


def dispatch(ep: ExpertParallel, x, topk_idx, topk_weights=None, *, into=None,
             after=None) -> Received:
    """Sends a device's tokens to the devices of their experts, and receives its experts' rows.

    x             [T][H] of the dtype
    topk_idx      [T][K] of int32: experts over all devices, -1 drops a choice
    topk_weights  [T][K] of float32, or None: all are 1
    into          a device's part of ep.rows_buffer(), or received.x of the dispatch before: rows
                  stay where they have arrived, and are not copied. Rows behind the last one are what
                  they were. Not differentiable
    after         an array that must be computed first: the result of the combine before, if nothing
                  else in the program says that this dispatch comes after it

    Differentiable in x. A combine is of the last dispatch before it: with another order XLA's
    program fails (FailedPrecondition), at the next call or in Node.settle.
    """
    ep.node._check_axis("octet.jax.dispatch")
    ep.functional.check_tokens(x, topk_idx, topk_weights)
    if after is not None:
        x, _ = lax.optimization_barrier((x, after))
    if into is None:
        results = _dispatch(ep, x, topk_idx, topk_weights)
    else:
        ep.functional.check_rows("into", into)
        results = _dispatch_call(ep, FORWARD, x, topk_idx, topk_weights, into)
    rows, counts, offsets, sources, row_weights, ticket = results
    return Received(rows, counts, offsets, sources,
                    lax.stop_gradient(row_weights) if ep.functional.high_throughput else None,
                    topk_idx, topk_weights, ticket)


def combine(ep: ExpertParallel, received: Received, out):
    """y[t] = Σ_k weight[t][k] · (output of choice k), in float32, rounded once: [T][H].

    out  [max_rows][H] of the dtype, each row where received.x has its row

    Differentiable in `out` and the weights that dispatch was given.
    """
    ep.node._check_axis("octet.jax.combine")
    ep.functional.check_rows("out", out)
    return _combine(ep, out, received.topk_idx, received.topk_weights, received.ticket)


# ---- products


class GroupedGemm(_Registered):
    """The products of a device's experts: config is that of octet.GroupedGemm, with `experts` of a
    device, n, k and max_rows. Make it outside of functions that are traced."""

    def __init__(self, node: Node, **config):
        self.node = node
        self._gemms = node.node.run(lambda rank: _experts.GroupedGemm(rank, **config))
        gemm = self._gemms[0]
        if gemm._kinds[0] not in ("bfloat16", "float16"):
            raise Unimplemented("octet.jax.grouped_gemm has elements of bfloat16 and float16")
        self.experts, self.n, self.k = gemm._shape
        self.dtype, self.out_dtype, self.columns = gemm._kinds[0], gemm._out[0], gemm._columns
        self.max_rows = config["max_rows"]
        self._number = node._register([each._handle for each in self._gemms])
        self._config = config
        self._transposed: Optional[GroupedGemm] = None
        if self.columns == self.n and self.out_dtype == self.dtype:
            with contextlib.suppress(InvalidArgument):  # of an n that no row can have
                backward = {**config, "n": self.k, "k": self.n}
                self._transposed = GroupedGemm._plain(node, backward)

    @classmethod
    def _plain(cls, node: Node, config) -> GroupedGemm:
        made = cls.__new__(cls)
        made.node = node
        made._gemms = node.node.run(lambda rank: _experts.GroupedGemm(rank, **config))
        made._number = node._register([each._handle for each in made._gemms])
        made.columns, made.out_dtype = config["n"], made._gemms[0]._out[0]
        return made


def _gemm_call(gemm: GroupedGemm, a, b, expert_offsets):
    return _call(gemm.node, "octet_jax_gemm", [a, b, expert_offsets],
                 [((a.shape[0], gemm.columns), gemm.out_dtype)], object=gemm._number)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _grouped_gemm(gemm, a, b, expert_offsets):
    return _gemm_call(gemm, a, b, expert_offsets)


def _gemm_forward(gemm, a, b, expert_offsets):
    if gemm._transposed is None:
        raise Unimplemented("gradients of grouped_gemm need a product without activation, and of "
                            "the dtype of its operands")
    return _gemm_call(gemm, a, b, expert_offsets), (a, b, expert_offsets)


def _gemm_backward(gemm, residuals, d_out):
    a, b, expert_offsets = residuals
    # The products' rows are those of experts; others are neither read nor written.
    rows = jnp.arange(a.shape[0])[:, None] < expert_offsets[-1]
    d_out = jnp.where(rows, d_out, 0)
    d_a = _gemm_call(gemm._transposed, d_out, jnp.swapaxes(b, 1, 2), expert_offsets)
    over_rows = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])
    d_b = lax.ragged_dot_general(d_out, jnp.where(rows, a, 0), jnp.diff(expert_offsets), over_rows,
                                 preferred_element_type=jnp.float32)
    return jnp.where(rows, d_a, 0).astype(a.dtype), d_b.astype(b.dtype), None


_grouped_gemm.defvjp(_gemm_forward, _gemm_backward)


def grouped_gemm(gemm: GroupedGemm, a, b, expert_offsets):
    """out[row] = a[row] · b[e]ᵀ for the rows of expert e: [max_rows][n], undefined behind the last.

    a               [max_rows][k] of the dtype: received.x
    b               [L][n][k] of the same
    expert_offsets  [L + 1] of int32

    Differentiable in a and b.
    """
    gemm.node._check_axis("octet.jax.grouped_gemm")
    check_array("a", a, gemm.dtype, (gemm.max_rows, gemm.k), "[max_rows][k]")
    check_array("b", b, gemm.dtype, (gemm.experts, gemm.n, gemm.k), "[L][n][k]")
    check_array("expert_offsets", expert_offsets, "int32", (gemm.experts + 1,), "[L + 1]")
    return _grouped_gemm(gemm, a, b, expert_offsets)


# ---- whole layers


class MoeLayer(_Registered):
    """A whole layer with Octet's own weights: config, load and load_model are octet.MoeLayer's.

    captured  XLA may capture the layer's calls into command buffers, and replay them without Octet.
              All devices must capture and replay together, as they do unless XLA finds a reason to
              capture anew on some of them only: then the call ends with DeadlineExceeded
    """

    def __init__(self, node: Node, *, name: str = "", captured: bool = False, **config):
        self.node = node
        self.layer = _layer.MoeLayer(node.node, name=name, **config)
        self.load, self.load_model = self.layer.load, self.layer.load_model
        self.config = self.layer.config
        self._target = "octet_jax_layer_captured" if captured else "octet_jax_layer"
        self._number = node._register([self.layer._handle] * node.num_ranks)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _moe_layer(layer, x):
    return _call(layer.node, layer._target, [x], [(x.shape, x.dtype)], object=layer._number)[0]


def _moe_layer_forward(layer, x):
    raise Unimplemented("moe_layer has no gradient, since its weights are Octet's: compose the layer "
                        "of dispatch, grouped_gemm and combine")


_moe_layer.defvjp(_moe_layer_forward, lambda layer, residuals, dy: (dy,))


def moe_layer(layer: MoeLayer, x):
    """layer(x) of a device's tokens, [T][H] of the dtype: router, experts, shared experts."""
    layer.node._check_axis("octet.jax.moe_layer")
    tokens = x.shape[0] if x.ndim == 2 else 0
    check_array("x", x, layer.config["dtype"], (tokens, layer.config["hidden"]), "[T][H]")
    most = layer.config["max_tokens_per_rank"]
    if tokens > most:
        raise InvalidArgument(f"x has {tokens} tokens of a device, and max_tokens_per_rank is {most}")
    return _moe_layer(layer, x)
