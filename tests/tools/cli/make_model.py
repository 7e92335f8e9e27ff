"""Writes a small model folder with random weights: config.json and *.safetensors, with the names
and types that transformers gives a Mixture-of-Experts model of one of FAMILIES.

    make_model.py FOLDER [--family=qwen3_moe] [--hidden=256] [--dtype=bf16|f16|f32|fp8|int4] ...
    make_model.py FOLDER --experts_as=fused|transposed ...
    make_model.py FOLDER --x=x.npy --tokens=40

Layers have their experts, router and shared experts, and norms; there are no attention weights, so
that nothing but `octet layer` and its checks can use the folder. Of several layers of a DeepSeek
or GLM model the first has no experts. Each expert has tensors of its own, or two have those of all: as
transformers keeps them in memory, or transposed. --set=NAME=JSON sets a member of config.json, as in
--set=norm_topk_prob=true, and may be repeated. --x also writes random tokens, bfloat16 as uint16,
for float16 models float16. The same flags write the same bytes, and --experts_as the same numbers.
"""

import argparse
import json
import pathlib

import numpy as np

from check_dump import round_to
from safetensors_file import (BLOCK, INDEX, OTHER_SCALES, SCALES, Tensor, packed, quantized,
                              quantized_by, tensor, write_folder)

FAMILIES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3",
            "gpt_oss", "glm4_moe", "minimax_m2", "qwen3_next", "kimi_k2", "granitemoe",
            "ernie4_5_moe", "hunyuan_v1_moe", "llama4_text", "qwen3_5_moe_text", "phimoe")
KINDS = {"bf16": "BF16", "f16": "F16", "f32": "F32", "fp8": "BF16", "mxfp4": "BF16",
         "fp8_tensor": "BF16", "fp8_rows": "BF16", "int4": "BF16"}
CLASSES = {"mixtral": "Mixtral", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe",
           "olmoe": "Olmoe", "deepseek_v2": "DeepseekV2", "deepseek_v3": "DeepseekV3",
           "gpt_oss": "GptOss", "glm4_moe": "Glm4Moe", "minimax_m2": "MiniMaxM2",
           "qwen3_next": "Qwen3Next", "kimi_k2": "DeepseekV3", "granitemoe": "GraniteMoe",
           "ernie4_5_moe": "Ernie4_5_Moe", "hunyuan_v1_moe": "HunYuanMoEV1",
           "llama4_text": "Llama4", "qwen3_5_moe_text": "Qwen3_5Moe", "phimoe": "Phimoe"}
NUMBERED = ("mixtral", "minimax_m2", "phimoe")  # w1, w2 and w3 in block_sparse_moe
SHARED_GATE = ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text")
EXPERTS_AS = ("each", "fused", "transposed")
LOGIT_SPREAD = 2.0  # standard deviation of a token's logits, for x of deviation 1
BIAS_SPREAD = 0.1
MX_BLOCK = 32  # numbers that share a scale


def is_deepseek(family):
    """GLM is, but for the numbers."""
    return family.startswith("deepseek") or family in ("glm4_moe", "kimi_k2")


def is_noaux(family):
    """A bias is added to scores for the choice, which are sigmoids."""
    return family in ("deepseek_v3", "glm4_moe", "minimax_m2", "kimi_k2")


def only_fused(family):
    """Checkpoints have two tensors of all experts."""
    return family in ("gpt_oss", "granitemoe", "llama4_text")


def first_sparse_layer(options):
    return 1 if is_deepseek(options.family) and options.layers > 1 else 0


def groups_of(options):
    """(groups, groups a token chooses from) of a DeepSeek model: four and two where that goes."""
    size = options.experts // 4
    if options.experts % 4 == 0 and size >= 2 and 2 * size >= options.topk:
        return 4, 2
    return 1, 1


