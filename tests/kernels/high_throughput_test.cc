// What only high_throughput can do: other formats and layouts of rows, layouts that are used again,
// places given by the caller, totals on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/ep_internals.h"
#include "kernels/high_throughput/kernels.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/pointwise_expert.h"
#include "octet/dtype.h"
#include "octet/expert_parallel.h"
#include "octet/trace.h"
#include "runtime/device_memory.h"
#include "runtime/gpu_status.h"
#include "runtime/status_macros.h"
#include "tests/kernels/high_throughput_fixture.h"
#include "tests/support/ep_harness.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

#define MAKE_OR_SKIP(...) \
  Make(__VA_ARGS__);      \
  if (HasFatalFailure() || IsSkipped()) return

EpConfig PrefillConfig() {
  EpConfig config;
  config.num_experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens_per_rank = 4096;
  config.strategy = Strategy::kHighThroughput;
  return config;
}

// ---- layouts of rows

TEST_F(HighThroughputTest, RowsOnceWithAnIndex) {
  EpConfig config = Config(12, 5, 72, 9);
  config.high_throughput.duplicates = Duplicates::kIndex;
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({9, 4, 7}));
  RunStep(RandomStepOf({0, 9, 1}, 0.4));
}

TEST_F(HighThroughputTest, DeduplicatedRowsWithTheirChoices) {
  EpConfig config = Config(12, 5, 72, 9);
  config.output = Output::kDeduplicated;
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({9, 4, 7}));
  RunStep(RandomStepOf({0, 9, 1}, 0.4));
}

TEST_F(HighThroughputTest, ExpertsStartAlignedAndPaddingIsZero) {
  for (const Duplicates duplicates : {Duplicates::kFill, Duplicates::kIndex}) {
    EpConfig config = Config(12, 3, 72, 9);
    config.high_throughput.duplicates = duplicates;
    config.high_throughput.expert_alignment = 8;
    MAKE_OR_SKIP(3, config);
    RunStep(RandomStepOf({9, 4, 7}));
    RunStep(RandomStepOf({9, 9, 9}, 0.5));
    RunStep(RandomStepOf({0, 0, 1}));
  }
}

// ---- formats

TEST_F(HighThroughputTest, Fp8RowsWithScales) {
  for (const ScaleFormat scales : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
    for (const Output output : {Output::kPackedExperts, Output::kDeduplicated}) {
      EpConfig config = Config(8, 4, 1232, 6);  // ten groups, the last one short
      config.dispatch_format = DispatchFormat::kFp8;
      config.scale_format = scales;
      config.output = output;
      MAKE_OR_SKIP(2, config);
      EXPECT_EQ(config_.scale_words(), scales == ScaleFormat::kFloat32 ? 10 : 3);
      RunStep(RandomStepOf({6, 5}, 0.1));
    }
  }
}

TEST_F(HighThroughputTest, RawBytes) {
  EpConfig config = Config(8, 4, 64, 6);
  config.dispatch_format = DispatchFormat::kBytes;
  config.high_throughput.row_bytes = 1040;
  config.high_throughput.expert_alignment = 4;
  MAKE_OR_SKIP(4, config);
  RunStep(RandomStepOf({6, 5, 0, 3}, 0.1));
}

// ---- places by the caller

TEST_F(HighThroughputTest, ScatterIndicesSayWhereRowsGo) {
  EpConfig config = Config(6, 3, 72, 20);
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({20, 3, 11}, 0.2, true));
  RunStep(RandomStepOf({20, 3, 11}, 0.2));
}

