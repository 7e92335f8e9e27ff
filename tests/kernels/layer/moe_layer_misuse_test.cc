// Layers refuse what they cannot do.
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
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/layer/layer_config.h"
#include "octet/dtype.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/layer/moe_layer_fixture.h"
#include "tests/support/node/node_fixture.h"
#include "tools/check/verify_layer.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(MoeLayerTest, SharingNeedsAnEqualConfiguration) {
  MoeLayerConfig config = Config();
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  config.intermediate += 8;
  EXPECT_THAT(MoeLayer::Create(*node_, config, {.share = layer_.get()}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("equal configuration")));
}

TEST_F(MoeLayerTest, RefusesWhatCannotBeRight) {
  const MoeLayerConfig config = Config();
  MakeNode(2);
  if (IsSkipped()) return;
  const auto refused = [&](const MoeLayerConfig& changed) {
    return MoeLayer::Create(*node_, changed).status();
  };
  MoeLayerConfig changed = config;
  changed.intermediate = 50;
  EXPECT_THAT(refused(changed), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("intermediate is 50; it must be")));
  changed = config;
  changed.shared_gate = true;
  EXPECT_THAT(refused(changed),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shared_gate")));
  changed = config;
  changed.weights = GemmFormat::kFp8;
  changed.dtype = DType::kFloat16;
  EXPECT_THAT(refused(changed), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dtype")));
  changed = config;
  changed.max_blocks = 4;
  changed.link_blocks = 5;
  EXPECT_THAT(refused(changed), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("link_blocks is 5; it must be")));
  changed = config;
  changed.num_experts = 13;
  EXPECT_THAT(refused(changed),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_experts")));
  changed = config;
  changed.router.groups = 5;
  EXPECT_THAT(refused(changed), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("groups")));
}

// Validate knows what Create would refuse, and says it of the layer's own members.
TEST(MoeLayerConfigTest, ValidateRefusesFusionsThatCannotBe) {
  const auto refusal = [](const std::function<void(MoeLayerConfig&)>& alter) {
    MoeLayerConfig config = Config();
    alter(config);
    return Validate(config, 2);
  };
  const auto is = [](const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr(absl::StrCat("MoeLayerConfig::", words)));
  };
  EXPECT_THAT(refusal([](MoeLayerConfig& config) { config.fusion = Fusion::kEpilogue; }),
              is("fusion is epilogue; it must be auto, none, tiles or serial"));
  for (const Fusion fusion : {Fusion::kTiles, Fusion::kSerial}) {
    EXPECT_OK(refusal([&](MoeLayerConfig& config) { config.fusion = fusion; }));
    EXPECT_THAT(refusal([&](MoeLayerConfig& config) {
                  config.fusion = fusion;
                  config.weights = GemmFormat::kFp8;
                }),
                is(absl::StrCat("fusion is ", EnumName(fusion),
                                "; with FP8 weights it must be auto or none")));
    for (const Strategy strategy : {Strategy::kDirect, Strategy::kLowLatency}) {
      EXPECT_THAT(refusal([&](MoeLayerConfig& config) {
                    config.fusion = fusion;
                    config.strategy = strategy;
                  }),
                  is(absl::StrCat("strategy is ", EnumName(strategy), "; the fusion ",
                                  EnumName(fusion), " needs high_throughput or auto")));
    }
  }
  EXPECT_OK(refusal([](MoeLayerConfig& config) { config.weights = GemmFormat::kFp8; }));
}

// One node is not several.
TEST(MoeLayerConfigTest, ValidateForOneNodeIsThatWithoutNodes) {
  MoeLayerConfig config = Config();
  for (const Fusion fusion : {Fusion::kTiles, Fusion::kSerial}) {
    config.fusion = fusion;
    EXPECT_OK(Validate(config, NodesOfRanks{.num_nodes = 1, .ranks_per_node = 2}));
    EXPECT_THAT(Validate(config, NodesOfRanks{.num_nodes = 2, .ranks_per_node = 2}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("over several nodes it must be auto or none")));
  }
}

