// Layers whose experts move while they are called: against layers that have had the placement from
// the beginning, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "octet/graph.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/layer/moe_layer_fixture.h"
#include "tools/step/layer_calls.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;

// Placements of seven experts in five slots of each rank, each from the one before.
Placement First() {
  return *Placement::Create(7, kRanks, {0, 1, 2, -1, -1, 3, 4, -1, 0, -1, 5, -1, 6, -1, -1});
}
Placement Second() {  // 0 leaves rank 0, 6 and 3 come; rank 2 gets 0 and 1
  return *Placement::Create(7, kRanks, {6, 2, 1, 3, -1, 0, 3, 4, -1, -1, 1, 5, 6, 0, -1});
}
Placement Third() {  // back, in the slots that have become free
  return *Placement::Create(7, kRanks, {0, 1, 2, 3, -1, 2, 0, 4, -1, -1, 5, 6, 0, -1, -1});
}

class ExpertMovesTest : public MoeLayerTest, public testing::WithParamInterface<LayerPath> {
 protected:
  static MoeLayerConfig MovesConfig() {
    MoeLayerConfig config = Config();
    config.num_experts = 7;
    config.path = GetParam();
    config.max_blocks = 4;
    config.placement = First();
    return config;
  }
  LayerTokens SomeTokens(uint64_t seed = kSeed) const {
    return Tokens({9, 4, 7}, layer_->config(), seed);
  }
  absl::Status MoveTo(const Placement& placement, int max_blocks = 0) {
    return node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(layer_->Prepare(rank, placement, max_blocks));
      return layer_->Apply(rank);
    });
  }
  Placement InForce() {
    std::vector<Placement> of_ranks(kRanks);
    EXPECT_OK(node_->Run([&](const Rank& rank) {
      of_ranks[static_cast<size_t>(rank.rank())] = layer_->PlacementOf(rank);
      return absl::OkStatus();
    }));
    for (const Placement& placement : of_ranks) EXPECT_EQ(placement, of_ranks[0]);
    return of_ranks[0];
  }
  std::vector<uint16_t> Output(MoeLayer& layer, const LayerTokens& tokens) {
    const absl::StatusOr<LayerOutput> output = Call(*node_, layer, tokens);
    EXPECT_OK(output.status());
    return output.ok() ? output->y : std::vector<uint16_t>();
  }
  // Returns what a layer that begins with the placement computes.
  std::vector<uint16_t> OutputWith(const Placement& placement, const LayerTokens& tokens) {
    MoeLayerConfig config = layer_->config();
    config.placement = placement;
    const auto layer = MoeLayer::Create(*node_, config);
    EXPECT_OK(layer.status());
    if (!layer.ok()) return {};
    EXPECT_OK((*layer)->Load(weights_->weights()));
    return Output(**layer, tokens);
  }
};

TEST_P(ExpertMovesTest, CallsGoByTheNewPlacement) {
  MoeLayerConfig config = MovesConfig();
  config.shared_intermediate = 48;
  MakeLayer(kRanks, config);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(InForce(), First());
  const LayerTokens tokens = SomeTokens();
  int blocks = 0;
  for (const Placement& placement : {Second(), Third(), First()}) {
    ASSERT_OK(MoveTo(placement, blocks++));
    const Placement now = InForce();
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int expert = 0; expert < 7; ++expert) {
        EXPECT_EQ(now.ReplicaOn(rank, expert) >= 0, placement.ReplicaOn(rank, expert) >= 0);
      }
    }
    const absl::StatusOr<LayerOutput> output = Call(*node_, *layer_, tokens);
    ASSERT_OK(output.status());
    ExpectCorrect(*output);
    EXPECT_EQ(output->y, OutputWith(now, tokens));
  }
}

// FP8 weights have scales, whose arrays are not a multiple of 16 bytes for each expert.
TEST_P(ExpertMovesTest, ScalesMoveToo) {
  MoeLayerConfig config = MovesConfig();
  config.weights = GemmFormat::kFp8;
  config.hidden = 272;
  config.intermediate = 160;
  MakeLayer(kRanks, config);
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_OK(MoveTo(Second()));
  EXPECT_EQ(Output(*layer_, SomeTokens()), OutputWith(InForce(), SomeTokens()));
}

