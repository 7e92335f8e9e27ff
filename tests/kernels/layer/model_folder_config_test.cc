// Model folders: config.json, and what is said of values that are not supported.
#include "octet/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/kernels/layer/test_models.h"
#include "tests/support/model_files.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the configuration of a layer after `change`, a merge patch of config.json.
absl::StatusOr<MoeLayerConfig> ConfigWith(Model model, const Json& change, int layer) {
  const TestFolder files;
  model.config.merge_patch(change);
  const auto folder = Open(model, files);
  return folder.ok() ? (*folder)->LayerConfig(layer) : folder.status();
}

TEST(ModelFolderConfig, OptionalMembersHaveTheDefaultsOfTransformers) {
  const Json null;
  const auto qwen = ConfigWith(Qwen3(),
                               {{"norm_topk_prob", null},
                                {"mlp_only_layers", null},
                                {"decoder_sparse_step", null},
                                {"hidden_act", null}},
                               0);
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(qwen->router, RouterConfig());
  const Json deepseek = {{"norm_topk_prob", null},
                         {"routed_scaling_factor", null},
                         {"topk_method", null},
                         {"scoring_func", null},
                         {"n_group", null},
                         {"topk_group", null},
                         {"n_shared_experts", null},  // taken away, so that it has the default
                         {"first_k_dense_replace", null},
                         {"num_hidden_layers", 4}};
  const auto v2 = ConfigWith(DeepseekV2(), deepseek, 0);
  ASSERT_TRUE(v2.ok()) << v2.status();
  EXPECT_EQ(v2->router, RouterConfig());
  EXPECT_EQ(v2->shared_intermediate, 2 * kIntermediate);
  const auto v3 = ConfigWith(DeepseekV3(), deepseek, 3);
  ASSERT_TRUE(v3.ok()) << v3.status();
  EXPECT_EQ(v3->router, (RouterConfig{.scores = RouterScores::kSigmoid,
                                      .groups = 8,
                                      .top_groups = 4,
                                      .group_score = GroupScore::kSumOfTwoBest,
                                      .normalize = true,
                                      .normalize_epsilon = 1e-20F,
                                      .scaling = 2.5F}));
  EXPECT_EQ(v3->shared_intermediate, kFp8Intermediate);
  EXPECT_FALSE(ConfigWith(DeepseekV3(), deepseek, 2).ok());  // dense
}

TEST(ModelFolderConfig, NoSharedExperts) {
  const TestFolder files;
  Model model = DeepseekV2();
  model.config["n_shared_experts"] = nullptr;
  for (const FileTensor& tensor : model.List()) {
    if (tensor.name.find("shared_experts") != std::string::npos) model.tensors.erase(tensor.name);
  }
  const auto folder = Open(model, files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->LayerConfig(1)->shared_intermediate, 0);
  const auto weights = (*folder)->Weights(1);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectIsEmpty(weights->shared);
}

TEST(ModelFolderConfig, DeepseekV2Greedy) {
  const auto config =
      ConfigWith(DeepseekV2(), {{"topk_method", "greedy"}, {"norm_topk_prob", true}}, 1);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->router,
            (RouterConfig{.normalize = true, .normalize_epsilon = 1e-20F, .scaling = 16.0F}));
}

TEST(ModelFolderConfig, Dtypes) {
  EXPECT_EQ(ConfigWith(Mixtral(), {{"torch_dtype", "float16"}}, 0)->dtype, DType::kFloat16);
  EXPECT_EQ(ConfigWith(Mixtral(), {{"torch_dtype", nullptr}}, 0)->dtype, DType::kBFloat16);
  EXPECT_EQ(ConfigWith(Mixtral(), {{"dtype", "float16"}}, 0)->dtype, DType::kFloat16);
  EXPECT_EQ(ConfigWith(Mixtral(), {{"torch_dtype", "float16"}, {"dtype", "bfloat16"}}, 0)->dtype,
            DType::kBFloat16);
}