def config_of(options):
    """config.json, as transformers writes it as far as it describes the layers."""
    family = options.family
    config = {
        "architectures": [CLASSES[family] + "ForCausalLM"],
        "model_type": family,
        "hidden_act": "silu",
        "hidden_size": options.hidden,
        "num_attention_heads": 4,
        "num_experts_per_tok": options.topk,
        "num_hidden_layers": options.layers,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[
            KINDS[options.dtype]],
        "vocab_size": 32,
    }
    if family in (*NUMBERED, "gpt_oss", "granitemoe"):
        config |= {"intermediate_size": options.intermediate, "num_local_experts": options.experts}
        if family == "minimax_m2":
            config |= {"scoring_func": "sigmoid", "use_routing_bias": True}
        if family == "phimoe":  # a wide jitter, so that several logits are near the chosen ones
            config |= {"num_experts_per_tok": 2, "router_jitter_noise": 0.1,
                       "input_jitter_noise": 0.01, "attention_bias": True, "lm_head_bias": True}
    elif family == "llama4_text":
        config |= {"intermediate_size": options.intermediate, "num_local_experts": options.experts,
                   "num_experts_per_tok": 1, "interleave_moe_layer_step": 1}
    elif family == "hunyuan_v1_moe":
        config |= {"intermediate_size": options.intermediate, "num_experts": options.experts,
                   "moe_topk": [options.topk] * options.layers}
        del config["num_experts_per_tok"]
    elif family == "ernie4_5_moe":
        config |= {"intermediate_size": 2 * options.intermediate, "moe_layer_start_index": 0,
                   "moe_intermediate_size": options.intermediate, "moe_layer_end_index": -1,
                   "moe_num_experts": options.experts, "moe_k": options.topk,
                   "moe_num_shared_experts": options.shared_experts, "moe_layer_interval": 1,
                   "moe_norm_min": 1e-12, "use_bias": False}
        del config["num_experts_per_tok"]
    elif family == "olmoe":
        config |= {"intermediate_size": options.intermediate, "num_experts": options.experts,
                   "norm_topk_prob": False}
    elif is_deepseek(family):
        groups, top_groups = groups_of(options)
        third = is_noaux(family)
        grouped = "noaux_tc" if third else "group_limited_greedy"
        config |= {"intermediate_size": 2 * options.intermediate,
                   "moe_intermediate_size": options.intermediate,
                   "n_routed_experts": options.experts,
                   "n_shared_experts": options.shared_experts or None,
                   "first_k_dense_replace": first_sparse_layer(options), "moe_layer_freq": 1,
                   "n_group": groups, "topk_group": top_groups,
                   "topk_method": grouped if third or groups > 1 else "greedy",
                   "scoring_func": "sigmoid" if third else "softmax",
                   "norm_topk_prob": third, "routed_scaling_factor": 2.5 if third else 1.5}
    else:
        config |= {"intermediate_size": 2 * options.intermediate,
                   "moe_intermediate_size": options.intermediate, "num_experts": options.experts,
                   "decoder_sparse_step": 1, "mlp_only_layers": [],
                   "norm_topk_prob": family in ("qwen3_moe", "qwen3_next")}
        if family in SHARED_GATE:
            config["shared_expert_intermediate_size"] = (options.intermediate
                                                         * options.shared_experts)
    if options.dtype == "fp8":
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3",
                                         "activation_scheme": "dynamic",
                                         "weight_block_size": [128, 128]}
    if options.dtype == "fp8_tensor":
        config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static"}
    if options.dtype in ("fp8_rows", "int4"):
        config["quantization_config"] = compressed(options)
    if family == "gpt_oss":
        config["swiglu_limit"] = 7.0
        if options.dtype == "mxfp4":
            config["quantization_config"] = {"quant_method": "mxfp4",
                                             "modules_to_not_convert": ["model.embed_tokens"]}
    for name, value in options.set:
        config[name] = value
    return config


def compressed(options):
    """quantization_config, as compressed-tensors writes it."""
    int4 = options.dtype == "int4"
    weights = {"num_bits": 4 if int4 else 8, "type": "int" if int4 else "float",
               "strategy": "group" if int4 else "channel", "symmetric": True, "dynamic": False,
               "group_size": options.group if int4 else None, "actorder": None}
    rows = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True,
            "dynamic": True}
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed",
            "format": "pack-quantized" if int4 else "float-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                          "input_activations": None if int4 else rows,
                                          "output_activations": None}},
            "ignore": ["lm_head"], "kv_cache_scheme": None}