TEST_F(HighThroughputTest, ScatterIndexOutOfRangeIsRefused) {
  MAKE_OR_SKIP(2, Config(2, 1, 64, 4));
  Step step = RandomStepOf({4, 4}, 0, true);
  for (StepInput::PerRank& rank : step.input.ranks) rank.topk_idx = {0, 0, 1, 1};
  step.payloads[0].scatter = {0, 1, 0, 1};
  for (const int bad : {2, -1, 1 << 30}) {
    step.payloads[1].scatter = {0, bad, 0, 1};
    EXPECT_OK(Upload(step));
    const absl::Status status = node_->Run(
        [&](Rank& rank) { return ep_->Dispatch(rank, Args(step, rank.rank())).status(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("rank 1: scatter_idx of token 1, k 0 is ", bad,
                                       "; it must be from 0 to 1")));
  }
  step.payloads[1].scatter = {1, 0, 0, 1};
  RunStep(step);
}

// ---- layouts that are used again

TEST_F(HighThroughputTest, CachedLayoutAfterADifferentRouting) {
  for (const Duplicates duplicates : {Duplicates::kFill, Duplicates::kIndex}) {
    EpConfig config = Config(12, 4, 72, 9);
    config.high_throughput.kept_layouts = 2;
    config.high_throughput.expert_alignment = 4;
    config.high_throughput.duplicates = duplicates;
    MAKE_OR_SKIP(3, config);
    const Step first = RandomStepOf({9, 4, 7}, 0.2);
    RunStep(first);
    const std::vector<DispatchHandle> handles = Handles();
    RunStep(RandomStepOf({1, 9, 8}));
    // The same routing with other rows, as in a next layer or a backward pass.
    Step again = RandomStepOf({9, 4, 7});
    for (size_t r = 0; r < again.input.ranks.size(); ++r) {
      again.input.ranks[r].topk_idx = first.input.ranks[r].topk_idx;
    }
    EXPECT_OK(Dispatch(again, handles));
    CheckDispatch(again);
    EXPECT_OK(Combine(again, Handles()));
  }
}

// The backward pass of combine is a dispatch without weights, that of dispatch a combine.
TEST_F(HighThroughputTest, BothBackwardPassesSkipTheLayout) {
  MAKE_OR_SKIP(3, Config(12, 4, 72, 9));
  const Step forward = RandomStepOf({9, 4, 7}, 0.2);
  RunStep(forward);
  Step gradients = RandomStepOf({9, 4, 7});
  for (size_t r = 0; r < gradients.input.ranks.size(); ++r) {
    gradients.input.ranks[r].topk_idx = forward.input.ranks[r].topk_idx;
  }
  EXPECT_OK(Dispatch(gradients, Handles(), /*weights=*/false));
  CheckDispatch(gradients, /*weights=*/false);
  EXPECT_OK(Combine(gradients, Handles(), {}, /*weights=*/false));
  EXPECT_OK(Combine(gradients, Handles(), {}, /*weights=*/false));
}

TEST_F(HighThroughputTest, HandleOfALayoutThatIsGoneIsRefused) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.kept_layouts = 2;
  MAKE_OR_SKIP(2, config);
  const Step step = RandomStepOf({4, 4});
  RunStep(step);
  const std::vector<DispatchHandle> handles = Handles();
  RunStep(step);
  EXPECT_OK(Combine(step, handles));
  RunStep(step);
  const absl::Status status = Combine(step, handles);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("kept_layouts is 2"));
  EXPECT_EQ(Dispatch(step, handles).code(), absl::StatusCode::kFailedPrecondition);
  RunStep(step);
}

TEST_F(HighThroughputTest, HandleFromBeforeAFailureIsRefused) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.kept_layouts = 4;
  MAKE_OR_SKIP(2, config);
  const Step step = RandomStepOf({4, 4});
  RunStep(step);
  const std::vector<DispatchHandle> handles = Handles();
  EXPECT_FALSE(node_
                   ->Run([](Rank& rank) {
                     return rank.rank() == 0 ? absl::UnknownError("no") : absl::OkStatus();
                   })
                   .ok());
  for (const absl::Status& status : {Combine(step, handles), Dispatch(step, handles)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("it is void"));
  }
  RunStep(step);
}

// ---- the rest

TEST_F(HighThroughputTest, WrongArgumentsAreRefusedBeforeALaunch) {
  EpConfig config = Config(4, 2, 64, 4);
  config.dispatch_format = DispatchFormat::kFp8;
  config.output = Output::kDeduplicated;
  MAKE_OR_SKIP(2, config);
  const Step step = RandomStepOf({4, 3});
  RunStep(step);
  const auto refused = [](const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  };
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    const Memory& m = ranks_[static_cast<size_t>(rank.rank())];
    DispatchArgs args = Args(step, rank.rank());
    args.high_throughput.x_scales = nullptr;
    refused(ep_->Dispatch(rank, args).status(), "x_scales must not be null");
    args = Args(step, rank.rank());
    args.high_throughput.cached = &m.received.handle;
    args.num_tokens = 2;
    refused(ep_->Dispatch(rank, args).status(),
            "num_tokens is 2; the layout in `cached` is of " + std::to_string(4 - rank.rank()));
    refused(ep_->Combine(rank, m.received.handle,
                         {.expert_out = m.expert_out.as<void>(),
                          .y = m.y.as<void>(),
                          .expert_scale = m.topk_weights.as<float>()}),
            "expert_scale must be null");
    return absl::OkStatus();
  }));
  EXPECT_OK(Combine(step, Handles()));
  RunStep(step);
}

