// low_latency with FailurePolicy::kMask: ranks that are silent are masked by those that wait for
// them, who go on to the bit as if the silent ones' tokens and experts did not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/ep/device/rank_flags.h"
#include "kernels/low_latency/layout.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/epoch.h"
#include "runtime/gpu/scoped_event.h"
#include "runtime/memory/device_memory.h"
#include "tests/kernels/low_latency/low_latency_mask_fixture.h"
#include "tests/support/ep_harness.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- silent ranks

struct Shape {
  Output output;
  CombineOrder order;
  DispatchFormat format = DispatchFormat::kSame;
};

class LowLatencyMaskShapeTest : public LowLatencyMaskTest,
                                public ::testing::WithParamInterface<Shape> {
 protected:
  void MakeShape() {
    EpConfig config = Config(GetParam().output, GetParam().order);
    config.dispatch_format = GetParam().format;
    Make(config);
  }
};

TEST_P(LowLatencyMaskShapeTest, ARankThatDoesNotComeToDispatch) {
  MakeShape();
  if (IsSkipped()) return;
  for (const Form form : {Form::kFused, Form::kSplit}) {
    Step(RankSet{0}, {form});
    Step(Only(2), {form});
    ExpectMasks(Only(2));
    Step(Only(2), {form});
    Step(Only(2), {form});
    Unmask();
    ExpectMasks(0);
    Step(RankSet{0}, {form});
    Step(RankSet{0}, {form});
  }
}

TEST_P(LowLatencyMaskShapeTest, ARankThatDoesNotComeToCombine) {
  MakeShape();
  if (IsSkipped()) return;
  for (const Form form : {Form::kFused, Form::kSplit}) {
    Step([](int rank) { return rank == 1 ? Part::kDispatch : Part::kAll; }, {form});
    ExpectMasks(Only(1));
    Step(Only(1), {form});
    Unmask();
    Step(RankSet{0}, {form});
  }
}

// One after the other, then both back; one stays away when the other is back.
TEST_F(LowLatencyMaskTest, TwoSilentRanks) {
  Make(Config());
  if (IsSkipped()) return;
  const std::vector<Form> forms = {Form::kFused, Form::kSplit};
  Step(Only(0), forms);
  Step(Only(0) | Only(3), forms);
  ExpectMasks(Only(0) | Only(3));
  Step(Only(0) | Only(3), forms);
  Unmask(Only(3));
  ExpectMasks(Only(3));
  Step(Only(3), forms);
  Unmask();
  Step(
      [](int rank) { return rank < 2    ? Part::kAll
                            : rank == 2 ? Part::kDispatch
                                        : Part::kNothing; },
      forms);
  Step(Only(2) | Only(3), forms);
  Unmask();
  Step(RankSet{0}, forms);
}

// Nobody takes a rank for silent that only waits for the silent one: of the others, only rank 0
// expects rows of that, and the rest are at the next step meanwhile.
TEST_F(LowLatencyMaskTest, WhoWaitsForASilentRankIsNotTakenForOne) {
  Make(Config());
  if (IsSkipped()) return;
  StepInput input = RandomStep(rng_, config(), {2, 2, 2, 2});
  const int num_local = config().num_local_experts(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    std::vector<int32_t>& ids = input.ranks[static_cast<size_t>(r)].topk_idx;
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(i) % config().topk + (r == 0 ? 3 : 0) * num_local;
    }
  }
  ASSERT_OK(harness_->Upload(input));
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
    if (rank.rank() == 3) return ep.Dispatch(rank, harness_->dispatch_args(3)).status();
    for (int step = 0; step < 4; ++step) {
      OCTET_RETURN_IF_ERROR(harness_->RunStep(rank, Form::kFused));
    }
    return absl::OkStatus();
  }));
  absent_ = Only(3);
  ExpectMasks(Only(3));
  CheckStep(input, Only(3), Only(3));
}

