"""`octet layer` against the layers of transformers: at least as near to their float32 result as
their own bfloat16 run.

    transformers_test.py --octet=PATH [--device=cuda|cpu] [--ranks=R] [--families=mixtral,...] ...

For each family: builds a model of one layer with random weights, saves it in bfloat16 with
save_pretrained(), and runs the layer's Mixture-of-Experts block on random bfloat16 tokens, in
float32 with the same weights and in bfloat16; and `octet layer` on the folder. The errors are the
differences to the float32 result. Octet's root mean square must not exceed that of the bfloat16
run, over all tokens and over those alone for which all three choose the same experts; its largest
must not exceed 1.5 times that run's, over the latter. Octet must choose as the float32 block does
for all but 1% of the tokens. The steps of Octet's run must also be what moe_layer_oracle.py
computes, and the float32 block's result, too, within 1e-4 of its root mean square where the choices
are the same, so that it can be told who is wrong. Where save_pretrained() can also write the
tensors as they are in memory, those of all experts in two, Octet must compute the same from them.

Works with transformers 4.46 to 5; prints a table. Exit code 0; 1 if a comparison fails; 77 where
there is no torch, no transformers, or none of the families. What transformers does otherwise:
  - Releases that fill groups that were not chosen with 0, not minus infinity, choose from these
    if score + bias is negative. Here all biases of DeepSeek-V3 are positive.
  - DeepSeek-V2 ignores norm_topk_prob, which is false here.
  - Some releases of DeepSeek-V2 look up each choice's weight in a matrix of all experts', in the
    column of the choice's number. There this family is left out.
"""

import argparse
import copy
import importlib.util
import inspect
import pathlib
import subprocess
import sys
import tempfile
import traceback

MISSING = [name for name in ("numpy", "torch", "transformers")
           if importlib.util.find_spec(name) is None]
if MISSING and not {"-h", "--help"} & set(sys.argv):
    print(f"skipped: no {', '.join(MISSING)} for {sys.executable}")
    sys.exit(77)
sys.dont_write_bytecode = True

RMS_SLACK, MAX_SLACK = 1.0, 1.5  # the largest is one of few, and of few bits
BLOCK_LIMIT = 1e-4  # of the float32 block, relative to its root mean square
DIFFERENT_CHOICES = 0.01
LOGIT_SPREAD = 2.0
GATE_SPREAD = 4.0  # of gpt-oss
CONFIGS = {"llama4_text": "Llama4TextConfig", "qwen3_5_moe_text": "Qwen3_5MoeTextConfig"}

if not MISSING:
    import numpy as np
    import torch
    import transformers

    import moe_layer_oracle as oracle
    import moe_router_oracle as routers
    from make_model import CLASSES
    from safetensors_file import Damaged


