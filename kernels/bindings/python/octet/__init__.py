"""Octet: Mixture-of-Experts layers over the GPUs of a node, all of them in this process.

    import octet

    with octet.Node(num_ranks=8) as node:
        ep = octet.ExpertParallel(node, num_experts=256, topk=8, hidden=7168,
                                  max_tokens_per_rank=256)

        def step(rank):                                   # on each rank's own thread
            received = ep.dispatch(rank, x[rank.rank], ids[rank.rank], weights[rank.rank])
            my_experts(rank.stream, received, out[rank.rank])
            ep.combine(rank, received, out[rank.rank], y[rank.rank])

        node.run(step)

Arrays are those of any library with DLPack (torch, JAX, CuPy; NumPy on emulated GPUs) in memory of
the rank's GPU, or octet.Array. Nothing is copied. Errors are octet.Error and its subclasses.
"""

from ._array import Array
from ._domain import Domain, Graph, Node, Rank, World
from ._errors import (Aborted, Cancelled, DataLoss, DeadlineExceeded, Error, FailedPrecondition,
                      Failure, Internal, InvalidArgument, NotFound, ResourceExhausted, Unavailable,
                      Unimplemented)
from ._experts import ExpertParallel, GroupedGemm, Received, RoutedExperts
from ._layer import ModelFolder, MoeLayer
from ._library import PLATFORM, VERSION
from ._placement import Loads, plan_moves, plan_placement

__version__ = VERSION
__all__ = [
    "PLATFORM", "VERSION", "Aborted", "Array", "Cancelled", "DataLoss", "DeadlineExceeded",
    "Domain", "Error", "ExpertParallel", "FailedPrecondition", "Failure", "Graph", "GroupedGemm",
    "Internal", "InvalidArgument", "Loads", "ModelFolder", "MoeLayer", "Node", "NotFound", "Rank",
    "Received", "ResourceExhausted", "RoutedExperts", "Unavailable", "Unimplemented", "World",
    "plan_moves", "plan_placement",
]
