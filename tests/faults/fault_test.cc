// Faults in the kernels of the strategies, and which tool catches them. Also what correct kernels
// do under a thousand schedules. tests/faults/seam.h says how faults get in.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/node/schedule.h"
#include "tests/faults/fault.h"
#include "tests/faults/fault_table.h"
#include "tests/platform/emulation/emulation_fixture.h"
#include "tests/support/ep_harness.h"

#if __has_feature(thread_sanitizer)
// A program that is told of races goes on, so that all are told, and ends with this code.
extern "C" const char* __tsan_default_options() { return "exitcode=66"; }
#endif

namespace octet {
namespace {

using faults::Calls;
using faults::Fault;
using faults::Row;
using faults::Table;
using faults::Words;

constexpr bool kTsan = __has_feature(thread_sanitizer);
constexpr bool kAsan = __has_feature(address_sanitizer);
constexpr bool kWeak = OCTET_TEST_WEAK_MEMORY;
constexpr int kSanitizerExitCode = kTsan ? 66 : 1;

// Of each kind of schedule, until a fault must have shown itself.
constexpr uint64_t kSeeds = 10;
// As many that a sanitizer looks at. A race is told of only where nothing happens to order the two.
constexpr uint64_t kSanitizerSeeds = 4;
// What takes a quarter of a minute; sanitizers make it slower.
constexpr uint64_t kCleanSchedules = kTsan ? 50 : kAsan ? 100 : 1000;

// ---- what runs

constexpr int kWaveSize = 32;
constexpr uint64_t kMemoryBytes = 64ULL << 20;

struct CallSetup {
  int num_ranks = 2;
  EpConfig config;
  Calls calls = Calls::kSteps;
  int num_steps = 4;
  std::vector<Form> forms = {Form::kFused};
  double drop = 0.0;
  bool idle_steps = false;
};

// Few lanes: ThreadSanitizer has contexts for about 200.
CallSetup SmallSetup(const Row& row) {
  CallSetup setup;
  setup.calls = row.calls;
  setup.forms = {row.form};
  setup.drop = row.drop;
  setup.idle_steps = row.idle_steps;
  if (row.idle_steps) setup.num_steps = 8;
  setup.config.strategy = row.strategy;
  setup.config.num_experts = 4;
  setup.config.topk = 2;
  setup.config.hidden = 64;
  setup.config.max_tokens_per_rank = 6;
  setup.config.variant.flags = row.flags;
  if (row.quantized) {
    setup.config.dispatch_format = DispatchFormat::kQuantizedFp8;
    setup.config.scale_group = 64;
  }
  setup.config.tuning = {.blocks = 3, .send_blocks = 2, .waves_per_block = 1, .row_parts = 1};
  if (row.strategy == Strategy::kHighThroughput) {
    setup.config.combine_method = CombineMethod::kPush;
    setup.config.tuning.send_blocks = 0;
  }
  return setup;
}

CallSetup RandomSetup(std::mt19937_64& rng) {
  const auto draw = [&rng](int low, int high) {
    return low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  CallSetup setup;
  setup.num_ranks = draw(2, 4);
  setup.config.num_experts = setup.num_ranks * draw(1, 3);
  setup.config.topk = draw(1, std::min(setup.config.num_experts, 4));
  setup.config.hidden = 8 * draw(1, 24);
  setup.config.max_tokens_per_rank = draw(1, 6);
  static constexpr Form kForms[] = {Form::kFused, Form::kSplit, Form::kSeparateExpert};
  setup.forms = {kForms[draw(0, 2)], kForms[draw(0, 2)], kForms[draw(0, 2)]};
  const int strategy = draw(0, 2);
  if (strategy == 0) {
    setup.config.strategy = Strategy::kLowLatency;
    setup.config.combine_order = static_cast<CombineOrder>(draw(0, 2));
    setup.config.output =
        static_cast<Output>(draw(0, 1) == 0 ? Output::kPackedExperts : Output::kRankMajor);
  } else if (strategy == 1) {
    setup.config.strategy = Strategy::kDirect;
    setup.config.variant.slots = draw(0, 1) == 0 ? Slots::kPrefix : Slots::kAtomic;
    setup.config.variant.flags = draw(0, 1) == 0 ? Flags::kToken : Flags::kSource;
  } else {
    setup.config.strategy = Strategy::kHighThroughput;
    setup.config.combine_order = static_cast<CombineOrder>(draw(0, 2));
    setup.config.combine_method = static_cast<CombineMethod>(draw(0, 2));
    if (draw(0, 2) == 0) setup.forms = {Form::kCached};
  }
  const int blocks = draw(2, 4);
  setup.config.tuning = {.blocks = blocks,
                         .send_blocks = draw(1, blocks - 1),
                         .waves_per_block = draw(1, 2),
                         .row_parts = draw(1, 2)};
  setup.num_steps = draw(1, 4);
  if (setup.config.strategy == Strategy::kLowLatency) setup.calls = static_cast<Calls>(draw(0, 2));
  setup.drop = draw(0, 2) * 0.25;
  return setup;
}

void UseMachine(int devices, const std::string& schedule) {
  emulation::Config config;
  config.devices = devices;
  config.wave_size = kWaveSize;
  config.workers = 1;
  config.memory_bytes = kMemoryBytes;
  ASSERT_TRUE(emulation::ParseSchedule(schedule, &config)) << schedule;
  emulation::Reconfigure(config);
}

std::vector<StepInput> Inputs(const CallSetup& setup, std::mt19937_64& rng) {
  // A layout that is used again is for the same routing.
  const bool cached = absl::c_linear_search(setup.forms, Form::kCached);
  std::vector<StepInput> inputs;
  std::vector<int> tokens;
  for (int i = 0; i < setup.num_steps; ++i) {
    if (i > 0 && setup.calls == Calls::kCombines) {
      inputs.push_back(inputs.back());
      for (float& scale : inputs.back().expert_scale) scale += 1.0F;
      continue;
    }
    if (i == 0 || !cached) tokens = RandomTokens(rng, setup.config, setup.num_ranks);
    const bool idle = setup.idle_steps && i % 2 == 1;
    inputs.push_back(RandomStep(rng, setup.config, tokens, idle ? 1.0 : setup.drop));
    for (size_t r = 0; r < tokens.size() && cached; ++r) {
      inputs.back().ranks[r].topk_idx = inputs.front().ranks[r].topk_idx;
    }
  }
  return inputs;
}

// The setup's calls on a new machine. kAborted says that loads were shown old values.
absl::Status RunCalls(Fault fault, const CallSetup& setup, const std::string& schedule,
                      std::mt19937_64& rng) {
  UseMachine(setup.num_ranks, schedule);
  OCTET_ASSIGN_OR_RETURN(const auto harness, EpHarness::Create(setup.num_ranks, setup.config));
  const std::vector<StepInput> inputs = Inputs(setup, rng);
  faults::planted = {.fault = fault,
                     .heaps = harness->heap().peers(0),
                     .row_heaps = harness->heap().peers(0, HeapMemory::kCached),
                     .heap_bytes = harness->heap().bytes(),
                     .row_heap_bytes = harness->heap().bytes(HeapMemory::kCached),
                     .row_vecs = setup.config.hidden / 8,
                     .send_blocks = setup.config.tuning.send_blocks};
  const absl::Status status = setup.calls == Calls::kSteps ? harness->Steps(inputs, setup.forms)
                              : setup.calls == Calls::kDispatches
                                  ? harness->LateReceiver(inputs.front(), setup.num_ranks - 1)
                                  : harness->CombinesOfOneDispatch(inputs);
  faults::planted = {};
  const emulation::StaleReads stale = emulation::TakeStaleReads();
  return stale.count != 0 ? WithSchedule(absl::AbortedError(stale.text)) : status;
}

// Two blocks count up between grid barriers: tests/platform/emulation/emulation_kernels.h.
absl::Status RunGridRounds(Fault fault, const std::string& schedule) {
  constexpr int kRounds = 8;
  UseMachine(1, schedule);
  OCTET_ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::Allocate(2 * sizeof(uint32_t)));
  auto* words = memory.as<uint32_t>();
  OCTET_RETURN_IF_GPU_ERROR(hipMemset(words, 0, memory.bytes()));
  faults::planted.fault = fault;
  OCTET_RETURN_IF_GPU_ERROR(LaunchGridRounds(words, words + 1, kRounds,
                                             {.blocks = 2, .threads = 2 * kWaveSize},
                                             /*cooperative=*/true, nullptr));
  uint32_t errors = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(&errors, words + 1, sizeof(errors), hipMemcpyDeviceToHost));
  faults::planted = {};
  return errors == 0 ? absl::OkStatus()
                     : absl::DataLossError(absl::StrCat("a block was ahead ", errors, " times"));
}

// ---- faults

constexpr std::array<const char*, 6> kKinds = {"random",      "starve_device", "starve_block",
                                               "starve_wave", "delay_device",  "lap"};

absl::Status RunFault(const Row& row, const std::string& kind, uint64_t seed) {
  const std::string schedule = absl::StrCat(kind, ":", seed);
  std::mt19937_64 rng(seed);
  if (row.fault == Fault::kMissingGridSync && row.strategy == Strategy::kDirect) {
    return RunGridRounds(row.fault, schedule);
  }
  return RunCalls(row.fault, SmallSetup(row), schedule, rng);
}

bool Has(const std::string& text, const Words& words) {
  return !words.empty() &&
         absl::c_all_of(words, [&](const auto& word) { return absl::StrContains(text, word); });
}

// Whether the run has ended as the tool of these words ends it.
bool Compared(const Row& row, const absl::Status& status) {
  return absl::IsDataLoss(status) && Has(status.ToString(), row.comparison);
}
bool Refused(const Row& row, const absl::Status& status) {
  return absl::IsInternal(status) && Has(status.ToString(), row.access);
}
bool Expired(const Row& row, const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) && Has(status.ToString(), row.deadline);
}

