// Faults in the kernel of decode, each of which a named tool must show: the comparison with the
// same calls without a fault, or weak memory. And the kernel without a fault, under many schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
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
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "tests/faults/decode_fault.h"
#include "tools/step/layer_calls.h"
#include "tools/workload/layer_tokens.h"
#include "tools/workload/random_weights.h"

namespace octet {
namespace {

using faults::DecodeFault;

constexpr uint64_t kSeeds = 10;
constexpr uint64_t kCleanSchedules = 20;
constexpr uint64_t kFewerSchedules = 4;
constexpr uint64_t kMemoryBytes = 32ULL << 20;
constexpr int kRanks = 3;
constexpr const char* kKinds[] = {"random", "starve_block", "starve_wave", "lap"};

constexpr bool kWeak = OCTET_TEST_WEAK_MEMORY;

// A fault. `weak`: weak memory shows it, in the build that has it.
struct Row {
  DecodeFault fault = DecodeFault::kNone;
  std::string name = {};
  bool weak = true;
  bool placed = false;   // experts have replicas
  bool cancels = false;  // the rows of two ranks cancel each other, and the third's is small
  // Of MXFP4 weights on one rank, which has a kernel of its own; every choice is an entry there.
  bool one_token = false;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> Table() {
  return {
      {.fault = DecodeFault::kNoLogitsBarrier, .name = "NoLogitsBarrier"},
      {.fault = DecodeFault::kNoProductsBarrier, .name = "NoProductsBarrier"},
      {.fault = DecodeFault::kPartialsNotAwaited, .name = "PartialsNotAwaited"},
      {.fault = DecodeFault::kStaleTokens, .name = "StaleTokens"},
      {.fault = DecodeFault::kFlagBeforeRows, .name = "FlagBeforeRows"},
      {.fault = DecodeFault::kExpertLeftOut, .name = "ExpertLeftOut", .weak = false},
      // A piece that has not been copied yet is wrong, but not stale.
      {.fault = DecodeFault::kRingOneSlotShort, .name = "RingOneSlotShort", .weak = false},
      {.fault = DecodeFault::kTwoReplicasTakeAToken,
       .name = "TwoReplicasTakeAToken",
       .weak = false,
       .placed = true},
      {.fault = DecodeFault::kSumFromOwnRank,
       .name = "SumFromOwnRank",
       .weak = false,
       .cancels = true},
      {.fault = DecodeFault::kNoLogitsBarrier,
       .name = "NoLogitsBarrierForOneToken",
       .one_token = true},
      {.fault = DecodeFault::kNoProductsBarrier,
       .name = "NoProductsBarrierForOneToken",
       .one_token = true},
      {.fault = DecodeFault::kRingOneSlotShort,
       .name = "RingOneSlotShortForOneToken",
       .weak = false,
       .one_token = true},
  };
}

MoeLayerConfig LayerOf(const Row& row) {
  MoeLayerConfig config;
  config.path = LayerPath::kDecode;
  config.num_experts = 6;
  config.topk = 3;
  config.hidden = 136;
  config.intermediate = 72;
  config.router.normalize = true;
  config.max_tokens_per_rank = 9;
  config.max_blocks = 4;
  if (row.cancels) config.topk = config.num_experts;
  if (row.one_token) {
    config.weights = GemmFormat::kMxfp4;
    config.hidden = 544;  // chains of several pieces
    config.intermediate = 96;
    config.max_tokens_per_rank = 1;
  }
  return config;
}

// A layer whose ranks compute the same row, its opposite, and a small one: any other order of the
// sum rounds them differently.
class CancellingWeights {
 public:
  CancellingWeights(const MoeLayerConfig& config, const MoeLayerWeights& random)
      : weights_(random), router_(Size(config.num_experts) * Size(config.hidden)) {
    constexpr float kFactors[kRanks] = {1.0F, -1.0F, 0x1p-18F};
    weights_.router = {.type = TensorType::kFloat32,
                       .rows = config.num_experts,
                       .columns = config.hidden,
                       .data = reinterpret_cast<const std::byte*>(router_.data())};
    const size_t elements = Size(config.hidden) * Size(config.intermediate);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < elements; ++i) {
        down_[rank].push_back(kFactors[rank] * static_cast<float>(i % kPeriod + 1) / kPeriod);
      }
      const size_t local = weights_.experts.size() / kRanks;
      for (size_t e = 0; e < local; ++e) {
        MlpWeights& expert = weights_.experts[rank * local + e];
        expert = weights_.experts[e];
        expert.down = {.type = TensorType::kFloat32,
                       .rows = config.hidden,
                       .columns = config.intermediate,
                       .data = reinterpret_cast<const std::byte*>(down_[rank].data())};
      }
    }
  }
  CancellingWeights(const CancellingWeights&) = delete;
  CancellingWeights& operator=(const CancellingWeights&) = delete;