def cases(sizes):
    """(family, what is special, the members of its configuration)."""
    hidden, intermediate = sizes.hidden, sizes.intermediate
    common = {"hidden_size": hidden, "num_hidden_layers": 1, "vocab_size": 64,
              "num_attention_heads": 4, "num_key_value_heads": 4,
              "num_experts_per_tok": sizes.topk, "max_position_embeddings": 128}
    numbers = {name: size for name, size in common.items() if name != "num_experts_per_tok"}
    plain = common | {"intermediate_size": intermediate}
    apart = common | {"moe_intermediate_size": intermediate, "intermediate_size": 2 * intermediate}
    qwen = apart | {"num_experts": sizes.experts, "decoder_sparse_step": 1, "mlp_only_layers": []}
    deepseek = apart | {"n_routed_experts": sizes.experts, "n_shared_experts": 2,
                        "first_k_dense_replace": 0, "q_lora_rank": 32, "kv_lora_rank": 32,
                        "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
    grouped = deepseek | {"n_group": 4, "topk_group": 2}
    olmoe = plain | {"num_experts": sizes.experts}
    glm = apart | {"n_routed_experts": sizes.experts, "n_shared_experts": 1,
                   "first_k_dense_replace": 0, "norm_topk_prob": True, "head_dim": hidden // 4}
    return [
        ("mixtral", "", plain | {"num_local_experts": sizes.experts}),
        ("qwen2_moe", "", qwen | {"shared_expert_intermediate_size": 2 * intermediate,
                                  "norm_topk_prob": False}),
        ("qwen3_moe", "normalised", qwen | {"norm_topk_prob": True, "head_dim": hidden // 4}),
        ("qwen3_moe", "", qwen | {"norm_topk_prob": False, "head_dim": hidden // 4}),
        ("olmoe", "", olmoe | {"norm_topk_prob": False}),
        ("olmoe", "normalised", olmoe | {"norm_topk_prob": True}),
        ("deepseek_v2", "", deepseek | {"topk_method": "greedy", "n_group": 1, "topk_group": 1,
                                        "norm_topk_prob": False, "routed_scaling_factor": 1.0}),
        ("deepseek_v2", "groups", grouped | {"topk_method": "group_limited_greedy",
                                             "norm_topk_prob": False,
                                             "routed_scaling_factor": 16.0}),
        ("deepseek_v3", "groups", grouped | {"norm_topk_prob": True,
                                             "routed_scaling_factor": 2.5}),
        ("gpt_oss", "", plain | {"num_local_experts": sizes.experts, "head_dim": hidden // 4}),
        ("glm4_moe", "", glm | {"n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5}),
        ("glm4_moe", "groups", glm | {"n_group": 4, "topk_group": 2,
                                      "routed_scaling_factor": 1.0}),
        ("minimax_m2", "", plain | {"num_local_experts": sizes.experts, "head_dim": hidden // 4}),
        ("granitemoe", "", plain | {"num_local_experts": sizes.experts}),
        ("ernie4_5_moe", "", numbers | {
            "moe_k": sizes.topk, "moe_intermediate_size": intermediate,
            "intermediate_size": 2 * intermediate, "moe_num_experts": sizes.experts,
            "moe_num_shared_experts": 2, "moe_layer_start_index": 0}),
        ("hunyuan_v1_moe", "", numbers | {
            "moe_topk": sizes.topk, "intermediate_size": intermediate,
            "num_experts": sizes.experts, "head_dim": hidden // 4}),
        ("llama4_text", "", plain | {"num_local_experts": sizes.experts, "num_experts_per_tok": 1,
                                     "intermediate_size_mlp": intermediate,
                                     "head_dim": hidden // 4}),
        ("phimoe", "", plain | {"num_local_experts": sizes.experts, "num_experts_per_tok": 2}),
        ("phimoe", "wide", plain | {"num_local_experts": sizes.experts, "num_experts_per_tok": 2,
                                    "router_jitter_noise": 0.1}),
        ("qwen3_next", "", qwen | {"shared_expert_intermediate_size": intermediate,
                                   "norm_topk_prob": True, "head_dim": hidden // 4,
                                   "layer_types": ["full_attention"]}),
        ("qwen3_5_moe_text", "", apart | {"num_experts": sizes.experts, "head_dim": hidden // 4,
                                          "shared_expert_intermediate_size": intermediate,
                                          "layer_types": ["full_attention"]}),
    ]


class Skipped(Exception):
    """This transformers cannot be compared with. The message says why."""


class OctetFailed(Exception):
    """The program did. The message says how."""


# ---- The block

def block_of(model):
    layer = model.model.layers[0]
    for name in ("mlp", "block_sparse_moe", "feed_forward"):
        block = getattr(layer, name, None)
        if block is not None and hasattr(block, "experts"):
            return block
    raise Skipped(f"{type(layer).__name__} has no block with experts")


def fill(block, generator):
    """Random weights, so that tokens of deviation 1 give numbers of about 1 throughout."""
    tensors = dict(block.named_parameters()) | dict(block.named_buffers())
    for name, tensor in sorted(tensors.items()):
        if name.endswith("e_score_correction_bias"):
            values = 0.2 * torch.rand(tensor.shape, generator=generator)
        elif tensor.dim() >= 2:  # all experts may be one tensor
            values = torch.randn(tensor.shape, generator=generator) / tensor.shape[-1] ** 0.5
            if name in ("gate.weight", "router.weight", "gate.wg.weight"):
                values *= LOGIT_SPREAD
            elif name.endswith("gate_up_proj") and hasattr(block.experts, "gate_up_proj_bias"):
                # gpt-oss: [E][H][2 I], and numbers beyond its limit of 7 among them.
                values *= GATE_SPREAD * (tensor.shape[-1] / tensor.shape[-2]) ** 0.5
            elif name.endswith("_bias"):
                values *= tensor.shape[-1] ** 0.5
        elif name == "router.bias":
            values = torch.randn(tensor.shape, generator=generator)
        else:
            continue
        tensor.data.copy_(values)


def biases_of(block):
    tensors = list(block.named_parameters()) + list(block.named_buffers())
    return [(name, tensor) for name, tensor in tensors
            if name.endswith("e_score_correction_bias")]


def make_model(family, members, seed):
    """A model in bfloat16, but for DeepSeek-V3's bias, which checkpoints have in float32."""
    name = CLASSES[family]
    if not hasattr(transformers, name + "ForCausalLM"):
        raise Skipped(f"transformers {transformers.__version__} has no {name}ForCausalLM")
    config = getattr(transformers, CONFIGS.get(family, name + "Config"))(**members)
    torch.manual_seed(seed)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    block = block_of(model)
    fill(block, torch.Generator().manual_seed(seed))
    biases = {name: tensor.detach().clone() for name, tensor in biases_of(block)}
    model = model.to(torch.bfloat16)
    for name, tensor in biases_of(block):
        tensor.data = biases[name]
    return model


def in_float32(block):
    """A copy that computes in float32, expert by expert."""
    block = copy.deepcopy(block).float()
    for module in block.modules():
        config = getattr(module, "config", None)
        if getattr(config, "_experts_implementation", None) is not None:
            config._experts_implementation = "eager"
    return block


class Choices:
    """Notes which experts a block chooses, from what its router returns."""

    def __init__(self, block):
        self.ids = None
        self.logits = None
        self.unlike = False  # weights of another shape than the choices
        gate = block.router if hasattr(block, "router") else block.gate
        gate.register_forward_hook(lambda module, given, out: self.note(out))
        inner = getattr(block, "route_tokens_to_experts", None)
        if inner is not None:
            def route(*args, **more):
                out = inner(*args, **more)
                self.note(out)
                tensors = [part for part in out if torch.is_tensor(part)]
                self.unlike = len({tuple(part.shape) for part in tensors[:2]}) > 1
                return out
            block.route_tokens_to_experts = route

    def note(self, out):
        for part in out if isinstance(out, (tuple, list)) else [out]:
            if torch.is_tensor(part) and not part.is_floating_point():
                self.ids = part.reshape(-1, part.shape[-1]).cpu().numpy()
            elif torch.is_tensor(part) and self.logits is None:
                self.logits = part.reshape(-1, part.shape[-1]).float().cpu().numpy()

    def sets(self, layer):
        """[T][K], each row ascending."""
        ids = self.ids
        if ids is None:
            if self.logits is None or self.logits.shape[1] != layer.experts:
                raise Skipped("its block does not tell which experts it chooses")
            scores, _ = routers.scores_of(layer.router_config, self.logits)
            ids = routers.choose(layer.router_config, scores + layer.bias, layer.topk)
        return np.sort(ids, axis=1)


def run_block(block, x):
    """(y [T][H] float32, Choices)."""
    choices = Choices(block)
    with torch.no_grad():
        out = block(x[None])
    out = out[0] if isinstance(out, tuple) else out
    return out.reshape(x.shape).float().cpu().numpy(), choices


# ---- Octet

def run_octet(octet, folder, x, ranks):
    """(y, the dump's folder)."""
    np.save(folder / "x.npy", x.view(torch.int16).numpy().view(np.uint16))
    dump = folder / "dump"
    dump.mkdir()
    done = subprocess.run([octet, "layer", f"--model={folder / 'model'}", "--layer=0",
                           f"--ranks={ranks}", f"--input={folder / 'x.npy'}",
                           f"--output={folder / 'y.npy'}", f"--dump={dump}", "--iters=0"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OctetFailed(f"octet layer: exit code {done.returncode}: {done.stderr.strip()}")
    return np.load(folder / "y.npy").reshape(x.shape), dump


# ---- The comparison

def rms(values):
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64))))) if values.size else 0.0


def largest(values):
    return float(np.abs(values).max(initial=0))


def specification(layer, x):
    """(y, choices) in float64, from weights and tokens alone."""
    x = x.float().numpy().astype(np.float64)
    scores, _ = routers.scores_of(layer.router_config, x @ layer.router.T + layer.logit_bias)
    ids = routers.choose(layer.router_config, scores + layer.bias, layer.topk)
    weights = routers.weights_of(layer.router_config, scores, ids)
    return oracle.layer_output(layer, x, ids, weights, rounds=False).value, np.sort(ids, axis=1)


def save(model, folder):
    """Folders of the model in each form that this transformers writes, that of checkpoints first."""
    folders = [folder / "original"]
    model.save_pretrained(folders[0] / "model", max_shard_size="20MB")
    if "save_original_format" in inspect.signature(model.save_pretrained).parameters:
        folders.append(folder / "in_memory")
        model.save_pretrained(folders[1] / "model", max_shard_size="20MB",
                              save_original_format=False)
    return folders


def compare(args, folder, family, members):
    """(cells of the table's row, findings)."""
    model = make_model(family, members, args.seed)
    folder, *others = save(model, folder)
    layer = oracle.Layer(folder / "model", 0)
    x = torch.randn(args.tokens, args.hidden,
                    generator=torch.Generator().manual_seed(args.seed + 1)).bfloat16()
    block = block_of(model).to(args.device)
    want, want_choices = run_block(in_float32(block), x.to(args.device).float())
    own, own_choices = run_block(block, x.to(args.device))
    if want_choices.unlike:
        raise Skipped(f"transformers {transformers.__version__} weights its experts with others' "
                      f"weights")
    got, dump = run_octet(args.octet, folder, x, args.ranks)

    findings, _ = oracle.check(layer, dump, {"x": folder / "x.npy", "y": folder / "y.npy"})
    for other in others:
        if not np.array_equal(run_octet(args.octet, other, x, args.ranks)[0], got):
            findings.append(f"y of the tensors saved {other.name} differs")
    of_block = want_choices.sets(layer)
    of_octet = np.sort(np.load(dump / "topk_idx.npy"), axis=1)
    same_octet = (of_octet == of_block).all(axis=1)
    same_own = (own_choices.sets(layer) == of_block).all(axis=1)
    exact, of_exact = specification(layer, x)
    agreed = (of_exact == of_block).all(axis=1)
    block_error = rms((want - exact)[agreed]) / max(rms(want), 1e-30)
    if not block_error <= BLOCK_LIMIT or agreed.mean() < 1 - DIFFERENT_CHOICES:
        findings.append(f"the float32 block is off by {block_error:.2g} of its root mean square, "
                        f"and {np.sum(~agreed)} choices, from what moe_layer_oracle.py computes")
    same = same_octet & same_own
    errors = [(got - want, own - want, "all tokens"),
              ((got - want)[same], (own - want)[same], "tokens of the same choice")]
    for mine, theirs, tokens in errors:
        if not rms(mine) <= RMS_SLACK * rms(theirs):
            findings.append(f"root mean square of the errors of {tokens}: {rms(mine):.3g}, of the "
                            f"bfloat16 block {rms(theirs):.3g}")
    mine, theirs, _ = errors[1]
    if not largest(mine) <= MAX_SLACK * largest(theirs):
        findings.append(f"largest error {largest(mine):.3g}, of the bfloat16 block "
                        f"{largest(theirs):.3g}, with the same choices")
    if same_octet.mean() < 1 - DIFFERENT_CHOICES:
        findings.append(f"{np.sum(~same_octet)} tokens have other experts than in the float32 "
                        f"block")
    cells = [f"{rms(want):.3f}"]
    cells += [f"{value:.2e}" for mine, theirs, _ in errors
              for value in (rms(mine), rms(theirs))]
    cells += [f"{largest(mine):.2e}", f"{largest(theirs):.2e}", str(np.sum(~same_octet)),
              str(np.sum(~same_own)), f"{block_error:.0e}"]
    return cells, findings


HEADS = ["rms y", "octet", "bf16", "octet", "bf16", "octet", "bf16", "octet", "bf16", "block"]
ABOVE = ["", "rms error", "all", "rms error", "same", "max error", "same", "other", "choice",
         "- numpy"]


def line(family, note, cells):
    return f"{family:<12} {note:<11}" + "".join(f"{cell:>10}" for cell in cells)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--octet", required=True, help="the program")
    parser.add_argument("--device", help="of the blocks; cuda if there is one")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--families", help="of those in the table, with commas")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--intermediate", type=int, default=512, help="of an expert")
    parser.add_argument("--experts", type=int, default=32, help="a multiple of 4 and of the ranks")
    parser.add_argument("--topk", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse()
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if args.device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    chosen = args.families.split(",") if args.families else list(CLASSES)
    if set(chosen) - set(CLASSES):
        sys.exit(f"transformers_test: --families: {', '.join(CLASSES)}")
    print(f"# torch {torch.__version__} on {args.device}, transformers {transformers.__version__}, "
          f"octet on {args.ranks} ranks; {args.tokens} tokens, hidden {args.hidden}, intermediate "
          f"{args.intermediate}, experts {args.experts}, topk {args.topk}, seed {args.seed}")
    print(line("#", "", ABOVE))
    print(line("# family", "", HEADS))
    passed = failed = 0
    for family, note, members in cases(args):
        if family not in chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="octet_transformers_") as folder:
            try:
                cells, findings = compare(args, pathlib.Path(folder), family, members)
            except Skipped as reason:
                print(f"{family:<12} {note:<11} skipped: {reason}", flush=True)
                continue
            except (Damaged, OctetFailed) as error:
                cells, findings = [], [str(error)]
            except Exception as error:  # of a transformers that is unlike those known
                traceback.print_exc()
                cells, findings = [], [f"{type(error).__name__}: {error}"]
        passed += not findings
        failed += bool(findings)
        print(line(family, note, cells + ["ok" if not findings else "FAILED"]))
        for finding in findings:
            print(f"  {finding}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0 if passed else 77)


if __name__ == "__main__":
    main()
