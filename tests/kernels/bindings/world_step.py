"""A process of several: a step in Python over a world of two nodes, with NumPy as the oracle.

    world_step.py LIBRARY

Prints what world_step.c prints.
"""

import sys

from python_step import EXPERTS, HIDDEN, RANKS, TOKENS, TOPK, Step

import numpy as np

import octet

LOCAL_RANKS = RANKS // 2


def say(line):
    """Prints the line at once: print() without a buffer writes its end later, and so another process
    can come between."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main():
    with octet.World(LOCAL_RANKS, on_failure=None) as world:
        assert (world.num_ranks, world.num_nodes) == (RANKS, 2), (world.num_ranks, world.num_nodes)
        first = world.node_index * LOCAL_RANKS
        step = Step(4)
        ep = octet.ExpertParallel(world, num_experts=EXPERTS, topk=TOPK, hidden=HIDDEN,
                                  dtype="float16", max_tokens_per_rank=TOKENS)
        arrays = [(world.array(local, step.x[first + local]),
                   world.array(local, step.ids[first + local]),
                   world.array(local, step.weights[first + local]),
                   world.empty(local, (TOKENS, HIDDEN), "float16"))
                  for local in range(LOCAL_RANKS)]

        def body(rank):
            x, ids, weights, y = arrays[rank.rank]
            received = ep.dispatch(rank, x, ids, weights)
            ep.combine(rank, received, received.x, y)

        def fail(rank):
            if world.node_index == 0 and rank.rank == 1:
                raise ValueError("this rank gives up")
            body(rank)

        def check():
            world.run(body)
            want = step.expected(lambda _, row: row)
            for local, (*_, y) in enumerate(arrays):
                np.testing.assert_allclose(y.numpy(), want[first + local], rtol=0.01, atol=0.02)

        check()
        say(f"process {world.node_index} of {world.num_nodes}: y is x")
        try:
            world.run(fail)
        except octet.Error as error:
            say(f"process {world.node_index}: {error}")
        else:
            raise AssertionError("a rank has failed, and the run has not")
        check()


if __name__ == "__main__":
    main()