class Weights:
    """Collects a model's tensors."""

    def __init__(self, options):
        self.options = options
        self.random = np.random.default_rng(options.seed)
        self.kind = KINDS[options.dtype]
        self.tensors = {}

    def normal(self, rows, columns, spread=1.0):
        """A matrix that multiplies rows of deviation 1 to rows of deviation `spread`."""
        values = self.random.standard_normal((rows, columns), np.float32)
        return values * np.float32(spread / columns ** 0.5)

    def matrix(self, name, rows, columns):
        values = self.normal(rows, columns)
        dtype = self.options.dtype
        if dtype == "fp8":
            self.tensors[name], self.tensors[name + SCALES] = quantized(values)
        elif dtype in ("fp8_tensor", "fp8_rows"):
            self.tensors[name], self.tensors[name + OTHER_SCALES] = quantized_by(
                values, dtype == "fp8_rows")
            if dtype == "fp8_tensor":  # others quantize rows by it
                self.tensors[name.removesuffix("weight") + "input_scale"] = tensor([0.01], "F32")
        elif dtype == "int4" and ".experts." in name:
            for suffix, stored in packed(values, self.options.group).items():
                self.tensors[name + suffix] = stored
        else:
            self.tensors[name] = tensor(values, self.kind)

    def plain(self, name, values):
        self.tensors[name] = tensor(values, self.kind)

    def mlp(self, prefix, names, intermediate):
        """`names` of gate, up and down."""
        hidden = self.options.hidden
        self.matrix(f"{prefix}.{names[0]}.weight", intermediate, hidden)
        self.matrix(f"{prefix}.{names[1]}.weight", intermediate, hidden)
        self.matrix(f"{prefix}.{names[2]}.weight", hidden, intermediate)


    def fuse(self, prefix, names):
        """Puts the experts below `prefix`, whose matrices have these names, into two tensors."""
        for fused, parts in [("gate_up_proj", names[:2]), ("down_proj", names[2:])]:
            for suffix in ["", SCALES] if self.options.dtype == "fp8" else [""]:
                experts = []
                for expert in range(self.options.experts):
                    own = [self.tensors.pop(f"{prefix}.{expert}.{part}.weight{suffix}")
                           for part in parts]
                    matrix = np.concatenate([each.array for each in own])
                    experts.append(matrix.T if self.options.experts_as == "transposed" else matrix)
                self.tensors[f"{prefix}.{fused}{suffix}"] = Tensor(own[0].kind, np.stack(experts))


    def alternating(self, prefix):
        """The experts of gpt-oss: rows of gate and up alternate, and there are biases."""
        options = self.options
        for name, rows, columns in [("gate_up_proj", 2 * options.intermediate, options.hidden),
                                    ("down_proj", options.hidden, options.intermediate)]:
            # Numbers that the limit of 7 cuts among them.
            spread = 4.0 if name == "gate_up_proj" else 1.0
            shape = (options.experts, rows, columns)
            if options.dtype == "mxfp4":
                codes = self.random.integers(0, 16, shape, np.uint8)
                pairs = codes[..., ::2] | codes[..., 1::2] << 4
                blocks = pairs.reshape(options.experts, rows, columns // MX_BLOCK, MX_BLOCK // 2)
                exponent = round(np.log2(spread / columns ** 0.5)) - 1
                scales = exponent + self.random.integers(126, 129, blocks.shape[:3])
                self.tensors[f"{prefix}.{name}_blocks"] = Tensor("U8", blocks)
                self.tensors[f"{prefix}.{name}_scales"] = Tensor("U8", scales.astype(np.uint8))
            else:
                values = self.random.standard_normal(shape, np.float32)
                values *= np.float32(spread / columns ** 0.5)
                self.plain(f"{prefix}.{name}", np.ascontiguousarray(values.swapaxes(1, 2)))
            self.plain(f"{prefix}.{name}_bias",
                       self.random.standard_normal((options.experts, rows), np.float32))


def add_granite(weights, prefix):
    """Two tensors of all experts, with names of their own."""
    options = weights.options
    weights.plain(f"{prefix}.router.layer.weight",
                  weights.normal(options.experts, options.hidden, LOGIT_SPREAD))
    for name, rows, columns in [("input_linear", 2 * options.intermediate, options.hidden),
                                ("output_linear", options.hidden, options.intermediate)]:
        experts = [weights.normal(rows, columns) for _ in range(options.experts)]
        weights.plain(f"{prefix}.{name}.weight", np.stack(experts))


def add_llama4(weights, prefix):
    options = weights.options
    names = ("gate_proj", "up_proj", "down_proj")
    weights.plain(f"{prefix}.router.weight",
                  weights.normal(options.experts, options.hidden, LOGIT_SPREAD))
    for name, rows, columns in [("gate_up_proj", 2 * options.intermediate, options.hidden),
                                ("down_proj", options.hidden, options.intermediate)]:
        experts = [weights.normal(rows, columns).T for _ in range(options.experts)]
        weights.plain(f"{prefix}.experts.{name}", np.stack(experts))
    weights.mlp(f"{prefix}.shared_expert", names, options.intermediate)


def add_layer(weights, layer):
    options, family = weights.options, weights.options.family
    fused = options.experts_as != "each"
    names = ("gate_proj", "up_proj", "down_proj")
    prefix = f"model.layers.{layer}"
    for norm in ("input_layernorm", "post_attention_layernorm"):
        weights.plain(f"{prefix}.{norm}.weight", np.ones(options.hidden))
    if family == "granitemoe":
        add_granite(weights, prefix + ".block_sparse_moe")
        return
    if family == "llama4_text":
        add_llama4(weights, prefix + ".feed_forward")
        return
    prefix += ".block_sparse_moe" if family in NUMBERED and not fused else ".mlp"
    if layer < first_sparse_layer(options):
        weights.mlp(prefix, names, 2 * options.intermediate)
        return
    if family == "gpt_oss":
        weights.plain(f"{prefix}.router.weight",
                      weights.normal(options.experts, options.hidden, LOGIT_SPREAD))
        weights.plain(f"{prefix}.router.bias",
                      weights.random.standard_normal(options.experts, np.float32))
        weights.alternating(f"{prefix}.experts")
        return
    router = "gate.wg" if family == "hunyuan_v1_moe" else "gate"
    if family == "phimoe" and fused:  # as in memory
        router = "router"
    weights.plain(f"{prefix}.{router}.weight",
                  weights.normal(options.experts, options.hidden, LOGIT_SPREAD))
    if family == "ernie4_5_moe":
        bias = weights.random.standard_normal((1, options.experts), np.float32)
        weights.tensors[f"{prefix}.moe_statics.e_score_correction_bias"] = Tensor(
            "F32", bias * np.float32(BIAS_SPREAD))
    if is_noaux(family):
        bias = weights.random.standard_normal(options.experts, np.float32)
        owner = prefix if family == "minimax_m2" else f"{prefix}.gate"
        weights.tensors[f"{owner}.e_score_correction_bias"] = Tensor(
            "F32", bias * np.float32(BIAS_SPREAD))
    of_expert = ("w1", "w3", "w2") if family in NUMBERED else names
    for expert in range(options.experts):
        weights.mlp(f"{prefix}.experts.{expert}", of_expert, options.intermediate)
    if fused:
        weights.fuse(f"{prefix}.experts", of_expert)
    shared = options.intermediate * options.shared_experts
    if family in SHARED_GATE:
        weights.mlp(f"{prefix}.shared_expert", names, shared)
        weights.plain(f"{prefix}.shared_expert_gate.weight", weights.normal(1, options.hidden))
    elif family == "hunyuan_v1_moe":
        weights.mlp(f"{prefix}.shared_mlp", names, options.intermediate)
    elif (is_deepseek(family) or family == "ernie4_5_moe") and shared:
        weights.mlp(f"{prefix}.shared_experts", names, shared)


def make_model(folder, options):
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("*.safetensors"), folder / INDEX]:  # of a model that was there
        path.unlink(missing_ok=True)
    config = config_of(options)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    weights = Weights(options)
    weights.plain("model.embed_tokens.weight", weights.normal(32, options.hidden))
    for layer in range(options.layers):
        add_layer(weights, layer)
    weights.plain("model.norm.weight", np.ones(options.hidden))
    write_folder(folder, weights.tensors, options.shards)