  const MoeLayerWeights& weights() const { return weights_; }

 private:
  static constexpr int kPeriod = 13;

  MoeLayerWeights weights_;
  std::vector<float> router_;
  std::vector<float> down_[kRanks];
};

// Two calls of a layer on a new machine, of which the second finds the rows of the first; returns
// their outputs. kAborted for loads that were shown old values.
absl::StatusOr<std::vector<uint16_t>> RunCalls(const Row& row, DecodeFault fault,
                                               const std::string& schedule) {
  emulation::Config machine;
  const int ranks = row.one_token ? 1 : kRanks;
  machine.devices = ranks;
  machine.wave_size = 32;
  machine.workers = 1;
  machine.memory_bytes = kMemoryBytes;
  if (!emulation::ParseSchedule(schedule, &machine)) return absl::InvalidArgumentError(schedule);
  emulation::Reconfigure(machine);
  MoeLayerConfig config = LayerOf(row);
  if (row.placed) {
    OCTET_ASSIGN_OR_RETURN(config.placement,
                           Placement::Create(6, kRanks, {0, 1, 2, 4, 3, 0, -1, 2, 4, 1, -1, 5}));
  }
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Node> node,
                         Node::Create({.num_ranks = ranks, .on_failure = nullptr}));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<MoeLayer> layer, MoeLayer::Create(*node, config));
  const RandomWeights random(config, false, 1);
  const CancellingWeights cancelling(config, random.weights());
  OCTET_RETURN_IF_ERROR(layer->Load(row.cancels ? cancelling.weights() : random.weights()));
  faults::planted_decode = fault;
  std::vector<uint16_t> outputs;
  absl::Status status;
  for (const uint64_t seed : {1, 2}) {
    const LayerTokens tokens =
        RandomTokens(config.max_tokens_per_rank, config.hidden, ranks, config.dtype, seed);
    LayerCalls calls(*node, *layer, tokens);
    status.Update(calls.Init());
    status.Update(calls.CallOnce());
    if (!status.ok()) break;
    const absl::StatusOr<LayerOutput> output = calls.Read();
    status.Update(output.status());
    if (output.ok()) outputs.insert(outputs.end(), output->y.begin(), output->y.end());
  }
  faults::planted_decode = DecodeFault::kNone;
  const emulation::StaleReads stale = emulation::TakeStaleReads();
  if (stale.count != 0) return absl::AbortedError(stale.text);
  if (!status.ok()) return status;
  return outputs;
}

class DecodeFaultTest : public ::testing::TestWithParam<Row> {};

TEST_P(DecodeFaultTest, SomeScheduleShowsIt) {
  const Row& row = GetParam();
  const absl::StatusOr<std::vector<uint16_t>> want = RunCalls(row, DecodeFault::kNone, "random:1");
  ASSERT_TRUE(want.ok()) << want.status();
  std::string seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const char* kind : kKinds) {
      const std::string schedule = absl::StrCat(kind, ":", seed);
      const absl::StatusOr<std::vector<uint16_t>> got = RunCalls(row, row.fault, schedule);
      const bool shown =
          kWeak && row.weak ? absl::IsAborted(got.status()) : got.ok() && *got != *want;
      if (shown) return;
      absl::StrAppend(&seen, schedule, " ", got.ok() ? "the same y" : got.status().ToString(),
                      "\n");
    }
  }
  FAIL() << seen;
}

INSTANTIATE_TEST_SUITE_P(All, DecodeFaultTest, ::testing::ValuesIn(Table()),
                         [](const auto& info) { return info.param.name; });

TEST(CorrectDecodeTest, PassesManySchedules) {
  for (const Row& row : {Row{}, Row{.placed = true}, Row{.one_token = true}}) {
    const absl::StatusOr<std::vector<uint16_t>> want =
        RunCalls(row, DecodeFault::kNone, "random:1");
    ASSERT_TRUE(want.ok()) << want.status();
    for (uint64_t seed = 1;
         seed <= (row.placed || row.one_token ? kFewerSchedules : kCleanSchedules); ++seed) {
      const std::string schedule = absl::StrCat(kKinds[seed % 4], ":", seed);
      const absl::StatusOr<std::vector<uint16_t>> got = RunCalls(row, DecodeFault::kNone, schedule);
      ASSERT_TRUE(got.ok()) << schedule << " " << got.status();
      EXPECT_EQ(*got, *want) << schedule;
    }
  }
}

}  // namespace
}  // namespace octet
