"""Checks what `octet layer --model=MODEL --layer=N --dump=DUMP` has written, with NumPy and nothing
of Octet's.

    moe_layer_oracle.py MODEL DUMP [--layer=N] [--weights=bf16|fp8] [--fp8_rows] [--x=x.npy] [--y=y.npy]

DUMP has x.npy [T][H], logits.npy [T][E] float32, topk_idx.npy [T][K] int32, topk_weights.npy [T][K]
float32 and y.npy [T][H], of all ranks' tokens in order; for Qwen2-MoE perhaps shared_gate.npy [T],
what the shared expert's gate gives before the sigmoid, which is checked like logits. Each step is
computed in float64 from what the dump has of the step before, and each must be within a bound that
follows from the arithmetic:

  logits    router · x: (H + 2) · 2^-24 · Σ|router||x|, for any order of float32 sums.
  topk_idx  the choice that the family makes from the logits, in descending order, of equal ones the
            lower id first. Scores that differ by less than float32 can tell may be either way.
  weights   of the chosen ones, from the logits: about 16 units in the last place of float32, and
            more where exp() has a large argument, since that is rounded, too. Which logits
            sparsemixer takes as near is decided as in float32, to the bit.
  y         Σ weight · expert(x) + shared(x), where both sums of products of an expert, h between
            them, each expert's output, each rank's sum, and y are rounded; with FP8 weights also x
            and h, each to 2^-4 of itself or 2^-17 of the largest of its 128.

y must also be as near as roundings are that know nothing of each other: the mean of the squares of
its errors, divided by what such roundings would at most give, must not exceed 1.1 for all tokens,
nor 2 for a token with 64 columns or more. This finds errors that the bound, which is for
the worst case, lets pass.

Prints a line with the largest errors, each as a fraction of what is allowed, and exits 0; or says
what is wrong and exits 1. What the families compute is that of transformers. DeepSeek-V2 with
norm_topk_prob is not in its class of this family, which ignores it; here weights are then divided
by their sum, and multiplied by routed_scaling_factor.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys

import numpy as np

from check_dump import round_to, to_float
from moe_router_oracle import (SINGLE, choice_is_possible, choose, router_of,
                               scores_of, sparsemixer, weights_of)
from safetensors_file import OTHER_SCALES, Damaged, Folder

UNIT = {"bf16": 2.0 ** -8, "fp16": 2.0 ** -11}
SMALLEST = {"bf16": 2.0 ** -134, "fp16": 2.0 ** -25}  # half of the least subnormal number
FP8_UNIT, FP8_SMALLEST = 2.0 ** -4, 2.0 ** -17
FP8_SUM = 132 * 2.0 ** -13  # matrix units cut what they add, 4 · 33 numbers for 128 columns
SILU_SLOPE, FUNCTION = 1.1, 2.0 ** -16  # steepest; what exp and division may be off
ROW_LIMIT, ALL_LIMIT = 2.0, 1.1
MX_NUMBERS = (0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6)
PLAIN = (1.0, np.inf, 0.0)  # alpha, limit and offset of silu(gate) · up
FIRST_WRONG = 3  # findings of each kind that are told


class Layer:
    """A layer of a model folder, with the weights that Octet computes with."""

    def __init__(self, folder, layer, weights=None, fp8_rows=False):
        self.config = config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.family = config["model_type"]
        self.router_config = router_of(config)
        self.files = Folder(folder)
        self.fused = f"model.layers.{layer}.mlp.experts.gate_up_proj" in self.files
        self.numbered = self.family in ("mixtral", "minimax_m2", "phimoe")
        block = {"granitemoe": "block_sparse_moe", "llama4_text": "feed_forward"}.get(
            self.family, "block_sparse_moe" if self.numbered and not self.fused else "mlp")
        self.prefix = f"model.layers.{layer}.{block}."
        gpt_oss = self.family == "gpt_oss"
        self.weighs_input = self.family == "llama4_text"
        # Tensors of all experts: in checkpoints, or as transformers has them in memory.
        self.fused_names = ("experts.gate_up_proj", "experts.down_proj")
        if self.prefix + "input_linear.weight" in self.files:
            self.fused_names = ("input_linear.weight", "output_linear.weight")
        self.fused = self.prefix + self.fused_names[0] in self.files
        gate = next(name for name in ("gate.weight", "router.weight", "router.layer.weight",
                                      "gate.wg.weight") if self.prefix + name in self.files)
        self.dtype = {"float16": "fp16"}.get(config.get("dtype", config.get("torch_dtype")),
                                             "bf16")
        self.router = self.rounded(gate)
        self.logit_bias = (self.files.values(self.prefix + "router.bias").astype(np.float64)
                           if gpt_oss else 0.0)
        # Of gate and up: alpha, limit, what is added to up.
        self.swiglu = (1.702, 7.0, 1.0) if gpt_oss else PLAIN
        self.alternating = gpt_oss
        self.mxfp4 = self.prefix + "experts.down_proj_blocks" in self.files
        self.experts, self.hidden = self.router.shape
        topk = config.get("moe_k", config.get("moe_topk", config.get("num_experts_per_tok")))
        self.topk = topk[0] if isinstance(topk, list) else topk
        bias = [name for name in (self.prefix + owner + "e_score_correction_bias" for owner in (
            "", "gate.", "moe_statics.", "gate.moe_statics.")) if name in self.files]
        self.bias = (self.files.values(bias[0]).astype(np.float64).reshape(-1) if bias
                     else np.zeros(self.experts))
        down = self.prefix + self.fused_names[1] if self.fused else self.name(0, "down")
        # FP8 with a scale for each row, and INT4, become the dtype.
        self.stored_fp8 = (not gpt_oss and down in self.files
                           and self.files.load(down).kind == "F8_E4M3"
                           and (down + OTHER_SCALES not in self.files
                                or self.files.load(down + OTHER_SCALES).array.size == 1))
        # Rows are quantized, and weights are or become FP8, unless they stay MXFP4.
        self.fp8 = fp8_rows or (self.stored_fp8 if weights is None else weights == "fp8")
        self.shared_prefix = {"qwen2_moe": "shared_expert", "qwen3_next": "shared_expert",
                              "qwen3_5_moe_text": "shared_expert",
                              "deepseek_v2": "shared_experts", "deepseek_v3": "shared_experts",
                              "glm4_moe": "shared_experts", "kimi_k2": "shared_experts",
                              "ernie4_5_moe": "shared_experts", "llama4_text": "shared_expert",
                              "hunyuan_v1_moe": "shared_mlp"}.get(self.family)
        if self.shared_prefix and f"{self.prefix}{self.shared_prefix}.up_proj.weight" \
                not in self.files:
            if self.shared_prefix in ("shared_expert", "shared_mlp") \
                    or config.get("n_shared_experts") or config.get("moe_num_shared_experts"):
                raise Damaged(f"{folder}: layer {layer} has no shared expert")
            self.shared_prefix = None

    def name(self, expert, part):
        own = {"gate": "w1", "up": "w3", "down": "w2"}[part] if self.numbered else \
            part + "_proj"
        return f"{self.prefix}experts.{expert}.{own}.weight"

    def in_dtype(self, values):
        """float32 in the dtype of the layer's arithmetic."""
        values = np.ascontiguousarray(values)
        return to_float(round_to(values, self.dtype == "bf16"),
                        self.dtype == "bf16").astype(np.float64)

    def rounded(self, name):
        """A tensor of this layer, in the dtype of its arithmetic."""
        return self.in_dtype(self.files.values(self.prefix + name))

    @functools.cached_property
    def all_experts(self):
        """gate with up, [E][2 I][H], and down, [E][H][I], where two tensors have all experts."""
        gate_up, down = [self.files.values(self.prefix + name) for name in self.fused_names]
        if gate_up.shape[1:] == (self.hidden, self.hidden):  # down tells, which is not square
            transposed = down.shape[2] == self.hidden
        else:
            transposed = gate_up.shape[1] == self.hidden
        if transposed:
            gate_up, down = gate_up.swapaxes(1, 2), down.swapaxes(1, 2)
        rows = gate_up.shape[1]
        if (gate_up.shape != (self.experts, rows, self.hidden) or rows % 2
                or down.shape != (self.experts, self.hidden, rows // 2)):
            raise Damaged(f"{self.prefix}experts: {gate_up.shape} and {down.shape}")
        return gate_up, down

    def of_gpt_oss(self, name, expert):
        """A matrix of an expert, [rows][columns]."""
        name = f"{self.prefix}experts.{name}"
        if not self.mxfp4:
            return self.in_dtype(self.files.values(name)[expert].T)
        blocks = self.files.load(name + "_blocks").array[expert]
        scales = self.files.load(name + "_scales").array[expert].astype(np.int32)
        codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:2], -1)
        values = np.ldexp(np.array(MX_NUMBERS)[codes], scales[..., None] - 127)
        return values.reshape(len(values), -1)

    def biases(self, expert):
        """Of gate, up, down."""
        if not self.alternating:
            return 0.0, 0.0, 0.0
        both, down = [self.files.values(f"{self.prefix}experts.{name}_bias")[expert]
                      .astype(np.float64) for name in ("gate_up_proj", "down_proj")]
        return both[::2], both[1::2], down

    def expert(self, expert):
        """gate, up, down."""
        if self.alternating:
            both = self.of_gpt_oss("gate_up_proj", expert)
            return both[::2], both[1::2], self.of_gpt_oss("down_proj", expert)
        if self.fused:
            gate_up, down = [tensor[expert] for tensor in self.all_experts]
            matrices = [*np.split(gate_up, 2), down]
        else:
            matrices = [self.files.values(self.name(expert, part))
                        for part in ("gate", "up", "down")]
        if self.fp8:
            return [matrix.astype(np.float64) for matrix in matrices]
        return [self.in_dtype(matrix) for matrix in matrices]

    def shared(self):
        return [self.rounded(f"{self.shared_prefix}.{part}_proj.weight")
                for part in ("gate", "up", "down")]

    def shared_gate(self):
        """[1][H], or None."""
        name = "shared_expert_gate.weight"
        return self.rounded(name) if self.prefix + name in self.files else None


