// Every contender that is available here, against the reference: other contenders must do the whole
// step, or figures beside them mean nothing.
#include "tools/contenders/contender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "octet/topology.h"
#include "tools/measure/step/step_runner.h"
#include "tools/step/run_spec.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

struct Shape {
  const char* name;
  int ranks;
  int experts;
  int topk;
  int hidden;
  std::vector<int> tokens;
  double drop = 0;
  bool fuse_expert = true;
  DType dtype = DType::kBFloat16;
  const char* routing = "uniform";
};

const std::vector<Shape>& Shapes() {
  static const auto* const kShapes = new std::vector<Shape>{
      {"OneRank", 1, 8, 3, 64, {5}},
      {"TwoRanksRaggedRows", 2, 6, 2, 1000, {7, 3}, 0.2, true, DType::kFloat16},
      {"ThreeRanksOneWithoutTokens", 3, 9, 4, 128, {4, 0, 9}, 0.3, false},
      {"AllToOneExpert", 4, 8, 2, 256, {6, 6, 6, 6}, 0, true, DType::kBFloat16, "one_expert"},
      {"AllDropped", 2, 4, 2, 64, {3, 3}, 1.0},
      {"EightRanks", 8, 64, 6, 512, {8, 1, 16, 3, 0, 9, 12, 5}, 0.1, false, DType::kFloat16},
  };
  return *kShapes;
}

RunSpec OptionsFor(const Shape& shape) {
  RunSpec options;
  options.fuse_expert = shape.fuse_expert;
  options.workload.num_ranks = shape.ranks;
  options.workload.config.num_experts = shape.experts;
  options.workload.config.topk = shape.topk;
  options.workload.config.hidden = shape.hidden;
  options.workload.config.max_tokens_per_rank = 16;
  options.workload.config.dtype = shape.dtype;
  options.workload.tokens = shape.tokens;
  options.workload.routing = *ParseRouting(shape.routing);
  options.workload.drop = shape.drop;
  options.workload.seed = 7;
  return options;
}

// Steps that follow each other on one ExpertParallel, each with other inputs.
void RunSteps(Node& node, Contender& contender, const RunSpec& options) {
  auto ep = contender.Create(options.workload.config, {});
  ASSERT_TRUE(ep.ok()) << ep.status();
  auto runner = StepRunner::Create(node, **ep, options);
  ASSERT_TRUE(runner.ok()) << runner.status();
  auto workload = Workload::Create(options.workload);
  ASSERT_TRUE(workload.ok()) << workload.status();
  uint32_t number = 0;
  for (const StepForm form : {StepForm::kFused, StepForm::kPhases, StepForm::kFused}) {
    (*workload)->Generate(number++);
    const auto step = (*runner)->Run(**workload, form);
    ASSERT_TRUE(step.ok()) << step.status();
    for (const RankStepResult& rank : step->ranks) {
      EXPECT_TRUE(rank.verification.bitwise) << rank.verification.first;
      EXPECT_GT(rank.all_us, 0);
    }
    // Steps in a row, without a word between the ranks.
    const absl::Status heated = (*runner)->Heat(3);
    ASSERT_TRUE(heated.ok()) << heated;
  }
}

class ContendersShapeTest : public ::testing::TestWithParam<Shape> {};

TEST_P(ContendersShapeTest, DeliverWhatTheReferenceDoes) {
  const Shape& shape = GetParam();
  const auto topology = DiscoverTopology();
  if (!topology.ok()) GTEST_SKIP() << topology.status();
  if (const absl::Status status = topology->CheckRanks(shape.ranks); !status.ok()) {
    GTEST_SKIP() << status;
  }
  auto node = Node::Create({.num_ranks = shape.ranks});
  ASSERT_TRUE(node.ok()) << node.status();
  for (const std::unique_ptr<Contender>& contender : MakeContenders(**node)) {
    SCOPED_TRACE(contender->name());
    if (!contender->Available().ok()) continue;
    RunSteps(**node, *contender, OptionsFor(shape));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ContendersShapeTest, ::testing::ValuesIn(Shapes()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ContendersTest, BytesOfAPeerAreThoseOfItsRows) {
  auto node = Node::Create({.num_ranks = 2});
  if (!node.ok()) GTEST_SKIP() << node.status();
  const auto contenders = MakeContenders(**node);
  auto contender = FindContender(contenders, "memcpy_peer");
  ASSERT_TRUE(contender.ok()) << contender.status();
  EXPECT_FALSE((*contender)->is_strategy());
  EpConfig config;
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 64;
  config.max_tokens_per_rank = 4;
  auto ep = (*contender)->Create(config, {});
  ASSERT_TRUE(ep.ok()) << ep.status();
  const std::vector<int32_t> topk_idx = {0, 3, -1, 2, 1, 0};
  const Traffic dispatch = (*ep)->DispatchTraffic(0, topk_idx);
  EXPECT_EQ(dispatch.rows, 5);
  EXPECT_EQ(dispatch.logical_bytes, 5 * 128);
  EXPECT_EQ(dispatch.wire_bytes, 2 * (128 + 4));  // experts 2 and 3, each row with its flat token
  EXPECT_EQ((*ep)->CombineTraffic(0, topk_idx).wire_bytes, 2 * 128);
}

TEST(ContendersTest, CheckSaysWhatCreateWould) {
  auto node = Node::Create({.num_ranks = 1});
  if (!node.ok()) GTEST_SKIP() << node.status();
  EpConfig plain;
  plain.num_experts = 4;
  plain.topk = 2;
  plain.hidden = 128;
  plain.max_tokens_per_rank = 4;
  EpConfig many = plain;
  many.max_tokens_per_rank = 2000;
  EpConfig fp8 = plain;
  fp8.dispatch_format = DispatchFormat::kFp8;
  EpConfig quantized = plain;
  quantized.dispatch_format = DispatchFormat::kQuantizedFp8;
  for (const std::unique_ptr<Contender>& contender : MakeContenders(**node)) {
    SCOPED_TRACE(contender->name());
    if (!contender->Available().ok()) continue;
    EXPECT_TRUE(contender->Check(plain).ok());
    for (const EpConfig& config : {plain, many, fp8, quantized}) {
      EXPECT_EQ(contender->Check(config), contender->Create(config, {}).status());
    }
    EXPECT_EQ(contender->Check(many).ok(), contender->name() != "low_latency");
    if (contender->is_strategy()) continue;
    EXPECT_THAT(
        std::string(contender->Check(quantized).message()),
        HasSubstr("other contenders support what direct does: dispatch_format quantized_fp8"));
  }
}

TEST(ContendersTest, UnknownNamesAreAnsweredWithTheKnown) {
  auto node = Node::Create({.num_ranks = 1});
  if (!node.ok()) GTEST_SKIP() << node.status();
  const auto found = FindContender(MakeContenders(**node), "carrier pigeons");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(found.status().message()),
              HasSubstr("direct, high_throughput, low_latency, memcpy_peer"));
}

// Asking for what another build has is no mistake on the command line.
TEST(ContendersTest, PeersOfOtherBuildsAreUnavailable) {
  auto node = Node::Create({.num_ranks = 1});
  if (!node.ok()) GTEST_SKIP() << node.status();
  const auto contenders = MakeContenders(**node);
  for (const char* name : {"nccl", "rccl"}) {
    const auto found = FindContender(contenders, name);
    if (found.ok()) continue;
    EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable) << name;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(name));
  }
}

}  // namespace
}  // namespace octet
