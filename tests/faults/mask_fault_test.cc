// Faults in what low_latency does about silent ranks, and which case of low_latency_mask_test or
// low_latency_statistics_test fails because of them. This program has those cases as well, over
// kernels and a host class with faults (tests/faults), and starts itself for each: with the fault
// in its environment and one case to run.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/faults/fault.h"

namespace octet {
namespace {

using faults::Fault;

constexpr const char* kFaultVariable = "OCTET_TEST_FAULT";
constexpr int kMostSchedules = 3;

// In the program that has been started.
class PlantedFault : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* text = std::getenv(kFaultVariable);
    int fault = 0;
    if (text != nullptr && absl::SimpleAtoi(text, &fault)) {
      faults::planted.fault = static_cast<Fault>(fault);
    }
  }
};
[[maybe_unused]] ::testing::Environment* const kPlantedFault =
    ::testing::AddGlobalTestEnvironment(new PlantedFault());

struct Row {
  Fault fault;
  std::string name;
  std::string scenario;            // as --gtest_filter
  std::vector<std::string> words;  // of its failure
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

struct Outcome {
  int exit_code;
  std::string output;
};

// A schedule, since its time is virtual.
Outcome RunScenario(Fault fault, const std::string& scenario, int seed) {
  const std::string command = absl::StrCat("OCTET_EMULATION_SCHEDULE=random:", seed, " ",
                                           kFaultVariable, "=", static_cast<int>(fault), " '",
                                           std::filesystem::read_symlink("/proc/self/exe").string(),
                                           "' --gtest_filter='", scenario, "' 2>&1");
  Outcome outcome = {-1, ""};
  FILE* pipe = popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor): our own words
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> chunk;
  while (const size_t bytes = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    outcome.output.append(chunk.data(), bytes);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

class MaskFaultTest : public ::testing::TestWithParam<Row> {};

TEST_P(MaskFaultTest, AScenarioShowsIt) {
  const Row& row = GetParam();
  // Every schedule shows the fault, but not every one in these words: which of two waits expires
  // first can depend on it.
  std::vector<std::string> outputs;
  const auto shown = [&](const std::string& words) {
    return absl::c_any_of(
        outputs, [&](const std::string& output) { return absl::StrContains(output, words); });
  };
  for (int seed = 1; seed <= kMostSchedules && (seed == 1 || !absl::c_all_of(row.words, shown));
       ++seed) {
    const Outcome faulty = RunScenario(row.fault, row.scenario, seed);
    EXPECT_EQ(faulty.exit_code, 1);
    outputs.push_back(faulty.output);
  }
  for (const std::string& words : row.words) {
    EXPECT_TRUE(shown(words)) << words << " in\n" << absl::StrJoin(outputs, "\n");
  }
}

std::vector<Row> Table() {
  return {
      {Fault::kNotDoneAgain,
       "NotDoneAgain",
       "*OnlyAnnouncesItsTokens/Shape0:*SendsSomeOutputsOnly/Shape0",
       {"expert_counts[", "y of token"}},
      {Fault::kMaskForgotten,
       "MaskForgotten",
       "*ASilentRankIsWaitedForOnce",
       {"mine.dispatch_waits[2]"}},
      {Fault::kMaskedIsAdded, "MaskedIsAdded", "*SendsSomeOutputsOnly/Shape0", {"y of token"}},
      {Fault::kMaskedIsSentTo,
       "MaskedIsSentTo",
       "*NothingIsSentToAMaskedRank",
       {"stored into the heap of rank 2"}},
      {Fault::kLeftOutNotSet,
       "LeftOutNotSet",
       "*DoesNotComeToDispatch/Shape0",
       {"left_out.dispatch", "left_out.combine"}},
      {Fault::kBegunIgnored,
       "BegunIgnored",
       "*WhoWaitsForASilentRankIsNotTakenForOne",
       {"expert_counts["}},
      {Fault::kCreditsTakeAllTime,
       "CreditsTakeAllTime",
       "*WhoWaitsForACreditIsNotTakenForSilent",
       {"\n  masked\n    Which is: 2\n"}},
      {Fault::kTimeForEachWait,
       "TimeForEachWait",
       "*SilentRanksCostTheirTimeTogether",
       {"< (1.5 * MaskTimeout()), actual: 2."}},
      {Fault::kSharedPlaces,
       "SharedPlaces",
       "*WhatALateRankSendsHurtsNobody",
       {"combine-receive waited 1.0 s for rank ", "'s row flag of token "}},
      {Fault::kUnmaskGoesOn,
       "UnmaskGoesOn",
       "*DoesNotComeToDispatch/Shape0",
       {"expert_counts[", "left_out.dispatch"}},
  };
}

INSTANTIATE_TEST_SUITE_P(All, MaskFaultTest, ::testing::ValuesIn(Table()),
                         [](const auto& info) { return info.param.name; });

// So it was the fault that did it.
TEST(NoMaskFaultTest, WithoutAFaultAllScenariosPass) {
  const std::string scenarios = absl::StrJoin(
      Table(), ":", [](std::string* out, const Row& row) { absl::StrAppend(out, row.scenario); });
  const Outcome outcome = RunScenario(Fault::kNone, scenarios, /*seed=*/1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace octet
