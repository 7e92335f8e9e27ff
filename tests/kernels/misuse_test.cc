// Calls in an order, or with arguments, that cannot be: each is an error that names what is wrong,
// of the call or of the Run that it belongs to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/expert_parallel.h"
#include "octet/graph.h"
#include "runtime/base/status_macros.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/strategy_variants.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kMisuseRanks = 2;

class MisuseTest : public ::testing::TestWithParam<Strategy> {
 protected:
  static EpConfig Config(Strategy strategy) {
    EpConfig config;
    config.num_experts = 4;
    config.topk = 2;
    config.hidden = 64;
    config.max_tokens_per_rank = 4;
    config.strategy = strategy;
    config.tuning = {.blocks = 3, .waves_per_block = 2};
    return config;
  }

  void Make() {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (kMisuseRanks > gpus) GTEST_SKIP() << kMisuseRanks << " ranks on " << gpus << " GPUs";
    absl::StatusOr<std::unique_ptr<EpHarness>> harness =
        EpHarness::Create(kMisuseRanks, Config(GetParam()));
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
    ASSERT_OK(harness_->Upload(Random()));
  }

  StepInput Random() {
    return RandomStep(rng_, harness_->ep().config(), std::vector<int>(kMisuseRanks, 4));
  }
  ExpertParallel& ep() { return harness_->ep(); }
  DispatchArgs args(const Rank& rank) const { return harness_->dispatch_args(rank.rank()); }

  // Captures a step of `of`, the harness's by default, on every rank.
  absl::Status Capture(ExpertParallel* of = nullptr) {
    if (of == nullptr) of = &ep();
    graphs_.clear();
    graphs_.resize(kMisuseRanks);
    return harness_->node().Run([&](Rank& rank) -> absl::Status {
      const auto step = [&]() -> absl::Status {
        OCTET_ASSIGN_OR_RETURN(const Received received, of->Dispatch(rank, args(rank)));
        ScaledCombineArgs combine = harness_->combine_args(rank.rank());
        combine.expert_out = received.x;
        return ScaledCombine(*of, rank, received.handle, combine);
      };
      OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, step));
      graphs_[static_cast<size_t>(rank.rank())] = std::make_unique<Graph>(std::move(graph));
      return absl::OkStatus();
    });
  }
  absl::Status Launch(Rank& rank) {
    return graphs_[static_cast<size_t>(rank.rank())]->Launch(rank);
  }

  std::mt19937_64 rng_{7};
  std::unique_ptr<EpHarness> harness_;
  std::vector<std::unique_ptr<Graph>> graphs_;  // by rank
};

// As two layers of a model have: both have made equally many calls.
TEST_P(MisuseTest, HandlesOfAnotherExpertParallelAreRefused) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  auto other = ExpertParallel::Create(harness_->node(), Config(GetParam()));
  ASSERT_OK(other.status());
  const auto refused = [](const absl::Status& status) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("of another ExpertParallel")));
  };
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received mine, ep().Dispatch(rank, args(rank)));
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle theirs, (*other)->DispatchSend(rank, args(rank)));
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = mine.x;
    refused((*other)->DispatchReceive(rank, mine.handle).status());
    refused(ScaledCombine(ep(), rank, theirs, combine));
    refused(ScaledCombineSend(ep(), rank, theirs, combine));
    if (GetParam() == Strategy::kHighThroughput) {
      DispatchArgs again = args(rank);
      again.high_throughput.cached = &theirs;
      refused(ep().Dispatch(rank, again).status());
    }
    OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep(), rank, mine.handle, combine));
    refused(ScaledCombineReceive(ep(), rank, theirs, combine));
    OCTET_RETURN_IF_ERROR(ScaledCombineReceive(ep(), rank, mine.handle, combine));
    return (*other)->DispatchReceive(rank, theirs).status();
  }));
  EXPECT_OK(harness_->Step(Random()));
}

TEST_P(MisuseTest, HandlesOfAnotherRankAreRefused) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  std::vector<DispatchHandle> handles(kMisuseRanks);
  ASSERT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received mine, ep().Dispatch(rank, args(rank)));
    handles[static_cast<size_t>(rank.rank())] = mine.handle;
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = combine.y;
    const int other = 1 - rank.rank();
    EXPECT_THAT(ScaledCombine(ep(), rank, handles[static_cast<size_t>(other)], combine),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("the handle is of a dispatch of rank ", other))));
    return absl::OkStatus();
  }));
}

