// Faults in the kernels of fused experts, each of which a named tool must show: the comparison with
// separate calls, a deadline, ThreadSanitizer, or weak memory. And the same kernels without a
// fault, under many schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "emulation.h"
#include "kernels/tuning/tuning.h"
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"
#include "tests/faults/fused_fault.h"
#include "tests/kernels/fused/fused_harness.h"

namespace octet {
namespace {

using faults::FusedFault;

constexpr uint64_t kSeeds = 10;
constexpr uint64_t kCleanSchedules = 40;
constexpr uint64_t kMemoryBytes = 256ULL << 20;
constexpr int kRanks = 2;
constexpr const char* kKinds[] = {"random", "starve_block", "starve_wave", "lap"};

constexpr bool kTsan = __has_feature(thread_sanitizer);
constexpr bool kWeak = OCTET_TEST_WEAK_MEMORY;

// A fault, and the words of the tool that shows it. `races`: TSan would end the process first.
// `weak`: of weak memory, in the build that has it.
struct Row {
  FusedFault fault = FusedFault::kNone;
  std::string name;
  absl::StatusCode code = absl::StatusCode::kDataLoss;
  std::vector<std::string> words = {"and should be"};
  bool races = true;
  std::vector<std::string> weak = {};
  // Of which call, and how it is fused.
  FusedCall call = FusedCall::kDispatchGemm;
  Fusion fusion = Fusion::kTiles;
  const char* function = "";  // faults::planted_function
  bool only_weak = false;     // memory in one order hides it
  TileWaits tile_waits = TileWaits::kGroup;
  bool second_only = false;  // planted in the second call: poison from before the first is no index
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

// Releases and barriers that a function leaves out.
std::vector<Row> MissingOrder() {
  return {
      // Three faults of a pass are not here, since no test in emulation can show them. Without
      // SyncBlockStores the block still meets twice before it tells, where it is told its next
      // unit; only on AMD is that not enough, where such a barrier does not wait for the waves'
      // stores. A release of scattered rows to this GPU alone would do: whoever publishes them has
      // acquired it, and its own release to the system covers what it has seen. And that release
      // is missed by nobody, since in the model of weak memory an acquire sees all that has been
      // released by then, as the pass has been.
      {.fault = FusedFault::kNoRelease,
       .name = "PassNotReleased",
       .weak = {"old value read", "StoreVec"},
       .call = FusedCall::kGemmCombine,
       .function = "Tell(",
       .only_weak = true},
      {.fault = FusedFault::kNoRelease,
       .name = "PassOfScatteredRowsNotReleased",
       .weak = {"old value read", "StoreVec"},
       .call = FusedCall::kGemmCombine,
       .fusion = Fusion::kEpilogue,
       .function = "Tell(",
       .only_weak = true},
      // The order of sending without a release is not here, either: weak memory shows the sending
      // waves old entries, which are no indices, and the process dies of them.
      {.fault = FusedFault::kNoBarrier,
       .name = "OrderToldBeforeItsStores",
       .weak = {"old value read"},
       .function = "OrderShare(",
       .only_weak = true,  // otherwise what is read before it is stored may be no index
       .second_only = true},
      {.fault = FusedFault::kNoRelease,
       .name = "GroupNotReleased",
       .weak = {"old value read", "MultiplyPatch"},
       .function = "FillGroup(",
       .only_weak = true},
      {.fault = FusedFault::kNoRelease,
       .name = "ExpertNotReleased",
       .weak = {"old value read", "MultiplyPatch"},
       .function = "CountRows(",
       .only_weak = true,
       .tile_waits = TileWaits::kExpert},
  };
}

std::vector<Row> Table() {
  std::vector<Row> rows = {
      {.fault = FusedFault::kTileStartsEarly,
       .name = "TileStartsEarly",
       .weak = {"old value read", "MultiplyPatch"}},
      {.fault = FusedFault::kGroupOffByOne,
       .name = "GroupOffByOne",
       .weak = {"old value read", "MultiplyPatch"}},
      {.fault = FusedFault::kCopiedBeforeHolder,
       .name = "CopiedBeforeHolder",
       .weak = {"old value read", "DispatchGemmKernel", "SendBatch"}},
      {.fault = FusedFault::kHolderOffByOne,
       .name = "HolderOffByOne",
       .weak = {"old value read", "DispatchGemmKernel"}},
      {.fault = FusedFault::kBatchLost,
       .name = "BatchLost",
       .code = absl::StatusCode::kDeadlineExceeded,
       // After the deadline tiles read rows whose arrival nobody has seen: their results are void.
       .words = {"dispatch-receive waited", "arrival of row"}},
      {.fault = FusedFault::kPassNotAwaited,
       .name = "PassNotAwaited",
       .weak = {"old value read", "SendSum", "StoreVec"},
       .call = FusedCall::kGemmCombine},
      {.fault = FusedFault::kPassOffByOne,
       .name = "PassOffByOne",
       .weak = {"old value read", "SendSum", "StoreVec"},
       .call = FusedCall::kGemmCombine},
      {.fault = FusedFault::kPassNotAwaited,
       .name = "PassNotAwaitedByScatteredRows",
       .weak = {"old value read", "ReceiveToken", "StoreVec"},
       .call = FusedCall::kGemmCombine,
       .fusion = Fusion::kEpilogue},
      {.fault = FusedFault::kTaskLost,
       .name = "TaskLost",
       .code = absl::StatusCode::kDeadlineExceeded,
       .words = {"combine-receive waited", "row flag of token"},
       .races = false,
       .call = FusedCall::kGemmCombine},
  };
  absl::c_move(MissingOrder(), std::back_inserter(rows));
  if (kTsan) std::erase_if(rows, [](const Row& row) { return row.races; });
  if (!kWeak) std::erase_if(rows, [](const Row& row) { return row.only_weak; });
  for (Row& row : rows) {
    if (!kWeak || row.weak.empty()) continue;
    row.code = absl::StatusCode::kAborted;
    row.words = row.weak;
  }
  return rows;
}

// Two calls on a new machine, of which the second finds the rows of the first. kDataLoss for a
// difference from separate calls, kAborted for loads that were shown old values.
absl::Status RunCalls(const Row& row, const std::string& schedule) {
  emulation::Config machine;
  machine.devices = kRanks;
  machine.wave_size = 32;
  machine.workers = 1;
  machine.memory_bytes = kMemoryBytes;
  if (!emulation::ParseSchedule(schedule, &machine)) return absl::InvalidArgumentError(schedule);
  emulation::Reconfigure(machine);
  FusedProblem problem;
  problem.num_ranks = kRanks;
  problem.config.ep.num_experts = 4;
  problem.config.ep.topk = 3;
  problem.config.ep.hidden = 64;
  problem.config.ep.max_tokens_per_rank = 40;
  problem.config.ep.strategy = Strategy::kHighThroughput;
  problem.config.ep.tuning = {.blocks = 4, .waves_per_block = 2};
  problem.config.intermediate = 24;
  if (row.call == FusedCall::kGemmCombine) {
    problem.config.ep.hidden = 192;
    problem.config.ep.tuning.row_parts = 3;
    problem.config.gemm_combine = row.fusion;
    if (row.fusion == Fusion::kEpilogue) problem.config.ep.combine_order = CombineOrder::kFlat;
  } else {
    problem.config.dispatch_gemm = row.fusion;
    problem.config.dispatch_gemm_tuning.tile_waits = row.tile_waits;
  }
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<FusedHarness> harness,
                         FusedHarness::Create(problem));
  const std::vector<StepInput> inputs = {harness->Draw({40, 37}), harness->Draw({40, 40})};
  absl::StatusOr<FusedOutputs> first = FusedOutputs();
  if (row.second_only) first = harness->Fused({inputs.front()});
  OCTET_RETURN_IF_ERROR(first.status());
  faults::planted_function = row.function;
  faults::planted_fused = row.fault;
  absl::StatusOr<FusedOutputs> got =
      harness->Fused(row.second_only ? std::vector<StepInput>{inputs.back()} : inputs);
  faults::planted_fused = FusedFault::kNone;
  if (got.ok()) got->insert(got->begin(), first->begin(), first->end());
  const emulation::StaleReads stale = emulation::TakeStaleReads();
  if (stale.count != 0) return absl::AbortedError(stale.text);
  OCTET_RETURN_IF_ERROR(got.status());
  OCTET_ASSIGN_OR_RETURN(const FusedOutputs want, harness->Separate(inputs));
  const std::string difference = FirstDifference(*got, want);
  return difference.empty() ? absl::OkStatus() : absl::DataLossError(difference);
}

class FusedFaultTest : public ::testing::TestWithParam<Row> {};

TEST_P(FusedFaultTest, SomeScheduleShowsIt) {
  const Row& row = GetParam();
  std::string seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const char* kind : kKinds) {
      const std::string schedule = absl::StrCat(kind, ":", seed);
      const absl::Status status = RunCalls(row, schedule);
      if (status.code() == row.code && absl::c_all_of(row.words, [&](const auto& word) {
            return absl::StrContains(status.message(), word);
          })) {
        return;
      }
      absl::StrAppend(&seen, schedule, " ", status.ToString(), "\n");
    }
  }
  FAIL() << seen;
}

INSTANTIATE_TEST_SUITE_P(All, FusedFaultTest, ::testing::ValuesIn(Table()),
                         [](const auto& info) { return info.param.name; });

TEST(CorrectFusedTest, PassesManySchedules) {
  for (uint64_t seed = 1; seed <= kCleanSchedules; ++seed) {
    const std::string schedule = absl::StrCat(kKinds[seed % 4], ":", seed);
    for (const Row& clean :
         {Row{.name = "dispatch"}, Row{.name = "tiles", .call = FusedCall::kGemmCombine},
          Row{.name = "epilogue", .call = FusedCall::kGemmCombine, .fusion = Fusion::kEpilogue}}) {
      EXPECT_EQ(RunCalls(clean, schedule), absl::OkStatus()) << clean.name << " " << schedule;
    }
  }
}

}  // namespace
}  // namespace octet
