"""octet.torch on the GPUs of this machine, a thread for each, with dense PyTorch as the oracle.

    torch_test.py LIBRARY [unittest arguments]

LIBRARY is liboctet.so of a build for these GPUs. Skipped where there is no PyTorch, or no GPU.
"""

import concurrent.futures
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "kernels" / "bindings" / "python"))


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


if len(sys.argv) < 2:
    sys.exit("usage: torch_test.py LIBRARY [unittest arguments]")
os.environ["OCTET_LIBRARY"] = os.path.abspath(sys.argv.pop(1))
try:
    import torch
except ImportError:
    skip("this Python has no PyTorch")
if not torch.cuda.is_available():
    skip("PyTorch has no GPU here")

import octet  # noqa: E402

if octet.PLATFORM == "emulation":
    skip("this liboctet emulates GPUs")
import octet.torch  # noqa: E402

RANKS = torch.cuda.device_count()
EXPERTS, TOPK, HIDDEN, TOKENS = 4 * RANKS, 3, 256, 40
LOCAL = EXPERTS // RANKS
NODE = octet.torch.Node(range(RANKS), timeout=5, on_failure=None)
THREADS = concurrent.futures.ThreadPoolExecutor(RANKS)


def on_ranks(function):
    """function(rank) on a thread of each GPU; results by rank, or the first error."""
    def run(rank):
        torch.cuda.set_device(rank)
        return function(rank)
    futures = [THREADS.submit(run, rank) for rank in range(RANKS)]
    concurrent.futures.wait(futures)
    return [future.result() for future in futures]


def make(strategy="high_throughput"):
    return octet.torch.ExpertParallel(
        NODE, num_experts=EXPERTS, topk=TOPK, hidden=HIDDEN, max_tokens_per_rank=TOKENS,
        dtype="bfloat16", strategy=strategy)


class Step:
    """Tokens, routing and all experts' matrices, drawn by a seed; on the CPU."""

    def __init__(self, seed=1):
        random = torch.Generator().manual_seed(seed)
        tokens = RANKS * TOKENS
        self.x = torch.randn(tokens, HIDDEN, generator=random).bfloat16()
        self.ids = torch.rand(tokens, EXPERTS, generator=random).topk(TOPK).indices.int()
        self.ids[0, 1] = -1  # dropped
        self.weights = torch.rand(tokens, TOPK, generator=random)
        self.w = (torch.randn(EXPERTS, HIDDEN, HIDDEN, generator=random) / HIDDEN**.5).bfloat16()
        self.dy = torch.randn(tokens, HIDDEN, generator=random).bfloat16()

    def of(self, rank):
        """x, ids, weights, this rank's matrices and dy, on its GPU."""
        tokens = slice(rank * TOKENS, (rank + 1) * TOKENS)
        return [each.to(f"cuda:{rank}") for each in (
            self.x[tokens], self.ids[tokens], self.weights[tokens],
            self.w[rank * LOCAL:(rank + 1) * LOCAL], self.dy[tokens])]

    def dense(self):
        """y, and the gradients of x, weights and w, of all ranks in float32."""
        x, weights, w = (each.float().requires_grad_() for each in (self.x, self.weights, self.w))
        outputs = torch.einsum("th,ehi->tei", x, w)
        chosen = outputs.gather(1, self.ids.clamp(min=0).long()[:, :, None].expand(-1, -1, HIDDEN))
        y = (torch.where(self.ids >= 0, weights, 0)[:, :, None] * chosen).sum(1)
        return y.detach(), *torch.autograd.grad(y, (x, weights, w), self.dy.float())


def experts(received, w):
    """Each row times its expert's matrix, in float32."""
    out = torch.zeros(received.x.shape, dtype=torch.float32, device=w.device)
    local = received.sources[:, 3]
    for expert in range(LOCAL):
        mine = (local == expert)[:, None]
        out = out + torch.where(mine, received.x.float() @ w[expert].float(), 0)
    return out.to(received.x.dtype)


def layer(ep, x, ids, weights, w):
    received = octet.torch.dispatch(ep, x, ids, weights)
    return octet.torch.combine(ep, received, experts(received, w))


