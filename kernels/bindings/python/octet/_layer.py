"""MoeLayer and ModelFolder."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import _abi
from ._array import BITS, pointer
from ._domain import Domain, Rank
from ._errors import InvalidArgument, Unimplemented
from ._experts import config_of, short_dtype
from ._library import check, fill, flat_placement, lib, placement_of
from ._placement import Loads, Placement, loads_of

LAYER_KINDS = {"dtype": "dtype", "weights": "gemm_format", "path": "layer_path",
               "strategy": "strategy", "fusion": "fusion", "shared_experts": "shared_experts",
               "router_scores": "router_scores", "router_group_score": "group_score"}
_TENSOR_TYPES = {"float32": _abi.OCTET_TENSOR_FLOAT32, "float16": _abi.OCTET_TENSOR_FLOAT16,
                 "uint16": _abi.OCTET_TENSOR_BFLOAT16, "bfloat16": _abi.OCTET_TENSOR_BFLOAT16}
_NAMES = {number: name for name, number in _TENSOR_TYPES.items() if name != "bfloat16"}
_TENSORS = {
    "router": _abi.OCTET_ROUTER, "router_bias": _abi.OCTET_ROUTER_BIAS,
    "gate": _abi.OCTET_EXPERT_GATE, "up": _abi.OCTET_EXPERT_UP, "down": _abi.OCTET_EXPERT_DOWN,
    "shared_gate": _abi.OCTET_SHARED_EXPERT_GATE, "shared_up": _abi.OCTET_SHARED_EXPERT_UP,
    "shared_down": _abi.OCTET_SHARED_EXPERT_DOWN, "gate_of_shared": _abi.OCTET_SHARED_GATE,
    "logit_bias": _abi.OCTET_LOGIT_BIAS, "gate_bias": _abi.OCTET_EXPERT_GATE_BIAS,
    "up_bias": _abi.OCTET_EXPERT_UP_BIAS, "down_bias": _abi.OCTET_EXPERT_DOWN_BIAS,
}
_MATRICES = {"gate", "up", "down", "gate_bias", "up_bias", "down_bias"}


class ModelFolder:
    """A folder with config.json and *.safetensors: octet/model_folder.h.

    family      config.json's model_type
    num_layers  of the model
    """

    def __init__(self, folder: str):
        self._handle = ctypes.c_void_p()
        check(lib.octet_model_open(str(folder).encode(), ctypes.byref(self._handle)))
        self.family: str = lib.octet_model_family(self._handle).decode()
        count = ctypes.c_int32()
        check(lib.octet_model_num_layers(self._handle, ctypes.byref(count)))
        self.num_layers: int = count.value

    def __del__(self):
        lib.octet_model_destroy(getattr(self, "_handle", None))

    def layer_config(self, layer: int) -> Dict[str, Any]:
        """The configuration of a layer for MoeLayer, to which max_tokens_per_rank is to be added."""
        struct = _abi.octet_layer_config()
        check(lib.octet_model_layer_config(self._handle, layer, ctypes.byref(struct)))
        return config_of(struct, LAYER_KINDS)

    def tensor(self, layer: int, name: str, expert: int = 0):
        """A copy of one tensor as an array of NumPy, bfloat16 as its bits; None: there is none.

        name: "router", "router_bias", "logit_bias"; "gate", "up", "down" of an expert and their
        "gate_bias", "up_bias", "down_bias"; "shared_gate", "shared_up", "shared_down", and
        "gate_of_shared", the gate of all shared experts.
        """
        import numpy  # pylint: disable=import-outside-toplevel
        if name not in _TENSORS:
            raise InvalidArgument(f"'{name}' is not one of {', '.join(_TENSORS)}")
        found = _abi.octet_tensor()
        check(lib.octet_model_tensor(self._handle, layer, _TENSORS[name], expert,
                                     ctypes.byref(found)))
        if not found.data:
            return None
        if found.type not in _NAMES:
            raise Unimplemented(f"'{name}' is of FP8, MXFP4 or INT4, which NumPy has no type for")
        dtype = numpy.dtype(_NAMES[found.type])
        # Elements from a row to the next one, and from a column to the next one.
        row, column = (1, found.column_pitch) if found.column_pitch else (found.columns, 1)
        row *= found.row_step
        elements = (found.rows - 1) * row + (found.columns - 1) * column + 1
        return numpy.ndarray((found.rows, found.columns), dtype,
                             ctypes.string_at(found.data, elements * dtype.itemsize),
                             strides=(row * dtype.itemsize, column * dtype.itemsize)).copy()


class _Tensors:
    """Structs of weights, with all that they point to."""

    def __init__(self) -> None:
        self._kept: List[Any] = []

    def of(self, values, what: str):
        """A matrix of NumPy's: float32, float16, or uint16 as the bits of bfloat16."""
        import numpy  # pylint: disable=import-outside-toplevel
        if values is None:
            return None
        values = numpy.ascontiguousarray(values)
        if values.ndim == 1:
            values = values.reshape(1, -1)
        if values.ndim != 2 or values.dtype.name not in _TENSOR_TYPES:
            raise InvalidArgument(
                f"{what} is of {values.dtype.name} and shape {values.shape}, and must be a matrix "
                f"of {', '.join(_TENSOR_TYPES)}")
        tensor = _abi.octet_tensor(type=_TENSOR_TYPES[values.dtype.name], rows=values.shape[0],
                                   columns=values.shape[1], data=values.ctypes.data)
        self._kept += [values, tensor]
        return ctypes.pointer(tensor)

    def mlp(self, values: Optional[Mapping[str, Any]], what: str):
        if values is None:
            return None
        unknown = set(values) - _MATRICES
        if unknown:
            raise InvalidArgument(f"{what} has {', '.join(sorted(unknown))}; it has gate, up, down "
                                  "and their biases, gate_bias, up_bias, down_bias")
        return _abi.octet_mlp_weights(
            **{name: self.of(matrix, f"{what}.{name}") for name, matrix in values.items()})


