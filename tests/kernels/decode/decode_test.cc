// Layers in one launch against the reference, over families, types and shapes, and their promises:
// the same bits from run to run, and whatever other tokens there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/graph.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/memory/pinned_memory.h"
#include "tests/kernels/layer/moe_layer_fixture.h"
#include "tests/support/node/node_kernels.h"
#include "tools/step/layer_calls.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

MoeLayerConfig DecodeConfig() {
  MoeLayerConfig config = Config();
  config.path = LayerPath::kDecode;
  return config;
}

MoeLayerConfig WithBiases(MoeLayerConfig config) {
  config.logit_bias = true;
  config.expert_biases = true;
  config.swiglu = {.alpha = 1.702F, .limit = 0.75F, .up_offset = 1.0F};
  return config;
}

class DecodeTest : public MoeLayerTest {
 protected:
  absl::StatusOr<LayerOutput> CallWith(const LayerTokens& tokens) {
    return Call(*node_, *layer_, tokens);
  }
  // Tokens of random layers of this configuration, with 20 of them together and fewer.
  void ExpectBatchInvariance(MoeLayerConfig config);
  // Splits rows of tokens.
  static std::vector<std::vector<uint16_t>> RowsOf(const std::vector<uint16_t>& rows,
                                                   const MoeLayerConfig& config) {
    std::vector<std::vector<uint16_t>> split;
    for (auto at = rows.begin(); at != rows.end(); at += config.hidden) {
      split.emplace_back(at, at + config.hidden);
    }
    return split;
  }
};

TEST_F(DecodeTest, OneToken) {
  MoeLayerConfig config = DecodeConfig();
  config.max_tokens_per_rank = 1;
  RunAndCheck({1}, config);
  RunAndCheck({1, 1}, config);
  RunAndCheck({0, 1}, config);
}

// More strips of a block than have sums at once, and more chains of a wave than it lists at once.
TEST_F(DecodeTest, OneTokenOfManyStrips) {
  for (const GemmFormat weights : {GemmFormat::kMxfp4, GemmFormat::kFp8}) {
    MoeLayerConfig config = DecodeConfig();
    config.weights = weights;
    config.topk = 4;
    config.hidden = 544;
    config.intermediate = 544;
    config.max_tokens_per_rank = 1;
    RunAndCheck({1}, config);
    RunAndCheck({0}, config);
  }
}

TEST_F(DecodeTest, AsManyTokensAsThereMayBe) {
  MoeLayerConfig config = DecodeConfig();
  config.max_tokens_per_rank = 64;
  RunAndCheck({64}, config);
  config.max_tokens_per_rank = 32;
  RunAndCheck({32, 32}, config);
}

// Ranks without a part of the shared experts' columns.
TEST_F(DecodeTest, FewSharedColumns) {
  MoeLayerConfig config = DecodeConfig();
  config.shared_intermediate = 8;
  RunAndCheck({4, 9, 2}, config);
}

// Entries of more than one group of tokens, whose pairs are not dense.
TEST_F(DecodeTest, Fp8WeightsOfManyTokens) {
  MoeLayerConfig config = DecodeConfig();
  config.weights = GemmFormat::kFp8;
  config.hidden = 272;
  config.intermediate = 160;
  config.shared_intermediate = 48;
  config.max_tokens_per_rank = 20;
  RunAndCheck({20}, config);
}

// MXFP4 weights, whose scales come with the pieces: one piece that is not full, and several.
TEST_F(DecodeTest, Mxfp4Weights) {
  MoeLayerConfig config = DecodeConfig();
  config.weights = GemmFormat::kMxfp4;
  config.hidden = 160;
  config.intermediate = 96;
  RunAndCheck({9, 0, 5}, config);
  config.hidden = 544;
  config.intermediate = 288;
  config.shared_intermediate = 48;
  RunAndCheck({3}, config);
  config.max_tokens_per_rank = 20;
  RunAndCheck({20}, config);
}

