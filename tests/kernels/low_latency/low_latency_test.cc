// What only low_latency can do: two calls on their way at the same time, rows that lie apart; and
// the limits that are its own. Everything that strategies have in common is in strategy_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "octet/expert_parallel.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/support/ep_harness.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

#define ASSERT_OK(expr)                   \
  do {                                    \
    const absl::Status& status_ = (expr); \
    ASSERT_TRUE(status_.ok()) << status_; \
  } while (false)
#define EXPECT_OK(expr)                   \
  do {                                    \
    const absl::Status& status_ = (expr); \
    EXPECT_TRUE(status_.ok()) << status_; \
  } while (false)
#define MAKE_OR_SKIP(ranks, config)               \
  do {                                            \
    Make(ranks, config);                          \
    if (HasFatalFailure() || IsSkipped()) return; \
  } while (false)

class LowLatencyTest : public ::testing::Test {
 protected:
  static EpConfig Config(int num_experts, int topk, int hidden, int max_tokens,
                         Output output = Output::kPackedExperts) {
    EpConfig config;
    config.num_experts = num_experts;
    config.topk = topk;
    config.hidden = hidden;
    config.max_tokens_per_rank = max_tokens;
    config.output = output;
    config.strategy = Strategy::kLowLatency;
    // Enough for several blocks of both kinds; the emulation takes its time for more.
    config.tuning = {.blocks = 6, .waves_per_block = 4};
    return config;
  }

  void Make(int num_ranks, const EpConfig& config) {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (gpus < num_ranks) GTEST_SKIP() << num_ranks << " ranks on " << gpus << " GPUs";
    harness_.reset();
    absl::StatusOr<std::unique_ptr<EpHarness>> harness = EpHarness::Create(num_ranks, config);
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
  }

  const EpConfig& config() { return harness_->ep().config(); }
  StepInput Random(const std::vector<int>& tokens, double drop = 0.0) {
    return RandomStep(rng_, config(), tokens, drop);
  }
  std::vector<StepInput> RandomSteps(int n, int num_ranks, double drop = 0.1) {
    std::vector<StepInput> steps;
    for (int i = 0; i < n; ++i) {
      steps.push_back(Random(RandomTokens(rng_, config(), num_ranks), drop));
    }
    return steps;
  }

  // The body by each rank of the node.
  template <typename Body>
  absl::Status OnRanks(Body body) {
    return harness_->node().Run([&](Rank& rank) -> absl::Status {
      return body(rank, harness_->ep(), harness_->dispatch_args(rank.rank()));
    });
  }

  std::mt19937_64 rng_{20261121};
  std::unique_ptr<EpHarness> harness_;
};

// ---- two calls in flight

TEST_F(LowLatencyTest, TwoStepsAreOnTheirWayAtTheSameTime) {
  for (const Output output : {Output::kPackedExperts, Output::kExpertMajor, Output::kRankMajor}) {
    MAKE_OR_SKIP(4, Config(12, 4, 264, 9, output));
    EXPECT_OK(harness_->StepsInPairs(RandomSteps(4, 4), {Form::kSplit}));
    EXPECT_OK(harness_->StepsInPairs(RandomSteps(4, 4), {Form::kFused}));
    EXPECT_OK(harness_->StepsInPairs(RandomSteps(6, 4), {Form::kSplit, Form::kFused}));
    EXPECT_OK(harness_->Steps(RandomSteps(3, 4), {Form::kSplit, Form::kFused}));
  }
}

TEST_F(LowLatencyTest, TwoStepsAreOnTheirWayInTheOrderFlat) {
  EpConfig config = Config(10, 5, 72, 7);
  config.combine_order = CombineOrder::kFlat;
  MAKE_OR_SKIP(5, config);
  EXPECT_OK(harness_->StepsInPairs(RandomSteps(8, 5), {Form::kSplit, Form::kFused}));
}

