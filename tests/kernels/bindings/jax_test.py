"""octet.jax on the GPUs of this machine, with dense JAX as the oracle.

    jax_test.py LIBRARY [unittest arguments]

LIBRARY is liboctet.so of a build for these GPUs; OCTET_JAX_LIBRARY may name liboctet_jax.so, which
is built otherwise. Skipped where there is no JAX, or no GPU for it.
"""

import contextlib
import functools
import os
import pathlib
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = SOURCE / "kernels" / "bindings" / "python"
sys.dont_write_bytecode = True
sys.path.insert(0, str(PACKAGE))


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


if len(sys.argv) < 2:
    sys.exit("usage: jax_test.py LIBRARY [unittest arguments]")
os.environ["OCTET_LIBRARY"] = os.path.abspath(sys.argv.pop(1))
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".5")
try:
    import jax
except ImportError:
    skip("this Python has no JAX")
if jax.default_backend() != "gpu":
    skip("JAX has no GPU here")
if "OCTET_JAX_LIBRARY" not in os.environ:
    import build_jax
    library, problem = build_jax.build(tempfile.mkdtemp())
    if problem:
        skip(problem)
    os.environ["OCTET_JAX_LIBRARY"] = str(library)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

import octet  # noqa: E402

if octet.PLATFORM == "emulation":
    skip("this liboctet emulates GPUs")
import octet.jax  # noqa: E402

MESH = Mesh(np.array(jax.local_devices()), "x")
RANKS = len(jax.local_devices())
EXPERTS, TOPK, HIDDEN, TOKENS = 4 * RANKS, 3, 256, 40
LOCAL = EXPERTS // RANKS
NODE = octet.jax.Node(MESH, "x", timeout=5, on_failure=None)


def mapped(function, out_specs=P("x"), **options):
    return jax.shard_map(function, mesh=MESH, in_specs=P("x"), out_specs=out_specs, **options)


def on_devices(array):
    return jax.device_put(array, NamedSharding(MESH, P("x")))


def make(strategy="high_throughput", **config):
    return octet.jax.ExpertParallel(NODE, **{
        "num_experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN, "max_tokens_per_rank": TOKENS,
        "dtype": "bfloat16", "strategy": strategy, **config})


class Step:
    """Tokens, routing and experts' matrices of all ranks, drawn by a seed."""

    def __init__(self, seed=1):
        random = np.random.default_rng(seed)
        tokens = RANKS * TOKENS

        def values(*shape, scale=1.0):
            return on_devices(jnp.asarray(scale * random.standard_normal(shape), jnp.bfloat16))

        self.x = values(tokens, HIDDEN)
        ids = np.stack([random.permutation(EXPERTS)[:TOPK] for _ in range(tokens)])
        ids[0, 1] = -1  # dropped
        self.ids = on_devices(jnp.asarray(ids, jnp.int32))
        self.weights = on_devices(jnp.asarray(random.random((tokens, TOPK)), jnp.float32))
        self.w = values(EXPERTS, HIDDEN, HIDDEN, scale=HIDDEN ** -0.5)
        self.dy = values(tokens, HIDDEN)


def dense(x, ids, weights, w):
    """What dispatch, experts and combine compute, in float32."""
    outputs = jnp.einsum("th,ehi->tei", x.astype(jnp.float32), w.astype(jnp.float32))
    chosen = jnp.take_along_axis(outputs, jnp.maximum(ids, 0)[:, :, None], axis=1)
    return jnp.sum(jnp.where(ids >= 0, weights, 0)[:, :, None] * chosen, axis=1)


def by_octet(ep):
    def step(x, ids, weights, w):
        received = octet.jax.dispatch(ep, x, ids, weights)
        out = lax.ragged_dot(received.x, w, received.expert_counts)
        return octet.jax.combine(ep, received, out.astype(x.dtype))
    return step


def distance(value, reference):
    value, reference = (np.asarray(each).astype(np.float64) for each in (value, reference))
    return np.linalg.norm(value - reference) / max(np.linalg.norm(reference), 1e-30)