// Nor one that waits for the credit of the silent one, which ends with what two steps at the same
// time leave: buffers of two calls that it has not given back.
TEST_F(LowLatencyMaskTest, WhoWaitsForACreditIsNotTakenForSilent) {
  Make(Config());
  if (IsSkipped()) return;
  ASSERT_OK(harness_->Upload(Random()));
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) { return TwoSteps(rank, ep, 0); }));
  Step(Only(1));
  ExpectMasks(Only(1));
}

// What ranks that are silent in the same call cost is the time of one of them, also where one block
// waits for all.
TEST_F(LowLatencyMaskTest, SilentRanksCostTheirTimeTogether) {
  EpConfig config = Config();
  config.tuning.blocks = 2;
  const RankSet silent = Only(1) | Only(2);
  for (const bool dispatch : {false, true}) {
    SCOPED_TRACE(absl::StrCat("they dispatch ", dispatch));
    Make(config);
    if (IsSkipped()) return;
    ASSERT_OK(harness_->Upload(RandomStep(rng_, config, {9, 9, 9, 9})));
    ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
      if (Has(silent, rank.rank())) {
        return dispatch ? ep.Dispatch(rank, harness_->dispatch_args(rank.rank())).status()
                        : absl::OkStatus();
      }
      OCTET_ASSIGN_OR_RETURN(ScopedEvent start, ScopedEvent::Create());
      OCTET_ASSIGN_OR_RETURN(ScopedEvent end, ScopedEvent::Create());
      OCTET_RETURN_IF_ERROR(start.Record(rank.stream()));
      OCTET_RETURN_IF_ERROR(harness_->RunStep(rank, Form::kFused));
      OCTET_RETURN_IF_ERROR(end.Record(rank.stream()));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_ASSIGN_OR_RETURN(const double microseconds, end.MicrosecondsSince(start));
      EXPECT_GE(absl::Microseconds(microseconds), MaskTimeout());
      EXPECT_LT(absl::Microseconds(microseconds), 1.5 * MaskTimeout());
      return absl::OkStatus();
    }));
    absent_ = silent;
    ExpectMasks(silent);
  }
}

TEST_F(LowLatencyMaskTest, NothingIsSentToAMaskedRank) {
  Make(Config());
  if (IsSkipped()) return;
  Step(RankSet{0});
  Step(Only(2));
  const auto heap = [&] {
    return ToHost<uint8_t>(harness_->heap().peers(2).base[2], harness_->heap().bytes());
  };
  const absl::StatusOr<std::vector<uint8_t>> before = heap();
  ASSERT_OK(before.status());
  for (const Form form : {Form::kFused, Form::kSplit}) Step(Only(2), {form});
  const absl::StatusOr<std::vector<uint8_t>> after = heap();
  ASSERT_OK(after.status());
  EXPECT_TRUE(*before == *after) << "something was stored into the heap of rank 2";
}

// Two calls in flight, of which a rank sends neither.
TEST_F(LowLatencyMaskTest, TwoCallsInFlight) {
  Make(Config());
  if (IsSkipped()) return;
  const StepInput input = Random();
  ASSERT_OK(harness_->Upload(input));
  absent_ = Only(2);
  std::vector<RankSet> left_out(kRanks);
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
    const int r = rank.rank();
    if (r == 2) return absl::OkStatus();
    const DispatchArgs args = harness_->dispatch_args(r);
    ScaledCombineArgs combine = harness_->combine_args(r);
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle first, ep.DispatchSend(rank, args));
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle second, ep.DispatchSend(rank, args));
    OCTET_ASSIGN_OR_RETURN(const Received received, ep.DispatchReceive(rank, first));
    OCTET_ASSIGN_OR_RETURN(const Received last, ep.DispatchReceive(rank, second));
    combine.expert_out = received.x;
    OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep, rank, first, combine));
    combine.expert_out = last.x;
    OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep, rank, second, combine));
    OCTET_RETURN_IF_ERROR(ScaledCombineReceive(ep, rank, first, combine));
    OCTET_RETURN_IF_ERROR(PoisonY(rank, args, combine));
    OCTET_RETURN_IF_ERROR(ScaledCombineReceive(ep, rank, second, combine));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    left_out[static_cast<size_t>(r)] =
        received.low_latency.left_out->dispatch & received.low_latency.left_out->combine &
        last.low_latency.left_out->dispatch & last.low_latency.left_out->combine;
    return absl::OkStatus();
  }));
  EXPECT_THAT(left_out, ElementsAre(Only(2), Only(2), 0, Only(2)));
  EXPECT_OK(harness_->CheckY(Without(input, Only(2))));
  Unmask();
  Step(RankSet{0});
}