# ---- The experts

@dataclasses.dataclass
class Estimate:
    """Numbers, the most that a computation of them is off, and its variance."""
    value: np.ndarray
    error: np.ndarray
    variance: np.ndarray

    def rounded(self, unit, smallest):
        most = unit * (np.abs(self.value) + self.error) + smallest
        return Estimate(self.value, self.error + most,
                        self.variance + (unit * self.value) ** 2 / 3 + smallest ** 2)

    def quantized(self):
        """To 8-bit floats of any form, in groups of 128 columns that share a scale."""
        rows, columns = self.value.shape
        groups = -(-columns // 128)
        most = np.zeros((rows, groups * 128))
        most[:, :columns] = np.abs(self.value) + self.error
        least = np.repeat(most.reshape(rows, groups, 128).max(axis=2) * FP8_SMALLEST, 128,
                          axis=1)[:, :columns]
        return Estimate(self.value, self.error + FP8_UNIT * most[:, :columns] + least,
                        self.variance + (FP8_UNIT * self.value) ** 2 / 3 + least ** 2 / 3)


def exact(value):
    return Estimate(value, np.zeros_like(value), np.zeros_like(value))


def product(a, weights, fp8=False, requantized=False):
    """a · weightsᵀ with float32 sums."""
    columns = weights.shape[1]
    value = a.value @ weights.T
    most = (np.abs(a.value) + a.error) @ np.abs(weights).T
    squares = a.value ** 2 @ (weights ** 2).T
    error = a.error @ np.abs(weights).T + (columns + 2) * SINGLE * most
    variance = a.variance @ (weights ** 2).T + 4 * columns * SINGLE ** 2 * squares
    if fp8:
        error += FP8_SUM * most
    if requantized:  # the weights, too
        off = FP8_UNIT * np.abs(weights) + FP8_SMALLEST * np.abs(weights).max()
        error += (np.abs(a.value) + a.error) @ off.T
        variance += a.value ** 2 @ (off ** 2).T / 3
    return Estimate(value, error, variance)


def biased(estimate, bias):
    """Plus a bias, in float32."""
    if np.ndim(bias) == 0:
        return estimate
    value = estimate.value + bias
    return Estimate(value, estimate.error + SINGLE * (np.abs(value) + estimate.error),
                    estimate.variance + (SINGLE * value) ** 2)


def gated(gate, up, swiglu):
    """silu(gate) · up, or what the parameters make of it."""
    alpha, limit, offset = swiglu
    gate = Estimate(np.minimum(gate.value, limit), gate.error, gate.variance)
    up = biased(Estimate(np.clip(up.value, -limit, limit), up.error, up.variance),
                np.full(up.value.shape[1], offset) if offset else 0.0)
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-alpha * gate.value))
    silu = gate.value * sigmoid
    slope = sigmoid * (1 + alpha * gate.value * (1 - sigmoid))
    off = SILU_SLOPE * gate.error + FUNCTION * np.abs(silu)
    return Estimate(silu * up.value,
                    off * (np.abs(up.value) + up.error) + np.abs(silu) * up.error,
                    gate.variance * (slope * up.value) ** 2 + up.variance * silu ** 2)