// Outputs that differ from expert to expert: a map that names a token's first row for each of its
// choices would add that one again and again.
TEST_F(HighThroughputTest, EveryExpertOfARankAddsItsOwnOutput) {
  MAKE_OR_SKIP(2, Config(8, 8, 64, 5));
  Step step = RandomStepOf({5, 5});
  for (size_t e = 0; e < step.input.expert_scale.size(); ++e) {
    step.input.expert_scale[e] = static_cast<float>(1U << e);
  }
  RunStep(step);
}

TEST_F(HighThroughputTest, BiasIsAddedLast) {
  for (const CombineOrder order : {CombineOrder::kFlat, CombineOrder::kPerRank}) {
    EpConfig config = Config(6, 3, 72, 9);
    config.combine_order = order;
    config.dtype = DType::kFloat16;
    MAKE_OR_SKIP(3, config);
    const Step step = RandomStepOf({9, 0, 4}, 0.3);
    EXPECT_OK(Dispatch(step));
    std::vector<uint16_t> bias;
    for (int h = 0; h < config.hidden; ++h) {
      bias.push_back(BitsFromFloat(config.dtype, static_cast<float>(h) / 7.0F - 4.0F));
    }
    EXPECT_OK(Combine(step, Handles(), bias));
  }
}

TEST_F(HighThroughputTest, TotalsOnTheHost) {
  EpConfig config = Config(12, 4, 72, 9);
  config.high_throughput.host_totals = true;
  config.high_throughput.expert_alignment = 4;
  MAKE_OR_SKIP(3, config);
  const auto check = [&](const Step& step) {
    for (int r = 0; r < node_->num_ranks(); ++r) {
      const ReferenceReceived want = Expect(step, r);
      const Received& received = ranks_[static_cast<size_t>(r)].received;
      EXPECT_EQ(received.high_throughput.num_rows, want.expert_offsets.back());
      EXPECT_EQ(received.high_throughput.num_tokens, want.source_offsets.back());
      EXPECT_EQ(std::vector<int32_t>(received.high_throughput.host_expert_counts.begin(),
                                     received.high_throughput.host_expert_counts.end()),
                want.expert_counts);
    }
  };
  for (const std::vector<int>& tokens : {std::vector{9, 4, 7}, {0, 0, 0}, {1, 9, 0}}) {
    const Step step = RandomStepOf(tokens, 0.2);
    EXPECT_OK(Dispatch(step));
    check(step);
    EXPECT_OK(Dispatch(step, Handles()));
    check(step);
    EXPECT_OK(Combine(step, Handles()));
  }
}

TEST_F(HighThroughputTest, TotalsOfASilentPeerEndInItsDeadline) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.host_totals = true;
  MAKE_OR_SKIP(2, config, absl::Milliseconds(300));
  const Step step = RandomStepOf({4, 4});
  EXPECT_OK(Upload(step));
  const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return rank.Barrier();
    return ep_->Dispatch(rank, Args(step, rank.rank())).status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  RunStep(step);
}

// A function of the host that is stuck, ahead of the dispatch on the streams of `ranks`. Ends by
// itself after a minute.
class StuckFunction {
 public:
  ~StuckFunction() {
    release_ = true;
    while (running_ > 0) absl::SleepFor(absl::Milliseconds(1));
  }
  absl::Status Enqueue(hipStream_t stream) {
    ++running_;
    return OCTET_GPU(hipLaunchHostFunc(stream, &StuckFunction::Run, this));
  }
  int running() const { return running_; }

 private:
  static void Run(void* self) {
    auto* function = static_cast<StuckFunction*>(self);
    const absl::Time latest = absl::Now() + absl::Minutes(1);
    while (!function->release_ && absl::Now() < latest) absl::SleepFor(absl::Milliseconds(1));
    --function->running_;
  }

  std::atomic<bool> release_{false};
  std::atomic<int> running_{0};
};

