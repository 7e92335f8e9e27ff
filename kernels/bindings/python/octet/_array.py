"""Memory of the GPUs as arrays, which cross to other libraries and back by DLPack, uncopied."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Dict, Optional, Tuple

from ._errors import FailedPrecondition, InvalidArgument
from ._library import PLATFORM

# Names, and DLPack's type codes and bits.
DTYPES: Dict[str, Tuple[int, int]] = {
    "int8": (0, 8), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32),
    "float16": (2, 16), "float32": (2, 32), "bfloat16": (4, 16),
}
_NAMES = {code: name for name, code in DTYPES.items()}
# Bits stand for elements that the array library has no name for.
BITS = {"bfloat16": ("bfloat16", "uint16"), "float16": ("float16", "uint16")}

_CPU, _CUDA, _CUDA_HOST, _ROCM, _ROCM_HOST = 1, 2, 3, 10, 11
# Emulated GPUs have memory that the host, and so NumPy, can use.
_DEVICE_TYPE = {"emulation": _CPU, "nvidia": _CUDA, "amd": _ROCM}[PLATFORM]


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
                ("dtype", _DType), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

# Functions of the interpreter, with types of our own: those of ctypes.pythonapi are anybody's, and
# JAX sets some.
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p,
                                 ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))

_NEW = b"dltensor"

# Exported tensors by address: they live until their consumer calls the deleter.
_exported: Dict[int, Tuple[Any, ...]] = {}


@_Deleter
def _delete(managed):
    _exported.pop(ctypes.addressof(managed.contents), None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy_capsule(address):
    # PyCapsule's destructor gets the capsule itself, which must not be made a reference to.
    if _is_valid(address, _NEW):  # nobody has taken it
        _exported.pop(_pointer_of(address, _NEW), None)


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def size_of(dtype: str) -> int:
    """Bytes of an element."""
    if dtype not in DTYPES:
        raise InvalidArgument(f"dtype '{dtype}' is not one of {', '.join(DTYPES)}")
    return DTYPES[dtype][1] // 8


class Array:
    """Memory of one rank's GPU: `shape`, `dtype` (a name), `rank`, row-major.

    Made by Node.empty and Node.array, or a view of memory of Octet's, such as Received.x. Other
    libraries take it without a copy: torch.from_dlpack(array), jax.dlpack.from_dlpack(array),
    cupy.from_dlpack(array). On emulated GPUs numpy.asarray(array) and numpy.from_dlpack(array).
    """

    def __init__(self, node, rank: int, pointer: int, shape: Tuple[int, ...], dtype: str, owner):
        self.node = node
        self.rank = rank
        self.pointer = pointer
        self.shape = tuple(shape)
        self.dtype = dtype
        self._owner = owner  # keeps the memory

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * size_of(self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"octet.Array(shape={self.shape}, dtype={self.dtype!r}, rank={self.rank})"

    def view(self, dtype: str, shape: Optional[Tuple[int, ...]] = None) -> Array:
        """The same memory as elements of another dtype, in as many bytes or fewer."""
        if shape is None:
            shape = (*self.shape[:-1], self.shape[-1] * size_of(self.dtype) // size_of(dtype))
        view = Array(self.node, self.rank, self.pointer, shape, dtype, self)
        if view.nbytes > self.nbytes:
            raise InvalidArgument(f"{view} does not fit into {self}")
        return view

    def copy_from(self, values) -> None:
        """Copies from host memory: an object with the buffer protocol, of as many bytes."""
        data = memoryview(values).cast("B")
        if data.nbytes != self.nbytes:
            raise InvalidArgument(f"{data.nbytes} bytes for {self.nbytes} bytes of {self}")
        source = (ctypes.c_char * data.nbytes).from_buffer_copy(data)
        self.node._copy(self.rank, self.pointer, ctypes.addressof(source), self.nbytes)

    def tobytes(self) -> bytes:
        """A copy in host memory."""
        target = (ctypes.c_char * max(self.nbytes, 1))()
        self.node._copy(self.rank, ctypes.addressof(target), self.pointer, self.nbytes)
        return target.raw[:self.nbytes]

    def numpy(self):
        """A copy as an array of NumPy; bfloat16 becomes its bits, uint16."""
        import numpy  # pylint: disable=import-outside-toplevel
        dtype = "uint16" if self.dtype == "bfloat16" else self.dtype
        return numpy.frombuffer(self.tobytes(), dtype).reshape(self.shape).copy()

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        """For numpy.asarray(array): the memory itself, which may be written. Emulated GPUs only."""
        if _DEVICE_TYPE != _CPU:
            raise AttributeError("memory of a GPU is no memory of the host: numpy() copies it")
        self.node._settle(self.rank, None)
        code, bits = DTYPES["uint16" if self.dtype == "bfloat16" else self.dtype]
        return {"version": 3, "shape": self.shape, "data": (self.pointer, False),
                "typestr": f"{'|' if bits == 8 else '<'}{'iuf'[code]}{bits // 8}"}

    def __dlpack_device__(self) -> Tuple[int, int]:
        device = 0 if _DEVICE_TYPE == _CPU else self.node.devices[self.rank]
        return (_DEVICE_TYPE, device)

    def __dlpack__(self, *, stream: Optional[int] = None, max_version=None, dl_device=None,
                   copy: Optional[bool] = None):
        """A capsule with the memory itself. Inside a run, waits for the rank's stream first."""
        if copy:
            raise BufferError("octet.Array gives its memory without a copy only")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on device {self.__dlpack_device__()}")
        if stream != -1:
            self.node._settle(self.rank, stream)
        shape = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        managed = _Managed()
        managed.tensor = _Tensor(
            data=self.pointer, device=_Device(*self.__dlpack_device__()), ndim=len(self.shape),
            dtype=_DType(*DTYPES[self.dtype], 1), shape=shape, byte_offset=0)
        managed.deleter = _delete
        address = ctypes.addressof(managed)
        _exported[address] = (managed, shape, self)
        return _new_capsule(address, _NEW, ctypes.cast(_destroy_capsule, ctypes.c_void_p))