// What was received stays as it is until the second next dispatch; it is combined as often as one
// likes, also after the next dispatch.
TEST_F(LowLatencyTest, ReceivedRowsOutliveTheNextDispatch) {
  MAKE_OR_SKIP(3, Config(6, 3, 64, 8));
  const StepInput input = Random({8, 5, 8});
  ASSERT_OK(harness_->Upload(input));
  EXPECT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep, DispatchArgs args) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received first, ep.Dispatch(rank, args));
    args.num_tokens = 0;
    OCTET_RETURN_IF_ERROR(ep.Dispatch(rank, args).status());
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = first.x;
    OCTET_RETURN_IF_ERROR(ScaledCombine(ep, rank, first.handle, combine));
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(
        combine.y, 0xff, static_cast<size_t>(first.handle.num_tokens) * 128, rank.stream()));
    return ScaledCombine(ep, rank, first.handle, combine);
  }));
  EXPECT_OK(harness_->CheckY(input));
}

TEST_F(LowLatencyTest, HalvesInAnOrderThatCannotBeAreRefused) {
  MAKE_OR_SKIP(2, Config(4, 2, 64, 4));
  const StepInput input = Random({4, 4});
  ASSERT_OK(harness_->Upload(input));
  const auto refused = [](const absl::Status& status, const char* why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  EXPECT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep, const DispatchArgs& args) -> absl::Status {
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle first, ep.DispatchSend(rank, args));
    refused(ep.Dispatch(rank, args).status(), "is to be received before a call that sends and");
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle second, ep.DispatchSend(rank, args));
    refused(ep.DispatchSend(rank, args).status(), "sent but not received");
    refused(ep.DispatchReceive(rank, second).status(), "received first");
    OCTET_ASSIGN_OR_RETURN(const Received received, ep.DispatchReceive(rank, first));
    combine.expert_out = received.x;
    refused(ScaledCombineReceive(ep, rank, first, combine), "nothing has been sent");
    refused(ScaledCombine(ep, rank, second, combine), "sent but not received");
    OCTET_RETURN_IF_ERROR(ep.DispatchReceive(rank, second).status());
    OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep, rank, second, combine));
    refused(ScaledCombine(ep, rank, first, combine),
            "is to be received before a call that sends and");
    OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep, rank, first, combine));
    refused(ScaledCombineReceive(ep, rank, first, combine), "received first");
    refused(ep.Dispatch(rank, args).status(), "sent but not received");
    OCTET_RETURN_IF_ERROR(ScaledCombineReceive(ep, rank, second, combine));
    OCTET_RETURN_IF_ERROR(ScaledCombineReceive(ep, rank, first, combine));
    OCTET_RETURN_IF_ERROR(ep.Dispatch(rank, args).status());
    refused(ScaledCombine(ep, rank, first, combine), "whose last is");
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->Step(input));
}

// ---- the sum

// Order flat is direct's, to the bit.
TEST_F(LowLatencyTest, FlatIsDirectToTheBit) {
  EpConfig config = Config(16, 6, 1032, 12);
  config.combine_order = CombineOrder::kFlat;
  MAKE_OR_SKIP(4, config);
  const StepInput input = Random({12, 0, 7, 12}, 0.2);
  ASSERT_OK(harness_->Step(input));
  std::vector<std::vector<uint16_t>> y;
  for (int r = 0; r < 4; ++r) y.push_back(*harness_->Y(r));
  config.strategy = Strategy::kDirect;
  MAKE_OR_SKIP(4, config);
  ASSERT_OK(harness_->Step(input));
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(y[static_cast<size_t>(r)], *harness_->Y(r)) << "rank " << r;
  }
}

// Outputs that differ from expert to expert, each of which must be added once.
TEST_F(LowLatencyTest, EveryExpertOfARankAddsItsOwnOutput) {
  MAKE_OR_SKIP(2, Config(8, 8, 64, 5));
  StepInput input = Random({5, 5});
  for (size_t e = 0; e < input.expert_scale.size(); ++e) {
    input.expert_scale[e] = static_cast<float>(1U << e);
  }
  EXPECT_OK(harness_->Step(input));
}