TEST_F(HighThroughputTest, TotalsBehindWorkThatDoesNotEnd) {
  for (const std::vector<int>& stuck_ranks : {std::vector{0}, {0, 1}}) {
    EpConfig config = Config(4, 2, 64, 4);
    config.high_throughput.host_totals = true;
    MAKE_OR_SKIP(2, config, absl::Milliseconds(100));
    const Step step = RandomStepOf({4, 4});
    EXPECT_OK(Upload(step));
    StuckFunction function;
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      for (const int stuck : stuck_ranks) {
        if (stuck == rank.rank()) OCTET_RETURN_IF_ERROR(function.Enqueue(rank.stream()));
      }
      return ep_->Dispatch(rank, Args(step, rank.rank())).status();
    });
    EXPECT_GT(function.running(), 0) << "Run has waited for it";
    EXPECT_THAT(
        status,
        StatusIs(absl::StatusCode::kDeadlineExceeded,
                 stuck_ranks.size() == 1
                     ? MatchesRegex("rank 1: dispatch-[^\n]* for rank 0's [^\n]*\nall ranks:"
                                    "\n  rank 0: no wait; its stream is still busy with "
                                    "other work [^\n]*(\n[^\n]*)*")
                     : MatchesRegex("rank [01]: waited [^\n]* for the totals of its dispatch; "
                                    "its stream is still busy(\n[^\n]*)*")));
    EXPECT_TRUE(node_->stuck());
    ep_.reset();
    node_.reset();
    EXPECT_GT(function.running(), 0) << "a destructor has waited for it";
  }
}

// Leftovers that name an expert that exists and rows that do not: the experts' kernel behind a
// dispatch whose rows do not come must not look at them.
TEST_F(HighThroughputTest, NothingRunsOnWhatARefusedPeerDidNotSend) {
  for (const bool index : {true, false}) {
    SCOPED_TRACE(index ? "index" : "deduplicated");
    EpConfig config = Config(6, 3, 64, 6);
    config.high_throughput.duplicates = index ? Duplicates::kIndex : Duplicates::kFill;
    config.output = index ? Output::kPackedExperts : Output::kDeduplicated;
    MAKE_OR_SKIP(3, config);
    RunStep(RandomStepOf({6, 6, 6}));
    Step step = RandomStepOf({6, 6, 6}, 0, /*scatter=*/true);
    for (StepInput::PerRank& rank : step.input.ranks) {
      for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
        rank.topk_idx[i] = 2 * static_cast<int32_t>(i % 3);  // one expert of each rank
      }
    }
    for (size_t r = 0; r < 3; ++r) {
      for (size_t i = 0; i < step.payloads[r].scatter.size(); ++i) {
        step.payloads[r].scatter[i] = static_cast<int32_t>(i / 3);
      }
    }
    step.payloads[1].scatter[3 * 3 + 2] = 6;  // of token 3, for rank 2
    ASSERT_OK(Upload(step));
    EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      const Received& before = ranks_[r].received;
      const size_t rows = index ? static_cast<size_t>(before.max_rows) : 3 * 6;
      OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(const_cast<RowSource*>(before.sources), 0,
                                               rows * sizeof(RowSource), rank.stream()));
      if (index) {
        OCTET_RETURN_IF_GPU_ERROR(
            hipMemsetAsync(const_cast<int32_t*>(before.high_throughput.row_index), 0x7e,
                           rows * sizeof(int32_t), rank.stream()));
      }
      OCTET_ASSIGN_OR_RETURN(const Received received, ep_->Dispatch(rank, Args(step, rank.rank())));
      return PointwiseExpert(rank, ep_->config(), received, ranks_[r].topk_weights.as<float>(),
                             ranks_[r].expert_out.as<void>());
    }),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 1: scatter_idx of token 3, k 2 is 6")));
    EXPECT_THAT(*ToHost<int32_t>(ranks_[2].received.expert_offsets, 3), Each(0));
    RunStep(RandomStepOf({6, 6, 6}));
  }
}

// An earlier delivery in the same places is not delivered again.
TEST_F(HighThroughputTest, ALayoutThatIsUsedAgainDeliversNothingWithoutItsPeers) {
  MAKE_OR_SKIP(2, Config(4, 2, 64, 4), absl::Milliseconds(500));
  const Step step = RandomStepOf({4, 4});
  RunStep(step);
  const std::vector<DispatchHandle> handles = Handles();
  Received received;
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return rank.Barrier();
    DispatchArgs args = Args(step, 0);
    args.high_throughput.cached = handles.data();
    OCTET_ASSIGN_OR_RETURN(received, ep_->Dispatch(rank, args));
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 0: dispatch-send waited"),
                             HasSubstr("for rank 1's dispatch credit 0: expected epoch 2, seen 1"),
                             HasSubstr("\ndispatch credits: epoch seen from each rank, * behind\n"
                                       "          expected  0   1\n"
                                       "  rank 0         2  2   1*"))));
  EXPECT_THAT(*ToHost<int32_t>(received.expert_counts, 2), Each(0));
  EXPECT_THAT(*ToHost<int32_t>(received.expert_offsets, 3), Each(0));
  EXPECT_THAT(*ToHost<int32_t>(received.high_throughput.source_offsets, 3), Each(0));
  RunStep(step);
}