// Biases and limits show in many numbers, whatever the weights; shared experts have neither.
TEST_F(DecodeTest, BiasesAndParametersOfSwiGlu) {
  for (const GemmFormat weights : {GemmFormat::kMxfp4, GemmFormat::kFp8, GemmFormat::kSame}) {
    MoeLayerConfig config = WithBiases(DecodeConfig());
    config.weights = weights;
    if (weights == GemmFormat::kFp8) {  // has logit_bias alone
      config.expert_biases = false;
      config.swiglu = {};
    }
    config.hidden = 160;
    config.intermediate = 96;
    config.shared_intermediate = 48;
    RunAndCheck({1}, config);
    RunAndCheck({9, 4}, config);
    config.max_tokens_per_rank = 20;
    RunAndCheck({20}, config);
  }
  MoeLayerConfig config = WithBiases(DecodeConfig());
  config.dtype = DType::kFloat16;
  config.hidden = 136;  // a last strip of eight rows
  RunAndCheck({9, 4}, config);
}

// Columns that no block's share divides, a last strip of eight rows, and pieces that are not full.
TEST_F(DecodeTest, Tails) {
  MoeLayerConfig config = DecodeConfig();
  config.hidden = 136;
  config.intermediate = 88;
  config.shared_intermediate = 24;
  RunAndCheck({3, 9}, config);
  config.hidden = 8;
  config.intermediate = 8;
  RunAndCheck({3, 9}, config);
}