// ---- late ranks

// A rank that is late by more than its time: with its combine, whose rows then come into the middle
// of the others' next steps, or with its dispatch. Everybody else's results are right all the time.
// The late rank finds that nobody sends to it any more, and ends by itself.
TEST_F(LowLatencyMaskTest, WhatALateRankSendsHurtsNobody) {
  for (const CombineOrder order : {CombineOrder::kPerRank, CombineOrder::kFlat}) {
    for (const auto& [dispatches, later_steps] :
         {std::pair(true, 2), std::pair(true, 3), std::pair(false, 2)}) {
      SCOPED_TRACE(absl::StrCat("dispatches ", dispatches, ", later steps ", later_steps));
      Make(Config(Output::kPackedExperts, order));
      if (IsSkipped()) return;
      const StepInput first = RandomStep(rng_, config(), {9, 9, 9, 9});
      ASSERT_OK(harness_->Upload(first));
      // Of other ranks, or rank 3's places would be nobody's.
      StepInput input = first;
      std::vector<DeviceMemory> topk_idx(kRanks);
      const int num_local = this->config().num_local_experts(kRanks);
      ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
        const auto r = static_cast<size_t>(rank.rank());
        std::vector<int32_t>& ids = input.ranks[r].topk_idx;
        for (int32_t& id : ids) id = (id + num_local) % (kRanks * num_local);
        OCTET_ASSIGN_OR_RETURN(topk_idx[r], DeviceMemory::Allocate(ids.size() * sizeof(int32_t)));
        return ToDevice(topk_idx[r], ids);
      }));
      *signals_ = {};
      ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) {
        return LateStep(rank, ep, dispatches, later_steps, topk_idx);
      }));
      absent_ = Only(3);
      ExpectMasks(Only(3));
      EXPECT_OK(harness_->CheckY(Without(input, Only(3))));
      Unmask();
      Step(RankSet{0});
    }
  }
}

// Rank 1 is as late with its combine as the others wait for its credit, so that of the blocks of
// one kernel some get it and some do not. Whoever is in time is masked by nobody who is, and what
// is in no sum is rank 1's part at most.
TEST_F(LowLatencyMaskTest, RanksInTimeCountOnEachOther) {
  EpConfig config = Config();
  config.max_tokens_per_rank = 40;
  config.tuning = {.blocks = 12, .send_blocks = 8, .waves_per_block = 1};
  Make(config);
  if (IsSkipped()) return;
  const StepInput input = RandomStep(rng_, this->config(), {40, 40, 40, 40});
  ASSERT_OK(harness_->Upload(input));
  int times_masked = 0;
  // On a busy machine the others begin to wait later.
  for (int percent = 45; percent <= 52 || (times_masked == 0 && percent < 75); ++percent) {
    SCOPED_TRACE(absl::StrCat("late by ", percent, "% of mask_timeout"));
    const auto ticks = static_cast<uint64_t>(absl::ToDoubleSeconds(MaskTimeout()) * percent / 100 *
                                             static_cast<double>(DeviceClockHz()));
    std::vector<RankSet> masks(kRanks);
    ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
      for (const bool late : {false, true}) {
        OCTET_RETURN_IF_ERROR(TwoSteps(rank, ep, late && rank.rank() == 1 ? ticks : 0));
      }
      OCTET_ASSIGN_OR_RETURN(masks[static_cast<size_t>(rank.rank())], ep.MaskedRanks(rank));
      return absl::OkStatus();
    }));
    for (const int r : {0, 2, 3}) {
      EXPECT_EQ(masks[static_cast<size_t>(r)] & ~Only(1), 0U) << "rank " << r;
      times_masked += Has(masks[static_cast<size_t>(r)], 1) ? 1 : 0;
    }
    Unmask();
  }
  EXPECT_GT(times_masked, 0);
  Step(RankSet{0});
}

