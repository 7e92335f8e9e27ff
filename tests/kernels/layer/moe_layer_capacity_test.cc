// Layers with memory for fewer rows than a rank can receive: they take their tokens in passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/layer_parts.h"
#include "tests/kernels/layer/moe_layer_fixture.h"
#include "tools/step/layer_calls.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

// Counts the passes of each rank.
class Passes : public LayerPartObserver {
 public:
  explicit Passes(size_t ranks) : combines_(ranks), dispatches_(ranks) {}
  absl::Status PartEnqueued(Rank& rank, LayerPart part) override {
    const auto r = static_cast<size_t>(rank.rank());
    if (part == LayerPart::kCombine) ++combines_[r];
    if (part == LayerPart::kFirstProduct) ++dispatches_[r];
    return absl::OkStatus();
  }
  const std::vector<int>& combines() const { return combines_; }
  const std::vector<int>& dispatches() const { return dispatches_; }

 private:
  std::vector<int> combines_, dispatches_;
};

class MoeLayerCapacityTest : public MoeLayerTest {
 protected:
  // The rows of the rank that receives most.
  static int RowsOf(const MoeLayerConfig& config, const LayerOutput& output, int ranks) {
    std::vector<int> rows(static_cast<size_t>(ranks), 0);
    for (const int32_t id : output.topk_idx) {
      ++rows[static_cast<size_t>(id / (config.num_experts / ranks))];
    }
    return *std::ranges::max_element(rows);
  }

  // Calls a layer of each capacity, and expects the y of one without and so many passes.
  void ExpectSameBits(const std::vector<int>& counts, const MoeLayerConfig& config) {
    SCOPED_TRACE(TextOf(config));
    const auto ranks = static_cast<int>(counts.size());
    const LayerTokens tokens = Tokens(counts, config, kSeed);
    MoeLayerConfig bounded = config;
    bounded.strategy = Strategy::kHighThroughput;
    const LayerOutput whole = OutputOf(bounded, tokens, ranks, nullptr);
    const int rows = RowsOf(config, whole, ranks);
    const int least =
        ranks * 4 * std::min(config.topk, config.num_experts / ranks);  // of four tokens of each
    for (const int capacity : {rows, rows - 1, least}) {
      if (capacity < least) continue;
      SCOPED_TRACE(absl::StrCat(capacity, " of ", rows, " rows"));
      bounded.capacity_rows = capacity;
      Passes passes(counts.size());
      const LayerOutput output = OutputOf(bounded, tokens, ranks, &passes);
      EXPECT_EQ(output.y, whole.y);
      EXPECT_EQ(output.topk_idx, whole.topk_idx);
      const int combines = passes.combines()[0];
      EXPECT_THAT(passes.combines(), testing::Each(combines));
      if (capacity == rows) {
        EXPECT_EQ(combines, 1);
        EXPECT_THAT(passes.dispatches(), testing::Each(1)) << "launches of a call that fits";
      } else if (rows > capacity) {
        EXPECT_GE(combines, (rows + capacity - 1) / capacity);
      }
    }
  }

  LayerOutput OutputOf(const MoeLayerConfig& config, const LayerTokens& tokens, int ranks,
                       Passes* passes) {
    MakeLayer(ranks, config);
    if (IsSkipped() || HasFatalFailure()) return {};
    LayerInternals::Observe(*layer_, passes);
    absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, tokens);
    EXPECT_OK(output.status());
    layer_.reset();
    return output.ok() ? *std::move(output) : LayerOutput();
  }
};

MoeLayerConfig LargeLayer() {
  MoeLayerConfig config = Config();
  config.max_tokens_per_rank = 23;
  return config;
}

TEST_F(MoeLayerCapacityTest, PassesChangeNoBit) { ExpectSameBits({23, 14, 9}, LargeLayer()); }