bool Stale(const Row& row, const absl::Status& status) {
  return absl::IsAborted(status) && Has(status.ToString(), row.weak);
}

class FaultTest : public ::testing::TestWithParam<Row> {};

// By what all builds have, and weak memory. Builds with a sanitizer leave these to the others.
TEST_P(FaultTest, SomeScheduleShowsIt) {
  const Row& row = GetParam();
  std::vector<std::pair<const Words*, decltype(&Compared)>> tools = {
      {&row.comparison, Compared}, {&row.access, Refused}, {&row.deadline, Expired}};
  if (kWeak && !row.weak.empty()) tools = {{&row.weak, Stale}};
  for (const auto& [words, shows] : tools) {
    if (words->empty()) continue;
    std::string seen;
    bool shown = false;
    for (uint64_t seed = 1; seed <= kSeeds && !shown; ++seed) {
      for (const char* kind : kKinds) {
        const absl::Status status = RunFault(row, kind, seed);
        absl::StrAppend(&seen, kind, ":", seed, " ", status.ToString(), "\n");
        shown = shows(row, status);
        if (shown) break;
      }
    }
    EXPECT_TRUE(shown) << seen;
  }
}

// In a process of its own, which the sanitizer ends.
[[noreturn]] void RunAndExit(const Row& row) {
  for (uint64_t seed = 1; seed <= kSanitizerSeeds; ++seed) {
    for (const char* kind : kKinds) std::cerr << RunFault(row, kind, seed) << "\n";
  }
  std::exit(0);
}