class Imported:
    """Another library's memory: pointer, shape, dtype; keeps it as long as it lives."""

    __slots__ = ("pointer", "shape", "dtype", "_capsule", "_object")

    def __init__(self, obj, capsule, tensor: _Tensor, what: str):
        code = (tensor.dtype.code, tensor.dtype.bits)
        if tensor.dtype.lanes != 1 or code not in _NAMES:
            raise InvalidArgument(
                f"{what} has elements of DLPack's type {code}, which Octet does not know")
        self.pointer = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.dtype = _NAMES[code]
        stride = 1
        for axis in reversed(range(tensor.ndim)):
            if tensor.strides and self.shape[axis] > 1 and tensor.strides[axis] != stride:
                raise InvalidArgument(f"{what} is not contiguous: make it so before the call")
            stride *= self.shape[axis]
        # The capsule stays as it is: its destructor gives the tensor back.
        self._capsule = capsule
        self._object = obj


def imported(obj, what: str, rank):
    """`obj` as an Array or Imported, on the GPU of the Rank `rank`."""
    if isinstance(obj, (Array, Imported)):
        return obj
    if not hasattr(obj, "__dlpack__"):
        raise InvalidArgument(
            f"{what} is a {type(obj).__name__}, which has no __dlpack__: give an octet.Array or an "
            "array on the rank's GPU")
    kind, device = obj.__dlpack_device__()
    if kind != _DEVICE_TYPE or (kind != _CPU and device != rank.device):
        raise InvalidArgument(
            f"{what} is on DLPack's device {(int(kind), device)}, and the GPU of rank {rank.rank} "
            f"is {(_DEVICE_TYPE, 0 if _DEVICE_TYPE == _CPU else rank.device)}")
    capsule = obj.__dlpack__() if kind == _CPU else obj.__dlpack__(stream=rank.stream)
    if not _capsule_is_valid(capsule, _NEW):
        raise InvalidArgument(f"{what}: its __dlpack__ has returned no capsule '{_NEW.decode()}'")
    managed = ctypes.cast(_capsule_pointer(capsule, _NEW), ctypes.POINTER(_Managed))
    return Imported(obj, capsule, managed.contents.tensor, what)


def pointer(obj, what: str, rank, dtypes, shape) -> Optional[int]:
    """The memory of an argument, or None. `shape` has numbers, and names of what may be any."""
    if obj is None:
        return None
    array = imported(obj, what, rank)
    if isinstance(array, Array) and array.pointer is None:
        raise FailedPrecondition(f"{what}: its memory is no more")
    expected = dtypes if isinstance(dtypes, tuple) else (dtypes,)
    if array.dtype not in expected:
        raise InvalidArgument(f"{what} is of {array.dtype}, and must be of {' or '.join(expected)}")
    if shape is not None and not (len(array.shape) == len(shape) and all(
            isinstance(want, str) or have == want for have, want in zip(array.shape, shape))):
        wanted = "".join(f"[{axis}]" for axis in shape)
        raise InvalidArgument(f"{what} has the shape {array.shape}, and must be {wanted}")
    rank._keep(array)
    return array.pointer