TEST(ModelFolderConfig, TheNewerNameOfTheNumberOfExperts) {
  const auto config =
      ConfigWith(Qwen3(), {{"num_experts", nullptr}, {"num_local_experts", kExperts}}, 0);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_experts, kExperts);
}

// Returns the layers that have a configuration; the others must be told to be dense.
std::set<int> LayersWithExperts(Model model, const Json& change) {
  const TestFolder files;
  model.config.merge_patch(change);
  const auto folder = Open(model, files);
  std::set<int> layers;
  if (!folder.ok()) {
    ADD_FAILURE() << folder.status();
    return layers;
  }
  for (int layer = 0; layer < (*folder)->num_layers(); ++layer) {
    const absl::Status status = (*folder)->LayerConfig(layer).status();
    if (status.ok()) {
      layers.insert(layer);
      continue;
    }
    EXPECT_EQ(status, absl::InvalidArgumentError(
                          absl::StrCat(files.PathOf("config.json"), ": layer ", layer,
                                       " is dense, it has no experts; choose one "
                                       "that has")));
    EXPECT_EQ((*folder)->Weights(layer).status(), status);
  }
  return layers;
}

TEST(ModelFolderConfig, WhichLayersHaveExperts) {
  EXPECT_EQ(LayersWithExperts(Mixtral(), {{"num_hidden_layers", 3}}), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(LayersWithExperts(Qwen3(), {{"num_hidden_layers", 8},
                                        {"decoder_sparse_step", 2},
                                        {"mlp_only_layers", {0, 3}}}),
            (std::set<int>{1, 5, 7}));
  EXPECT_EQ(LayersWithExperts(Qwen2(), {{"num_hidden_layers", 2}, {"num_experts", 0}}),
            (std::set<int>{}));
  EXPECT_EQ(LayersWithExperts(
                DeepseekV2(),
                {{"num_hidden_layers", 7}, {"first_k_dense_replace", 1}, {"moe_layer_freq", 2}}),
            (std::set<int>{2, 4, 6}));
}

TEST(ModelFolderConfig, LayersThatDoNotExist) {
  const TestFolder files;
  const auto folder = Open(Mixtral(), files);
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int layer : {-1, 2}) {
    const absl::Status expected = absl::InvalidArgumentError(
        absl::StrCat(files.PathOf("config.json"), ": there is no layer ", layer, ", only 0 to 1"));
    EXPECT_EQ((*folder)->LayerConfig(layer).status(), expected);
    EXPECT_EQ((*folder)->Weights(layer).status(), expected);
  }
}

// Families that have what another one has, with other numbers.
TEST(ModelFolderConfig, RelativesOfOtherFamilies) {
  const Json glm = Json::parse(R"({"model_type": "glm4_moe", "n_group": null, "topk_group": null,
      "topk_method": null, "scoring_func": null, "norm_topk_prob": null,
      "routed_scaling_factor": null, "first_k_dense_replace": null})");
  MoeLayerConfig config = *ConfigWith(DeepseekV3(), glm, 1);
  EXPECT_EQ(config.router.scores, RouterScores::kSigmoid);
  EXPECT_EQ(config.router.groups, 1);
  EXPECT_TRUE(config.router.normalize);
  EXPECT_EQ(config.router.normalize_epsilon, 1e-20F);
  EXPECT_EQ(config.router.scaling, 1.0F);
  EXPECT_EQ(config.shared_intermediate, config.intermediate);
  EXPECT_FALSE(ConfigWith(DeepseekV3(), glm, 0).ok()) << "the first layer is dense";

  Json minimax = Json::parse(R"({"model_type": "minimax_m2", "scoring_func": "sigmoid"})");
  config = *ConfigWith(Mixtral(), minimax, LastLayer(Mixtral()));
  EXPECT_EQ(config.router.scores, RouterScores::kSigmoid);
  EXPECT_TRUE(config.router.normalize);
  EXPECT_EQ(config.router.normalize_epsilon, 0.0F);
  EXPECT_EQ(config.router.scaling, 1.0F);
  minimax["use_routing_bias"] = false;
  EXPECT_THAT(std::string(ConfigWith(Mixtral(), minimax, 0).status().message()),
              HasSubstr("use_routing_bias false is not supported; it must be true"));
  minimax["scoring_func"] = "softmax";
  EXPECT_THAT(std::string(ConfigWith(Mixtral(), minimax, 0).status().message()),
              HasSubstr("scoring_func \"softmax\" is not supported; it must be 'sigmoid'"));

  const Json next = Json::parse(R"({"model_type": "qwen3_next", "norm_topk_prob": null})");
  Json without = next;
  without["norm_topk_prob"] = false;
  config = *ConfigWith(Qwen2(), next, LastLayer(Qwen2()));
  EXPECT_TRUE(config.shared_gate);
  EXPECT_TRUE(config.router.normalize);
  EXPECT_FALSE(ConfigWith(Qwen2(), without, LastLayer(Qwen2()))->router.normalize);
}