// Left open, mask_timeout is the node's timeout.
TEST_F(LowLatencyMaskTest, ALateRankIsWaitedForAsLongAsTheNodeWaits) {
  EpConfig config = Config();
  config.low_latency.mask_timeout = absl::ZeroDuration();
  Make(config);
  if (IsSkipped()) return;
  const StepInput input = Random();
  ASSERT_OK(harness_->Upload(input));
  *signals_ = {};
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
    if (rank.rank() == 2) OCTET_RETURN_IF_ERROR(EnqueueWait(rank, 2 * MaskTimeout()));
    return harness_->RunStep(rank, Form::kFused);
  }));
  ExpectMasks(0);
  CheckStep(input, 0, 0);
}

// ---- ranks that end in the middle of a call

// Rank 3 has announced its tokens, but none of them comes. The places of all others' rows are then
// known, and many rows are there, before it is masked.
TEST_P(LowLatencyMaskShapeTest, ARankThatOnlyAnnouncesItsTokens) {
  MakeShape();
  if (IsSkipped()) return;
  const low_latency::Layout layout = low_latency::MakeLayout(config(), kRanks);
  for (int r = 0; r < 3; ++r) {
    char* heap = harness_->heap().peers(r).base[r];
    for (int column = 0; column < layout.num_counts; ++column) {
      Poke(layout.Count(heap, 1, 3, column), device::PackEpochCount(1, 2));
    }
  }
  Step(Only(3));
  ExpectMasks(Only(3));
  Step(Only(3), {Form::kSplit});
}

// Rank 3 dispatches, and then some of its outputs come, but not all of them: none is added.
TEST_P(LowLatencyMaskShapeTest, ARankThatSendsSomeOutputsOnly) {
  MakeShape();
  if (IsSkipped()) return;
  const low_latency::Layout layout = low_latency::MakeLayout(config(), kRanks);
  for (int r = 0; r < 3; ++r) {
    char* heap = harness_->heap().peers(r).base[r];
    Poke(FlagOf(heap, layout.combine_begun, 3), 1);
    for (int token = 0; token < 4; ++token) {
      for (int i = 0; i < layout.rank_slots; ++i) {
        const int slot = layout.CombineSlot(3, i, 0);
        Poke(layout.CombineFlag(heap, 1, token, slot), 1);
        Poke(reinterpret_cast<uint64_t*>(layout.CombineRow(heap, 1, token, slot)),
             0x3c003c003c003c00);
      }
    }
  }
  const auto part = [](int rank) { return rank == 3 ? Part::kDispatch : Part::kAll; };
  Step(part, {Form::kFused}, {9, 9, 9, 9});
  ExpectMasks(Only(3));
  Step(Only(3), {Form::kSplit});
}

INSTANTIATE_TEST_SUITE_P(All, LowLatencyMaskShapeTest,
                         ::testing::Values(Shape{Output::kPackedExperts, CombineOrder::kPerRank},
                                           Shape{Output::kPackedExperts, CombineOrder::kFlat},
                                           Shape{Output::kRankMajor, CombineOrder::kFlat},
                                           Shape{Output::kExpertMajor, CombineOrder::kPerRank,
                                                 DispatchFormat::kQuantizedFp8}),
                         [](const auto& info) { return absl::StrCat("Shape", info.index); });

// ---- masks by hand

TEST_F(LowLatencyMaskTest, MasksThatAreSetByHandCostNoTime) {
  Make(Config());
  if (IsSkipped()) return;
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) {
    return rank.rank() == 1 ? absl::OkStatus() : ep.Mask(rank, Only(1));
  }));
  ASSERT_OK(ResetStatistics());
  for (const Form form : {Form::kFused, Form::kSplit}) Step(Only(1), {form});
  ExpectMasks(Only(1));
  for (const EpStatistics& rank : Statistics()) {
    EXPECT_EQ(rank.dispatch_waits[1], absl::ZeroDuration());
    EXPECT_EQ(rank.combine_waits[1], absl::ZeroDuration());
  }
  // A failure of the node, and everybody is masked as before.
  EXPECT_FALSE(OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
                 return rank.rank() == 0 ? absl::DataLossError("as planned") : absl::OkStatus();
               }).ok());
  Step(Only(1));
  Unmask();
  Step(RankSet{0});
}

