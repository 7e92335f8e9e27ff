// Faults in the kernels of calls over several nodes, each of which a refusal or the comparison with
// the reference must show. And the same kernels without a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "tests/faults/hierarchical_fault.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/nodes/several_nodes.h"
#include "tests/support/random_step.h"
#include "tools/workload/step_input.h"

namespace octet {
namespace {

using faults::HierarchicalFault;

// A fault, and what is said of it.
struct Row {
  HierarchicalFault fault;
  std::string name;
  absl::StatusCode code;
  std::string text;
  int chunk_tokens = 0;
  int hidden = 64;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> Table() {
  return {
      {HierarchicalFault::kIdsNotRenumbered, "IdsNotRenumbered", absl::StatusCode::kInternal,
       "is 2; a node sends -1 or one from 0 to 1"},
      {HierarchicalFault::kRowOfFirstNode, "RowOfFirstNode", absl::StatusCode::kDataLoss,
       "y differs"},
      {HierarchicalFault::kNodesDescending, "NodesDescending", absl::StatusCode::kDataLoss,
       "y differs"},
      {HierarchicalFault::kChunksTooEarly, "ChunksTooEarly", absl::StatusCode::kDataLoss, "differ",
       2},
      {HierarchicalFault::kChunkTooLong, "ChunkTooLong", absl::StatusCode::kDataLoss, "differ", 2},
      {HierarchicalFault::kRowsLeaveTooEarly, "RowsLeaveTooEarly", absl::StatusCode::kDataLoss,
       "y differs", 2, 16384}};  // calls take long
}

// Steps of tokens that choose an expert of each of three nodes, with factors of 1, -1 and 2^-30:
// the order of additions decides the sum.
absl::Status RunFault(HierarchicalFault fault, RailRows rows, int chunk_tokens, int hidden) {
  const NodesOfRanks shape = {.num_nodes = 3, .ranks_per_node = 2};
  const EpConfig config = {.num_experts = 6,
                           .topk = 3,
                           .hidden = hidden,
                           .max_tokens_per_rank = 6,
                           .strategy = Strategy::kHighThroughput,
                           .max_blocks = 2};
  faults::planted_hierarchical = HierarchicalFault::kNone;
  auto nodes = SeveralNodes::Create(
      shape, config, {.rows = rows, .chunk_tokens = chunk_tokens, .timeout = absl::Seconds(5)});
  if (!nodes.ok()) return nodes.status();
  std::mt19937_64 rng(11);
  StepInput input = RandomStep(rng, config, {6, 3, 0, 5, 1, 6});
  for (StepInput::PerRank& rank : input.ranks) {
    for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
      const size_t node = 2 - i % 3;
      rank.topk_idx[i] = static_cast<int32_t>(2 * node + i / 3 % 2);
      rank.topk_weights[i] = 1;
    }
  }
  input.expert_scale = {1, 1, -1, -1, 0x1p-30F, 0x1p-30F};
  faults::planted_hierarchical = fault;
  // Whether a kernel that does not wait comes too early depends on when it runs.
  absl::Status status;
  for (int step = 0; step < 20 && status.ok(); ++step) status = (*nodes)->Step(input);
  faults::planted_hierarchical = HierarchicalFault::kNone;
  return status;
}

class HierarchicalFaultTest : public ::testing::TestWithParam<Row> {};

TEST_P(HierarchicalFaultTest, IsShown) {
  const Row& row = GetParam();
  for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
    EXPECT_THAT(RunFault(row.fault, rows, row.chunk_tokens, row.hidden),
                StatusIs(row.code, ::testing::HasSubstr(row.text)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, HierarchicalFaultTest, ::testing::ValuesIn(Table()),
                         [](const auto& info) { return info.param.name; });

TEST(CorrectHierarchicalTest, EqualsTheReference) {
  for (const RailRows rows : {RailRows::kBlocks, RailRows::kCounted}) {
    for (const int chunk_tokens : {0, 2}) {
      for (const int hidden : {64, 1024}) {
        EXPECT_OK(RunFault(HierarchicalFault::kNone, rows, chunk_tokens, hidden));
      }
    }
  }
}

}  // namespace
}  // namespace octet