struct WrongMember {
  std::string change;   // a merge patch of config.json
  std::string message;  // after the file's name
};

// Expects that config.json of `model` with each change is refused.
void ExpectRefused(const Model& model, const std::vector<WrongMember>& all) {
  for (const WrongMember& each : all) {
    SCOPED_TRACE(each.change);
    const absl::Status status =
        ConfigWith(model, Json::parse(each.change), LastLayer(model)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: " + each.message));
  }
}

TEST(ModelFolderConfig, WrongMembersOfAnyFamily) {
  ExpectRefused(
      Mixtral(),
      {{R"({"num_local_experts": null})", "num_local_experts is missing"},
       {R"({"num_local_experts": 0})", "num_local_experts must be a whole number from 1 up, and"},
       {R"({"num_experts_per_tok": null})", "num_experts_per_tok is missing"},
       {R"({"hidden_size": null})", "hidden_size is missing"},
       {R"({"hidden_size": "9"})", "hidden_size must be a whole number from 1 up, and is \"9\""},
       {R"({"hidden_size": -16})", "hidden_size must be a whole number from 1 up, and is -16"},
       {R"({"hidden_size": 2147483648})", "hidden_size must be a whole number from 1 up, and is"},
       {R"({"hidden_size": 16.0})", "hidden_size must be a whole number from 1 up, and is 16.0"},
       {R"({"intermediate_size": null})", "intermediate_size is missing"},
       {R"({"hidden_act": "gelu"})", "hidden_act \"gelu\" is not supported; it must be 'silu'"},
       {R"({"hidden_act": 1})", "hidden_act must be a string, and is 1"},
       {R"({"torch_dtype": {}})", "torch_dtype must be a string, and is an object"}});
}

TEST(ModelFolderConfig, WrongMembersOfQwenAndOlmoe) {
  ExpectRefused(
      Qwen3(), {{R"({"num_experts": null})", "num_experts is missing"},
                {R"({"moe_intermediate_size": null})", "moe_intermediate_size is missing"},
                {R"({"norm_topk_prob": 1})", "norm_topk_prob must be true or false, and is 1"},
                {R"({"mlp_only_layers": 1})", "mlp_only_layers must be a list of whole numbers"},
                {R"({"mlp_only_layers": [-1]})", "mlp_only_layers must be a list of whole numbers"},
                {R"({"decoder_sparse_step": 0})", "decoder_sparse_step must be a whole number"}});
  ExpectRefused(Qwen2(), {{R"({"shared_expert_intermediate_size": null})",
                           "shared_expert_intermediate_size is missing"}});
  ExpectRefused(Olmoe(), {{R"({"num_experts": null})", "num_experts is missing"},
                          {R"({"intermediate_size": null})", "intermediate_size is missing"}});
}

TEST(ModelFolderConfig, WrongMembersOfDeepseek) {
  ExpectRefused(
      DeepseekV2(),
      {{R"({"n_routed_experts": null})", "n_routed_experts is missing"},
       {R"({"n_group": null})", "n_group is missing"},
       {R"({"topk_group": null})", "topk_group is missing"},
       {R"({"topk_method": "noaux_tc"})", "topk_method \"noaux_tc\" is not supported; it must be"},
       {R"({"scoring_func": "sigmoid"})", "scoring_func \"sigmoid\" is not supported; it must be"},
       {R"({"routed_scaling_factor": "1"})", "routed_scaling_factor must be a number, and is"},
       {R"({"routed_scaling_factor": 1e39})", "routed_scaling_factor must be a number, and is"},
       {R"({"moe_layer_freq": 0})", "moe_layer_freq must be a whole number from 1 up, and is 0"},
       {R"({"first_k_dense_replace": -1})", "first_k_dense_replace must be a whole number from 0"},
       {R"({"n_shared_experts": 2147483647})",
        "n_shared_experts \"2147483647\" is not supported"}});
  ExpectRefused(
      DeepseekV3(),
      {{R"({"topk_method": "greedy"})", "topk_method \"greedy\" is not supported; it must be"},
       {R"({"scoring_func": "softmax"})", "scoring_func \"softmax\" is not supported; it must be"},
       {R"({"quantization_config": 1})", "quantization_config must be an object, and is 1"},
       {R"({"quantization_config": {"quant_method": "gptq"}})",
        "quantization_config: quant_method \"gptq\" is not supported; it must be 'fp8'"},
       {R"({"quantization_config": {"fmt": "e5m2"}})",
        "quantization_config: fmt \"e5m2\" is not supported; it must be 'e4m3'"},
       {R"({"quantization_config": {"weight_block_size": [64, 128]}})",
        "quantization_config: weight_block_size \"[64, 128]\" is not supported"}});
}

// What changes numbers is obeyed, or refused by name.
TEST(ModelFolderConfig, MembersThatChangeTheResult) {
  ExpectRefused(DeepseekV2(),
                {{R"({"mlp_bias": true})", "mlp_bias true is not supported; it must be false"},
                 {R"({"mlp_bias": "no"})", "mlp_bias must be true or false, and is \"no\""}});
  ExpectRefused(
      DeepseekV3(),
      {{R"({"quantization_config": {"scale_fmt": "ue8m0"}})",
        "quantization_config: scale_fmt \"ue8m0\" is not supported; it must be 'float'"},
       {R"({"quantization_config": {"activation_scheme": "learned"}})",
        "quantization_config: activation_scheme \"learned\" is not supported; it must be 'dyn"},
       {R"({"quantization_config": {"dequantize": true}})",
        "quantization_config: dequantize true is not supported; it must be false"},
       {R"({"quantization_config": {"rotation": 1}})",
        "quantization_config: 'rotation' is unknown, and the result might depend on it"}});
  const auto ignored = ConfigWith(DeepseekV3(),
                                  {{"mlp_bias", true},  // without a meaning in this family
                                   {"seq_aux", true},
                                   {"quantization_config",
                                    {{"activation_scheme", "static"},
                                     {"weight_block_size", nullptr},
                                     {"scale_fmt", "float"},
                                     {"dequantize", false},
                                     {"modules_to_not_convert", {"lm_head"}}}}},
                                  1);
  EXPECT_TRUE(ignored.ok()) << ignored.status();
  EXPECT_TRUE(ConfigWith(DeepseekV2(), {{"mlp_bias", false}}, 1).ok());
}

// compressed-tensors writes one group of weights.
Json Compressed(const Json& weights, const Json& group = Json::object()) {
  Json all = {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}};
  all.update(group);
  return {{"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", weights["num_bits"] == 4 ? "pack-quantized" : "float-quantized"},
            {"quantization_status", "compressed"},
            {"config_groups", {{"group_0", all}}},
            {"ignore", {"lm_head", "re:.*mlp.gate$"}},
            {"kv_cache_scheme", nullptr},
            {"sparsity_config", Json::object()}}}};
}

