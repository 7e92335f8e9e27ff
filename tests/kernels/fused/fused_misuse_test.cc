// RoutedExperts refuses what it cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/fused/fused_harness.h"
#include "tests/kernels/fused/routed_experts_fixture.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

class FusedMisuseTest : public RoutedExpertsTest {
 protected:
  // Returns the Status of a Run of `call` on the only rank.
  absl::Status On(const std::function<absl::Status(Rank&, const FusedHarness::CallMemory&)>& call) {
    const StepInput input = harness().Draw(FullTokens());
    FusedHarness::CallMemory memory;  // freed outside of Run
    return harness().node().Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(memory, harness().Upload(rank, input));
      return call(rank, memory);
    });
  }

  // The Status of a DispatchGemm with altered arguments.
  absl::Status Dispatch(const std::function<void(DispatchGemmArgs&)>& alter) {
    return On([&](Rank& rank, const FusedHarness::CallMemory& memory) {
      DispatchGemmArgs args = harness().dispatch_args(rank, memory);
      alter(args);
      return harness().experts().DispatchGemm(rank, args).status();
    });
  }

  // The Status of a GemmCombine with altered arguments.
  absl::Status Combine(const std::function<void(FusedReceived&, GemmCombineArgs&)>& alter) {
    return On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
      RoutedExperts& experts = harness().experts();
      OCTET_ASSIGN_OR_RETURN(FusedReceived received,
                             experts.DispatchGemm(rank, harness().dispatch_args(rank, memory)));
      GemmCombineArgs args = harness().combine_args(rank, memory);
      alter(received, args);
      return experts.GemmCombine(rank, received, args);
    });
  }
};

auto Refused(const std::string& words) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words));
}

template <typename T>
void Shift(T*& pointer) {
  pointer = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + 8);
}

TEST_F(FusedMisuseTest, RefusesArgumentsOfDispatchGemm) {
  Make(SmallProblem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.b = nullptr; }),
              Refused("b of rank 0 is null; the call needs "));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.out = nullptr; }),
              Refused("out of rank 0 is null; the call needs "));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.b_scales = args.b; }),
              Refused("b_scales must be null: BF16 weights have no scales"));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { Shift(args.out); }),
              Refused("it must be 16-byte aligned"));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.dispatch.x = nullptr; }),
              Refused("x of rank 0 is null; the call needs "));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, RefusesFp8WeightsWithoutScales) {
  FusedProblem problem = SmallProblem(1);
  problem.config.ep.dispatch_format = DispatchFormat::kFp8;
  problem.config.ep.hidden = 272;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.b_scales = nullptr; }),
              Refused("b_scales of rank 0 is null"));
}

TEST_F(FusedMisuseTest, RefusesSecondFp8WeightsWithoutScales) {
  Make(SmallFp8Problem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.b_scales = nullptr; }),
              Refused("b_scales of rank 0 is null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { Shift(args.b_scales); }),
              Refused("it must be 16-byte aligned"));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, RefusesArgumentsOfGemmCombine) {
  Make(SmallProblem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.a = nullptr; }),
              Refused("a of rank 0 is null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.b = nullptr; }),
              Refused("b of rank 0 is null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.b_scales = args.b; }),
              Refused("b_scales must be null: BF16 weights have no scales"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { args.y = nullptr; }),
              Refused("y of rank 0 is null"));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) { Shift(args.b); }),
              Refused("it must be 16-byte aligned"));
  EXPECT_THAT(
      Combine([](FusedReceived& received, GemmCombineArgs& args) { args.a = received.received.x; }),
      Refused("a must not be received.x"));
  EXPECT_THAT(Combine([](FusedReceived& received, GemmCombineArgs&) { received = {}; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("of no dispatch")));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, RefusesOutputsThatOverlapInputs) {
  Make(SmallProblem(1));
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) { args.out = const_cast<void*>(args.b); }),
              Refused("out of rank 0 overlaps b: "));
  EXPECT_THAT(Dispatch([](DispatchGemmArgs& args) {
                args.out = const_cast<char*>(static_cast<const char*>(args.dispatch.x) + 16);
              }),
              Refused("out of rank 0 overlaps x: "));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) {
                args.y = const_cast<char*>(static_cast<const char*>(args.a) - 16);
              }),
              Refused("y of rank 0 overlaps a: "));
  EXPECT_THAT(Combine([](FusedReceived&, GemmCombineArgs& args) {
                args.y = const_cast<char*>(static_cast<const char*>(args.b) + 32);
              }),
              Refused("y of rank 0 overlaps b: "));
  ExpectEqual({harness().Draw(FullTokens())});
}

