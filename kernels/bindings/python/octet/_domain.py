"""Node and World, their ranks, memory and graphs."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, List, Optional, Sequence, Union

from . import _abi
from ._array import Array, size_of
from ._errors import Error, FailedPrecondition
from ._library import check, fail, last_error, lib, value_of

_NANOSECONDS = 1e9


def _nanoseconds(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)


class _Memory:
    """Owned memory of a GPU: freed when nothing uses it, after a run that is in progress."""

    def __init__(self, handle):
        self.handle = handle

    def __del__(self):
        lib.octet_memory_destroy(self.handle)


class Rank:
    """One rank in a run. Use it only in the function that Domain.run has given it to.

    rank        its number, 0 .. local_ranks - 1
    device      the GPU, as CUDA and HIP count
    stream      the stream that Octet enqueues on, as a number: torch.cuda.ExternalStream(stream)
    """

    def __init__(self, domain: Domain, handle: int):
        info = _abi.octet_rank_info()
        check(lib.octet_rank_get_info(handle, ctypes.byref(info)))
        self.domain = domain
        self.handle = handle
        self.rank: int = info.rank
        self.device: int = info.device
        self.stream: int = info.stream or 0
        self._kept: List[Any] = []

    def __repr__(self) -> str:
        return f"octet.Rank({self.rank})"

    def _keep(self, array) -> None:
        """What is enqueued uses the array: it must live until that has been done."""
        self._kept.append(array)

    def barrier(self, before: str = "") -> None:
        """Waits on the host for all ranks; errors name `before`."""
        check(lib.octet_rank_barrier(self.handle, before.encode()))

    def synchronize(self) -> None:
        """Waits until all work on the rank's stream is done."""
        check(lib.octet_rank_synchronize(self.handle))
        self._kept.clear()

    def empty(self, shape: Union[int, Sequence[int]], dtype: str) -> Array:
        """Memory of this rank's GPU; see Domain.empty."""
        return self.domain.empty(self.rank, shape, dtype)


class Graph:
    """What a function has enqueued on a rank, to be launched again: octet/graph.h."""

    def __init__(self, rank: Rank, enqueue: Callable[[], None]):
        """Calls `enqueue` once, without executing what it enqueues. All ranks together."""
        errors: List[BaseException] = []
        before, rank._kept = rank._kept, []

        @_abi.octet_function
        def call(_user):
            return _returned(enqueue, errors)

        handle = ctypes.c_void_p()
        try:
            code = lib.octet_graph_capture(rank.handle, call, None, ctypes.byref(handle))
        finally:
            self._arrays, rank._kept = rank._kept, before
        _raise(code, errors)
        self._handle = handle

    def launch(self, rank: Rank) -> None:
        """Enqueues it on the rank that has captured it. All ranks together."""
        check(lib.octet_graph_launch(self._handle, rank.handle))
        rank._keep(self)

    def __del__(self):
        if getattr(self, "_handle", None):
            lib.octet_graph_destroy(self._handle)


def _returned(function: Callable[[], Any], errors: List[BaseException]) -> int:
    """The code of a call of a function of Python's."""
    try:
        function()
        return _abi.OCTET_OK
    except Error as error:
        errors.append(error)
        return fail(error.code, error.message)
    except BaseException as error:  # pylint: disable=broad-except
        errors.append(error)
        return fail(_abi.OCTET_UNKNOWN, f"{type(error).__name__}: {error}")


def _raise(code: int, errors: List[BaseException]) -> None:
    """Raises what a run has failed with: the library's sentence, and what an exception of Python's
    was about as its cause."""
    if code == _abi.OCTET_OK:
        return
    error = last_error(code)
    for each in errors:
        if not isinstance(each, Exception):
            raise each  # KeyboardInterrupt, SystemExit
    cause = next((each for each in errors if not isinstance(each, Error)), None)
    raise error from cause