// Whatever a kernel of the caller indexes with is in range before anything has been received.
TEST_F(HighThroughputTest, WhatIsIndexedWithNamesNoRowAtFirst) {
  for (const bool deduplicated : {false, true}) {
    EpConfig config = Config(4, 2, 64, 4);
    config.output = deduplicated ? Output::kDeduplicated : Output::kPackedExperts;
    config.high_throughput.duplicates = deduplicated ? Duplicates::kFill : Duplicates::kIndex;
    MAKE_OR_SKIP(2, config);
    const Step nothing = RandomStepOf({0, 0});
    ASSERT_OK(Upload(nothing));
    ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(const Received received,
                             ep_->Dispatch(rank, Args(nothing, rank.rank())));
      ranks_[static_cast<size_t>(rank.rank())].received = received;
      return absl::OkStatus();
    }));
    const Received& received = ranks_[0].received;
    const auto rows = static_cast<size_t>(deduplicated ? 2 * 4 : received.max_rows);
    EXPECT_THAT(*ToHost<int32_t>(received.sources, 4 * rows), Each(-1));
    if (deduplicated) {
      EXPECT_THAT(*ToHost<int32_t>(received.high_throughput.recv_topk_idx, 2 * rows), Each(-1));
    } else {
      EXPECT_THAT(*ToHost<int32_t>(received.high_throughput.row_index, rows), Each(-1));
    }
  }
}

// ---- layouts that are not the same on all ranks

TEST_F(HighThroughputTest, CachedHandlesOfOtherLayoutsAreNamed) {
  EpConfig config = Config(4, 2, 64, 4);
  config.high_throughput.kept_layouts = 2;
  MAKE_OR_SKIP(2, config, absl::Seconds(2));
  // The same routing twice: all counts coincide.
  const Step step = RandomStepOf({4, 4});
  uint64_t failures = 0;
  for (const bool fresh : {false, true}) {
    SCOPED_TRACE(fresh ? "a layout of its own" : "another layout");
    ASSERT_OK(Dispatch(step));
    const std::vector<DispatchHandle> first = Handles();
    ASSERT_OK(Dispatch(step));
    const std::vector<DispatchHandle> second = Handles();
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      DispatchArgs args = Args(step, rank.rank());
      if (rank.rank() == 0) args.high_throughput.cached = first.data();
      if (rank.rank() == 1 && !fresh) args.high_throughput.cached = &second[1];
      return ep_->Dispatch(rank, args).status();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    // Whichever rank has noticed it first.
    const std::string theirs = fresh ? "3" : "2";
    EXPECT_THAT(
        std::string(status.message()),
        AnyOf(HasSubstr(absl::StrCat("rank 0: `cached` is of layout 1, while rank 1 dispatches "
                                     "with layout ",
                                     theirs, "; all ranks must give the handle of the same")),
              HasSubstr(absl::StrCat("rank 1: `cached` is of layout ", theirs,
                                     ", while rank 0 dispatches with layout 1; all ranks"))))
        << "after " << failures++ << " failures";
    RunStep(step);
    ASSERT_OK(Dispatch(step, Handles()));
    CheckDispatch(step);
    // As many layouts on each rank as there were failures on it do not matter.
    EXPECT_FALSE(node_
                     ->Run([&](Rank& rank) -> absl::Status {
                       if (rank.rank() == 0) return absl::UnknownError("no");
                       return ep_->Dispatch(rank, Args(step, 1)).status();
                     })
                     .ok());
  }
}