// What a run ends with is the same each time: every failure can be looked at again.
TEST(FaultReplayTest, AScheduleMeansTheSameFailure) {
  if (kTsan || kAsan || kWeak) GTEST_SKIP() << "its tool speaks first, and of addresses";
  const std::vector<Row> rows = {
      {.fault = Fault::kFlagBeforePayload, .name = "FlagBeforePayload"},
      {.fault = Fault::kNotLastBlock, .name = "NotLastBlock", .flags = Flags::kSource}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    int failed = 0;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      for (const char* kind : kKinds) {
        const absl::Status status = RunFault(row, kind, seed);
        EXPECT_EQ(status, RunFault(row, kind, seed)) << kind << ":" << seed;
        failed += status.ok() ? 0 : 1;
      }
    }
    EXPECT_GT(failed, 0);
  }
}

// ---- sanitizers

const Words& SanitizerWords(const Row& row) { return kTsan ? row.tsan : row.asan; }

class SanitizerFaultTest : public FaultTest {};

TEST_P(SanitizerFaultTest, TheSanitizerShowsIt) {
  const Row& row = GetParam();
  const Words& words = SanitizerWords(row);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto by_sanitizer = [](int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) == kSanitizerExitCode : WIFSIGNALED(status);
  };
  EXPECT_EXIT(RunAndExit(row), by_sanitizer,
              ::testing::ResultOf([&](const std::string& text) { return Has(text, words); }, true))
      << absl::StrJoin(words, ", ");
}

