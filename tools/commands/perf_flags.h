// The flags of `octet perf`, most of which `octet tune` has as well.
#ifndef OCTET_TOOLS_COMMANDS_PERF_FLAGS_H_
#define OCTET_TOOLS_COMMANDS_PERF_FLAGS_H_

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/commands/command_line.h"
#include "tools/commands/operation_flags.h"
#include "tools/measure/step/perf_spec.h"
#include "tools/step/run_spec.h"

namespace octet {

struct PerfFlags {
  RunSpec run;
  std::vector<std::string> strategies = {"auto"};
  // Numbers of tokens.
  int begin = 128;
  std::optional<int> end = {};
  int step = 0;
  double factor = 2;
  int check_steps = 1;
  bool graph = false;
  FusedFlags fused;
  std::string epilogue = "none";  // of fused
};

// nccl-tests' letters for them.
inline constexpr auto kNcclTestsLetters = std::to_array<CommandLine::Letter>({{'b', "begin"},
                                                                              {'e', "end"},
                                                                              {'i', "step"},
                                                                              {'f', "factor"},
                                                                              {'n', "iters"},
                                                                              {'w', "warmup"},
                                                                              {'c', "check_steps"},
                                                                              {'d', "dtype"},
                                                                              {'g', "ranks"},
                                                                              {'T', "timeout"},
                                                                              {'J', "json"}});

void AddPerfFlags(CommandLine& line, PerfFlags& flags);
// Those that `octet tune` has as well: --begin, --end, --step and --factor; --timeout; --strategy.
void AddSizeFlags(CommandLine& line, PerfFlags& flags);
void AddTimeoutFlag(CommandLine& line, PerfFlags& flags);
void AddStrategiesFlag(CommandLine& line, PerfFlags& flags);

// Like ResolveRun. Only MakeContenders knows whether such strategies exist. Does not check which
// flags go with the operation.
absl::StatusOr<PerfSpec> ResolvePerf(const CommandLine& line, const PerfFlags& flags, int num_gpus);

// Returns the sizes from `begin` to `end`, by steps (`step` > 0) or by factors; they need not meet
// `end`. Returns kInvalidArgument if the sequence does not end, or has too many members.
absl::StatusOr<std::vector<int>> Sizes(int begin, int end, int step, double factor);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_PERF_FLAGS_H_