def make_tokens(options):
    """Random tokens [T][H], of the layer's type as .npy has it."""
    values = np.random.default_rng([options.seed, 1]).standard_normal(
        (options.tokens, options.hidden), np.float32)
    return values.astype(np.float16) if options.dtype == "f16" else round_to(values, bf16=True)


def member(text):
    name, _, value = text.partition("=")
    return name, json.loads(value)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--family", choices=FAMILIES, default="qwen3_moe")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--intermediate", type=int, default=128, help="of an expert")
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--topk", type=int, default=4)
    parser.add_argument("--shared_experts", type=int, default=2,
                        help="of qwen2_moe, qwen3_next, deepseek_* and glm4_moe, each of the "
                             "experts' size")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dtype", choices=KINDS, default="bf16", help="of the weights")
    parser.add_argument("--group", type=int, default=32, help="columns that a scale of int4 is for")
    parser.add_argument("--experts_as", choices=EXPERTS_AS, default="each",
                        help="tensors of each, or two of all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1, help="files")
    parser.add_argument("--set", type=member, action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--x", type=pathlib.Path, metavar="FILE", help="write tokens, too")
    parser.add_argument("--tokens", type=int, default=40)
    options = parser.parse_args(arguments)
    if options.family in SHARED_GATE and options.shared_experts < 1:
        parser.error(f"{options.family} has a shared expert")
    if (options.dtype == "mxfp4") > (options.family == "gpt_oss"):
        parser.error("only gpt_oss has mxfp4")
    if only_fused(options.family) and (options.dtype == "fp8" or options.experts_as != "each"):
        parser.error(f"{options.family} has its own form of experts")
    if options.dtype in ("fp8_tensor", "fp8_rows", "int4") and (
            options.experts_as != "each" or only_fused(options.family)):
        parser.error(f"{options.dtype} is of experts that have tensors of their own")
    if options.dtype == "fp8" and options.experts_as != "each" and options.intermediate % BLOCK:
        parser.error(f"--intermediate must be a multiple of {BLOCK}, or gate and up share scales")
    return options


def main():
    options = parse()
    make_model(options.folder, options)
    if options.x:
        np.save(options.x, make_tokens(options))


if __name__ == "__main__":
    main()