class NearTest(unittest.TestCase):
    def near(self, value, reference, limit=1e-2):
        self.assertEqual(value.shape, reference.shape)
        self.assertLess(distance(value, reference), limit)

    def settles(self, message):
        with self.assertRaisesRegex(octet.Error, message):
            NODE.settle()
        NODE.settle()


class CallsTest(NearTest):
    def test_calls_equal_the_dense_layer(self):
        for strategy in ["direct", "low_latency", "high_throughput"]:
            for checked in [True, False]:
                with self.subTest(strategy=strategy, check_vma=checked):
                    step, ep = Step(), make(strategy)
                    run = jax.jit(mapped(by_octet(ep), check_vma=checked))
                    for _ in range(3):
                        y = run(step.x, step.ids, step.weights, step.w)
                    self.near(y, dense(step.x, step.ids, step.weights, step.w))

    def test_rows_and_sources_say_where_they_are_from(self):
        step, ep = Step(), make()

        def rows(x, ids, weights):
            received = octet.jax.dispatch(ep, x, ids, weights)
            return (received.x, received.sources, received.row_weights,
                    received.expert_counts, received.expert_offsets)

        x, sources, weights, counts, offsets = map(np.asarray, jax.jit(mapped(rows))(
            step.x, step.ids, step.weights))
        ids = np.asarray(step.ids)
        self.assertEqual(counts.sum(), (ids >= 0).sum())
        for rank in range(RANKS):
            begin = rank * ep.max_rows
            total = offsets.reshape(RANKS, LOCAL + 1)[rank, -1]
            part = slice(begin, begin + total)
            where = sources[part, 0] * TOKENS + sources[part, 1]
            np.testing.assert_array_equal(x[part], np.asarray(step.x)[where])
            np.testing.assert_array_equal(
                weights[part], np.asarray(step.weights)[where, sources[part, 2]])
            np.testing.assert_array_equal(ids[where, sources[part, 2]],
                                          rank * LOCAL + sources[part, 3])
            rest = slice(begin + total, begin + ep.max_rows)
            self.assertTrue((sources[rest] == -1).all())
            self.assertTrue((x[rest] == 0).all() and (weights[rest] == 0).all())

    def test_gradients_equal_those_of_the_dense_layer(self):
        step, ep = Step(), make()

        def loss(layer):
            def of(x, weights, w, ids, dy):
                y = layer(x, ids, weights, w)
                return jnp.sum(y.astype(jnp.float32) * dy.astype(jnp.float32))
            return of

        reference = jax.grad(loss(dense), (0, 1, 2))(
            step.x.astype(jnp.float32), step.weights, step.w.astype(jnp.float32), step.ids, step.dy)
        for name, wrap in {"plain": lambda f: f, "checkpoint": jax.checkpoint}.items():
            with self.subTest(name):
                run = jax.jit(mapped(jax.grad(loss(wrap(by_octet(ep))), (0, 1, 2))))
                for _ in range(2):
                    gradients = run(step.x, step.weights, step.w, step.ids, step.dy)
                for value, expected in zip(gradients, reference):
                    self.near(value, expected, 2e-2)
        NODE.settle()

    def test_layers_in_a_scan(self):
        step, ep = Step(), make()
        layers = 3

        def network(layer):
            def run(x, ids, weights, ws, dy):
                def body(x, w):
                    return (x + layer(x, ids, weights, w).astype(x.dtype)), None
                y, _ = lax.scan(body, x, ws)
                return jnp.sum(y.astype(jnp.float32) * dy.astype(jnp.float32))
            return run

        ws = jnp.stack([step.w * (1 + i / 4) for i in range(layers)]).astype(jnp.bfloat16)
        arguments = [each.astype(jnp.float32) for each in (step.x, step.weights, ws)]
        expected = jax.grad(network(dense), (0, 2, 3))(
            arguments[0], step.ids, arguments[1], arguments[2], step.dy)
        for name, wrap in {"plain": lambda f: f, "checkpoint": jax.checkpoint}.items():
            with self.subTest(name):
                run = jax.jit(jax.shard_map(
                    jax.grad(network(wrap(by_octet(ep))), (0, 2, 3)), mesh=MESH,
                    in_specs=(P("x"), P("x"), P("x"), P(None, "x"), P("x")),
                    out_specs=(P("x"), P("x"), P(None, "x"))))
                gradients = run(step.x, step.ids, step.weights,
                                jax.device_put(ws, NamedSharding(MESH, P(None, "x"))), step.dy)
                for value, reference in zip(gradients, expected):
                    self.near(value, reference, 4e-2)
        NODE.settle()

    def test_captured_calls(self):
        for strategy in ["low_latency", "high_throughput"]:
            with self.subTest(strategy=strategy):
                step, ep = Step(), make(strategy, captured=True)

                def several(x, ids, weights, w, ep=ep):
                    for _ in range(4):
                        y = by_octet(ep)(x, ids, weights, w)
                        x = lax.optimization_barrier((x, y))[0]
                    return y

                run = jax.jit(mapped(several))
                for seed in [1, 2, 3, 1]:  # other memory and other routing each time
                    step = Step(seed)
                    y = run(step.x, step.ids, step.weights, step.w)
                    self.near(y, dense(step.x, step.ids, step.weights, step.w))
        NODE.settle()

    def test_a_thousand_steps_take_no_more_memory(self):
        step, ep = Step(), make("low_latency")
        run = jax.jit(mapped(by_octet(ep)))

        def used():
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
            return (max(device.memory_stats()["bytes_in_use"] for device in jax.local_devices()),
                    pages * os.sysconf("SC_PAGE_SIZE"))

        y = step.x
        before = None
        for i in range(1100):
            y = run(step.x, step.ids, step.weights, step.w)
            if i == 99:
                y.block_until_ready()
                before = used()
        y.block_until_ready()
        after = used()
        self.near(y, dense(step.x, step.ids, step.weights, step.w))
        self.assertLessEqual(after[0], before[0])
        self.assertLess(after[1] - before[1], 16 << 20)

    def test_rows_stay_where_they_arrive(self):
        step, ep = Step(), make()

        def layer(x, ids, weights, w, rows):
            received = octet.jax.dispatch(ep, x, ids, weights, into=rows)
            out = lax.ragged_dot(
                jnp.where(jnp.arange(ep.max_rows)[:, None] < received.expert_offsets[-1],
                          received.x, 0), w, received.expert_counts)
            return octet.jax.combine(ep, received, out.astype(x.dtype)), received.x

        run = jax.jit(mapped(layer, (P("x"), P("x"))), donate_argnums=4)
        rows = ep.rows_buffer()
        where = [shard.data.unsafe_buffer_pointer() for shard in rows.addressable_shards]
        for _ in range(3):
            y, rows = run(step.x, step.ids, step.weights, step.w, rows)
        self.near(y, dense(step.x, step.ids, step.weights, step.w))
        self.assertEqual(where, [shard.data.unsafe_buffer_pointer()
                                 for shard in rows.addressable_shards])
        with self.assertRaisesRegex(octet.FailedPrecondition, "has been given away"):
            ep.rows_buffer()
        copied = jax.jit(mapped(layer, (P("x"), P("x"))))  # not donated
        with self.assertRaisesRegex(Exception, "donate `into`|another rank has failed"):
            jax.block_until_ready(copied(step.x, step.ids, step.weights, step.w, rows))
        self.settles("donate `into`")
        y, rows = run(step.x, step.ids, step.weights, step.w, rows)
        self.near(y, dense(step.x, step.ids, step.weights, step.w))