TEST_F(MoeLayerTest, RefusesWeightsThatDoNotFit) {
  const MoeLayerConfig config = Config();
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  MoeLayerWeights weights = weights_->weights();
  weights.experts[5].down = {};
  EXPECT_THAT(layer_->Load(weights), StatusIs(absl::StatusCode::kInvalidArgument,
                                              HasSubstr("experts[5].down is missing")));
  weights = weights_->weights();
  weights.experts[2].up.rows -= 8;
  EXPECT_THAT(layer_->Load(weights),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("experts[2].up is 40 x 64; it must be 48 x 64")));
  weights = weights_->weights();
  weights.experts.pop_back();
  EXPECT_THAT(layer_->Load(weights),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("experts has 11 elements")));
  weights = weights_->weights();
  weights.experts[1].gate.type = TensorType::kFloat8E4m3;
  EXPECT_THAT(layer_->Load(weights),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("without scales")));
}

TEST_F(MoeLayerTest, RefusesCallsThatCannotBeRight) {
  MoeLayerConfig config = Config();
  MakeNode(1);
  if (IsSkipped()) return;
  absl::StatusOr<std::unique_ptr<MoeLayer>> layer = MoeLayer::Create(*node_, config);
  ASSERT_OK(layer.status());
  const auto call = [&](int tokens) {
    return node_->Run(
        [&](Rank& rank) { return (*layer)->Forward(rank, nullptr, tokens, nullptr); });
  };
  EXPECT_THAT(call(0), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Load")));
  const RandomWeights weights(config, false, kSeed);
  ASSERT_OK((*layer)->Load(weights.weights()));
  EXPECT_THAT(call(10), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("num_tokens is 10; it must be 0 to")));
  EXPECT_THAT(call(1), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("x of rank 0 is null; the call needs 1 row of ")));
  EXPECT_OK(call(0));
}

TEST_F(MoeLayerTest, RefusesOutputsThatOverlapTheTokens) {
  const MoeLayerConfig config = Config();
  MakeLayer(1, config);
  if (IsSkipped() || HasFatalFailure()) return;
  constexpr int kTokens = 4;
  const size_t bytes = kTokens * static_cast<size_t>(config.hidden) * InfoOf(config.dtype).bytes;
  DeviceMemory memory;
  const auto call = [&](size_t x, size_t y) {
    return node_->Run([&](Rank& rank) -> absl::Status {
      if (memory.bytes() == 0) {
        OCTET_ASSIGN_OR_RETURN(memory, DeviceMemory::Allocate(3 * bytes));
        OCTET_RETURN_IF_GPU_ERROR(hipMemset(memory.as<void>(), 0, memory.bytes()));
        OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
      }
      auto* const begin = memory.as<char>();
      return layer_->Forward(rank, begin + x, kTokens, begin + y);
    });
  };
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("y of rank 0 overlaps x: "), HasSubstr("memory of its own")));
  EXPECT_THAT(call(0, 0), refused);
  EXPECT_THAT(call(0, bytes - 16), refused);
  EXPECT_THAT(call(bytes - 16, 0), refused);
  EXPECT_OK(call(0, bytes));
  EXPECT_OK(call(bytes, 0));
}

TEST_F(MoeLayerTest, AGraphIsNotLaunchedAfterItsLayer) {
  const MoeLayerConfig config = Config();
  MakeLayer(1, config);
  if (IsSkipped() || HasFatalFailure()) return;
  // Keeps everything but the weights.
  absl::StatusOr<std::unique_ptr<MoeLayer>> second =
      MoeLayer::Create(*node_, config, {.share = layer_.get()});
  ASSERT_OK(second.status());
  const LayerTokens tokens = Tokens({4}, config, kSeed);
  LayerCalls calls(*node_, *layer_, tokens);
  ASSERT_OK(calls.Init());
  ASSERT_OK(node_->Run([&](Rank& rank) { return calls.Capture(rank); }));
  ASSERT_OK(node_->Run([&](Rank& rank) { return calls.Launch(rank); }));
  layer_.reset();
  EXPECT_THAT(node_->Run([&](Rank& rank) { return calls.Launch(rank); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("a graph cannot be launched without the MoeLayer")));
}

}  // namespace
}  // namespace octet