// Rows are counted for their experts, also those of calls before the switch, by layers that share
// their memory and have other placements, and by replays.
TEST_P(ExpertMovesTest, RowsCountForTheirExperts) {
  MoeLayerConfig config = MovesConfig();
  config.loads = {.count = true, .window = 2};
  MakeLayer(kRanks, config);
  if (IsSkipped() || HasFatalFailure()) return;
  config.placement = Third();
  const auto other = MoeLayer::Create(*node_, config, {.share = layer_.get(), .name = "other"});
  ASSERT_OK(other.status());
  ASSERT_OK((*other)->Load(weights_->weights()));
  const LayerTokens tokens = SomeTokens();
  LayerCalls replayed(*node_, *layer_, tokens);
  ASSERT_OK(replayed.Init());
  ASSERT_OK(node_->Run([&](Rank& rank) { return replayed.Capture(rank); }));
  using Counts = std::vector<int64_t>;
  std::vector<Counts> counts;  // of each call
  const auto count = [&](const absl::StatusOr<LayerOutput>& output) {
    ASSERT_OK(output.status());
    Counts& call = counts.emplace_back(7, 0);
    for (const int32_t expert : output->topk_idx) ++call[static_cast<size_t>(expert)];
    Counts rows(7, 0);
    Counts window(7, 0);
    for (size_t i = 0; i < counts.size(); ++i) {
      for (size_t e = 0; e < rows.size(); ++e) {
        rows[e] += counts[i][e];
        if (i + 2 >= counts.size()) window[e] += counts[i][e];
      }
    }
    const absl::StatusOr<ExpertLoads> loads = layer_->Loads();
    ASSERT_OK(loads.status());
    EXPECT_EQ(loads->rows, rows) << "after " << counts.size() << " calls";
    EXPECT_EQ(loads->window, window) << "after " << counts.size() << " calls";
  };
  uint64_t seed = kSeed;
  for (const Placement& placement : {First(), Second(), Third(), First()}) {
    ASSERT_OK(MoveTo(placement));
    count(Call(*node_, *layer_, SomeTokens(++seed)));
    count(Call(*node_, **other, SomeTokens(++seed)));
    count(Call(*node_, *layer_, SomeTokens(++seed)));
    ASSERT_OK(node_->Run([&](Rank& rank) { return replayed.Launch(rank); }));
    count(replayed.Read());
  }
}

// Calls, replays and switches of one Run, without anything on the host between them.
TEST_P(ExpertMovesTest, CallsGoOnWhileExpertsMove) {
  MakeLayer(kRanks, MovesConfig());
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = SomeTokens();
  const std::vector<Placement> placements = {First(), Second(), Third()};
  constexpr size_t kCalls = 3;  // a replay, with the last one after a Prepare
  std::vector<std::unique_ptr<LayerCalls>> calls;
  for (size_t i = 0; i < placements.size() * kCalls; ++i) {
    calls.push_back(std::make_unique<LayerCalls>(*node_, *layer_, tokens));
    ASSERT_OK(calls.back()->Init());
  }
  const absl::Status captured = node_->Run([&](Rank& rank) -> absl::Status {
    for (size_t i = 0; i < calls.size(); i += kCalls) {
      OCTET_RETURN_IF_ERROR(calls[i]->Capture(rank));
    }
    return absl::OkStatus();
  });
  ASSERT_OK(captured);
  std::vector<Placement> in_force(placements.size());
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    for (size_t i = 0; i < placements.size(); ++i) {
      if (i > 0) OCTET_RETURN_IF_ERROR(layer_->Apply(rank));
      if (rank.rank() == 0) in_force[i] = layer_->PlacementOf(rank);
      OCTET_RETURN_IF_ERROR(calls[i * kCalls]->Launch(rank));
      OCTET_RETURN_IF_ERROR(calls[i * kCalls + 1]->Call(rank));
      if (i + 1 < placements.size()) {
        OCTET_RETURN_IF_ERROR(layer_->Prepare(rank, placements[i + 1], 1));
      }
      OCTET_RETURN_IF_ERROR(calls[i * kCalls + 2]->Call(rank));
    }
    return absl::OkStatus();
  }));
  for (size_t i = 0; i < placements.size(); ++i) {
    const std::vector<uint16_t> want = OutputWith(in_force[i], tokens);
    for (size_t call = 0; call < kCalls; ++call) {
      const absl::StatusOr<LayerOutput> output = calls[i * kCalls + call]->Read();
      ASSERT_OK(output.status());
      EXPECT_EQ(output->y, want) << "placement " << i << ", call " << call;
    }
  }
}