TEST_F(DecodeTest, RandomShapes) {
  std::mt19937 random(kSeed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  for (int i = 0; i < 12; ++i) {
    MoeLayerConfig config = DecodeConfig();
    const int ranks = 1 + below(4);
    config.num_experts = ranks * 2 * (1 + below(10));
    config.topk = 1 + below(std::min(config.num_experts, 6));
    const bool fp8 = below(3) == 0;
    config.weights = fp8 ? GemmFormat::kFp8 : GemmFormat::kSame;
    config.dtype = !fp8 && below(2) == 0 ? DType::kFloat16 : DType::kBFloat16;
    config.hidden = 16 * (1 + below(18));
    config.intermediate = 16 * (1 + below(14));
    if (below(2) == 0) config.shared_intermediate = 8 * (1 + below(10));
    config.shared_gate = config.shared_intermediate > 0 && below(2) == 0;
    config.max_blocks = below(2) * (1 + below(4));
    config.router.scores = below(2) == 0 ? RouterScores::kSigmoid : RouterScores::kSoftmax;
    if (below(3) == 0) config.router = {.scores = RouterScores::kSparsemixer, .jitter = 0.2F};
    config.router.normalize = below(2) == 0;
    config.router.scaling = 1.0F + static_cast<float>(below(3));
    config.max_tokens_per_rank = 1 + below(64 / ranks);
    std::vector<int> counts;
    for (int rank = 0; rank < ranks; ++rank) {
      counts.push_back(below(config.max_tokens_per_rank + 1));
    }
    RunAndCheck(counts, config);
    if (HasFailure()) return;
  }
}

// A token's y depends on nothing but the token: not on the others, their number, its place, the
// number of blocks, or how many tokens there might be.
TEST_F(DecodeTest, BatchInvariance) {
  MoeLayerConfig config = DecodeConfig();
  config.hidden = 136;
  config.intermediate = 200;
  config.shared_intermediate = 48;
  ExpectBatchInvariance(config);
}
TEST_F(DecodeTest, BatchInvarianceOfFp8) {
  MoeLayerConfig config = DecodeConfig();
  config.weights = GemmFormat::kFp8;
  config.hidden = 272;
  config.intermediate = 160;
  ExpectBatchInvariance(config);
}
TEST_F(DecodeTest, BatchInvarianceOfMxfp4AndBiases) {
  MoeLayerConfig config = WithBiases(DecodeConfig());
  config.weights = GemmFormat::kMxfp4;
  config.hidden = 288;
  config.intermediate = 96;
  ExpectBatchInvariance(config);
}

void DecodeTest::ExpectBatchInvariance(MoeLayerConfig config) {
  config.max_tokens_per_rank = 20;
  constexpr size_t kTokens = 20;
  MakeLayer(1, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens all = Tokens({static_cast<int>(kTokens)}, config, kSeed);
  const absl::StatusOr<LayerOutput> together = CallWith(all);
  ASSERT_OK(together.status());
  ExpectCorrect(*together);
  const std::vector<std::vector<uint16_t>> x = RowsOf(all.rows[0], config);
  const std::vector<std::vector<uint16_t>> y = RowsOf(together->y, config);
  std::mt19937 random(kSeed);
  for (const int max_tokens : {20, 6, 14}) {
    for (const int max_blocks : {0, 1, 3}) {
      config.max_tokens_per_rank = max_tokens;
      config.max_blocks = max_blocks;
      SCOPED_TRACE(absl::StrCat("M ", max_tokens, " blocks ", max_blocks));
      MakeLayer(1, config);
      if (HasFatalFailure()) return;
      std::vector<size_t> order(kTokens);
      for (size_t i = 0; i < kTokens; ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t count : {size_t{1}, size_t{5}, static_cast<size_t>(max_tokens)}) {
        LayerTokens some = all;
        some.rows[0].clear();
        for (size_t i = 0; i < count; ++i) {
          const std::vector<uint16_t>& row = x[order[i]];
          some.rows[0].insert(some.rows[0].end(), row.begin(), row.end());
        }
        const absl::StatusOr<LayerOutput> output = CallWith(some);
        ASSERT_OK(output.status());
        const std::vector<std::vector<uint16_t>> rows = RowsOf(output->y, config);
        for (size_t i = 0; i < count; ++i) EXPECT_EQ(rows[i], y[order[i]]) << "token " << order[i];
      }
    }
  }
}

// Nor on the rank that it is on, with which the order of the sum over ranks would have to change.
TEST_F(DecodeTest, ATokenMayBeOnAnyRank) {
  MoeLayerConfig config = DecodeConfig();
  config.shared_intermediate = 48;
  MakeLayer(3, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const auto hidden = static_cast<size_t>(config.hidden);
  LayerTokens tokens = Tokens({4, 4, 4}, config, kSeed);
  const absl::StatusOr<LayerOutput> before = CallWith(tokens);
  ASSERT_OK(before.status());
  std::rotate(tokens.rows.begin(), tokens.rows.begin() + 1, tokens.rows.end());
  const absl::StatusOr<LayerOutput> after = CallWith(tokens);
  ASSERT_OK(after.status());
  std::vector<uint16_t> expected = before->y;
  std::rotate(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(4 * hidden),
              expected.end());
  EXPECT_EQ(after->y, expected);
}

// Weights that are not random, of a fixture's layer.
class DecodeSumsTest : public DecodeTest {
 protected:
  std::vector<float> Numbers(int rows, int columns, float scale = 1.0F) {
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<size_t>(rows) * static_cast<size_t>(columns));
    for (float& number : numbers) number = scale * normal(random_);
    return numbers;
  }
  // The matrix lives as long as the fixture.
  HostTensor View(std::vector<float> numbers, int rows, int columns) {
    matrices_.push_back(std::move(numbers));
    return {.type = TensorType::kFloat32,
            .rows = rows,
            .columns = columns,
            .data = reinterpret_cast<const std::byte*>(matrices_.back().data())};
  }

 private:
  std::mt19937 random_{kSeed};
  std::list<std::vector<float>> matrices_;
};

std::vector<float> Times(std::vector<float> numbers, float factor) {
  for (float& number : numbers) number *= factor;
  return numbers;
}

constexpr float kSmall = 0x1p-18F;  // beside 1, the rounding of a float32 sum shows in bfloat16

// The partial rows of ranks 0 and 1 cancel each other, and what is left is so small that the
// rounding of another order shows: partial rows are added by ascending rank wherever the token is.
TEST_F(DecodeSumsTest, PartialRowsAreAddedByRank) {
  MoeLayerConfig config = DecodeConfig();
  config.num_experts = 3;
  config.topk = 3;
  MakeLayer(3, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const int hidden = config.hidden;
  const int between = config.intermediate;
  MoeLayerWeights weights;
  weights.router = View(Numbers(3, hidden, 0.0F), 3, hidden);  // all weights are the same
  const HostTensor gate = View(Numbers(between, hidden), between, hidden);
  const HostTensor up = View(Numbers(between, hidden), between, hidden);
  const std::vector<float> down = Numbers(hidden, between);
  for (const std::vector<float>& last :
       {down, Times(down, -1.0F), Numbers(hidden, between, kSmall)}) {
    weights.experts.push_back({.gate = gate, .up = up, .down = View(last, hidden, between)});
  }
  ASSERT_OK(layer_->Load(weights));
  LayerTokens tokens = Tokens({1, 1, 1}, config, kSeed);
  tokens.rows[1] = tokens.rows[0];
  tokens.rows[2] = tokens.rows[0];
  const absl::StatusOr<LayerOutput> output = CallWith(tokens);
  ASSERT_OK(output.status());
  const std::vector<std::vector<uint16_t>> y = RowsOf(output->y, config);
  EXPECT_EQ(y[1], y[0]);
  EXPECT_EQ(y[2], y[0]);
}

// Likewise for the pieces of an expert's columns: the first two cancel each other, and the order in
// which waves add them follows from the expert, not from what else is chosen.
TEST_F(DecodeSumsTest, TheOrderOfPiecesFollowsFromTheExpert) {
  MoeLayerConfig config = DecodeConfig();
  constexpr int kPiece = 64;  // columns of 16 bits
  config.num_experts = 8;
  config.topk = 1;
  config.intermediate = 3 * kPiece;
  MakeLayer(1, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const int hidden = config.hidden;
  const int between = config.intermediate;
  MoeLayerWeights weights;
  weights.router = View(Numbers(config.num_experts, hidden), config.num_experts, hidden);
  const auto twice = [&](std::vector<float> matrix) {  // the rows of the first piece are the second
    std::copy_n(matrix.begin(), kPiece * hidden, matrix.begin() + ptrdiff_t{kPiece} * hidden);
    return View(std::move(matrix), between, hidden);
  };
  std::vector<float> down = Numbers(hidden, between);
  for (size_t at = 0; at < down.size(); ++at) {
    const size_t column = at % static_cast<size_t>(between);
    if (column / kPiece == 1) down[at] = -down[at - kPiece];
    if (column / kPiece == 2) down[at] *= kSmall;
  }
  const MlpWeights expert = {.gate = twice(Numbers(between, hidden)),
                             .up = twice(Numbers(between, hidden)),
                             .down = View(std::move(down), hidden, between)};
  weights.experts.assign(static_cast<size_t>(config.num_experts), expert);
  ASSERT_OK(layer_->Load(weights));
  const LayerTokens all = Tokens({9}, config, kSeed);
  const absl::StatusOr<LayerOutput> together = CallWith(all);
  ASSERT_OK(together.status());
  for (size_t token = 0; token < 9; ++token) {
    LayerTokens one = all;
    one.rows[0] = RowsOf(all.rows[0], config)[token];
    const absl::StatusOr<LayerOutput> alone = CallWith(one);
    ASSERT_OK(alone.status());
    EXPECT_EQ(alone->y, RowsOf(together->y, config)[token]) << "token " << token;
  }
}

// GPUs without room for a block of this path: `auto` takes the other one.
TEST_F(DecodeTest, WhatDoesNotFitIsNotTaken) {
  MakeNode(1);
  if (IsSkipped()) return;
  MoeLayerConfig config = DecodeConfig();
  config.max_tokens_per_rank = 4;
  const absl::Status named = MoeLayer::Create(*node_, config).status();
  if (named.ok()) GTEST_SKIP() << "there is room for a block";
  EXPECT_THAT(named, StatusIs(absl::StatusCode::kUnimplemented,
                              AllOf(HasSubstr("rank 0: with the path decode a block needs "),
                                    HasSubstr("or the path launches"))));
  config.path = LayerPath::kAuto;
  const auto layer = MoeLayer::Create(*node_, config);
  ASSERT_OK(layer.status());
  EXPECT_EQ((*layer)->config().path, LayerPath::kLaunches);
}

// A rank that comes late is named, with what was waited for; the next call is correct.
// Rank 1's stream has something else to do until rank 0 has given up.
TEST_F(DecodeTest, ARankThatIsTooLateIsNamed) {
  const MoeLayerConfig config = DecodeConfig();
  MakeLayer(2, config, absl::Seconds(1));
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = Tokens({9, 4}, config, kSeed);
  LayerCalls calls(*node_, *layer_, tokens);
  ASSERT_OK(calls.Init());
  const absl::StatusOr<PinnedMemory> word = PinnedMemory::Allocate(sizeof(uint32_t));
  ASSERT_OK(word.status());
  auto* const stop = word->as<uint32_t>();
  *stop = 0;
  std::thread ends([&] {
    const absl::Time latest = absl::Now() + absl::Minutes(1);
    while (Noted().empty() && absl::Now() < latest) absl::SleepFor(absl::Milliseconds(1));
    std::atomic_ref<uint32_t>(*stop).store(1);
  });
  const absl::Status failed = node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) OCTET_RETURN_IF_GPU_ERROR(LaunchStubborn(stop, rank.stream()));
    return calls.Call(rank);
  });
  ends.join();
  EXPECT_THAT(failed,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 0"), HasSubstr("decode, exchange waited"),
                             HasSubstr("rank 1's token flag"), HasSubstr("epoch seen from each"))));
  const absl::StatusOr<LayerOutput> output = CallWith(tokens);
  ASSERT_OK(output.status());
  ExpectCorrect(*output);
}