TEST(ModelFolderConfig, CompressedTensors) {
  const Json int4 = {{"num_bits", 4},      {"type", "int"},    {"strategy", "group"},
                     {"group_size", 128},  {"dynamic", false}, {"symmetric", true},
                     {"actorder", nullptr}};
  const Json fp8 = {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};
  const Json rows = {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}};
  const auto refusal = [](const Json& change) {
    Model model = Qwen3();
    model.config.update(change);
    const TestFolder files;
    const auto folder = Open(model, files);
    return std::string(folder.ok() ? (*folder)->LayerConfig(0).status().message()
                                   : folder.status().message());
  };
  const auto with = [](Json weights, const std::string& member, const Json& value) {
    weights[member] = value;
    return weights;
  };
  EXPECT_EQ(refusal(Compressed(int4)), "");
  EXPECT_EQ(refusal(Compressed(with(int4, "group_size", 32))), "");
  EXPECT_EQ(refusal(Compressed(with(int4, "strategy", "channel"))), "");
  EXPECT_EQ(refusal(Compressed(fp8, {{"input_activations", rows}})), "");
  EXPECT_EQ(refusal(Compressed(with(fp8, "strategy", "tensor"))), "");
  Json block = with(fp8, "strategy", "block");
  EXPECT_EQ(refusal(Compressed(with(block, "block_structure", {128, 128}))), "");

  EXPECT_THAT(refusal(Compressed(with(block, "block_structure", {64, 64}))),
              HasSubstr("block_structure \"[64, 64]\" is not supported; it must be [128, 128]"));
  EXPECT_THAT(refusal(Compressed(with(int4, "group_size", 16))),
              HasSubstr("config_groups: 'group_0': weights: group_size 16 is not supported; it "
                        "must be a multiple of 32"));
  EXPECT_THAT(refusal(Compressed(with(int4, "symmetric", false))), HasSubstr("symmetric false"));
  EXPECT_THAT(refusal(Compressed(with(int4, "actorder", "group"))),
              HasSubstr("actorder \"group\" is not supported; it must be null"));
  EXPECT_THAT(refusal(Compressed(with(int4, "num_bits", 8))),
              HasSubstr("num_bits 8 is not supported; it must be 4 with type 'int', or 8 with"));
  EXPECT_THAT(refusal(Compressed(with(int4, "strategy", "tensor_group"))),
              HasSubstr("strategy \"tensor_group\" is not supported; it must be 'group' or"));
  EXPECT_THAT(refusal(Compressed(with(int4, "zero", 1))), HasSubstr("'zero' is unknown"));
  EXPECT_THAT(refusal(Compressed(int4, {{"input_activations", rows}})),
              HasSubstr("input_activations \"8 bits\" is not supported; it must be null with"));
  EXPECT_THAT(refusal(Compressed(fp8, {{"output_activations", rows}})),
              HasSubstr("output_activations"));
  Json change = Compressed(fp8);
  change["quantization_config"]["sparsity_config"]["format"] = "sparse-24";
  EXPECT_THAT(refusal(change), HasSubstr("sparsity_config: 'format' is unknown"));
  change = Compressed(fp8);
  change["quantization_config"]["format"] = "nvfp4-pack-quantized";
  EXPECT_THAT(refusal(change), HasSubstr("format \"nvfp4-pack-quantized\" is not supported"));
}