TEST_F(LowLatencyMaskTest, WhatCannotBeIsRefused) {
  EpConfig config = Config();
  Make(config);
  if (IsSkipped()) return;
  EXPECT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
    for (const RankSet ranks : {Only(rank.rank()), Only(kRanks)}) {
      EXPECT_THAT(ep.Mask(rank, ranks), StatusIs(absl::StatusCode::kInvalidArgument,
                                                 HasSubstr("must be others of this node")));
    }
    // What is refused changes nothing.
    OCTET_RETURN_IF_ERROR(ep.Mask(rank, Only((rank.rank() + 1) % kRanks)));
    EXPECT_THAT(ep.Unmask(rank, Only(kRanks)), StatusIs(absl::StatusCode::kInvalidArgument,
                                                        HasSubstr("must be others of this node")));
    OCTET_ASSIGN_OR_RETURN(const RankSet masked, ep.MaskedRanks(rank));
    EXPECT_EQ(masked, Only((rank.rank() + 1) % kRanks));
    return absl::OkStatus();
  }));
  const auto refused = [&](const EpConfig& with, const std::string& why) {
    EXPECT_THAT(ExpertParallel::Create(harness_->node(), with).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  config.low_latency.mask_timeout = kNodeTimeout + absl::Seconds(1);
  refused(config, "at most the node's timeout, 20s");
  config.low_latency.failure_policy = FailurePolicy::kAbort;
  refused(config, "go with failure_policy mask");
  config = Config();
  config.strategy = Strategy::kDirect;
  refused(config,
          "failure_policy, mask_timeout, statistics need the strategy low_latency, not direct");
  config = Config();
  config.low_latency.failure_policy = FailurePolicy::kAbort;
  config.low_latency.mask_timeout = absl::ZeroDuration();
  config.low_latency.statistics = false;
  Make(config);
  EXPECT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
    const auto none = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not ask for"));
    EXPECT_THAT(ep.MaskedRanks(rank).status(), none);
    EXPECT_THAT(ep.Mask(rank, 0), none);
    EXPECT_THAT(ep.Unmask(rank, 0), none);
    EXPECT_THAT(ep.Statistics(rank).status(), none);
    EXPECT_THAT(ep.ResetStatistics(rank), none);
    return absl::OkStatus();
  }));
}

// ---- graphs

// A captured step goes on without a rank that does not launch it, and with it after Unmask.
TEST_F(LowLatencyMaskTest, GraphsGoOnWithoutASilentRank) {
  Make(Config());
  if (IsSkipped()) return;
  const StepInput input = Random();
  ASSERT_OK(harness_->Upload(input));
  std::vector<std::unique_ptr<Graph>> graphs(kRanks);
  const absl::Status captured = OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(
        Graph graph, Graph::Capture(rank, [&] { return harness_->RunStep(rank, Form::kFused); }));
    graphs[static_cast<size_t>(rank.rank())] = std::make_unique<Graph>(std::move(graph));
    return absl::OkStatus();
  });
  if (absl::IsUnimplemented(captured)) GTEST_SKIP() << captured;
  ASSERT_OK(captured);
  for (const RankSet silent : {RankSet{0}, Only(1), Only(1), RankSet{0}}) {
    if (silent == 0 && absent_ != 0) Unmask();
    absent_ = silent;
    ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
      if (Has(silent, rank.rank())) return absl::OkStatus();
      for (int replay = 0; replay < 3; ++replay) {
        OCTET_RETURN_IF_ERROR(graphs[static_cast<size_t>(rank.rank())]->Launch(rank));
      }
      return absl::OkStatus();
    }));
    CheckStep(input, silent, silent);
  }
  ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel&) -> absl::Status {
    graphs[static_cast<size_t>(rank.rank())].reset();
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace octet
