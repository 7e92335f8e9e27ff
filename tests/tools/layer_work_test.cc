// What a call of a layer computes and moves, against figures worked out by hand.
#include "tools/measure/layer/layer_work.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "octet/moe_layer.h"

namespace octet {
namespace {

MoeLayerConfig Config() {
  MoeLayerConfig config;
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 100;
  config.intermediate = 10;
  config.shared_intermediate = 30;
  config.shared_gate = true;
  return config;
}

// Three tokens on rank 0 and one on rank 1; the ranks have the experts 0, 1 and 2, 3.
const std::vector<int> kCounts = {3, 1};
const std::vector<int32_t> kTopkIdx = {0, 1, 2, 3, 1, 3, 0, -1};

TEST(LayerWorkTest, Computes) {
  const LayerWork work = WorkOf(Config(), kCounts, kTopkIdx);
  // 2 tokens of a GPU: router with the gate 5 x 100, experts 2 x 3 x 10 x 100, shared 3 x 30 x 100.
  EXPECT_EQ(work.flops, 2 * 2 * (500 + 6000 + 9000));
  EXPECT_EQ(work.expert_bytes, 2 * 2 * 3000);  // 2 experts of a GPU, all with tokens
  EXPECT_EQ(work.weight_bytes, 2 * (500 + 2 * 3000 + 9000));
}

TEST(LayerWorkTest, ReadsTheExpertsThatHaveTokens) {
  EXPECT_EQ(ChosenExperts(kTopkIdx, 2), 2);
  EXPECT_EQ(ChosenExperts({0, 0, 1, -1}, 2), 1);
  EXPECT_EQ(ChosenExperts({}, 2), 0);
}

TEST(LayerWorkTest, MovesTokensOnceForEachOtherRank) {
  // To rank 1: token 1, both of whose experts are there, and token 2; to rank 0: token 3.
  LayerWork work = WorkOf(Config(), kCounts, kTopkIdx);
  EXPECT_EQ(work.dispatch_link_bytes, 2 * 200);
  EXPECT_EQ(work.combine_link_bytes, 2 * 200);
  MoeLayerConfig config = Config();
  config.weights = GemmFormat::kFp8;
  work = WorkOf(config, kCounts, kTopkIdx);
  EXPECT_EQ(work.dispatch_link_bytes, 2 * 100);
  EXPECT_EQ(work.combine_link_bytes, 2 * 200);
  EXPECT_EQ(work.expert_bytes, 2 * 3000);
}

TEST(LayerWorkTest, OneRankMovesNothing) {
  const LayerWork work = WorkOf(Config(), {4}, kTopkIdx);
  EXPECT_EQ(work.dispatch_link_bytes, 0);
}

}  // namespace
}  // namespace octet