// Of what has run, not of what was asked for.
TEST_F(HighThroughputTest, BlocksAreABudget) {
  for (const int max_blocks : {1, 2, 3}) {
    // So much work that an emulated GPU, too, takes more blocks by itself.
    EpConfig config = Config(12, 4, 4096, 40);
    config.tuning = {};
    config.max_blocks = max_blocks;
    MAKE_OR_SKIP(3, config);
    const auto trace = TraceCollector::Create(*node_, 256, 1024);
    ASSERT_OK(trace.status());
    auto traced = ExpertParallel::Create(*node_, config, {.trace = trace->get()});
    ASSERT_OK(traced.status());
    ep_ = *std::move(traced);
    RunStep(RandomStepOf({20, 11, 7}));
    const auto slices = (*trace)->Collect();
    ASSERT_OK(slices.status());
    std::set<int> blocks;
    std::set<absl::string_view> phases;
    for (const TraceSlice& slice : *slices) {
      blocks.insert(slice.block);
      phases.insert(EpInternals::TraceTags(*ep_)[slice.tag].phase.name);
    }
    EXPECT_EQ(blocks.size(), static_cast<size_t>(max_blocks));
    EXPECT_LT(*blocks.rbegin(), max_blocks);
    EXPECT_EQ(phases.size(), 5U) << "of both calls";
    ep_.reset();
  }
}

// Blocks with a share of the tokens and no column of the counts: nothing but the count of its share
// says that a share's routes are there.
TEST_F(HighThroughputTest, MoreBlocksThanColumns) {
  EpConfig config = Config(2, 1, 64, 40);
  config.tuning.blocks = 12;
  config.tuning.waves_per_block = 1;
  MAKE_OR_SKIP(2, config);
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    RunStep(RandomStepOf({40, 31}));
  }
}

// More counts than a block keeps of all ranks.
TEST_F(HighThroughputTest, CountsThatAreReadTwice) {
  EpConfig config = Config(1700, 3, 64, 12);
  MAKE_OR_SKIP(5, config);
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    RunStep(RandomStepOf({12, 9, 0, 12, 1}));
  }
}

// More would have to be asked for, before each first launch of a kernel on a GPU.
TEST(HighThroughputLayoutTest, SharedMemoryOfADispatchIsWhatEveryGpuGives) {
  constexpr size_t kBytes = 48 * 1024;
  constexpr size_t kDeclared = 512;  // in the kernel, at most
  EpConfig config = PrefillConfig();
  for (int num_ranks = 1; num_ranks <= kMaxRanks; ++num_ranks) {
    for (int experts = num_ranks; experts <= kMaxExperts; experts += num_ranks) {
      config.num_experts = experts;
      config.tuning.row_parts = 1;
      const high_throughput::Layout layout = high_throughput::MakeLayout(config, num_ranks);
      for (const int waves : {1, 12, 24}) {
        ASSERT_LE(high_throughput::SharedOfDispatch(layout, false, waves).bytes, kBytes - kDeclared)
            << num_ranks << " ranks, " << experts << " experts, " << waves << " waves";
      }
    }
  }
}

TEST(HighThroughputLayoutTest, FewBlocksWithManyTokensMoveWholeRows) {
  EpConfig config = PrefillConfig();
  const auto parts = [&config](int max_blocks, int num_ranks) {
    config.max_blocks = max_blocks;
    return high_throughput::ChooseRowParts(config, num_ranks);
  };
  EXPECT_EQ(parts(0, 8), 2);
  EXPECT_EQ(parts(24, 2), 1);
  EXPECT_EQ(parts(64, 8), 1);
  EXPECT_EQ(parts(65, 8), 2);
  config.tuning.blocks = 24;
  EXPECT_EQ(parts(80, 2), 1) << "the caller's number of blocks counts";
  config.tuning.blocks = 0;
  config.max_tokens_per_rank = 512;
  EXPECT_EQ(parts(24, 2), 2);
  config.hidden = 1536;
  EXPECT_EQ(parts(0, 2), 1);
}