TEST_F(LowLatencyTest, BiasIsAddedLastAndWeightsMayBeLeftOut) {
  for (const CombineOrder order : {CombineOrder::kFlat, CombineOrder::kPerRank}) {
    EpConfig config = Config(6, 3, 72, 9);
    config.combine_order = order;
    config.dtype = DType::kFloat16;
    MAKE_OR_SKIP(3, config);
    StepInput input = Random({9, 0, 4}, 0.3);
    std::vector<uint16_t> bias;
    for (int h = 0; h < config.hidden; ++h) {
      bias.push_back(BitsFromFloat(config.dtype, static_cast<float>(h) / 7.0F - 4.0F));
    }
    std::vector<DeviceMemory> memory(3);
    ASSERT_OK(harness_->Upload(input));
    ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel&, const DispatchArgs&) -> absl::Status {
      DeviceMemory& mine = memory[static_cast<size_t>(rank.rank())];
      OCTET_ASSIGN_OR_RETURN(mine, DeviceMemory::Allocate(bias.size() * sizeof(uint16_t)));
      return OCTET_GPU(
          hipMemcpy(mine.as<void>(), bias.data(), mine.bytes(), hipMemcpyHostToDevice));
    }));
    ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep, DispatchArgs args) -> absl::Status {
      args.topk_weights = nullptr;
      OCTET_ASSIGN_OR_RETURN(const Received received, ep.Dispatch(rank, args));
      ScaledCombineArgs combine = harness_->combine_args(rank.rank());
      combine.expert_out = received.x;
      combine.bias = memory[static_cast<size_t>(rank.rank())].as<void>();
      return ScaledCombine(ep, rank, received.handle, combine);
    }));
    for (StepInput::PerRank& rank : input.ranks) rank.topk_weights.clear();
    EXPECT_OK(harness_->CheckY(input, bias));
  }
}

// ---- rows that are quantised on the way

TEST_F(LowLatencyTest, QuantisedRowsAreTheReferencesToTheBit) {
  for (const Output output : {Output::kPackedExperts, Output::kExpertMajor, Output::kRankMajor}) {
    for (const ScaleFormat scales :
         {ScaleFormat::kFloat32, ScaleFormat::kPowerOfTwo, ScaleFormat::kUe8m0}) {
      for (const int group : {64, 128, 256}) {
        const DType dtype = group == 128 ? DType::kBFloat16 : DType::kFloat16;
        // One row is shorter than what a block has in flight, one ends within a group.
        EpConfig config = Config(9, 4, group == 256 ? 7168 : 1104, 5, output);
        config.dtype = dtype;
        config.dispatch_format = DispatchFormat::kQuantizedFp8;
        config.scale_format = scales;
        config.scale_group = group;
        MAKE_OR_SKIP(3, config);
        EXPECT_OK(harness_->Step(Random({5, 2, 5}, 0.1), {Form::kFused, Form::kSplit}));
      }
    }
  }
}

TEST_F(LowLatencyTest, QuantisedRowsOfEveryHidden) {
  for (const int hidden : {8, 16, 24, 48, 128, 136, 240, 1032, 2064, 7176, 16376, 16384}) {
    SCOPED_TRACE(absl::StrCat("H ", hidden));
    EpConfig config = Config(4, 2, hidden, 3);
    config.dispatch_format = DispatchFormat::kQuantizedFp8;
    MAKE_OR_SKIP(2, config);
    EXPECT_OK(harness_->Step(Random({3, 2})));
  }
}

// ---- the corners of the space of shapes

TEST_F(LowLatencyTest, LargestAndSmallestShapes) {
  struct Shape {
    int ranks;
    int experts;
    int topk;
    int hidden;
    int max_tokens;
  };
  for (const Shape& shape :
       {Shape{8, 1024, 32, 8, 6}, Shape{2, 1024, 32, 64, 20}, Shape{1, 1024, 8, 64, 4},
        Shape{3, 9, 4, 16384, 3}, Shape{2, 8, 2, 8, 512}, Shape{1, 1, 1, 8, 1024}}) {
    SCOPED_TRACE(absl::StrCat("E ", shape.experts, ", K ", shape.topk, ", H ", shape.hidden, ", M ",
                              shape.max_tokens));
    MAKE_OR_SKIP(shape.ranks, Config(shape.experts, shape.topk, shape.hidden, shape.max_tokens));
    const auto ranks = static_cast<size_t>(shape.ranks);
    EXPECT_OK(harness_->Step(Random(std::vector<int>(ranks, shape.max_tokens))));
    EXPECT_OK(harness_->Step(Random(std::vector<int>(ranks, 0))));
    EXPECT_OK(harness_->Step(Random(std::vector<int>(ranks, 1), 0.5)));
  }
}

