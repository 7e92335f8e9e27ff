"""How tokens choose experts, in float64 with NumPy and nothing of Octet's: the routers of all
families, and what float32 may be off. moe_layer_oracle.py checks layers by it.
"""

import dataclasses

import numpy as np

SINGLE = 2.0 ** -24  # unit roundoff of float32


@dataclasses.dataclass
class Router:
    sigmoid: bool = False
    groups: int = 1
    top_groups: int = 1
    two_best: bool = False  # a group's score is the sum of its two best, not its best
    normalize: bool = False
    epsilon: float = 0.0
    scaling: float = 1.0
    jitter: float | None = None  # of sparsemixer; None: it is another


def router_of(config):
    family = config["model_type"]
    # A softmax over the chosen ones is such a one.
    if family in ("mixtral", "gpt_oss", "granitemoe", "ernie4_5_moe", "hunyuan_v1_moe",
                  "qwen3_5_moe_text"):
        return Router(normalize=True)
    if family == "llama4_text":
        return Router(sigmoid=True)
    if family == "phimoe":
        return Router(jitter=config.get("router_jitter_noise", 0.01))
    if family == "minimax_m2":
        return Router(sigmoid=True, normalize=True)
    if family in ("qwen2_moe", "qwen3_moe", "olmoe", "qwen3_next"):
        return Router(normalize=config.get("norm_topk_prob", family == "qwen3_next"))
    if family == "glm4_moe":
        return Router(sigmoid=True, two_best=True, epsilon=1e-20, groups=config.get("n_group", 1),
                      top_groups=config.get("topk_group", 1),
                      normalize=config.get("norm_topk_prob", True),
                      scaling=config.get("routed_scaling_factor", 1.0))
    third = family in ("deepseek_v3", "kimi_k2")
    grouped = third or config.get("topk_method", "greedy") != "greedy"
    return Router(sigmoid=third, two_best=third, epsilon=1e-20,
                  groups=config.get("n_group", 8) if grouped else 1,
                  top_groups=config.get("topk_group", 4) if grouped else 1,
                  normalize=config.get("norm_topk_prob", third),
                  scaling=config.get("routed_scaling_factor", 2.5 if third else 1.0))


def scores_of(router, logits):
    """(scores in float64, what float32 may be off, relative to them)."""
    logits = logits.astype(np.float64)
    if router.jitter is not None:
        return logits, np.zeros_like(logits)
    if router.sigmoid:
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-logits)), (16 + 4 * np.abs(logits)) * SINGLE
    below = logits.max(axis=1, keepdims=True) - logits
    raised = np.exp(-below)
    return raised / raised.sum(axis=1, keepdims=True), softmax_noise(below)


def softmax_noise(below):
    """What float32 may be off, relative to it, where exp(-below) is divided by a sum of such."""
    terms = 16 + below.shape[1] / 32  # of a sum in some order, not one after the other
    return (terms + 4 * below) * SINGLE


def sparsemixer(router, logits, ids):
    """(weights [T][K], what float32 may be off, relative to them).

    Of each choice the softmax over the logits near it, of experts that were not chosen before."""
    single = logits.astype(np.float32)
    tokens = np.arange(len(ids))
    left = np.ones(logits.shape, bool)
    weights, noise = np.zeros(ids.shape), np.zeros(ids.shape)
    for k, expert in enumerate(ids.T):
        chosen = single[tokens, expert][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            far = ((chosen - single) / np.maximum(np.abs(single), chosen)
                   > np.float32(2 * router.jitter))
        below = np.where(left & ~far, logits[tokens, expert][:, None] - logits, np.inf)
        weights[:, k] = 1 / np.exp(-below).sum(axis=1)
        noise[:, k] = softmax_noise(np.where(np.isinf(below), 0, below)).max(axis=1)
        left[tokens, expert] = False
    return weights, noise


def best(keys, count):
    """The `count` largest of each row in descending order, of equal ones the lower first."""
    return np.argsort(-keys, axis=1, kind="stable")[:, :count]


def group_scores(router, keys):
    parts = -np.sort(-keys.reshape(len(keys), router.groups, -1), axis=2)
    return parts[:, :, :2].sum(axis=2) if router.two_best else parts[:, :, 0]


def choose(router, keys, topk):
    """Experts of each token, from score + bias."""
    if router.top_groups < router.groups:
        chosen = best(group_scores(router, keys), router.top_groups)
        allowed = np.zeros((len(keys), router.groups), bool)
        np.put_along_axis(allowed, chosen, True, axis=1)
        allowed = np.repeat(allowed, keys.shape[1] // router.groups, axis=1)
        keys = np.where(allowed, keys, -np.inf)
    return best(keys, topk)


def weights_of(router, scores, ids):
    if router.jitter is None:
        weights = np.take_along_axis(scores, ids, axis=1)
    else:
        weights, _ = sparsemixer(router, scores, ids)
    if router.normalize:
        weights = weights / (weights.sum(axis=1, keepdims=True) + router.epsilon)
    return weights * router.scaling


def _ahead(keys, noise, first, second):
    """Whether expert `first` may come before `second`."""
    if keys[first] == keys[second]:
        return first < second
    return keys[first] + noise[first] >= keys[second] - noise[second]


def choice_is_possible(router, keys, noise, ids):
    """Whether float32 may choose `ids` for a token, whose keys are known up to `noise`."""
    size = len(keys) // router.groups
    sure, out = np.ones(router.groups, bool), np.zeros(router.groups, bool)
    if router.top_groups < router.groups:
        own = group_scores(router, keys[None])[0]
        off = (2 if router.two_best else 1) * noise.reshape(router.groups, -1).max(axis=1)
        for group in range(router.groups):
            others = [other for other in range(router.groups) if other != group]
            # Groups that are certainly before this one, and those that may be.
            before = sum(not _ahead(own, off, group, other) for other in others)
            perhaps = sum(_ahead(own, off, other, group) for other in others)
            out[group] = before >= router.top_groups
            sure[group] = perhaps < router.top_groups
    if out[ids // size].any() or len(set(ids // size)) > router.top_groups:
        return False
    if any(not _ahead(keys, noise, *pair) for pair in zip(ids[:-1], ids[1:])):
        return False
    others = set(range(len(keys))) - set(ids)
    return all(_ahead(keys, noise, ids[-1], other) for other in others if sure[other // size])