TEST_F(HighThroughputTest, AlternatingSizesAndSeveralCallsInFlight) {
  MAKE_OR_SKIP(5, Config(15, 6, 72, 33));
  for (const int tokens : {33, 0, 1, 33, 7}) RunStep(RandomStepOf(std::vector<int>(5, tokens)));
  const Step step = RandomStepOf({33, 2, 17, 0, 5});
  ASSERT_OK(Upload(step));
  ASSERT_OK(RunExperts(step));
  // Of each combine.
  std::vector<std::vector<DeviceMemory>> ys(5);
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    for (int i = 0; i < 12; ++i) {
      OCTET_ASSIGN_OR_RETURN(DeviceMemory y, DeviceMemory::Allocate(ranks_[r].y.bytes()));
      OCTET_RETURN_IF_GPU_ERROR(hipMemset(y.as<void>(), 0xff, y.bytes()));
      ys[r].push_back(std::move(y));
    }
    return absl::OkStatus();
  }));
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    size_t combines = 0;
    for (int call = 0; call < 12; ++call) {
      DispatchArgs args = Args(step, rank.rank());
      const DispatchHandle last = ranks_[r].received.handle;
      if (call % 3 == 1) args.high_throughput.cached = &last;
      OCTET_ASSIGN_OR_RETURN(ranks_[r].received, ep_->Dispatch(rank, args));
      for (int combine = 0; combine < call % 3; ++combine) {
        OCTET_RETURN_IF_ERROR(ep_->Combine(
            rank, ranks_[r].received.handle,
            {.expert_out = ranks_[r].expert_out.as<void>(), .y = ys[r][combines++].as<void>()}));
      }
    }
    return absl::OkStatus();
  }));
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    for (const DeviceMemory& y : ys[static_cast<size_t>(rank.rank())]) {
      OCTET_RETURN_IF_ERROR(CheckY(step, rank.rank(), y.as<void>()));
    }
    return absl::OkStatus();
  }));
  RunStep(step);
}

// The experts' rows are those that were received, whatever those are made of.
TEST_F(HighThroughputTest, BytesAreCombinedInPlace) {
  if (NumGpus() < 4) GTEST_SKIP() << NumGpus() << " GPUs";
  for (const CombineMethod method : {CombineMethod::kPush, CombineMethod::kPull}) {
    for (const CombineOrder order : {CombineOrder::kPerRank, CombineOrder::kFlat}) {
      EpConfig config = Config(8, 4, 256, 17);
      config.dispatch_format = DispatchFormat::kBytes;
      config.high_throughput.row_bytes = 2 * config.hidden;
      config.combine_method = method;
      config.combine_order = order;
      const auto harness = EpHarness::Create(4, config, {.timeout = absl::Seconds(10)});
      ASSERT_OK(harness.status());
      for (int i = 0; i < 4; ++i) {
        EXPECT_OK((*harness)->Step(RandomStep(rng_, (*harness)->ep().config(), {17, 17, 9, 16})))
            << static_cast<int>(method) << static_cast<int>(order);
      }
    }
  }
}

// What has been sent is received with its own handle, not with that of another layout.
TEST_F(HighThroughputTest, HalvesOfOtherCallsAreRefused) {
  EpConfig config = Config(8, 2, 64, 6);
  config.high_throughput.kept_layouts = 2;
  MAKE_OR_SKIP(2, config);
  const Step first = RandomStepOf({6, 6});
  ASSERT_OK(Dispatch(first));
  const std::vector<DispatchHandle> before = Handles();
  const Step second = RandomStepOf({5, 3});
  ASSERT_OK(Upload(second));
  ASSERT_OK(RunExperts(second));
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    const auto refused = [](const absl::Status& status) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("is to be received first"));
    };
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle sent,
                           ep_->DispatchSend(rank, Args(second, rank.rank())));
    refused(ep_->DispatchReceive(rank, before[r]).status());
    OCTET_RETURN_IF_ERROR(ep_->DispatchReceive(rank, sent).status());
    const CombineArgs combine = {.expert_out = ranks_[r].expert_out.as<void>(),
                                 .y = ranks_[r].y.as<void>()};
    OCTET_RETURN_IF_ERROR(ep_->CombineSend(rank, sent, combine));
    refused(ep_->CombineReceive(rank, before[r], combine));
    return ep_->CombineReceive(rank, sent, combine);
  }));
  EXPECT_OK(node_->Run([&](Rank& rank) {
    return CheckY(second, rank.rank(), ranks_[static_cast<size_t>(rank.rank())].y.as<void>());
  }));
}