TEST_F(MoeLayerCapacityTest, RanksWithoutTokensAndOfFew) {
  ExpectSameBits({0, 23, 1}, LargeLayer());
  ExpectSameBits({23}, LargeLayer());
  ExpectSameBits({0, 0}, LargeLayer());
}

TEST_F(MoeLayerCapacityTest, SharedExpertsBesideAndOneToken) {
  MoeLayerConfig config = LargeLayer();
  config.dtype = DType::kFloat16;
  config.topk = 5;  // choices of a token are not aligned
  config.shared_intermediate = 40;
  config.shared_gate = true;
  config.shared_experts = SharedExperts::kBeside;
  ExpectSameBits({23, 20}, config);
}

TEST_F(MoeLayerCapacityTest, Fp8Weights) {
  MoeLayerConfig config = LargeLayer();
  config.weights = GemmFormat::kFp8;
  config.hidden = 144;
  config.intermediate = 160;
  ExpectSameBits({23, 18}, config);
}

TEST_F(MoeLayerCapacityTest, Fusions) {
  for (const Fusion fusion : {Fusion::kTiles, Fusion::kSerial, Fusion::kNone}) {
    MoeLayerConfig config = LargeLayer();
    config.fusion = fusion;
    ExpectSameBits({23, 14}, config);
  }
}

TEST_F(MoeLayerCapacityTest, ACapturedCallIsOnePass) {
  MoeLayerConfig config = LargeLayer();
  const std::vector<int> counts = {23, 14};
  const LayerTokens tokens = Tokens(counts, config, kSeed);
  config.strategy = Strategy::kHighThroughput;
  const LayerOutput whole = OutputOf(config, tokens, 2, nullptr);
  const int rows = RowsOf(config, whole, 2);
  for (const int capacity : {rows, rows - 1}) {
    config.capacity_rows = capacity;
    MakeLayer(2, config);
    if (IsSkipped() || HasFatalFailure()) return;
    LayerCalls calls(*node_, *layer_, tokens);
    ASSERT_OK(calls.Init());
    const absl::Status captured =
        node_->Run([&](Rank& rank) -> absl::Status { return calls.Capture(rank); });
    if (absl::IsUnimplemented(captured)) GTEST_SKIP() << captured;
    ASSERT_OK(captured);
    const absl::Status launched =
        node_->Run([&](Rank& rank) -> absl::Status { return calls.Launch(rank); });
    if (capacity < rows) {
      EXPECT_THAT(launched, StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(absl::StrCat("would receive ", rows, " rows"))));
      EXPECT_OK(calls.CallOnce());  // as it is not captured, in passes
    } else {
      EXPECT_OK(launched);
    }
    const absl::StatusOr<LayerOutput> output = calls.Read();
    ASSERT_OK(output.status());
    EXPECT_EQ(output->y, whole.y);
    layer_.reset();
  }
}

TEST_F(MoeLayerCapacityTest, TooLittleForAnyPassIsRefused) {
  MoeLayerConfig config = LargeLayer();
  const auto refused = [](const MoeLayerConfig& wrong, const std::string& words) {
    EXPECT_THAT(Validate(wrong, 2), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  };
  config.capacity_rows = 2 * 4 * 3;
  EXPECT_OK(Validate(config, 2));
  config.capacity_rows = 2 * 4 * 3 - 1;
  refused(config, "MoeLayerConfig::capacity_rows is 23; it must be 0 or at least 24");
  config.capacity_rows = 100;
  config.strategy = Strategy::kDirect;
  refused(config, "capacity_rows is 100; direct sends rows before");
  config.strategy = Strategy::kAuto;
  config.max_tokens_per_rank = 9;
  config.path = LayerPath::kDecode;
  refused(config, "capacity_rows is 100; with the path decode");
  config.path = LayerPath::kAuto;
  EXPECT_THAT(Validate(config, NodesOfRanks{.num_nodes = 2, .ranks_per_node = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("capacity_rows is 100; over several nodes it must be 0")));
}

}  // namespace
}  // namespace octet