class MoeLayer:
    """A whole layer: router, experts, shared experts (octet/moe_layer.h).

    config: num_experts, topk, hidden, intermediate and max_tokens_per_rank are required; the others
    are those of octet_layer_config, by their names: dtype="float16", path="decode",
    router_normalize=True ... and placement=[[0, 3, -1], [1, 2, -1]], the experts in the slots of
    each rank. Not in a run.

        layer = octet.MoeLayer(node, **model.layer_config(0), max_tokens_per_rank=256)
    """

    def __init__(self, domain: Domain, *, name: str = "", **config):
        struct = fill(_abi.octet_layer_config(), short_dtype(config), LAYER_KINDS, "MoeLayer")
        options = _abi.octet_layer_options(name=name.encode() if name else None)
        self._handle = ctypes.c_void_p()
        check(lib.octet_layer_create(domain.handle, ctypes.byref(struct), ctypes.byref(options),
                                     ctypes.byref(self._handle)))
        made = _abi.octet_layer_config()
        check(lib.octet_layer_get_config(self._handle, ctypes.byref(made)))
        self.config: Dict[str, Any] = config_of(made, LAYER_KINDS,
                                                domain.num_ranks)  # with every choice made
        self._kinds = BITS[self.config["dtype"]]

    def __del__(self):
        lib.octet_layer_destroy(getattr(self, "_handle", None))

    def load(self, *, router, experts: Sequence[Mapping[str, Any]], shared=None, router_bias=None,
             shared_gate=None, logit_bias=None) -> None:
        """Converts weights, arrays of NumPy in host memory, and copies them to the GPUs.

        router       [E][H], float32, float16, or uint16 as the bits of bfloat16; so are all
        experts      E mappings with "gate" and "up", [I][H], and "down", [H][I]; with the member
                     expert_biases also "gate_bias" and "up_bias", [I], and "down_bias", [H]
        shared       such a mapping of the shared experts; router_bias: [E]; shared_gate: [H]
        logit_bias   [E], with the member logit_bias
        """
        tensors = _Tensors()
        mlps = [tensors.mlp(each, f"experts[{index}]") for index, each in enumerate(experts)]
        array = (_abi.octet_mlp_weights * len(mlps))(*mlps)
        shared_mlp = tensors.mlp(shared, "shared")
        weights = _abi.octet_layer_weights(
            router=tensors.of(router, "router"), router_bias=tensors.of(router_bias, "router_bias"),
            experts=array, num_experts=len(mlps),
            shared=ctypes.pointer(shared_mlp) if shared_mlp is not None else None,
            shared_gate=tensors.of(shared_gate, "shared_gate"),
            logit_bias=tensors.of(logit_bias, "logit_bias"))
        check(lib.octet_layer_load(self._handle, ctypes.byref(weights)))

    def load_model(self, model: ModelFolder, layer: int) -> None:
        """The same with the weights of a layer of a model folder."""
        check(lib.octet_layer_load_model(self._handle, model._handle, layer))

    def forward(self, rank: Rank, x, y, *, num_tokens=None) -> None:
        """y = layer(x), enqueued. All ranks call it.

        x, y        [T][H] of the dtype, memory of the rank's GPU, apart from each other
        num_tokens  T, if the arrays have more rows; or an array [1] of int32 in GPU memory, which
                    counts when the call is executed (config["path"] == "decode")
        """
        shape = ("T", self.config["hidden"])
        x_pointer = pointer(x, "x", rank, self._kinds, shape)
        y_pointer = pointer(y, "y", rank, self._kinds, shape)
        if num_tokens is None or isinstance(num_tokens, int):
            count = x.shape[0] if num_tokens is None else num_tokens
            check(lib.octet_layer_forward(self._handle, rank.handle, x_pointer, count, y_pointer))
        else:
            count = pointer(num_tokens, "num_tokens", rank, "int32", (1,))
            check(lib.octet_layer_forward_counted(self._handle, rank.handle, x_pointer, count,
                                                  y_pointer))
        rank._keep(self)

    def loads(self) -> Loads:
        """The rows of each expert, with the member count_loads. Any thread, also during a run."""
        return loads_of(lib.octet_layer_loads, self._handle, self.config["num_experts"])

    def prepare(self, rank: Rank, placement: Placement, *, max_blocks: int = 0) -> None:
        """Begins to copy experts to where `placement` has them; calls go on by the one in force.

        All ranks call it with an equal placement, and then apply(), from which on the rank's calls
        go by it. octet.plan_moves has the placements between two. max_blocks: 0: the copy engines
        make the copies.
        """
        slots, count = flat_placement(placement, "prepare")
        check(lib.octet_layer_prepare(self._handle, rank.handle, slots, count, max_blocks))
        rank._keep(self)

    def apply(self, rank: Rank) -> None:
        """Makes the rank's later calls go by the placement of the last prepare()."""
        check(lib.octet_layer_apply(self._handle, rank.handle))
        rank._keep(self)

    def placement_of(self, rank: Rank) -> Optional[Placement]:
        """The placement by which the rank's next call goes; None: the layer has none."""
        first = self.config["placement"]
        if first is None:
            return None
        slots = len(first[0])
        flat = (ctypes.c_int32 * (len(first) * slots))()
        check(lib.octet_layer_get_placement(self._handle, rank.handle, flat))
        return placement_of(flat, len(first), slots)