TEST_F(FusedMisuseTest, CombinesOnceAndInTime) {
  FusedProblem problem = SmallProblem(1);
  problem.config.ep.high_throughput.kept_layouts = 3;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  RoutedExperts& experts = harness().experts();
  EXPECT_THAT(On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
                const DispatchGemmArgs args = harness().dispatch_args(rank, memory);
                OCTET_ASSIGN_OR_RETURN(const FusedReceived received,
                                       experts.DispatchGemm(rank, args));
                const GemmCombineArgs combine = harness().combine_args(rank, memory);
                OCTET_RETURN_IF_ERROR(experts.GemmCombine(rank, received, combine));
                return experts.GemmCombine(rank, received, combine);
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("dispatch 1 of this rank has been combined")));
  EXPECT_THAT(On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
                const DispatchGemmArgs args = harness().dispatch_args(rank, memory);
                OCTET_ASSIGN_OR_RETURN(const FusedReceived received,
                                       experts.DispatchGemm(rank, args));
                OCTET_RETURN_IF_ERROR(experts.ep().Dispatch(rank, args.dispatch).status());
                return experts.GemmCombine(rank, received, harness().combine_args(rank, memory));
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the handle is of dispatch 2 of this rank, whose last is 3")));
}

TEST_F(FusedMisuseTest, RefusesConfigsThatCannotBe) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  const auto refusal = [&](const std::function<void(RoutedExpertsConfig&)>& alter) {
    RoutedExpertsConfig config = SmallProblem(1).config;
    alter(config);
    return RoutedExperts::Create(**node, config).status();
  };
  EXPECT_OK(refusal([](RoutedExpertsConfig&) {}));
  EXPECT_THAT(
      refusal([](RoutedExpertsConfig& config) { config.ep.output = Output::kDeduplicated; }),
      Refused("ep.output is deduplicated; the products need packed rows"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.ep.high_throughput.duplicates = Duplicates::kIndex;
              }),
              Refused("ep.high_throughput.duplicates is index; the products need a row for each"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.dispatch_gemm_tuning.tiles = GemmTiles::kFew16;
              }),
              Refused("dispatch_gemm_tuning.tiles is few16; it must be wide or medium"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.gemm_combine_tuning.combine_percent = 101;
              }),
              Refused("gemm_combine_tuning.combine_percent is 101; it must be from 0 to 100"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kBytes;
              }),
              Refused("ep.dispatch_format is bytes; it must be same, fp8 or quantized_fp8"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kQuantizedFp8;
                config.ep.hidden = 136;
              }),
              Refused("ep.hidden is 136; products of FP8 rows need a multiple of 16"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kFp8;
                config.ep.scale_group = 64;
              }),
              Refused("ep.scale_group is 64; products of FP8 rows need 128"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.ep.dispatch_format = DispatchFormat::kFp8;
                config.ep.dtype = DType::kFloat16;
              }),
              Refused("ep.dtype is fp16; products of FP8 rows are bf16"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.intermediate = 12; }),
              Refused("intermediate is 12; it must be a positive multiple of 8"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.intermediate = 0; }),
              Refused("intermediate is 0; it must be a positive multiple of 8"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.ep.strategy = Strategy::kDirect;
                config.weights_in = WeightsIn::kFirstProduct;
              }),
              Refused("weights_in is first_product; that needs the strategy high_throughput, not "
                      "direct"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.ep.topk = 0; }), Refused("topk"));
  for (const Strategy strategy : {Strategy::kDirect, Strategy::kLowLatency, Strategy::kAuto}) {
    EXPECT_THAT(refusal([&](RoutedExpertsConfig& config) {
                  config.gemm_combine = Fusion::kTiles;
                  config.ep.strategy = strategy;
                }),
                Refused("gemm_combine is tiles; that needs the strategy high_throughput"));
  }
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.dispatch_gemm = Fusion::kTiles;
                config.ep.strategy = Strategy::kDirect;
              }),
              Refused("ep.strategy is direct; the dispatch_gemm tiles needs high_throughput"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.dispatch_gemm = Fusion::kTiles;
                config.ep.high_throughput.expert_alignment = 8;
              }),
              Refused("expert_alignment is 8; the dispatch_gemm tiles needs 1"));
}

TEST_F(FusedMisuseTest, RefusesFusionsThatCannotBe) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  const auto refusal = [&](const std::function<void(RoutedExpertsConfig&)>& alter) {
    RoutedExpertsConfig config = SmallProblem(1).config;
    alter(config);
    return RoutedExperts::Create(**node, config).status();
  };
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.dispatch_gemm = Fusion::kSerial; }),
              Refused("dispatch_gemm is serial; only gemm_combine can be"));
  EXPECT_THAT(
      refusal([](RoutedExpertsConfig& config) { config.dispatch_gemm = Fusion::kEpilogue; }),
      Refused("dispatch_gemm is epilogue; only gemm_combine can be"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.gemm_combine = Fusion::kEpilogue;
                config.ep.combine_order = CombineOrder::kPerRank;
              }),
              Refused("ep.combine_order is per_rank; the gemm_combine epilogue needs flat"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) {
                config.gemm_combine = Fusion::kEpilogue;
                config.ep.combine_method = CombineMethod::kPull;
              }),
              Refused("ep.combine_method is pull; the gemm_combine epilogue needs push"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.dispatch_gemm_tuning.stages = 3; }),
              Refused("dispatch_gemm_tuning.stages is 3; it must be from 0 to 2"));
}