// All tokens are the same, so all of them choose the same experts, and most experts have none.
TEST_F(DecodeTest, AllTokensOnOneRanksExperts) {
  MoeLayerConfig config = DecodeConfig();
  config.num_experts = 32;
  config.max_tokens_per_rank = 32;
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  LayerTokens tokens = Tokens({32, 17}, config, kSeed);
  const auto hidden = static_cast<ptrdiff_t>(config.hidden);
  for (std::vector<uint16_t>& rows : tokens.rows) {
    for (ptrdiff_t at = 0; at < static_cast<ptrdiff_t>(rows.size()); at += hidden) {
      std::copy_n(tokens.rows[0].begin(), hidden, rows.begin() + at);
    }
  }
  const absl::StatusOr<LayerOutput> output = CallWith(tokens);
  ASSERT_OK(output.status());
  ExpectCorrect(*output);
}

// A token whose row is not finite leaves the others as they are.
TEST_F(DecodeTest, WhatIsNotFiniteStaysWithItsToken) {
  MoeLayerConfig config = DecodeConfig();
  config.shared_intermediate = 16;
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  LayerTokens tokens = Tokens({9, 5}, config, kSeed);
  const absl::StatusOr<LayerOutput> before = CallWith(tokens);
  ASSERT_OK(before.status());
  constexpr uint16_t kInfinity = 0x7f80;
  tokens.rows[0][3] = kInfinity;
  const absl::StatusOr<LayerOutput> after = CallWith(tokens);
  ASSERT_OK(after.status());
  const auto hidden = static_cast<size_t>(config.hidden);
  for (size_t i = hidden; i < after->y.size(); ++i) ASSERT_EQ(after->y[i], before->y[i]) << i;
}