// Rows that a tool sees.
template <typename Sees>
std::vector<Row> RowsWhere(Sees sees) {
  std::vector<Row> rows = Table();
  std::erase_if(rows, [&](const Row& row) { return !sees(row); });
  return rows;
}
std::string NameOf(const ::testing::TestParamInfo<Row>& info) { return info.param.name; }

// What the sanitizer of the build sees is for it: it would end this process.
bool ForSanitizer(const Row& row) { return (kTsan || kAsan) && !SanitizerWords(row).empty(); }

INSTANTIATE_TEST_SUITE_P(All, FaultTest, ::testing::ValuesIn(RowsWhere([](const Row& row) {
                           const bool shown = !row.comparison.empty() || !row.access.empty() ||
                                              !row.deadline.empty();
                           return !kTsan && !kAsan && (shown || (kWeak && !row.weak.empty()));
                         })),
                         NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FaultTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SanitizerFaultTest);
INSTANTIATE_TEST_SUITE_P(All, SanitizerFaultTest, ::testing::ValuesIn(RowsWhere(ForSanitizer)),
                         NameOf);

// One fault to look at, until something shows it:
//   fault_test --gtest_also_run_disabled_tests --gtest_filter='*Show/MissingRelease'
using FaultReport = FaultTest;

TEST_P(FaultReport, DISABLED_Show) {
  for (const char* kind : kKinds) {
    const absl::Status status = RunFault(GetParam(), kind, 1);
    if (status.ok()) continue;
    std::cout << kind << ":1  " << status << "\n";
    return;
  }
  std::cout << "nothing shows it here\n";
}
INSTANTIATE_TEST_SUITE_P(All, FaultReport, ::testing::ValuesIn(Table()), NameOf);

// A line of Markdown for each fault: by what it shows, under how many of ten seeds of each kind of
// schedule.
TEST(FaultTable, DISABLED_Print) {
  std::cout << "| fault | shown by |";
  for (const char* kind : kKinds) std::cout << " " << kind << " |";
  std::cout << "\n|---|---|---|---|---|---|---|---|\n";
  for (const Row& row : Table()) {
    std::map<std::string, int> shown;
    std::string counts;
    std::string first;
    for (const char* kind : kKinds) {
      int found = 0;
      for (uint64_t seed = 1; seed <= 10; ++seed) {
        const absl::Status status = RunFault(row, kind, seed);
        if (status.ok()) continue;
        ++found;
        if (first.empty()) first = status.ToString();
        ++shown[absl::IsDataLoss(status)           ? "comparison"
                : absl::IsAborted(status)          ? "weak memory"
                : absl::IsDeadlineExceeded(status) ? "deadline"
                                                   : "access check"];
      }
      absl::StrAppend(&counts, " ", found, " |");
    }
    const std::string by = absl::StrJoin(shown, ", ", absl::PairFormatter(" "));
    std::cout << "| " << row.name << " | " << by << " |" << counts << "\n";
    std::cerr << first << "\n";
  }
}

// ---- correct kernels

TEST(CorrectKernelsTest, PassAThousandSchedules) {
  const absl::Time start = absl::Now();
  uint64_t seed = 1;
  for (; seed <= kCleanSchedules; ++seed) {
    std::mt19937_64 rng(seed);
    const CallSetup setup = RandomSetup(rng);
    ASSERT_EQ(RunCalls(Fault::kNone, setup, std::to_string(seed), rng), absl::OkStatus())
        << "schedule " << emulation::ScheduleText(emulation::CurrentConfig());
  }
  std::cout << seed - 1 << " schedules in " << absl::Now() - start << "\n";
}

}  // namespace
}  // namespace octet
