// Faults in moving experts, each of which the comparison with calls without a fault must show. And
// the same without a fault, under many schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "emulation.h"
#include "octet/moe_layer.h"
#include "octet/node.h"
#include "octet/placement.h"
#include "runtime/base/status_macros.h"
#include "tests/faults/placement_fault.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

using faults::PlacementFault;

constexpr uint64_t kSeeds = 5;
constexpr const char* kKinds[] = {"random", "starve_block", "starve_wave", "starve_device", "lap"};
constexpr int kRanks = 3;
constexpr uint64_t kMemoryBytes = 32ULL << 20;

struct Row {
  PlacementFault fault = PlacementFault::kNone;
  std::string name = {};
  bool early = false;  // rank 1 switches one call before the others
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

MoeLayerConfig LayerOf() {
  MoeLayerConfig config;
  config.path = LayerPath::kDecode;
  config.num_experts = 6;
  config.topk = 3;
  config.hidden = 136;
  config.intermediate = 72;
  config.router.normalize = true;
  config.max_tokens_per_rank = 4;
  config.max_blocks = 4;
  config.placement = *Placement::Create(6, kRanks, {0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1});
  return config;
}

absl::Status Move(Rank& rank, MoeLayer& layer, const Placement& next) {
  OCTET_RETURN_IF_ERROR(layer.Prepare(rank, next, 1));
  return layer.Apply(rank);
}

// A call, a switch and a call on a new machine; returns the outputs of the calls.
absl::StatusOr<std::vector<uint16_t>> RunMove(const Row& row, PlacementFault fault,
                                              const std::string& schedule) {
  emulation::Config machine;
  machine.devices = kRanks;
  machine.wave_size = 32;
  machine.workers = 1;
  machine.memory_bytes = kMemoryBytes;
  if (!emulation::ParseSchedule(schedule, &machine)) return absl::InvalidArgumentError(schedule);
  emulation::Reconfigure(machine);
  const MoeLayerConfig config = LayerOf();
  OCTET_ASSIGN_OR_RETURN(const Placement next,
                         Placement::Create(6, kRanks, {1, 2, 4, 3, 0, 4, 5, 0, 1}));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Node> node,
                         Node::Create({.num_ranks = kRanks, .on_failure = nullptr}));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<MoeLayer> layer, MoeLayer::Create(*node, config));
  const RandomWeights weights(config, false, 1);
  OCTET_RETURN_IF_ERROR(layer->Load(weights.weights()));
  const LayerTokens tokens =
      RandomTokens(config.max_tokens_per_rank, config.hidden, kRanks, config.dtype, 1);
  std::vector<std::unique_ptr<LayerCalls>> calls;
  for (int i = 0; i < 2; ++i) {
    calls.push_back(std::make_unique<LayerCalls>(*node, *layer, tokens));
    OCTET_RETURN_IF_ERROR(calls.back()->Init());
  }
  faults::planted_placement = fault;
  const absl::Status status = node->Run([&](Rank& rank) -> absl::Status {
    const bool early = row.early && rank.rank() == 1;
    if (early) OCTET_RETURN_IF_ERROR(Move(rank, *layer, next));
    OCTET_RETURN_IF_ERROR(calls[0]->Call(rank));
    if (!early) OCTET_RETURN_IF_ERROR(Move(rank, *layer, next));
    return calls[1]->Call(rank);
  });
  faults::planted_placement = PlacementFault::kNone;
  OCTET_RETURN_IF_ERROR(status);
  std::vector<uint16_t> outputs;
  for (const std::unique_ptr<LayerCalls>& call : calls) {
    OCTET_ASSIGN_OR_RETURN(const LayerOutput output, call->Read());
    outputs.insert(outputs.end(), output.y.begin(), output.y.end());
  }
  return outputs;
}

class MoveFaultTest : public ::testing::TestWithParam<Row> {};

TEST_P(MoveFaultTest, SomeScheduleShowsIt) {
  const Row& row = GetParam();
  const absl::StatusOr<std::vector<uint16_t>> want = RunMove({}, PlacementFault::kNone, "random:1");
  ASSERT_TRUE(want.ok()) << want.status();
  std::string seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const char* kind : kKinds) {
      const std::string schedule = absl::StrCat(kind, ":", seed);
      const absl::StatusOr<std::vector<uint16_t>> got = RunMove(row, row.fault, schedule);
      if (got.ok() && *got != *want) return;
      absl::StrAppend(&seen, schedule, " ", got.ok() ? "the same y" : got.status().ToString(),
                      "\n");
    }
  }
  FAIL() << seen;
}

INSTANTIATE_TEST_SUITE_P(All, MoveFaultTest,
                         ::testing::Values(Row{.fault = PlacementFault::kCopyLate,
                                               .name = "CopyLate"},
                                           Row{.fault = PlacementFault::kSwitchAlone,
                                               .name = "SwitchOneCallEarly",
                                               .early = true}),
                         [](const auto& info) { return info.param.name; });

// Without the fault, a rank that switches one call early waits for the others, and they for it.
TEST(CorrectMoveTest, ASwitchOneCallEarlyEndsInADeadline) {
  const absl::Status status = RunMove({.early = true}, PlacementFault::kNone, "random:1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("MoeLayer::Apply"));
}

TEST(CorrectMoveTest, PassesManySchedules) {
  const absl::StatusOr<std::vector<uint16_t>> want = RunMove({}, PlacementFault::kNone, "random:1");
  ASSERT_TRUE(want.ok()) << want.status();
  for (const char* kind : kKinds) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const std::string schedule = absl::StrCat(kind, ":", seed);
      const absl::StatusOr<std::vector<uint16_t>> got =
          RunMove({}, PlacementFault::kNone, schedule);
      ASSERT_TRUE(got.ok()) << schedule << " " << got.status();
      EXPECT_EQ(*got, *want) << schedule;
    }
  }
}

}  // namespace
}  // namespace octet