// Returns the configuration if a member is null in the file, which no merge patch can say.
absl::StatusOr<MoeLayerConfig> ConfigWithNull(Model model, const std::string& member) {
  const TestFolder files;
  model.config[member] = nullptr;
  const auto folder = Open(model, files);
  return folder.ok() ? (*folder)->LayerConfig(LastLayer(model)) : folder.status();
}

TEST(ModelFolderConfig, NullIsWhatPythonMakesOfNone) {
  const auto v3 = ConfigWithNull(DeepseekV3(), "norm_topk_prob");
  ASSERT_TRUE(v3.ok()) << v3.status();
  EXPECT_FALSE(v3->router.normalize);
  EXPECT_TRUE(ConfigWithNull(DeepseekV2(), "mlp_bias").ok());
  EXPECT_TRUE(ConfigWithNull(DeepseekV3(), "quantization_config").ok());
  EXPECT_TRUE(ConfigWithNull(Qwen3(), "mlp_only_layers").ok());
  EXPECT_TRUE(ConfigWithNull(Mixtral(), "torch_dtype").ok());
  for (const std::string member : {"routed_scaling_factor", "first_k_dense_replace", "n_group"}) {
    const absl::Status status = ConfigWithNull(DeepseekV3(), member).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("config.json: " + member + " is null; remove it for its default"));
  }
}