// The Run whose body forgets to receive says so, not one of its calls some time later.
TEST_P(MisuseTest, WhatIsNotReceivedIsAnErrorOfThatRun) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, ep().DispatchSend(rank, args(rank)));
    return rank.rank() == 0 ? absl::OkStatus() : ep().DispatchReceive(rank, handle).status();
  }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0: the dispatch of call 1"),
                             HasSubstr("has been sent but not received"))));
  EXPECT_OK(harness_->Step(Random()));
  EXPECT_THAT(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, ep().Dispatch(rank, args(rank)));
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = received.x;
    return ScaledCombineSend(ep(), rank, received.handle, combine);
  }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("the combine of call "),
                             HasSubstr("has been sent but not received"))));
  EXPECT_OK(harness_->Step(Random(), {Form::kSplit}));
}

// A graph would receive what the call has sent in the place of what it sends itself.
TEST_P(MisuseTest, AGraphIsNotLaunchedBeforeWhatWasSentIsReceived) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  std::vector<std::unique_ptr<Graph>> graphs(kMisuseRanks);
  const auto step = [&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, ep().Dispatch(rank, args(rank)));
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = received.x;
    return ScaledCombine(ep(), rank, received.handle, combine);
  };
  ASSERT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, [&] { return step(rank); }));
    graphs[static_cast<size_t>(rank.rank())] = std::make_unique<Graph>(std::move(graph));
    return absl::OkStatus();
  }));
  const auto launch = [&](Rank& rank) {
    return graphs[static_cast<size_t>(rank.rank())]->Launch(rank);
  };
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, ep().DispatchSend(rank, args(rank)));
    EXPECT_THAT(launch(rank), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       AllOf(HasSubstr("a graph cannot be launched"),
                                             HasSubstr("the dispatch of call "),
                                             HasSubstr("has been sent but not received"))));
    OCTET_ASSIGN_OR_RETURN(const Received received, ep().DispatchReceive(rank, handle));
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    combine.expert_out = received.x;
    OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep(), rank, handle, combine));
    EXPECT_THAT(launch(rank),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the combine of call ")));
    return ScaledCombineReceive(ep(), rank, handle, combine);
  }));
  EXPECT_OK(harness_->node().Run(launch));
  EXPECT_OK(harness_->Step(Random()));
}

TEST_P(MisuseTest, MisalignedPointersAreRefusedByName) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  const auto offset = [](auto*& pointer, int bytes) {
    using Pointer = std::remove_reference_t<decltype(pointer)>;
    pointer = reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) +
                                        static_cast<uintptr_t>(bytes));
  };
  const auto dispatch = [&](const char* name, const std::function<void(DispatchArgs&)>& change) {
    EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
      DispatchArgs wrong = args(rank);
      change(wrong);
      EXPECT_THAT(ep().Dispatch(rank, wrong).status(),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(::testing::StartsWith(absl::StrCat(name, " is at 0x")),
                                 HasSubstr("must be 16-byte aligned"))));
      return absl::OkStatus();
    }));
  };
  dispatch("x", [&](DispatchArgs& a) { offset(a.x, 2); });
  dispatch("topk_idx", [&](DispatchArgs& a) { offset(a.topk_idx, 2); });
  dispatch("topk_idx", [&](DispatchArgs& a) { offset(a.topk_idx, 4); });
  dispatch("topk_weights", [&](DispatchArgs& a) { offset(a.topk_weights, 8); });
  dispatch("x_scales",
           [&](DispatchArgs& a) { a.high_throughput.x_scales = reinterpret_cast<const void*>(4); });
  dispatch("scatter_idx", [&](DispatchArgs& a) {
    a.high_throughput.scatter_idx = a.topk_idx;
    offset(a.high_throughput.scatter_idx, 1);
  });
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, ep().Dispatch(rank, args(rank)));
    const auto combine = [&](const char* name, const std::function<void(CombineArgs&)>& change) {
      ScaledCombineArgs wrong = harness_->combine_args(rank.rank());
      wrong.expert_out = received.x;
      change(wrong);
      EXPECT_THAT(ScaledCombine(ep(), rank, received.handle, wrong),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(::testing::StartsWith(absl::StrCat(name, " is at 0x")),
                                 HasSubstr("must be 16-byte aligned"))));
    };
    combine("expert_out", [&](CombineArgs& a) { offset(a.expert_out, 8); });
    combine("y", [&](CombineArgs& a) { offset(a.y, 4); });
    ScaledCombineArgs wrong = harness_->combine_args(rank.rank());
    wrong.expert_out = received.x;
    offset(wrong.expert_scale, 2);
    EXPECT_THAT(ScaledCombine(ep(), rank, received.handle, wrong),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(::testing::StartsWith("expert_scale is at 0x"),
                               HasSubstr("must be 4-byte aligned"))));
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->Step(Random()));
}

