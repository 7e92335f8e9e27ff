// A fixture for tests of layers.
#ifndef OCTET_TESTS_KERNELS_LAYER_MOE_LAYER_FIXTURE_H_
#define OCTET_TESTS_KERNELS_LAYER_MOE_LAYER_FIXTURE_H_

#include "octet/moe_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/layer_config.h"
#include "octet/dtype.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/node/node_fixture.h"
#include "tools/check/verify_layer.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {

inline constexpr uint64_t kSeed = 7;

inline MoeLayerConfig Config() {
  MoeLayerConfig config;
  config.num_experts = 12;
  config.topk = 3;
  config.hidden = 64;
  config.intermediate = 48;
  config.router.normalize = true;
  config.max_tokens_per_rank = 9;
  return config;
}

inline RouterConfig DeepseekRouter() {
  return {.scores = RouterScores::kSigmoid,
          .groups = 4,
          .top_groups = 2,
          .group_score = GroupScore::kSumOfTwoBest,
          .normalize = true,
          .normalize_epsilon = 1e-20F,
          .scaling = 2.5F};
}

inline std::string TextOf(const MoeLayerConfig& c) {
  return absl::StrCat("E ", c.num_experts, " K ", c.topk, " H ", c.hidden, " I ", c.intermediate,
                      " S ", c.shared_intermediate, c.shared_gate ? " gated" : "", " ",
                      EnumName(c.dtype), " ", EnumName(c.weights), " groups ", c.router.groups, " ",
                      EnumName(c.strategy), " ", EnumName(c.fusion), " shared ",
                      EnumName(c.shared_experts), " link blocks ", c.link_blocks);
}

class MoeLayerTest : public NodeTest {
 protected:
  // Makes a layer with random weights.
  void MakeLayer(int num_ranks, const MoeLayerConfig& config,
                 absl::Duration timeout = absl::Seconds(10)) {
    MakeNode(num_ranks, timeout);
    if (IsSkipped() || node_ == nullptr) return;
    absl::StatusOr<std::unique_ptr<MoeLayer>> layer = MoeLayer::Create(*node_, config);
    ASSERT_OK(layer.status());
    layer_ = *std::move(layer);
    weights_ = std::make_unique<RandomWeights>(
        config, config.router.scores == RouterScores::kSigmoid, kSeed);
    ASSERT_OK(layer_->Load(weights_->weights()));
  }

  // Tokens of each rank; what they are follows from the seed.
  static LayerTokens Tokens(const std::vector<int>& counts, const MoeLayerConfig& config,
                            uint64_t seed) {
    LayerTokens tokens = RandomTokens(config.max_tokens_per_rank, config.hidden,
                                      static_cast<int>(counts.size()), config.dtype, seed);
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      tokens.rows[rank].resize(static_cast<size_t>(counts[rank]) *
                               static_cast<size_t>(config.hidden));
    }
    return tokens;
  }

  static absl::StatusOr<LayerOutput> Call(Node& node, MoeLayer& layer, const LayerTokens& tokens) {
    LayerCalls calls(node, layer, tokens);
    OCTET_RETURN_IF_ERROR(calls.Init());
    OCTET_RETURN_IF_ERROR(calls.CallOnce());
    return calls.Read();
  }

  void ExpectCorrect(const LayerOutput& output) const {
    const LayerCheck check = VerifyLayer(layer_->config(), weights_->weights(), output);
    EXPECT_TRUE(check.ok()) << check.first_wrong;
    EXPECT_EQ(static_cast<size_t>(check.routed),
              output.x.size() / static_cast<size_t>(layer_->config().hidden));
    EXPECT_LE(check.worst, 1);
  }

  // A layer of this configuration computes these tokens correctly.
  void RunAndCheck(const std::vector<int>& counts, const MoeLayerConfig& config) {
    SCOPED_TRACE(TextOf(config));
    MakeLayer(static_cast<int>(counts.size()), config);
    if (IsSkipped() || HasFatalFailure()) return;
    const absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, Tokens(counts, config, kSeed));
    ASSERT_OK(output.status());
    ExpectCorrect(*output);
    layer_.reset();
  }

  std::unique_ptr<MoeLayer> layer_;
  std::unique_ptr<RandomWeights> weights_;
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_LAYER_MOE_LAYER_FIXTURE_H_