TEST_F(FusedMisuseTest, RefusesSecondProductsOfFp8ThatCannotBe) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  const auto refusal = [&](const std::function<void(RoutedExpertsConfig&)>& alter) {
    RoutedExpertsConfig config = SmallFp8Problem(1).config;
    alter(config);
    return RoutedExperts::Create(**node, config).status();
  };
  EXPECT_OK(refusal([](RoutedExpertsConfig&) {}));
  EXPECT_THAT(
      refusal([](RoutedExpertsConfig& config) { config.intermediate = 152; }),
      Refused("intermediate is 152; it must be a positive multiple of 16 with the second_format"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.intermediate = 0; }),
              Refused("intermediate is 0; it must be a positive multiple of 16"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.ep.dtype = DType::kFloat16; }),
              Refused("ep.dtype is fp16; products of FP8 rows are bf16"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.gemm_combine = Fusion::kTiles; }),
              Refused("gemm_combine is tiles; with the second_format fp8 it must be auto or none"));
  EXPECT_THAT(
      refusal([](RoutedExpertsConfig& config) { config.gemm_combine = Fusion::kSerial; }),
      Refused("gemm_combine is serial; with the second_format fp8 it must be auto or none"));
  EXPECT_THAT(
      refusal([](RoutedExpertsConfig& config) { config.second_fp8_rows = true; }),
      Refused("second_fp8_rows is true; with the second_format fp8 it must be false; mxfp4 can"));
}

TEST_F(FusedMisuseTest, RefusesMxfp4ThatCannotBe) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  const absl::StatusOr<std::unique_ptr<Node>> node = Node::Create({.num_ranks = 1});
  ASSERT_OK(node.status());
  const auto refusal = [&](const std::function<void(RoutedExpertsConfig&)>& alter) {
    RoutedExpertsConfig config = SmallProblem(1).config;
    config.ep.hidden = 96;
    config.ep.dispatch_format = DispatchFormat::kFp8;
    config.intermediate = 64;
    config.first_format = GemmFormat::kMxfp4;
    config.second_format = GemmFormat::kMxfp4;
    config.second_fp8_rows = true;
    alter(config);
    return RoutedExperts::Create(**node, config).status();
  };
  EXPECT_OK(refusal([](RoutedExpertsConfig&) {}));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.ep.hidden = 80; }),
              Refused("ep.hidden is 80; it must be a multiple of 32 with the first_format mxfp4"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.ep.scale_group = 64; }),
              Refused("ep.scale_group is 64; products of FP8 rows need 128"));
  EXPECT_THAT(
      refusal([](RoutedExpertsConfig& config) { config.first_format = GemmFormat::kFp8; }),
      Refused("first_format is fp8; the rows have these elements as well; it must be same"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.dispatch_gemm = Fusion::kTiles; }),
              Refused("dispatch_gemm is tiles; with the first_format mxfp4 it must be auto or"));
  EXPECT_THAT(refusal([](RoutedExpertsConfig& config) { config.gemm_combine = Fusion::kTiles; }),
              Refused("gemm_combine is tiles; with the second_format mxfp4 it must be auto or"));
}

TEST_F(FusedMisuseTest, OtherStrategiesRefuseToAddWithoutWeights) {
  FusedProblem problem = SmallProblem(1);
  problem.config.ep.strategy = Strategy::kDirect;
  Make(problem);
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(On([&](Rank& rank, const FusedHarness::CallMemory& memory) -> absl::Status {
                ExpertParallel& ep = harness().experts().ep();
                OCTET_ASSIGN_OR_RETURN(
                    const Received received,
                    ep.Dispatch(rank, harness().dispatch_args(rank, memory).dispatch));
                return ep.Combine(rank, received.handle,
                                  {.expert_out = received.x,
                                   .y = memory.y.as<void>(),
                                   .high_throughput = {.unweighted = true}});
              }),
              Refused("unweighted needs the strategy high_throughput, not direct"));
}

TEST(FusionNamesTest, AreParsed) {
  for (const Fusion fusion : {Fusion::kAuto, Fusion::kNone, Fusion::kTiles, Fusion::kEpilogue}) {
    const absl::StatusOr<Fusion> parsed = ParseEnum<Fusion>("fusion", EnumName(fusion));
    ASSERT_OK(parsed.status());
    EXPECT_EQ(*parsed, fusion);
  }
  EXPECT_THAT(ParseEnum<WeightsIn>("weights_in", "second").status(),
              Refused("'second' is not one of combine, first_product"));
}

}  // namespace
}  // namespace octet