class ProductsTest(NearTest):
    def test_products_and_their_gradients(self):
        step, ep = Step(), make()
        columns = 2 * HIDDEN
        gemm = octet.jax.GroupedGemm(NODE, experts=LOCAL, n=columns, k=HIDDEN,
                                     max_rows=ep.max_rows, dtype="bfloat16")
        random = np.random.default_rng(3)
        b = on_devices(jnp.asarray(HIDDEN ** -0.5 * random.standard_normal(
            (EXPERTS, columns, HIDDEN)), jnp.bfloat16))
        d_out = on_devices(jnp.asarray(random.standard_normal(
            (RANKS * ep.max_rows, columns)), jnp.bfloat16))

        def by_octets_product(x, ids, weights, b, d_out):
            received = octet.jax.dispatch(ep, x, ids, weights)
            rows = jnp.arange(ep.max_rows)[:, None] < received.expert_offsets[-1]
            a = received.x

            def out(a, b):
                return jnp.where(rows, octet.jax.grouped_gemm(gemm, a, b, received.expert_offsets),
                                 0)

            def ragged(a, b):
                return lax.ragged_dot(a.astype(jnp.float32), jnp.swapaxes(b, 1, 2).astype(
                    jnp.float32), received.expert_counts)

            ours, ours_back = jax.vjp(out, a, b)
            theirs, theirs_back = jax.vjp(ragged, a, b)
            return (ours, *ours_back(jnp.where(rows, d_out, 0))), (
                theirs, *theirs_back(jnp.where(rows, d_out, 0).astype(jnp.float32)))

        ours, theirs = jax.jit(mapped(by_octets_product))(step.x, step.ids, step.weights, b, d_out)
        for value, reference in zip(ours, theirs):
            self.near(value, reference)


