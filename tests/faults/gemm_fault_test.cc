// Faults in the kernels of grouped products, each of which a named tool must show: the comparison
// with the reference, the emulation's check of accesses, or ThreadSanitizer. And the same kernels
// without a fault, under many schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "emulation.h"
#include "octet/grouped_gemm.h"
#include "runtime/base/status_macros.h"
#include "tests/faults/gemm_fault.h"
#include "tests/support/gemm_problem.h"

namespace octet {
namespace {

using faults::GemmFault;

constexpr uint64_t kSeeds = 10;
constexpr uint64_t kCleanSchedules = 100;
constexpr uint64_t kMemoryBytes = 64ULL << 20;
constexpr const char* kKinds[] = {"random", "starve_block", "starve_wave", "lap"};

constexpr bool kTsan = __has_feature(thread_sanitizer);
constexpr int kTsanExitCode = 66;

using Words = std::vector<std::string>;

// A fault, and the words of the tool that shows it; TSan's, where it is the one to show it.
struct Row {
  GemmFault fault;
  std::string name;
  absl::StatusCode code = absl::StatusCode::kDataLoss;
  Words words;
  Words tsan = {};
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> Table() {
  const absl::StatusCode refused = absl::StatusCode::kInternal;
  return {
      {.fault = GemmFault::kCounterNotCleared,
       .name = "CounterNotCleared",
       .words = {"run 2: row"}},
      {.fault = GemmFault::kUnitLost, .name = "UnitLost", .words = {"run 1: row", "is nan"}},
      {.fault = GemmFault::kUnitTwice,
       .name = "UnitTwice",
       .words = {"run 2: row"},
       .tsan = {"data race", "StoreVec"}},
      {.fault = GemmFault::kRowPastTheEnd,
       .name = "RowPastTheEnd",
       .code = refused,
       .words = {"write to 0x", "not allocated: 0 bytes past the", "tile_gemm.h:"}},
      {.fault = GemmFault::kWrongScale, .name = "WrongScale", .words = {"run 1: row"}},
      {.fault = GemmFault::kColumnsUnscaled,
       .name = "ColumnsUnscaled",
       .words = {"run 1: row", "column 1"}},
      {.fault = GemmFault::kUpScaledAsGate, .name = "UpScaledAsGate", .words = {"run 1: row"}},
  };
}

bool Has(const std::string& text, const Words& words) {
  return absl::c_all_of(words, [&](const auto& word) { return absl::StrContains(text, word); });
}

// Two runs with one object on a new machine. kDataLoss for a wrong element.
absl::Status RunTwice(GemmFault fault, const GroupedGemmConfig& config,
                      const std::vector<int32_t>& rows, const std::string& schedule) {
  emulation::Config machine;
  machine.devices = 1;
  machine.wave_size = 32;
  machine.workers = 1;
  machine.memory_bytes = kMemoryBytes;
  if (!emulation::ParseSchedule(schedule, &machine)) return absl::InvalidArgumentError(schedule);
  emulation::Reconfigure(machine);
  GemmProblem p = MakeGemmProblem(config, rows);
  p.config.max_rows = p.offsets.back();  // nothing after the last row
  OCTET_ASSIGN_OR_RETURN(GemmOnGpu gpu, GemmOnGpu::Make(p));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> gemm, GroupedGemm::Create(p.config));
  const std::vector<GemmExpectation> expected = ExpectedGemm(p);
  for (int run = 1; run <= 2; ++run) {
    OCTET_RETURN_IF_ERROR(gpu.ClearOut());
    faults::planted_gemm = {.fault = fault, .out_row_vecs = p.config.out_columns() / 8};
    absl::Status status = gemm->Run(gpu.args(), nullptr);
    if (status.ok()) status = OCTET_GPU(hipDeviceSynchronize());
    faults::planted_gemm = {};
    OCTET_RETURN_IF_ERROR(status);
    OCTET_ASSIGN_OR_RETURN(const std::vector<uint16_t> out, gpu.Out());
    const std::string wrong = FirstWrongElement(p, expected, out);
    if (!wrong.empty()) return absl::DataLossError(absl::StrCat("run ", run, ": ", wrong));
  }
  return absl::OkStatus();
}

// Two groups of columns of K and two of the product, three units or more for two blocks.
absl::Status RunFault(GemmFault fault, const std::string& schedule) {
  GroupedGemmConfig config = {.n = 136, .k = 144, .format = GemmFormat::kFp8};
  if (fault == GemmFault::kUpScaledAsGate) {
    config.n *= 2;
    config.activation = GemmActivation::kSwiGlu;
  }
  config.tiles = GemmTiles::kFew16;
  config.blocks = 2;
  return RunTwice(fault, config, {5, 0, 20}, schedule);
}

std::vector<std::string> Schedules() {
  std::vector<std::string> schedules;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const char* kind : kKinds) schedules.push_back(absl::StrCat(kind, ":", seed));
  }
  return schedules;
}