// A copy may outlast its Run, and its layer's other calls.
TEST_P(ExpertMovesTest, ApplyInALaterRun) {
  MakeLayer(kRanks, MovesConfig());
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = SomeTokens();
  const std::vector<uint16_t> before = Output(*layer_, tokens);
  ASSERT_OK(node_->Run([&](Rank& rank) { return layer_->Prepare(rank, Second(), 0); }));
  EXPECT_EQ(Output(*layer_, tokens), before);
  EXPECT_EQ(InForce(), First());
  ASSERT_OK(node_->Run([&](Rank& rank) { return layer_->Apply(rank); }));
  EXPECT_EQ(Output(*layer_, tokens), OutputWith(InForce(), tokens));
  // Load takes the place of what has been prepared, and fills the slots in force.
  const Placement second = InForce();
  ASSERT_OK(node_->Run([&](Rank& rank) { return layer_->Prepare(rank, Third(), 0); }));
  ASSERT_OK(layer_->Load(weights_->weights()));
  EXPECT_EQ(InForce(), second);
  EXPECT_EQ(Output(*layer_, tokens), OutputWith(second, tokens));
  EXPECT_THAT(node_->Run([&](Rank& rank) { return layer_->Apply(rank); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("call Prepare first")));
  ASSERT_OK(MoveTo(Third()));
  EXPECT_EQ(Output(*layer_, tokens), OutputWith(InForce(), tokens));
}

TEST_P(ExpertMovesTest, RefusedBeforeAnythingIsLaunched) {
  MakeLayer(kRanks, MovesConfig());
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = SomeTokens();
  const std::vector<uint16_t> before = Output(*layer_, tokens);
  const auto full = *Placement::Create(7, kRanks, {2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 0, 1, 2, 5, 6});
  ASSERT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    const auto refused = [&](const absl::Status& status, absl::StatusCode code, const char* text) {
      if (status.code() == code && absl::StrContains(status.message(), text)) {
        return absl::OkStatus();
      }
      return absl::InternalError(absl::StrCat("expected '", text, "', not ", status.ToString()));
    };
    OCTET_RETURN_IF_ERROR(
        refused(layer_->Apply(rank), absl::StatusCode::kFailedPrecondition, "call Prepare first"));
    OCTET_RETURN_IF_ERROR(refused(layer_->Prepare(rank, *Placement::InOrder(7, 2), 0),
                                  absl::StatusCode::kInvalidArgument, "of 7 experts on 2 ranks"));
    OCTET_RETURN_IF_ERROR(refused(layer_->Prepare(rank, full, 0),
                                  absl::StatusCode::kInvalidArgument, "slots are free"));
    OCTET_RETURN_IF_ERROR(refused(layer_->Prepare(rank, Second(), -1),
                                  absl::StatusCode::kInvalidArgument, "max_blocks is -1"));
    OCTET_RETURN_IF_ERROR(layer_->Prepare(rank, Second(), 0));
    OCTET_RETURN_IF_ERROR(refused(layer_->Prepare(rank, Second(), 0),
                                  absl::StatusCode::kFailedPrecondition, "Apply has not"));
    return layer_->Apply(rank);
  }));
  EXPECT_EQ(Output(*layer_, tokens), OutputWith(InForce(), tokens));
  // Without a placement, and before Load.
  MoeLayerConfig config = layer_->config();
  const auto unloaded = MoeLayer::Create(*node_, config);
  ASSERT_OK(unloaded.status());
  EXPECT_THAT(node_->Run([&](Rank& rank) { return (*unloaded)->Prepare(rank, Second(), 0); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("call Load first")));
  config.num_experts = 6;
  config.placement = Placement();
  const auto plain = MoeLayer::Create(*node_, config);
  ASSERT_OK(plain.status());
  EXPECT_THAT(node_->Run([&](Rank& rank) { return (*plain)->Prepare(rank, Second(), 0); }),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("MoeLayerConfig::placement")));
}

TEST_P(ExpertMovesTest, NotIntoAGraph) {
  MakeLayer(kRanks, MovesConfig());
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) {
    return Graph::Capture(rank, [&] { return layer_->Prepare(rank, Second(), 0); }).status();
  }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot be captured")));
  EXPECT_EQ(InForce(), First());
}

// All ranks must mean the same placement.
TEST_P(ExpertMovesTest, AnotherPlacementOnOneRank) {
  MakeLayer(kRanks, MovesConfig());
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_THAT(node_->Run([&](Rank& rank) {
    return layer_->Prepare(rank, rank.rank() == 1 ? Third() : Second(), 0);
  }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("with another placement")));
  EXPECT_EQ(InForce(), First());
  ASSERT_OK(MoveTo(Second()));
  EXPECT_EQ(Output(*layer_, SomeTokens()), OutputWith(InForce(), SomeTokens()));
}

// A rank that does not come to the switch: the old placement stays on all of them, to the bit.
TEST_P(ExpertMovesTest, ARankThatFailsLeavesTheOldPlacement) {
  MakeLayer(kRanks, MovesConfig());
  if (IsSkipped() || HasFatalFailure()) return;
  const LayerTokens tokens = SomeTokens();
  const std::vector<uint16_t> before = Output(*layer_, tokens);
  for (int failing = 0; failing < kRanks; ++failing) {
    EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(layer_->Prepare(rank, Second(), 0));
      if (rank.rank() == failing) return absl::InternalError("gone");
      return layer_->Apply(rank);
    }),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("gone")));
    EXPECT_EQ(InForce(), First());
    EXPECT_EQ(Output(*layer_, tokens), before);
  }
  ASSERT_OK(MoveTo(Second()));
  const std::vector<uint16_t> second = Output(*layer_, tokens);
  EXPECT_EQ(second, OutputWith(InForce(), tokens));
  // A switch that all ranks have come to stays, whatever happens later.
  EXPECT_THAT(node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(layer_->Prepare(rank, Third(), 0));
    OCTET_RETURN_IF_ERROR(layer_->Apply(rank));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    return rank.rank() == 1 ? absl::InternalError("gone") : absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("gone")));
  EXPECT_GE(InForce().ReplicaOn(1, 2), 0);
  EXPECT_EQ(Output(*layer_, tokens), OutputWith(InForce(), tokens));
}

INSTANTIATE_TEST_SUITE_P(, ExpertMovesTest,
                         testing::Values(LayerPath::kLaunches, LayerPath::kDecode),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

}  // namespace
}  // namespace octet