class LayerTest(NearTest):
    INTERMEDIATE = 128

    def layer(self, **config):
        layer = octet.jax.MoeLayer(NODE, **{
            "num_experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN, "dtype": "bfloat16",
            "intermediate": self.INTERMEDIATE, "max_tokens_per_rank": TOKENS,
            "router_normalize": True, **config})
        random = np.random.default_rng(5)

        def matrix(rows, columns):
            return np.asarray(columns ** -0.5 * random.standard_normal((rows, columns)), np.float32)

        router = 4 * matrix(EXPERTS, HIDDEN)
        experts = [{"gate": matrix(self.INTERMEDIATE, HIDDEN), "up": matrix(
            self.INTERMEDIATE, HIDDEN), "down": matrix(HIDDEN, self.INTERMEDIATE)}
            for _ in range(EXPERTS)]
        layer.load(router=router, experts=experts)
        return layer, router, experts

    @staticmethod
    def reference(x, router, experts):
        x = jnp.asarray(np.asarray(x))  # on one device: top_k of a split array goes wrong in 0.11.2

        def rounded(values):
            return jnp.asarray(values).astype(jnp.bfloat16).astype(jnp.float32)

        x = x.astype(jnp.float32)
        scores, ids = lax.top_k(jax.nn.softmax(x @ rounded(router).T, axis=-1), TOPK)
        scores = scores / scores.sum(axis=-1, keepdims=True)
        gate, up, down = (rounded(np.stack([e[name] for e in experts]))
                          for name in ("gate", "up", "down"))
        h = jax.nn.silu(jnp.einsum("th,eih->tei", x, gate)) * jnp.einsum("th,eih->tei", x, up)
        outputs = jnp.einsum("tei,ehi->teh", rounded(h), down)
        return jnp.sum(scores[:, :, None] * jnp.take_along_axis(outputs, ids[:, :, None], axis=1),
                       axis=1)

    def test_a_layer(self):
        step = Step()
        for captured in [False, True]:
            with self.subTest(captured=captured), jax.default_matmul_precision("highest"):
                layer, router, experts = self.layer(captured=captured)
                moe = functools.partial(octet.jax.moe_layer, layer)

                def several(x):  # enough calls for XLA to capture them
                    for _ in range(6):
                        y = moe(x)
                        x = lax.optimization_barrier((x, y))[0]
                    return y

                run = jax.jit(mapped(several))
                for _ in range(4):
                    y = run(step.x)
                self.near(y, self.reference(step.x, router, experts), 2e-2)
        NODE.settle()

    def test_a_layer_has_no_gradient(self):
        layer, _, _ = self.layer()
        with self.assertRaisesRegex(octet.Unimplemented, "no gradient"):
            jax.jit(mapped(jax.grad(lambda x: octet.jax.moe_layer(layer, x).sum().astype(
                jnp.float32)))).lower(Step().x)