TEST(ModelFolderConfig, NumbersThatJsonDoesNotHave) {
  const TestFolder files;
  const auto message_of = [&](const std::string& value) {
    files.Write("config.json", "{\n  \"routed_scaling_factor\": " + value + "\n}");
    return std::string(ModelFolder::Open(files.path()).status().message());
  };
  for (const std::string name : {"NaN", "Infinity"}) {
    for (const std::string sign : {"", "-"}) {
      EXPECT_THAT(message_of(sign + name),
                  AllOf(HasSubstr("config.json is no JSON: parse error at line 2, column "),
                        HasSubstr("; " + name + " is no number of JSON: write a finite one")));
    }
  }
  EXPECT_THAT(message_of("1e999"), HasSubstr("is no JSON: number overflow parsing '1e999'"));
  EXPECT_LT(message_of(std::string(100'000, '9') + "e999").size(), 500U);
  EXPECT_LT(message_of("\"" + std::string(100'000, 'x')).size(), 500U);
}

TEST(ModelFolderConfig, FilesThatCannotBeOpened) {
  const TestFolder files;
  const std::string path = files.PathOf("config.json");
  EXPECT_EQ(ModelFolder::Open(files.path()).status(),
            absl::NotFoundError(absl::StrCat("cannot read ", path, ": No such file or directory")));
  const auto status_of = [&](const std::string& text) {
    files.Write("config.json", text);
    return ModelFolder::Open(files.path()).status();
  };
  EXPECT_EQ(status_of("{"), absl::InvalidArgumentError(
                                path + " is no JSON: parse error at line 1, column 2: syntax error "
                                       "while parsing object key - unexpected end of input; "
                                       "expected string literal"));
  EXPECT_EQ(status_of("[]"), absl::InvalidArgumentError(path + " is no JSON object"));
  EXPECT_EQ(status_of(std::string(1'000'000, '[')),
            absl::InvalidArgumentError(path + " is no JSON: parse error at line 1, column 1000001: "
                                              "syntax error while parsing value - unexpected end "
                                              "of input; expected '[', '{', or a literal"));
  EXPECT_EQ(status_of(std::string(2 << 20, ' ')),
            absl::InvalidArgumentError(path + " has more than 1048576 bytes"));
  EXPECT_EQ(status_of("{}"), absl::InvalidArgumentError(path + ": model_type is missing"));
  EXPECT_EQ(
      status_of(R"({"model_type": "llama"})"),
      absl::UnimplementedError(
          path + ": model_type \"llama\" is not one of mixtral, qwen2_moe, qwen3_moe, olmoe, "
                 "deepseek_v2, deepseek_v3, gpt_oss, glm4_moe, minimax_m2, qwen3_next, kimi_k2, "
                 "granitemoe, ernie4_5_moe, hunyuan_v1_moe, llama4_text, "
                 "qwen3_5_moe_text, phimoe"));
  EXPECT_EQ(status_of(R"({"model_type": "olmoe"})"),
            absl::InvalidArgumentError(path + ": num_hidden_layers is missing"));
  EXPECT_EQ(status_of(Mixtral().config.dump()),
            absl::NotFoundError(files.path() + " has no *.safetensors files"));
}

}  // namespace
}  // namespace octet