class Domain:
    """The ranks that make calls together: those of a Node, or of a World."""

    def __init__(self, handle, on_failure):
        self._handle = handle
        self._on_failure = on_failure  # the library calls it
        info = _abi.octet_domain_info()
        check(lib.octet_domain_get_info(handle, ctypes.byref(info)))
        self.num_ranks: int = info.num_ranks
        self.num_nodes: int = info.num_nodes
        self.node_index: int = info.node_index
        self.local_ranks: int = info.local_ranks
        self.timeout: float = info.timeout_ns / _NANOSECONDS
        self._running = threading.local()
        self.devices: List[int] = self.run(lambda rank: rank.device)  # [local_ranks]

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Ends the ranks' threads. Objects and arrays that were made on it may be used up later."""
        if self._handle is not None:
            check(lib.octet_domain_destroy(self._handle))
            self._handle = None

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            lib.octet_domain_destroy(self._handle)

    @property
    def handle(self):
        if self._handle is None:
            raise FailedPrecondition("the node or world has been closed")
        return self._handle

    def run(self, function: Callable[[Rank], Any]) -> List[Any]:
        """Calls function(rank) on every rank's thread at once; returns the results by rank.

        Waits for all of them and for all that they have enqueued. If one fails, the others are
        released from what they wait for, and the cause is raised: an octet.Error with the sentence,
        whose __cause__ is the exception of Python's, if it was one. The next run is then correct.
        """
        results: List[Any] = [None] * self.local_ranks
        errors: List[BaseException] = []
        kept: List[Rank] = []  # what is enqueued may use the arrays until the run has ended

        @_abi.octet_rank_function
        def body(handle, _user):
            def call():
                rank = Rank(self, handle)
                kept.append(rank)
                self._running.rank = rank
                try:
                    results[rank.rank] = function(rank)
                finally:
                    self._running.rank = None
            return _returned(call, errors)

        _raise(lib.octet_domain_run(self.handle, body, None), errors)
        return results

    def call(self, rank: int, stream: int, function: Callable[[Rank], Any]) -> Any:
        """Calls function(rank) on this thread, of a node of Node.adopt; returns its result.

        stream  the stream of the rank's GPU that it enqueues on, as a number, such as
                torch.cuda.current_stream().cuda_stream

        Does not wait for what has been enqueued. Each rank needs a thread of its own, since ranks
        wait for each other: a call in a call of another rank raises FailedPrecondition. Arrays of
        other libraries must live until the stream has come to what uses them, as with calls of
        these libraries. After an error of any rank, settle() comes first.
        """
        results: List[Any] = []
        errors: List[BaseException] = []

        @_abi.octet_rank_function
        def body(handle, _user):
            def call():
                of = Rank(self, handle)
                self._running.rank = of
                try:
                    results.append(function(of))
                finally:
                    self._running.rank = None
            return _returned(call, errors)

        _raise(lib.octet_domain_call(self.handle, rank, stream, body, None), errors)
        return results[0]

    def settle(self) -> None:
        """Waits for all that calls have enqueued; raises the cause of a failure, after which the
        next call is correct. When all ranks have made the same calls and none is in one."""
        check(lib.octet_domain_settle(self.handle))

    def empty(self, rank: int, shape: Union[int, Sequence[int]], dtype: str) -> Array:
        """An Array of memory of a rank's GPU, not initialised.

        dtype: "float16", "bfloat16", "float32", "int32", "uint8" and so on. In a run, call it
        before anything is enqueued.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        array = Array(self, rank, 0, shape, dtype, None)
        handle = ctypes.c_void_p()
        check(lib.octet_memory_create(self.handle, rank, array.nbytes, ctypes.byref(handle)))
        array._owner = _Memory(handle)
        array.pointer = lib.octet_memory_data(handle)
        return array

    def array(self, rank: int, values, dtype: Optional[str] = None) -> Array:
        """An Array with a copy of `values`, an array of NumPy or what has its interface.

        dtype: that of `values`; or "bfloat16" of the bits in values of uint16.
        """
        import numpy  # pylint: disable=import-outside-toplevel
        values = numpy.ascontiguousarray(values)
        dtype = dtype or values.dtype.name
        if size_of(dtype) != values.dtype.itemsize:
            raise TypeError(f"elements of {values.dtype.name} cannot be those of {dtype}")
        array = self.empty(rank, values.shape, dtype)
        array.copy_from(values.reshape(-1).view(numpy.uint8))
        return array

    def _copy(self, rank: int, to: int, source: int, size: int) -> None:
        running = getattr(self._running, "rank", None)
        if running is None:
            check(lib.octet_copy(self.handle, rank, to, source, size))
        elif running.rank != rank:
            raise FailedPrecondition(
                f"memory of rank {rank} cannot be copied on the thread of rank {running.rank}")
        else:
            check(lib.octet_rank_copy(running.handle, to, source, size))

    def _settle(self, rank: int, stream: Optional[int]) -> None:
        """Before memory is given to another library, which uses it on `stream`."""
        running = getattr(self._running, "rank", None)
        if running is not None and running.rank == rank and stream != running.stream:
            check(lib.octet_rank_synchronize(running.handle))


def _options(num_ranks, timeout, pin_threads, on_failure):
    callback = _abi.octet_failure_function()
    if callable(on_failure):
        @_abi.octet_failure_function
        def callback(code, message, _user):
            on_failure(last_error_of(code, message))
    options = _abi.octet_node_options(
        num_ranks=num_ranks, no_pinned_threads=not pin_threads, timeout_ns=_nanoseconds(timeout),
        on_failure=callback, quiet=on_failure is None)
    return options, callback


def last_error_of(code: int, message: bytes) -> Error:
    from ._errors import error_of  # pylint: disable=import-outside-toplevel
    return error_of(code, message.decode(errors="replace"), None)


class Node(Domain):
    """All GPUs of this machine in this process: one thread per rank.

        with octet.Node(num_ranks=8) as node:
            node.run(function)

    num_ranks    0: all GPUs
    timeout      seconds of a wait on a GPU; 0: OCTET_TIMEOUT_MS, else 10
    pin_threads  binds each rank's thread to the CPUs near its GPU
    on_failure   called with an octet.Error at the first failure of a run, perhaps long before
                 run() raises; "print": one line to stderr; None: nothing
    """

    def __init__(self, num_ranks: int = 0, *, timeout: float = 0.0, pin_threads: bool = True,
                 on_failure: Union[None, str, Callable[[Error], None]] = "print"):
        options, callback = _options(num_ranks, timeout, pin_threads, on_failure)
        handle = ctypes.c_void_p()
        check(lib.octet_node_create(ctypes.byref(options), ctypes.byref(handle)))
        super().__init__(handle, callback)

    @classmethod
    def adopt(cls, devices: Sequence[int], *, timeout: float = 0.0, pin_threads: bool = True,
              on_failure: Union[None, str, Callable[[Error], None]] = "print") -> Node:
        """A node for a program with threads and streams of its own, which uses call().

        devices  the ranks' GPUs, as CUDA and HIP count, in the order of the ranks
        """
        options, callback = _options(0, timeout, pin_threads, on_failure)
        numbers = (ctypes.c_int32 * len(devices))(*devices)
        handle = ctypes.c_void_p()
        check(lib.octet_node_adopt(numbers, len(devices), ctypes.byref(options),
                                   ctypes.byref(handle)))
        node = cls.__new__(cls)
        Domain.__init__(node, handle, callback)
        return node


class World(Domain):
    """Several nodes, a process each, joined by MPI: docs/several_nodes.md. Calls are collective.

    Needs liboctet_mpi.so: set OCTET_LIBRARY to its path before `import octet`.

    arrival_timeout  seconds that a call waits for all processes; 0: one minute
    transport        "auto", "mpi" or "nccl"
    """

    def __init__(self, num_ranks: int = 0, *, timeout: float = 0.0, arrival_timeout: float = 0.0,
                 transport: str = "auto", pin_threads: bool = True,
                 on_failure: Union[None, str, Callable[[Error], None]] = "print"):
        node, callback = _options(num_ranks, timeout, pin_threads, on_failure)
        options = _abi.octet_world_options(
            node=ctypes.pointer(node), arrival_timeout_ns=_nanoseconds(arrival_timeout),
            transport=value_of("rail_transport", transport))
        handle = ctypes.c_void_p()
        check(lib.octet_world_create(ctypes.byref(options), ctypes.byref(handle)))
        super().__init__(handle, callback)