def network(layer, x, weights, row_weight, fp8=False, biases=(0.0, 0.0, 0.0), swiglu=PLAIN):
    """down · (silu(gate · x) · (up · x)), with what there is of biases, rounded; `row_weight` is what it is multiplied by."""
    unit, smallest = UNIT[layer.dtype], SMALLEST[layer.dtype]
    again = fp8 and not layer.stored_fp8 and not layer.mxfp4
    a = exact(x)
    if fp8:
        a = a.quantized()
    h = gated(biased(product(a, weights[0], fp8, again), biases[0]),
              biased(product(a, weights[1], fp8, again), biases[1]), swiglu)
    # The weight may have been multiplied in before this is rounded.
    h = h.rounded(unit, smallest * np.maximum(1, 1 / np.maximum(row_weight, 1e-18)))
    if fp8:
        h = h.quantized()
    return biased(product(h, weights[2], fp8, again), biases[2]).rounded(unit, smallest)


def layer_output(layer, x, ids, topk_weights, rounds=True):
    """What y must be. `rounds`: x times its weight is rounded where experts get that."""
    unit, smallest = UNIT[layer.dtype], SMALLEST[layer.dtype]
    zero = np.zeros((len(x), layer.hidden))
    value, error, variance = zero.copy(), zero.copy(), zero.copy()
    magnitude, squares = zero.copy(), zero.copy()
    for expert in np.unique(ids):
        token, k = np.nonzero(ids == expert)
        if layer.weighs_input:  # in float32, then rounded to the dtype
            given = x[token] * topk_weights[token, k][:, None]
            if rounds:
                given = layer.in_dtype(given.astype(np.float32))
            weights = np.ones(len(token))
        else:
            given, weights = x[token], topk_weights[token, k].astype(np.float64)
        weight = np.abs(weights)[:, None]
        part = network(layer, given, layer.expert(expert), weight, layer.fp8,
                       layer.biases(expert), layer.swiglu)
        value[token] += weights[:, None] * part.value
        error[token] += weight * part.error
        variance[token] += weight ** 2 * part.variance
        magnitude[token] += weight * (np.abs(part.value) + part.error)
        squares[token] += (weight * part.value) ** 2
    # Each rank's sum is rounded, in float32 before, and all sums are added.
    error += (unit + (ids.shape[1] + 16) * SINGLE) * magnitude + 16 * smallest
    variance += unit ** 2 / 3 * squares + smallest ** 2
    total = Estimate(value, error, variance)
    if layer.shared_prefix:
        shared = network(layer, x, layer.shared(), np.ones((len(x), 1)))
        gate = layer.shared_gate()
        if gate is not None:
            logit = product(exact(x), gate)
            factor = 1 / (1 + np.exp(-logit.value))
            off = logit.error / 4 + FUNCTION * factor
            shared = Estimate(shared.value * factor,
                              shared.error * (factor + off) + np.abs(shared.value) * off,
                              shared.variance * factor ** 2).rounded(unit, smallest)
        total = Estimate(value + shared.value, error + shared.error,
                         variance + shared.variance).rounded(unit, smallest)
    return total.rounded(unit, smallest)