class ErrorsTest(NearTest):
    def traced(self, ep, message, x=None, ids=None, weights=None, error=octet.InvalidArgument):
        step = Step()
        with self.assertRaisesRegex(error, message):
            jax.jit(mapped(by_octet(ep))).lower(
                step.x if x is None else x, step.ids if ids is None else ids,
                step.weights if weights is None else weights, step.w)

    def test_mistakes_are_found_when_a_program_is_traced(self):
        ep, step = make(), Step()
        self.traced(ep, "x is of float32, and must be of bfloat16", x=step.x.astype(jnp.float32))
        self.traced(ep, "topk_idx is of float32", ids=step.weights)
        self.traced(ep, "x has the shape", x=step.x[:, :128])
        self.traced(ep, "topk_weights has the shape", weights=step.weights[:, :2])
        self.traced(ep, "max_tokens_per_rank is 40", x=jnp.tile(step.x, (2, 1)),
                    ids=jnp.tile(step.ids, (2, 1)), weights=jnp.tile(step.weights, (2, 1)))
        other = Mesh(np.array(jax.local_devices()), "y")
        if RANKS > 1:
            with self.assertRaisesRegex(octet.InvalidArgument, "maps over axis 'x'"):
                jax.jit(jax.shard_map(by_octet(ep), mesh=other, in_specs=P("y"),
                                      out_specs=P("y"))).lower(step.x, step.ids, step.weights,
                                                               step.w)
        with self.assertRaisesRegex(octet.InvalidArgument, "no axis 'x'"):
            octet.jax.Node(other, "x")

    def test_gradients_need_high_throughput(self):
        ep, step = make("low_latency"), Step()
        with self.assertRaisesRegex(octet.Unimplemented, "strategy='high_throughput'"):
            jax.jit(mapped(jax.grad(lambda *a: by_octet(ep)(*a).sum().astype(jnp.float32)))).lower(
                step.x, step.ids, step.weights, step.w)

    def test_a_rank_that_fails_is_an_exception(self):
        ep, step = make(), Step()
        run = jax.jit(mapped(by_octet(ep)))
        bad = on_devices(step.ids.at[-1, 0].set(EXPERTS))  # of the last rank
        with self.assertRaisesRegex(Exception, f"rank {RANKS - 1}|another rank has failed"):
            for _ in range(50):  # the kernel finds it, so that a later call says it
                jax.block_until_ready(run(step.x, bad, step.weights, step.w))
        self.settles(f"rank {RANKS - 1}")
        self.near(run(step.x, step.ids, step.weights, step.w),
                  dense(step.x, step.ids, step.weights, step.w))

    def test_a_combine_of_another_dispatch_is_an_error(self):
        ep, step = make(), Step()

        def crossed(x, ids, weights):
            first = octet.jax.dispatch(ep, x, ids, weights)
            second = octet.jax.dispatch(ep, x, ids, weights, after=first.ticket)
            y = octet.jax.combine(ep, first, first.x + 0 * second.x)
            return y + octet.jax.combine(ep, second, second.x)

        with contextlib.suppress(jax.errors.JaxRuntimeError):  # said by a later call, if any
            jax.block_until_ready(jax.jit(mapped(crossed))(
                step.x, step.ids, step.weights))
        self.settles("not of the last dispatch")

        def in_turn(x, ids, weights):
            first = octet.jax.dispatch(ep, x, ids, weights)
            y = octet.jax.combine(ep, first, first.x)
            second = octet.jax.dispatch(ep, x, ids, weights, after=y)
            return y + octet.jax.combine(ep, second, second.x)

        jax.block_until_ready(jax.jit(mapped(in_turn))(step.x, step.ids, step.weights))
        NODE.settle()


if __name__ == "__main__":
    unittest.main(verbosity=2)