// Fewer waves than a row's would be, blocks of all kinds.
TEST_F(LowLatencyTest, AnyShapeOfTheLaunch) {
  for (const Tuning& tuning :
       {Tuning{.blocks = 2, .waves_per_block = 1},
        Tuning{.blocks = 3, .send_blocks = 1, .waves_per_block = 3, .row_parts = 2},
        Tuning{.blocks = 7, .send_blocks = 5, .row_parts = 1},
        Tuning{.blocks = 5, .send_blocks = 2, .waves_per_block = 4, .row_parts = 3}}) {
    EpConfig config = Config(9, 4, 1104, 11);
    config.tuning = tuning;
    MAKE_OR_SKIP(3, config);
    EXPECT_OK(harness_->Steps(RandomSteps(3, 3), {Form::kSplit, Form::kFused}));
  }
}

// ---- bytes on the wire

TEST_F(LowLatencyTest, TrafficIsWhatIsStoredIntoPeers) {
  // Three tokens and four choices of rank 0 go to rank 1.
  const std::vector<int32_t> topk_idx = {0, 1, 2, 3, 1, 2, -1, 3};
  const EpConfig config = Config(4, 2, 64, 4);
  MAKE_OR_SKIP(2, config);
  // Beside a row of 128 bytes a packet: the flag, the combine's slot, and 12 bytes for each choice;
  // then three counts and a credit.
  const Traffic dispatch = harness_->ep().DispatchTraffic(0, topk_idx);
  EXPECT_EQ(dispatch.rows, 5);
  EXPECT_EQ(dispatch.logical_bytes, 5 * 128);
  EXPECT_EQ(dispatch.wire_bytes, 3 * (128 + 8 + 4) + 4 * 12 + (3 + 1) * 8);
  // Sums with a flag each, and a credit.
  const Traffic combine = harness_->ep().CombineTraffic(0, topk_idx);
  EXPECT_EQ(combine.rows, 5);
  EXPECT_EQ(combine.wire_bytes, 3 * (128 + 8) + 8);

  EpConfig other = config;
  other.combine_order = CombineOrder::kFlat;
  MAKE_OR_SKIP(2, other);
  EXPECT_EQ(harness_->ep().CombineTraffic(0, topk_idx).wire_bytes, 4 * (128 + 8) + 8);
  // A row that has a scale, and a word that says that a rank has begun.
  other = config;
  other.dispatch_format = DispatchFormat::kQuantizedFp8;
  other.low_latency.failure_policy = FailurePolicy::kMask;
  MAKE_OR_SKIP(2, other);
  EXPECT_EQ(harness_->ep().DispatchTraffic(0, topk_idx).wire_bytes,
            3 * (64 + 4 + 8 + 4) + 4 * 12 + (3 + 1) * 8);
  EXPECT_EQ(harness_->ep().CombineTraffic(0, topk_idx).wire_bytes, 3 * (128 + 8) + 8 + 8);
}

// ---- memory

TEST_F(LowLatencyTest, HeapIsWhatItsPiecesAre) {
  const int ranks = 8;
  const EpConfig config = Config(288, 8, 7168, 128);
  const absl::StatusOr<HeapSize> size = ExpertParallel::HeapBytes(config, ranks);
  ASSERT_OK(size.status());
  const auto bytes = static_cast<double>(size->total());
  // 2·R·M·(B + P) + 2·M·S·(2·H + 128), as layout.h says, and up to 1% for counts and the like.
  const double tokens = config.max_tokens_per_rank;
  const double row = 2.0 * config.hidden;
  const double expected = 2 * ranks * tokens * (row + 128) + 2 * tokens * ranks * (row + 128);
  EXPECT_GE(bytes, expected);
  EXPECT_LE(bytes, 1.01 * expected);
}

TEST_F(LowLatencyTest, HeapThatIsTooSmallIsRefusedWithTheBytes) {
  const EpConfig config = Config(8, 2, 256, 16);
  MAKE_OR_SKIP(2, config);
  absl::StatusOr<std::unique_ptr<SymmetricHeap>> heap =
      SymmetricHeap::Create(harness_->node(), 4096);
  ASSERT_OK(heap.status());
  const absl::Status status =
      ExpertParallel::Create(harness_->node(), config, {.heap = heap->get()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(ExpertParallel::HeapBytes(config, 2)->total())));
}

}  // namespace
}  // namespace octet