# ---- Checks: each appends findings, and returns its largest error as a fraction of what is allowed

def fraction(found, what, got, expected, allowed):
    """Compares arrays; NaN is never what was expected."""
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(got.astype(np.float64) - expected)
        part = np.where(off <= allowed, np.where(allowed > 0, off / allowed, 0), np.inf)
    wrong = np.argwhere(~(off <= allowed))
    for place in wrong[:FIRST_WRONG]:
        place = tuple(place)
        found.append(f"{what}{[int(index) for index in place]} is {float(got[place]):.9g}, not "
                     f"{expected[place]:.9g} ± {allowed[place]:.2g}")
    if len(wrong) > FIRST_WRONG:
        found.append(f"{what}: {len(wrong)} of {got.size} are wrong")
    return float(part.max(initial=0))


def check_logits(layer, dump, found):
    want = biased(product(exact(dump["x"]), layer.router), layer.logit_bias)
    return fraction(found, "logits", dump["logits"], want.value, want.error)


def check_shared_gate(layer, dump, folder, found):
    """What the gate of a shared expert gives, if the dump has it."""
    path = folder / "shared_gate.npy"
    if layer.shared_gate() is None or not path.exists():
        return
    got = np.load(path, allow_pickle=False).reshape(-1, 1)
    want = product(exact(dump["x"]), layer.shared_gate())
    if got.shape != want.value.shape:
        found.append(f"{path} has {len(got)} numbers for {len(want.value)} tokens")
    else:
        fraction(found, "shared_gate", got, want.value, want.error)