TEST_F(DecodeTest, CallsFollowEachOther) {
  MoeLayerConfig config = DecodeConfig();
  MakeLayer(3, config);
  if (IsSkipped() || HasFatalFailure()) return;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const int some = static_cast<int>(seed);
    const absl::StatusOr<LayerOutput> output =
        CallWith(Tokens({9 - some, some, (some * 5) % 9}, config, seed));
    ASSERT_OK(output.status());
    ExpectCorrect(*output);
  }
}

// One graph serves every number of tokens: it reads the number when it runs.
TEST_F(DecodeTest, AGraphForEveryNumberOfTokens) {
  MoeLayerConfig config = DecodeConfig();
  config.shared_intermediate = 48;
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = Tokens({9, 9}, config, kSeed);
  const absl::StatusOr<LayerOutput> all = CallWith(tokens);
  ASSERT_OK(all.status());
  const size_t row = static_cast<size_t>(config.hidden);
  struct OfRank {
    DeviceMemory x, y, count;
    std::vector<Graph> graph;
  };
  std::vector<OfRank> ranks(2);
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    const size_t bytes = 9 * row * sizeof(uint16_t);
    OCTET_ASSIGN_OR_RETURN(ranks[r].x, DeviceMemory::Allocate(bytes));
    OCTET_ASSIGN_OR_RETURN(ranks[r].y, DeviceMemory::Allocate(bytes));
    OCTET_ASSIGN_OR_RETURN(ranks[r].count, DeviceMemory::Allocate(sizeof(int32_t)));
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemcpy(ranks[r].x.as<void>(), tokens.rows[r].data(), bytes, hipMemcpyHostToDevice));
    OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, [&] {
                             return layer_->Forward(rank, ranks[r].x.as<void>(),
                                                    ranks[r].count.as<int32_t>(),
                                                    ranks[r].y.as<void>());
                           }));
    ranks[r].graph.push_back(std::move(graph));
    return absl::OkStatus();
  }));
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{1, 9}, {0, 3}, {9, 0}, {7, 1000}}) {
    std::vector<std::vector<uint16_t>> y(2);
    ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpy(ranks[r].count.as<void>(), &counts[r], sizeof(int32_t), hipMemcpyHostToDevice));
      OCTET_RETURN_IF_ERROR(ranks[r].graph[0].Launch(rank));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      y[r].resize(static_cast<size_t>(std::min(counts[r], 9)) * row);
      return OCTET_GPU(
          hipMemcpy(y[r].data(), ranks[r].y.as<void>(), y[r].size() * 2, hipMemcpyDeviceToHost));
    }));
    for (size_t r = 0; r < 2; ++r) {
      const auto begin = all->y.begin() + static_cast<ptrdiff_t>(r * 9 * row);
      EXPECT_EQ(y[r], std::vector<uint16_t>(begin, begin + static_cast<ptrdiff_t>(y[r].size())))
          << "rank " << r << " with " << counts[r];
    }
  }
}

