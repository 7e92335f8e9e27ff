"""JAX's own exchange beside Octet's, called from JAX, in the same process: a table in µs.

    jax_contender.py LIBRARY [--tokens=1,128,4096] [--layer_tokens=1,128,8192] [--octet=OCTET]
                     [--json=FILE]

LIBRARY is liboctet.so for the GPUs of this machine; all of them take part. With --octet, a program
`octet`, its own times stand beside: perf and layer with --graph. Rows of the table:

    ragged         sort by expert, lax.ragged_all_to_all there and back
    padded         the same in blocks for each rank of 1.25 times an equal share, lax.all_to_all;
                   what is over is dropped
    octet          octet.jax.dispatch and combine; rows are copied into an array of XLA's
    octet captured the same with captured=True
    octet in place octet with dispatch's `into` (high_throughput only)
    octet graph    without JAX: octet.Graph from Python, and calls from Python in place of `call`

Columns: `loop`, a step in a lax.fori_loop of a program (five in its body), and `call`, a program of
one step that is called again and again without waiting. Each is the median of 5. GPUs that work
without a pause slow down: `octet graph` is what to compare the others with, not `octet layer`, which
rests. A step is a dispatch and a combine of BF16 rows, H 7168, E 256, K 8, uniform routing, experts
left out; or a whole layer of Qwen3-30B-A3B, where JAX's products are lax.ragged_dot, and a small
kernel that makes the next layer wait for this one.

XLA flags are those of the environment, and printed; without any, JAX's defaults.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "kernels" / "bindings" / "python"
sys.path.insert(0, str(PACKAGE))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("library")
    parser.add_argument("--tokens", default="1,128,4096")
    parser.add_argument("--layer_tokens", default="1,128,8192")
    parser.add_argument("--octet", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="", help="rows of the table, separated by commas")
    return parser.parse_args()


ARGS = arguments()
os.environ["OCTET_LIBRARY"] = os.path.abspath(ARGS.library)
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".6")
if "OCTET_JAX_LIBRARY" not in os.environ and (PACKAGE / "build_jax.py").exists():
    import build_jax
    path, problem = build_jax.build(tempfile.mkdtemp())
    if problem:
        sys.exit(problem)
    os.environ["OCTET_JAX_LIBRARY"] = str(path)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

import octet  # noqa: E402
import octet.jax  # noqa: E402

MESH = Mesh(np.array(jax.local_devices()), "x")
RANKS = len(jax.local_devices())
HIDDEN, EXPERTS, TOPK = 7168, 256, 8
QWEN = {"num_experts": 128, "topk": 8, "hidden": 2048, "intermediate": 768}
CAPACITY = 1.25
NODE = octet.jax.Node(MESH, "x")


def on_devices(array, spec=P("x")):
    return jax.device_put(array, NamedSharding(MESH, spec))


# ---- JAX's own exchange


def by_rank(ids, local):
    """Choices in the order of their ranks, and how many each rank gets."""
    to = ids.reshape(-1) // local
    order = jnp.argsort(to, stable=True)
    return order, jnp.bincount(to, length=RANKS).astype(jnp.int32)


def starts(sizes, axis=0):
    return (jnp.cumsum(sizes, axis) - sizes).astype(jnp.int32)


def ragged_exchange(x, ids, local):
    """Rows that the device's experts get, and a function that brings their outputs back by choice."""
    order, sizes = by_rank(ids, local)
    matrix = lax.all_gather(sizes, "x")                        # [from][to]
    me = lax.axis_index("x")
    choices = ids.size
    most = RANKS * choices
    send = x[order // ids.shape[1]]
    at_theirs = starts(matrix)[me]                             # where my rows begin at each rank
    received = lax.ragged_all_to_all(send, jnp.zeros((most, x.shape[1]), x.dtype), starts(sizes),
                                     sizes, at_theirs, matrix[:, me], axis_name="x")
    experts = lax.ragged_all_to_all(ids.reshape(-1)[order], jnp.full((most,), EXPERTS_OF_NOBODY),
                                    starts(sizes), sizes, at_theirs, matrix[:, me], axis_name="x")

    def back(out):
        mine = lax.ragged_all_to_all(out, jnp.zeros((choices, x.shape[1]), x.dtype),
                                     starts(matrix[:, me]), matrix[:, me],
                                     starts(matrix, 1)[:, me], sizes, axis_name="x")
        return jnp.zeros_like(mine).at[order].set(mine)
    return received, experts, back


EXPERTS_OF_NOBODY = np.int32(1 << 20)


def padded_exchange(x, ids, local):
    choices = ids.size
    block = max(int(-(-choices * CAPACITY // RANKS)), min(choices, 16))
    order, sizes = by_rank(ids, local)
    to = ids.reshape(-1)[order] // local
    place = jnp.arange(choices) - starts(sizes)[to]
    place = jnp.where(place < block, to * block + place, RANKS * block)
    send = jnp.zeros((RANKS * block, x.shape[1]), x.dtype).at[place].set(
        x[order // ids.shape[1]], mode="drop")
    expert = jnp.full((RANKS * block,), EXPERTS_OF_NOBODY).at[place].set(
        ids.reshape(-1)[order], mode="drop")
    exchange = functools.partial(lax.all_to_all, axis_name="x", split_axis=0, concat_axis=0,
                                 tiled=True)

    def back(out):
        mine = exchange(out)
        rows = jnp.take(mine, jnp.minimum(place, RANKS * block - 1), axis=0)
        rows = jnp.where((place < RANKS * block)[:, None], rows, 0)
        return jnp.zeros_like(rows).at[order].set(rows)
    return exchange(send), exchange(expert), back


def weighted(rows, weights):
    choices = rows.reshape(*weights.shape, rows.shape[1]).astype(jnp.float32)
    return jnp.sum(choices * weights[:, :, None], axis=1).astype(rows.dtype)


def exchanged(exchange):
    def step(x, ids, weights):
        received, _, back = exchange(x, ids, EXPERTS // RANKS)
        return weighted(back(received), weights)
    return step


def jax_layer(exchange):
    def step(x, router, gate_up, down):
        local = QWEN["num_experts"] // RANKS
        logits = (x @ router.T).astype(jnp.float32)
        weights, ids = lax.top_k(jax.nn.softmax(logits, axis=-1), QWEN["topk"])
        weights = weights / weights.sum(axis=-1, keepdims=True)
        received, experts, back = exchange(x, ids, local)
        mine = jnp.where(experts < EXPERTS_OF_NOBODY, experts - lax.axis_index("x") * local, local)
        order = jnp.argsort(mine, stable=True)
        sizes = jnp.bincount(mine, length=local + 1)[:local].astype(jnp.int32)
        rows = lax.ragged_dot(received[order], gate_up, sizes)
        gate, up = jnp.split(rows, 2, axis=1)
        out = lax.ragged_dot(jax.nn.silu(gate) * up, down, sizes)
        return weighted(back(jnp.zeros_like(out).at[order].set(out)), weights)
    return step


# ---- times


def median_us(run, steps):
    run()
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        run()
        taken.append((time.perf_counter() - begin) / steps)
    return 1e6 * statistics.median(taken)


UNROLLED = 5


def times(step, first, others, carried=None):
    """loop and call, in µs, of first = step(first, *others); with `carried`, of a pair of both."""
    if carried is None:
        body, state = (lambda s, *o: (step(s[0], *o),)), (first,)
    else:
        body, state = (lambda s, *o: step(*s, *o)), (first, carried)
    specs = (P("x"),) * len(state)

    def compiled(function):
        return jax.jit(jax.shard_map(function, mesh=MESH, in_specs=(specs,) + (P("x"),) *
                                     len(others), out_specs=specs, check_vma=False),
                       donate_argnums=0)

    once = compiled(body)
    held = [jax.block_until_ready(once(state, *others))]

    def run_calls(count):
        for _ in range(count):
            held[0] = once(held[0], *others)
        jax.block_until_ready(held[0])

    begin = time.perf_counter()
    run_calls(2)
    one = (time.perf_counter() - begin) / 2
    loops = max(1, min(40, int(0.1 / one / UNROLLED)))

    def unrolled(_, state, *others):
        for _ in range(UNROLLED):
            state = body(state, *others)
        return state

    looped = compiled(lambda state, *others: lax.fori_loop(
        0, loops, lambda i, s: unrolled(i, s, *others), state))

    def run_loop():
        held[0] = jax.block_until_ready(looped(held[0], *others))

    steps = loops * UNROLLED
    return median_us(run_loop, steps), median_us(lambda: run_calls(steps), steps)


def tokens_of(tokens, hidden, experts, topk):
    random = np.random.default_rng(1)
    total = RANKS * tokens
    x = jnp.asarray(random.standard_normal((total, hidden), np.float32), jnp.bfloat16)
    ids = np.argpartition(random.random((total, experts)), topk, axis=1)[:, :topk]
    weights = np.full((total, topk), 1 / topk, np.float32)
    return [np.asarray(x), ids.astype(np.int32), weights]


def replayed(rank, step, counts):
    """A step without JAX, in µs: as octet.Graph, and called again and again. `counts` is a list that
    the ranks share: how often they all make the step."""
    def several(call):
        def run():
            rank.synchronize()
            begin = time.perf_counter()
            call()
            rank.synchronize()
            return time.perf_counter() - begin

        run()
        once = run()
        if rank.rank == 0:
            counts.append(max(5, min(200, int(0.1 / once))))
        rank.barrier()
        count = counts[-1]
        taken = []
        for _ in range(5):
            rank.synchronize()
            rank.barrier()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            rank.synchronize()
            taken.append((time.perf_counter() - begin) / count)
        return 1e6 * statistics.median(taken)

    called = several(step)
    graph = octet.Graph(rank, step)
    return several(lambda: graph.launch(rank)), called


def exchange_graph(tokens, x, ids, weights):
    with octet.Node(RANKS) as node:
        ep = octet.ExpertParallel(node, num_experts=EXPERTS, topk=TOPK, hidden=HIDDEN,
                                  max_tokens_per_rank=tokens)
        part = [slice(rank * tokens, (rank + 1) * tokens) for rank in range(RANKS)]
        arrays = [(node.array(r, x[part[r]].view(np.uint16), "bfloat16"),
                   node.array(r, ids[part[r]]), node.array(r, weights[part[r]]),
                   node.empty(r, (ep.expert_out_rows, HIDDEN), "bfloat16"),
                   node.empty(r, (tokens, HIDDEN), "bfloat16")) for r in range(RANKS)]

        counts = []

        def body(rank):
            x, ids, weights, out, y = arrays[rank.rank]
            return replayed(rank, lambda: ep.combine(rank, ep.dispatch(rank, x, ids, weights), out,
                                                     y), counts)
        return max(node.run(body))


def layer_graph(tokens, x, weights):
    with octet.Node(RANKS) as node:
        layer = octet.MoeLayer(node, router_normalize=True, max_tokens_per_rank=tokens, **QWEN)
        layer.load(**weights)
        arrays = [(node.array(r, x[r * tokens:(r + 1) * tokens].view(np.uint16), "bfloat16"),
                   node.empty(r, (tokens, QWEN["hidden"]), "bfloat16")) for r in range(RANKS)]
        counts = []
        return max(node.run(lambda rank: replayed(
            rank, lambda: layer.forward(rank, *arrays[rank.rank]), counts)))


def wanted(name):
    return not ARGS.only or name in ARGS.only.split(",")


def exchange_rows(tokens):
    x, ids, weights = tokens_of(tokens, HIDDEN, EXPERTS, TOPK)
    others = [on_devices(ids), on_devices(weights)]
    rows = {}

    def add(name, step, carried=None):
        if not wanted(name):
            return
        try:
            rows[name] = times(step, on_devices(x), others, carried)
        except Exception as error:  # pylint: disable=broad-except
            rows[name] = (str(error).split("\n", maxsplit=1)[0][:200], "")
        print(f"dispatch + combine, T {tokens}: {name}: {rows[name]}", flush=True)

    def of(strategy, captured=False):
        ep = octet.jax.ExpertParallel(NODE, num_experts=EXPERTS, topk=TOPK, hidden=HIDDEN,
                                      max_tokens_per_rank=tokens, strategy=strategy,
                                      captured=captured)

        def step(x, ids, weights):
            received = octet.jax.dispatch(ep, x, ids, weights)
            return octet.jax.combine(ep, received, received.x)

        def in_place(x, rows, ids, weights):
            received = octet.jax.dispatch(ep, x, ids, weights, into=rows)
            return octet.jax.combine(ep, received, received.x), received.x
        return ep, step, in_place

    add("octet", of("auto")[1])
    add("octet captured", of("auto", True)[1])
    if tokens > 1024:
        ep, _, in_place = of("high_throughput")
        add("octet in place", in_place, carried=ep.rows_buffer())
    add("padded", exchanged(padded_exchange))
    add("ragged", exchanged(ragged_exchange))
    if wanted("octet graph"):
        NODE.settle()
        rows["octet graph"] = exchange_graph(tokens, x, ids, weights)
    return rows


def layer_rows(tokens):
    random = np.random.default_rng(2)
    experts, hidden, inner = QWEN["num_experts"], QWEN["hidden"], QWEN["intermediate"]
    x = on_devices(np.asarray(jnp.asarray(
        random.standard_normal((RANKS * tokens, hidden), np.float32), jnp.bfloat16)))

    def matrix(*shape):
        return (shape[-1] ** -0.5 * random.standard_normal(shape, np.float32)).astype(np.float16)

    router = matrix(experts, hidden)
    expert = {"gate": matrix(inner, hidden), "up": matrix(inner, hidden),
              "down": matrix(hidden, inner)}
    rows = {}

    def add(name, layer, others=()):
        if not wanted(name):
            return

        def step(x, *others):  # the same tokens each time: others would all choose the same experts
            return x.at[0, 0].add(0 * layer(x, *others)[0, 0])

        try:
            rows[name] = times(step, x + 0, others)
        except Exception as error:  # pylint: disable=broad-except
            rows[name] = (str(error).split("\n", maxsplit=1)[0][:200], "")
        print(f"layer, T {tokens}: {name}: {rows[name]}", flush=True)

    for name, captured in {"octet": False, "octet captured": True}.items():
        if not wanted(name):
            continue
        layer = octet.jax.MoeLayer(NODE, captured=captured, router_normalize=True,
                                   max_tokens_per_rank=tokens, **QWEN)
        layer.load(router=router, experts=[expert] * experts)
        add(name, functools.partial(octet.jax.moe_layer, layer))
    if wanted("padded") or wanted("ragged"):
        gate_up = np.concatenate([expert["gate"].T, expert["up"].T], axis=1)

        def of_all(matrix, count):  # the same for all, made on the devices
            matrix = jnp.asarray(matrix, jnp.bfloat16)
            return jax.jit(lambda: jnp.tile(matrix[None], (count, 1, 1)),
                           out_shardings=NamedSharding(MESH, P("x")))()
        others = [of_all(router, RANKS).reshape(-1, hidden), of_all(gate_up, experts),
                  of_all(expert["down"].T, experts)]
        add("padded", jax_layer(padded_exchange), others)
        add("ragged", jax_layer(ragged_exchange), others)
    if wanted("octet graph"):
        NODE.settle()
        rows["octet graph"] = layer_graph(tokens, np.asarray(x), {
            "router": router, "experts": [expert] * experts})
        print(f"layer, T {tokens}: octet graph: {rows['octet graph']}", flush=True)
    return rows


def native(command):
    """Output of a command of octet's, which says what it measures."""
    done = subprocess.run([ARGS.octet, *command, f"--ranks={RANKS}"], capture_output=True,
                          text=True, check=False)
    return done.stdout + done.stderr


def main():
    cards = sorted({re.sub(r"\s+", " ", device.device_kind) for device in jax.local_devices()})
    print(f"{RANKS} GPUs, {', '.join(cards)}; JAX {jax.__version__}; "
          f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}")
    table = []
    for what, tokens, rows in (("dispatch + combine", ARGS.tokens, exchange_rows),
                               ("Qwen3-30B layer", ARGS.layer_tokens, layer_rows)):
        for each in filter(None, tokens.split(",")):
            table += [(what, int(each), name, *values) for name, values in rows(int(each)).items()]
    NODE.settle()
    print("\n| | T | | loop, µs | call, µs |\n|---|---|---|---|---|")
    for *names, loop, call in table:
        values = (f"{value:.1f}" if isinstance(value, float) else value for value in (loop, call))
        print("| " + " | ".join(map(str, [*names, *values])) + " |")
    if ARGS.json:
        pathlib.Path(ARGS.json).write_text(json.dumps(table, indent=1), encoding="utf-8")
    if ARGS.octet:
        for each in filter(None, ARGS.tokens.split(",")):
            print(native(["perf", f"--experts={EXPERTS}", f"--topk={TOPK}", f"--hidden={HIDDEN}",
                          f"--begin={each}", "--graph"]))
        for each in filter(None, ARGS.layer_tokens.split(",")):
            print(native(["layer", "--family=qwen3_moe", f"--tokens={each}", "--graph"]))


if __name__ == "__main__":
    main()