def check_choice(layer, dump, found):
    """The number of tokens whose choice float32 leaves open."""
    router, ids = layer.router_config, dump["topk_idx"]
    ordered = np.sort(ids, axis=1)
    bad = np.nonzero((ordered[:, 0] < 0) | (ordered[:, -1] >= layer.experts)
                     | (np.diff(ordered, axis=1) == 0).any(axis=1))[0]
    if len(bad):
        found.append(f"topk_idx[{bad[0]}] is {ids[bad[0]].tolist()}: not {layer.topk} experts")
        return None
    scores, off = scores_of(router, dump["logits"])
    keys = scores + layer.bias
    noise = off * scores + 2 * SINGLE * np.abs(keys) + 2.0 ** -126
    if router.jitter is not None:  # the logits themselves
        noise = np.zeros_like(keys)
    want = choose(router, keys, layer.topk)
    differ = np.nonzero((want != ids).any(axis=1))[0]
    wrong = [token for token in differ
             if not choice_is_possible(router, keys[token], noise[token], ids[token])]
    for token in wrong[:FIRST_WRONG]:
        found.append(f"topk_idx[{token}] is {ids[token].tolist()}, not {want[token].tolist()}")
    if len(wrong) > FIRST_WRONG:
        found.append(f"topk_idx: {len(wrong)} of {len(ids)} tokens are wrong")
    return len(differ) - len(wrong)


def check_weights(layer, dump, found):
    router, ids = layer.router_config, dump["topk_idx"]
    scores, off = scores_of(router, dump["logits"])
    want = weights_of(router, scores, ids)
    most = np.take_along_axis(off, ids, axis=1)
    if router.jitter is not None:
        _, most = sparsemixer(router, scores, ids)
    most = most.max(axis=1, keepdims=True) * np.ones_like(want)
    return fraction(found, "topk_weights", dump["topk_weights"], want,
                    2 * most * want + 2.0 ** -126 * max(1.0, router.scaling))


def check_y(layer, dump, found):
    """(largest error, mean square as fractions of what is allowed)."""
    want = layer_output(layer, dump["x"], dump["topk_idx"], dump["topk_weights"])
    part = fraction(found, "y", dump["y"], want.value, want.error)
    off = (dump["y"].astype(np.float64) - want.value) ** 2
    rows = np.sqrt(off.sum(axis=1) / want.variance.sum(axis=1))
    overall = float(np.sqrt(np.mean(rows ** 2))) if len(rows) else 0.0
    wrong = np.nonzero(~(rows <= ROW_LIMIT))[0] if layer.hidden >= 64 else []
    for token in wrong[:FIRST_WRONG]:
        found.append(f"y[{token}] is off by {rows[token]:.2f} times what roundings give")
    if not overall <= ALL_LIMIT and off.size >= 4096:
        found.append(f"y is off by {overall:.2f} times what roundings give, over all tokens")
    return part, overall