TEST_F(HighThroughputTest, RandomShapes) {
  const auto one_of = [this](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<ptrdiff_t>(rng_() % values.size()));
  };
  for (int round = 0; round < 12; ++round) {
    rng_.seed(1000 + static_cast<uint64_t>(round));
    const int ranks = one_of({1, 2, 3, 4, 5});
    const int num_experts = ranks * one_of({1, 2, 3, 8});
    EpConfig config =
        Config(num_experts,
               1 + static_cast<int>(rng_() % static_cast<uint64_t>(std::min(32, num_experts))),
               one_of({16, 48, 256, 1040}), one_of({1, 5, 17, 70}));
    config.dispatch_format = static_cast<DispatchFormat>(one_of({0, 1, 2}));
    config.high_throughput.row_bytes = 48;
    config.scale_format = static_cast<ScaleFormat>(one_of({0, 1}));
    config.output = static_cast<Output>(one_of({0, 0, 1}));
    if (config.output == Output::kPackedExperts) {
      config.high_throughput.duplicates = static_cast<Duplicates>(one_of({0, 1}));
      config.high_throughput.expert_alignment = one_of({1, 4, 16});
      config.combine_order = static_cast<CombineOrder>(one_of({0, 1}));
      config.combine_method = static_cast<CombineMethod>(one_of({0, 1, 2}));
    }
    config.max_blocks = one_of({0, 2, 3});
    if (config.max_blocks > 0) config.tuning.blocks = config.max_blocks;
    config.tuning.waves_per_block = one_of({0, 1, 2, 3});
    config.tuning.row_parts = one_of({0, 1, 3});
    config.tuning.row_copies = static_cast<RowCopies>(one_of({0, 2}));
    config.tuning.send_waves = one_of({0, 1});
    MAKE_OR_SKIP(ranks, config);
    SCOPED_TRACE(absl::StrCat("round ", round));
    const bool scatter = one_of({0, 0, 1}) == 1;
    RunStep(RandomStepOf(RandomTokens(rng_, config_, ranks), one_of({0, 3}) / 10.0, scatter));
  }
}

// ---- bytes on the wire

TEST_F(HighThroughputTest, TrafficIsWhatIsStoredIntoPeers) {
  EpConfig config = Config(4, 2, 64, 4);
  for (const CombineMethod method : {CombineMethod::kPush, CombineMethod::kPull}) {
    config.combine_method = method;
    MAKE_OR_SKIP(2, config);
    const std::vector<int32_t> topk_idx = {0, 1, 2, 3, 1, 2, -1, 3};
    // Three tokens and four choices go to rank 1. Beside a row of 128 bytes a packet: the flag, the
    // combine's slot, and 12 bytes for each choice; then six counts and two credits.
    const Traffic dispatch = ep_->DispatchTraffic(0, topk_idx);
    EXPECT_EQ(dispatch.rows, 5);
    EXPECT_EQ(dispatch.logical_bytes, 5 * 128);
    EXPECT_EQ(dispatch.wire_bytes, 3 * (128 + 8 + 4) + 4 * 12 + (6 + 2) * 8);
    // Three sums with a flag each, and a credit.
    const Traffic combine = ep_->CombineTraffic(0, topk_idx);
    EXPECT_EQ(combine.rows, 5);
    EXPECT_EQ(combine.wire_bytes, 3 * (128 + 8) + 8);
  }
}

// ---- memory

TEST(HighThroughputMemoryTest, HeapStaysWithinItsLimits) {
  EpConfig config = PrefillConfig();
  const auto check = [&config](int ranks) {
    const int choices = std::min(config.topk, config.num_local_experts(ranks));
    const double rows = static_cast<double>(ranks) * config.max_tokens_per_rank *
                        (config.output == Output::kDeduplicated ? 1 : choices);
    EXPECT_LE(static_cast<double>(ExpertParallel::HeapBytes(config, ranks)->total()),
              1.5 * rows * 2 * config.hidden)
        << ranks << " ranks, topk " << config.topk << ", hidden " << config.hidden
        << ", combine_order " << static_cast<int>(config.combine_order);
  };
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    for (const auto& [hidden, max_tokens] : {std::pair(7168, 4096), {1536, 32768}}) {
      for (const DispatchFormat format : {DispatchFormat::kSame, DispatchFormat::kFp8}) {
        for (const int topk : {1, 2, 4, 8}) {
          config = PrefillConfig();
          config.num_experts = 32 * ranks;
          config.topk = topk;
          config.hidden = hidden;
          config.max_tokens_per_rank = max_tokens;
          config.dispatch_format = format;
          check(ranks);
          config.combine_order = CombineOrder::kFlat;
          check(ranks);
          config.high_throughput.duplicates = Duplicates::kIndex;
          check(ranks);
          config.combine_order = CombineOrder::kPerRank;
          check(ranks);
          config.high_throughput.duplicates = Duplicates::kFill;
          config.output = Output::kDeduplicated;
          check(ranks);
        }
      }
    }
  }
}

}  // namespace
}  // namespace octet
