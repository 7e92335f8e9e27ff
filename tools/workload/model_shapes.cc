#include "tools/workload/model_shapes.h"

#include <algorithm>

namespace octet {

MoeLayerConfig ModelShape(ModelFamily family) {
  const auto shape = [](int experts, int topk, int hidden, int intermediate, int shared) {
    MoeLayerConfig config;
    config.num_experts = experts;
    config.topk = topk;
    config.hidden = hidden;
    config.intermediate = intermediate;
    config.shared_intermediate = shared;
    return config;
  };
  switch (family) {
    case ModelFamily::kMixtral:
      return shape(8, 2, 4096, 14336, 0);  // 8x7B
    case ModelFamily::kQwen2Moe: {
      MoeLayerConfig config = shape(64, 8, 3584, 2560, 20480);  // 57B-A14B
      config.shared_gate = true;
      return config;
    }
    case ModelFamily::kQwen3Next: {
      MoeLayerConfig config = shape(512, 10, 2048, 512, 512);  // 80B-A3B
      config.shared_gate = true;
      return config;
    }
    case ModelFamily::kQwen35MoeText: {
      MoeLayerConfig config = shape(512, 10, 4096, 1024, 1024);  // 397B-A17B
      config.shared_gate = true;
      return config;
    }
    case ModelFamily::kGlm4Moe:
      return shape(160, 8, 5120, 1536, 1536);  // GLM-4.5
    case ModelFamily::kMinimaxM2:
      return shape(256, 8, 3072, 1536, 0);
    case ModelFamily::kQwen3Moe:
      return shape(128, 8, 2048, 768, 0);  // 30B-A3B
    case ModelFamily::kOlmoe:
      return shape(64, 8, 2048, 1024, 0);  // 1B-7B
    case ModelFamily::kDeepseekV2:
      return shape(160, 6, 5120, 1536, 3072);
    case ModelFamily::kGptOss: {
      MoeLayerConfig config = shape(128, 4, 2880, 2880, 0);  // 120B
      config.logit_bias = true;
      config.expert_biases = true;
      config.swiglu = {.alpha = 1.702F, .limit = 7.0F, .up_offset = 1.0F};
      return config;
    }
    case ModelFamily::kKimiK2:
      return shape(384, 8, 7168, 2048, 2048);
    case ModelFamily::kGraniteMoe:
      return shape(40, 8, 1536, 512, 0);  // 3.0 3B-A800M
    case ModelFamily::kErnie45Moe:
      return shape(64, 6, 2560, 1536, 3072);  // 21B-A3B
    case ModelFamily::kHunyuanV1Moe:
      return shape(64, 8, 4096, 3072, 3072);  // A13B
    case ModelFamily::kLlama4Text: {
      MoeLayerConfig config = shape(16, 1, 5120, 8192, 8192);  // Scout
      config.weighs_input = true;
      return config;
    }
    case ModelFamily::kPhimoe:
      return shape(16, 2, 4096, 6400, 0);  // 3.5
    case ModelFamily::kDeepseekV3:
      break;
  }
  return shape(256, 8, 7168, 2048, 2048);
}

MoeLayerConfig SmallShape(ModelFamily family) {
  MoeLayerConfig config = ModelShape(family);
  config.num_experts = kSmallSizes.experts;
  config.topk = std::min(config.topk, kSmallSizes.topk);
  config.hidden = kSmallSizes.hidden;
  config.intermediate = kSmallSizes.intermediate;
  if (config.shared_intermediate > 0) config.shared_intermediate = kSmallSizes.intermediate;
  return config;
}

RouterConfig ModelRouter(ModelFamily family, int num_experts) {
  constexpr int kGroups = 8;
  const bool grouped = num_experts % (2 * kGroups) == 0;
  RouterConfig router;
  switch (family) {
    case ModelFamily::kMixtral:
    case ModelFamily::kQwen3Moe:
    case ModelFamily::kQwen3Next:
    case ModelFamily::kQwen35MoeText:
    case ModelFamily::kGptOss:
    case ModelFamily::kGraniteMoe:
    case ModelFamily::kErnie45Moe:
    case ModelFamily::kHunyuanV1Moe:
      router.normalize = true;
      break;
    case ModelFamily::kLlama4Text:
      router.scores = RouterScores::kSigmoid;
      break;
    case ModelFamily::kPhimoe:
      router.scores = RouterScores::kSparsemixer;
      router.jitter = 0.01F;
      break;
    case ModelFamily::kKimiK2:
      router.scores = RouterScores::kSigmoid;
      router.normalize = true;
      router.normalize_epsilon = 1e-20F;
      router.scaling = 2.827F;
      break;
    case ModelFamily::kMinimaxM2:
      router.scores = RouterScores::kSigmoid;
      router.normalize = true;
      break;
    case ModelFamily::kGlm4Moe:
      router.scores = RouterScores::kSigmoid;
      router.group_score = GroupScore::kSumOfTwoBest;
      router.normalize = true;
      router.normalize_epsilon = 1e-20F;
      router.scaling = 2.5F;
      break;
    case ModelFamily::kQwen2Moe:
    case ModelFamily::kOlmoe:
      break;
    case ModelFamily::kDeepseekV2:
      router.scaling = 16;
      if (grouped) router.groups = kGroups;
      if (grouped) router.top_groups = 3;
      break;
    case ModelFamily::kDeepseekV3:
      router.scores = RouterScores::kSigmoid;
      router.group_score = grouped ? GroupScore::kSumOfTwoBest : GroupScore::kMaximum;
      if (grouped) router.groups = kGroups;
      if (grouped) router.top_groups = 4;
      router.normalize = true;
      router.normalize_epsilon = 1e-20F;
      router.scaling = 2.5F;
      break;
  }
  return router;
}

}  // namespace octet