def values_of(array, dtype):
    """x as it was given, rounded to the layer's dtype, in float64."""
    values = to_float(array, bf16=True) if array.dtype == np.uint16 else array.astype(np.float32)
    bf16 = dtype == "bf16"
    return to_float(round_to(values, bf16), bf16).astype(np.float64)


def load_dump(layer, folder, found):
    """name -> array; None if one does not have the shape and type it must have."""
    try:
        arrays = {name: np.load(folder / f"{name}.npy", allow_pickle=False)
                  for name in ("x", "logits", "topk_idx", "topk_weights", "y")}
    except (OSError, ValueError) as error:
        found.append(str(error))
        return None
    tokens = len(arrays["x"]) if arrays["x"].ndim else 0
    shapes = {"x": (layer.hidden, ("float16", "float32", "uint16")), "y": (layer.hidden,
              ("float32",)), "logits": (layer.experts, ("float32",)),
              "topk_idx": (layer.topk, ("int32",)), "topk_weights": (layer.topk, ("float32",))}
    for name, (columns, kinds) in shapes.items():
        array = arrays[name]
        if array.shape != (tokens, columns) or array.dtype.name not in kinds:
            found.append(f"{folder}/{name}.npy is {array.dtype} {array.shape}, not "
                         f"{' or '.join(kinds)} {(tokens, columns)}")
    if found:
        return None
    arrays["x"] = values_of(arrays["x"], layer.dtype)
    return arrays


def check_ends(layer, dump, given, found):
    """That --x is what the dump has as x, and --y as y."""
    for name, path in given.items():
        if path is None:
            continue
        array = np.load(path, allow_pickle=False)
        if name == "y" and array.dtype != np.float32:
            found.append(f"{path} is {array.dtype}, not float32")
        array = array.reshape(-1, array.shape[-1])
        array = values_of(array, layer.dtype) if name == "x" else array
        if array.shape != dump[name].shape or not np.array_equal(array, dump[name]):
            found.append(f"{path} is not what the dump has as {name}")


def check(layer, folder, given=None):
    """(findings, a line that says what was checked)."""
    found = []
    dump = load_dump(layer, folder, found)
    if dump is None:
        return found, ""
    check_ends(layer, dump, given or {}, found)
    if len(dump["x"]) == 0:
        return found, f"{layer.family}: no tokens"
    parts = [f"logits {check_logits(layer, dump, found):.2g}"]
    check_shared_gate(layer, dump, folder, found)
    open_choices = check_choice(layer, dump, found)
    if open_choices is not None:
        parts.append(f"weights {check_weights(layer, dump, found):.2g}")
        bound, overall = check_y(layer, dump, found)
        parts.append(f"y {bound:.2g}, its roundings {overall / ALL_LIMIT:.2g}")
    return found, (f"{layer.family}: {len(dump['x'])} tokens are right, {open_choices} choices "
                   f"within rounding; largest errors, of 1 allowed: {', '.join(parts)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, metavar="MODEL")
    parser.add_argument("dump", type=pathlib.Path, metavar="DUMP")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--weights", choices=["bf16", "fp8"], help="as the run had")
    parser.add_argument("--fp8_rows", action="store_true", help="as the run had")
    parser.add_argument("--x", type=pathlib.Path, help="the run's --input")
    parser.add_argument("--y", type=pathlib.Path, help="the run's --output")
    args = parser.parse_args()
    try:
        layer = Layer(args.model, args.layer, args.weights, args.fp8_rows)
        found, line = check(layer, args.dump, {"x": args.x, "y": args.y})
    except (OSError, Damaged) as error:
        sys.exit(f"moe_layer_oracle: {error}")
    if found:
        sys.exit("\n".join(f"moe_layer_oracle: {finding}" for finding in found))
    print(line)


if __name__ == "__main__":
    main()