TEST_P(MisuseTest, OutputsThatOverlapInputsAreRefused) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, ep().Dispatch(rank, args(rank)));
    const auto combine = [&](const char* name, const std::function<void(CombineArgs&)>& change) {
      ScaledCombineArgs wrong = harness_->combine_args(rank.rank());
      wrong.expert_out = received.x;
      change(wrong);
      EXPECT_THAT(
          ScaledCombine(ep(), rank, received.handle, wrong),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   AllOf(HasSubstr(absl::StrCat("y of rank ", rank.rank(), " overlaps ", name)),
                         HasSubstr("memory of its own"))));
    };
    combine("expert_out", [](CombineArgs& a) { a.expert_out = a.y; });
    combine("expert_out", [](CombineArgs& a) { a.expert_out = static_cast<char*>(a.y) + 64; });
    combine("bias", [](CombineArgs& a) { a.bias = static_cast<char*>(a.y) + 64; });
    ScaledCombineArgs right = harness_->combine_args(rank.rank());
    right.expert_out = received.x;
    return ScaledCombine(ep(), rank, received.handle, right);
  }));
  EXPECT_OK(harness_->Step(Random()));
}

// It runs the node itself, which is not what the caller has written.
TEST_P(MisuseTest, CreateInsideARunSaysThatItIsCreate) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_THAT(harness_->node().Run([&](Rank&) {
    return ExpertParallel::Create(harness_->node(), Config(GetParam())).status();
  }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rank 0: ExpertParallel::Create called from inside the body of a "
                                 "Run; call it before the Run or after it")));
  EXPECT_OK(harness_->Step(Random()));
}

// "x of rank 1 is null": not "x and topk_idx must not be null".
TEST_P(MisuseTest, ArgumentsThatAreMissingAreNamed) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const auto refused = [&rank](const absl::Status& status, absl::string_view name,
                                 absl::string_view rows) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   absl::StrCat(name, " of rank ", rank.rank(),
                                                " is null; the call needs ", rows, " there")));
    };
    DispatchArgs wrong = args(rank);
    wrong.x = nullptr;
    refused(ep().Dispatch(rank, wrong).status(), "x", "4 rows of 128 bytes");
    wrong = args(rank);
    wrong.topk_idx = nullptr;
    refused(ep().Dispatch(rank, wrong).status(), "topk_idx", "4 rows of 8 bytes");
    OCTET_ASSIGN_OR_RETURN(const Received received, ep().Dispatch(rank, args(rank)));
    const ScaledCombineArgs right = harness_->combine_args(rank.rank());
    ScaledCombineArgs combine = right;
    combine.expert_out = nullptr;
    const int rows = ep().config().expert_out_rows(kMisuseRanks);
    refused(ScaledCombine(ep(), rank, received.handle, combine), "expert_out",
            absl::StrCat(rows, " rows of 128 bytes"));
    combine.expert_out = received.x;
    combine.y = nullptr;
    refused(ScaledCombine(ep(), rank, received.handle, combine), "y", "4 rows of 128 bytes");
    return absl::OkStatus();
  }));
}

TEST_P(MisuseTest, AGraphOfAnotherRankIsNotLaunched) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  ASSERT_OK(Capture());
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const int other = 1 - rank.rank();
    EXPECT_THAT(graphs_[static_cast<size_t>(other)]->Launch(rank),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("the graph was captured by rank ", other,
                                                ", and this is rank ", rank.rank()))));
    return absl::OkStatus();
  }));
  // Not even if the ranks of another node have the same numbers and GPUs.
  auto second = Node::Create({.num_ranks = kMisuseRanks});
  ASSERT_OK(second.status());
  EXPECT_OK((*second)->Run([&](Rank& rank) -> absl::Status {
    EXPECT_THAT(Launch(rank), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("the graph was captured on another node")));
    return absl::OkStatus();
  }));
  EXPECT_OK(harness_->node().Run([&](Rank& rank) { return Launch(rank); }));
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    const Graph moved = std::move(*graphs_[static_cast<size_t>(rank.rank())]);
    EXPECT_THAT(Launch(rank), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("moved to another object")));
    return absl::OkStatus();
  }));
}

// What it would read and write is no longer there.
TEST_P(MisuseTest, AGraphIsNotLaunchedAfterItsExpertParallel) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  auto other = ExpertParallel::Create(harness_->node(), Config(GetParam()));
  ASSERT_OK(other.status());
  ASSERT_OK(Capture(other->get()));
  EXPECT_OK(harness_->node().Run([&](Rank& rank) { return Launch(rank); }));
  other->reset();
  EXPECT_OK(harness_->node().Run([&](Rank& rank) -> absl::Status {
    EXPECT_THAT(Launch(rank),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("a graph cannot be launched without the ExpertParallel")));
    return absl::OkStatus();
  }));
  // Graphs of those that live are not meant.
  ASSERT_OK(Capture());
  EXPECT_OK(harness_->node().Run([&](Rank& rank) { return Launch(rank); }));
}

INSTANTIATE_TEST_SUITE_P(All, MisuseTest, ::testing::ValuesIn(AllStrategies()),
                         [](const auto& info) { return StrategyTestName(info.param); });

}  // namespace
}  // namespace octet