class TorchTest(unittest.TestCase):
    def near(self, value, reference, limit=1e-2):
        value, reference = value.detach().cpu().double(), reference.double()
        self.assertEqual(value.shape, reference.shape)
        self.assertLess(float((value - reference).norm() / reference.norm()), limit)

    def check_y(self, results, step):
        self.near(torch.cat([each.cpu() for each in results]), step.dense()[0])

    def test_calls_equal_the_dense_layer(self):
        for strategy in ["direct", "low_latency", "high_throughput"]:
            with self.subTest(strategy=strategy):
                step, ep = Step(), make(strategy)
                for _ in range(2):
                    results = on_ranks(lambda rank: layer(ep, *step.of(rank)[:4]))
                self.check_y(results, step)

    def test_gradients_equal_those_of_the_dense_layer(self):
        step, ep = Step(), make()

        def backward(rank):
            x, ids, weights, w, dy = step.of(rank)
            leaves = [each.requires_grad_() for each in (x, weights, w)]
            return torch.autograd.grad(layer(ep, x, ids, weights, w), leaves, dy)

        for _ in range(2):
            results = on_ranks(backward)
        for value, reference in zip(zip(*results), step.dense()[1:]):
            self.near(torch.cat([each.cpu() for each in value]), reference, 2e-2)
        NODE.settle()

    def test_compiled(self):
        step, ep = Step(), make()
        compiled = torch.compile(lambda *arguments: layer(ep, *arguments), fullgraph=True)

        def backward(rank):
            x, ids, weights, w, dy = step.of(rank)
            x.requires_grad_()
            y = compiled(x, ids, weights, w)
            return y, torch.autograd.grad(y, x, dy)[0]

        results = on_ranks(backward)
        self.check_y([y for y, _ in results], step)
        self.near(torch.cat([dx.cpu() for _, dx in results]), step.dense()[1], 2e-2)

    def test_graphs(self):
        step, other, ep = Step(), Step(2), make("low_latency")

        def capture(rank):
            arguments = step.of(rank)[:4]
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                layer(ep, *arguments)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                y = layer(ep, *arguments)
            return graph, arguments, y

        captured = on_ranks(capture)

        def replay(rank):
            graph, arguments, y = captured[rank]
            for held, value in zip(arguments, other.of(rank)):
                held.copy_(value)
            for _ in range(3):
                graph.replay()
            return y.clone()

        self.check_y(on_ranks(replay), other)
        on_ranks(torch.cuda.synchronize)
        NODE.settle()

    def test_a_layer(self):
        inner, random = 128, torch.Generator().manual_seed(5)

        def matrix(rows, columns, scale=1.0):
            values = torch.randn(rows, columns, generator=random) * scale / columns**.5
            return values.bfloat16().float()

        router = matrix(EXPERTS, HIDDEN, 4.0)
        mlps = [{"gate": matrix(inner, HIDDEN), "up": matrix(inner, HIDDEN),
                 "down": matrix(HIDDEN, inner)} for _ in range(EXPERTS)]
        moe = octet.torch.MoeLayer(
            NODE, num_experts=EXPERTS, topk=TOPK, hidden=HIDDEN, intermediate=inner,
            max_tokens_per_rank=TOKENS, dtype="bfloat16", router_normalize=True)
        moe.load(router=router.numpy(), experts=[
            {name: each.numpy() for name, each in mlp.items()} for mlp in mlps])
        step = Step()
        results = on_ranks(lambda rank: octet.torch.moe_layer(moe, step.of(rank)[0]))
        x = step.x.float()
        weights, ids = (x @ router.T).softmax(-1).topk(TOPK)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for expert, mlp in enumerate(mlps):
            h = torch.nn.functional.silu(x @ mlp["gate"].T) * (x @ mlp["up"].T)
            factor = torch.where(ids == expert, weights, 0).sum(1, keepdim=True)
            y += factor * (h.bfloat16().float() @ mlp["down"].T)
        self.near(torch.cat([each.cpu() for each in results]), y, 2e-2)

    def test_mistakes(self):
        step, ep = Step(), make("low_latency")
        x, ids, weights, _, _ = step.of(0)
        with self.assertRaisesRegex(octet.InvalidArgument, "x is of float32"):
            octet.torch.dispatch(ep, x.float(), ids, weights)
        with self.assertRaisesRegex(octet.InvalidArgument, "topk_idx has the shape"):
            octet.torch.dispatch(ep, x, ids[:, :2], weights)
        with self.assertRaisesRegex(octet.InvalidArgument, "none of the node's GPUs"):
            octet.torch.dispatch(ep, x.cpu(), ids.cpu(), weights.cpu())

    def test_a_rank_that_fails_is_an_exception_on_all(self):
        step, ep = Step(), make()

        def run(rank):
            x, ids, weights, w, _ = step.of(rank)
            if rank == RANKS - 1:
                ids[0, 0] = EXPERTS
            for _ in range(50):  # the kernel finds it, so that a later call says it
                layer(ep, x, ids, weights, w)
                torch.cuda.synchronize()

        messages = []

        def caught(rank):
            try:
                run(rank)
            except octet.Error as error:
                messages.append(str(error))

        on_ranks(caught)
        self.assertEqual(len(messages), RANKS)
        with self.assertRaisesRegex(octet.Error, f"rank {RANKS - 1}"):
            NODE.settle()
        self.check_y(on_ranks(lambda rank: layer(ep, *step.of(rank)[:4])), step)


if __name__ == "__main__":
    unittest.main(verbosity=2)