class GemmFaultTest : public ::testing::TestWithParam<Row> {};

TEST_P(GemmFaultTest, SomeScheduleShowsIt) {
  const Row& row = GetParam();
  std::string seen;
  for (const std::string& schedule : Schedules()) {
    const absl::Status status = RunFault(row.fault, schedule);
    if (status.code() == row.code && Has(std::string(status.message()), row.words)) return;
    absl::StrAppend(&seen, schedule, " ", status.ToString(), "\n");
  }
  FAIL() << seen;
}

// In a process of its own, which TSan ends.
[[noreturn]] void RunAndExit(GemmFault fault) {
  for (const std::string& schedule : Schedules()) std::cerr << RunFault(fault, schedule) << "\n";
  std::exit(0);
}

class GemmTsanTest : public GemmFaultTest {};

TEST_P(GemmTsanTest, TsanShowsIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunAndExit(GetParam().fault), ::testing::ExitedWithCode(kTsanExitCode),
              ::testing::ResultOf(
                  [](const std::string& text) { return Has(text, GetParam().tsan); }, true));
}

// Those that the build's tool shows, or is not the one to show.
std::vector<Row> RowsOf(bool tsan) {
  std::vector<Row> rows = Table();
  std::erase_if(rows, [tsan](const Row& row) { return (kTsan && !row.tsan.empty()) != tsan; });
  return rows;
}
std::string NameOf(const ::testing::TestParamInfo<Row>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, GemmFaultTest, ::testing::ValuesIn(RowsOf(false)), NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GemmTsanTest);
INSTANTIATE_TEST_SUITE_P(All, GemmTsanTest, ::testing::ValuesIn(RowsOf(true)), NameOf);

TEST(CorrectGemmTest, PassesManySchedules) {
  constexpr GemmTiles kEvery[] = {GemmTiles::kWide, GemmTiles::kMedium, GemmTiles::kFew64,
                                  GemmTiles::kFew32, GemmTiles::kFew16};
  for (uint64_t seed = 1; seed <= kCleanSchedules; ++seed) {
    GroupedGemmConfig config = {.n = 64 + 16 * static_cast<int>(seed % 5), .k = 48};
    config.format = seed % 3 == 0 ? GemmFormat::kFp8 : GemmFormat::kSame;
    config.activation = seed % 2 == 0 ? GemmActivation::kSwiGlu : GemmActivation::kNone;
    config.tiles = kEvery[seed % 5];
    config.blocks = static_cast<int>(1 + seed % 4);
    const std::string schedule = absl::StrCat(kKinds[seed % 4], ":", seed);
    EXPECT_EQ(RunTwice(GemmFault::kNone, config, {3, 0, 17, 40}, schedule), absl::OkStatus())
        << schedule << " " << EnumName(*config.tiles);
  }
}

}  // namespace
}  // namespace octet