TEST_F(DecodeTest, TheNextCallAfterARankThatDoesNotComeIsCorrect) {
  MoeLayerConfig config = DecodeConfig();
  MakeLayer(2, config);
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = Tokens({9, 4}, config, kSeed);
  LayerCalls calls(*node_, *layer_, tokens);
  ASSERT_OK(calls.Init());
  ASSERT_OK(calls.CallOnce());
  const absl::Status failed = node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return absl::AbortedError("left out");
    return calls.Call(rank);
  });
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kAborted, HasSubstr("left out")));
  ASSERT_OK(calls.CallOnce());
  const absl::StatusOr<LayerOutput> output = calls.Read();
  ASSERT_OK(output.status());
  ExpectCorrect(*output);
}

TEST_F(DecodeTest, RefusesWhatItCannotDo) {
  MakeNode(2);
  if (IsSkipped()) return;
  const auto refused = [&](const MoeLayerConfig& changed) {
    return MoeLayer::Create(*node_, changed).status();
  };
  MoeLayerConfig config = DecodeConfig();
  config.max_tokens_per_rank = 33;
  EXPECT_THAT(refused(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("max_tokens_per_rank is 33"), HasSubstr("at most 32"))));
  config = DecodeConfig();
  config.num_experts = 514;
  EXPECT_THAT(refused(config), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("num_experts is 514; with the path decode")));
  config = DecodeConfig();
  config.weights = GemmFormat::kFp8;
  config.expert_biases = true;
  constexpr absl::string_view kWhat = "no biases of experts or parameters of SwiGLU with FP8";
  EXPECT_THAT(refused(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(kWhat))));
  config.expert_biases = false;
  config.swiglu.limit = 1;
  EXPECT_THAT(refused(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(kWhat))));
  config = DecodeConfig();
  config.strategy = Strategy::kHighThroughput;
  config.fusion = Fusion::kTiles;
  EXPECT_THAT(refused(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fusion is tiles")));
  config = Config();
  config.path = LayerPath::kLaunches;
  MakeLayer(2, config);
  EXPECT_THAT(node_->Run([&](Rank& rank) {
    int32_t count = 0;
    return layer_->Forward(rank, &count, &count, &count);
  }),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("path decode")));
}

}  // namespace
}  // namespace octet
