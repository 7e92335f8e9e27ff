// The flags of `octet perf` and their values.
#ifndef OCTET_TOOLS_COMMANDS_PERF_OPTIONS_H_
#define OCTET_TOOLS_COMMANDS_PERF_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/commands/command_line.h"
#include "tools/commands/run_options.h"
#include "tools/measure/fused/fused_run.h"

namespace octet {

struct PerfOptions {
  // One shape for each number of tokens, which is the same on every rank and also max_tokens.
  std::vector<RunOptions> shapes;
  std::vector<std::string> strategies;  // names of contenders, or "auto", or "all"
  int check_steps = 0;                  // of each kind, to be verified
  bool graph = false;                   // a second row for each shape: replays of a captured step
  std::string json;                     // file; empty: none
  // With another --operation than step: one for each of `shapes`. The strategy is one of Octet's.
  std::vector<FusedRunOptions> fused;
};

// The names of the flags, in the order of --help, and nccl-tests' letters for them.
absl::Span<const absl::string_view> PerfFlags();
absl::Span<const ShortFlag> PerfShortFlags();

// Like ParseRunOptions. Only MakeContenders knows whether such strategies exist.
absl::StatusOr<PerfOptions> ParsePerfOptions(const CommandLine& line, int num_gpus);

// Returns the sizes from `begin` to `end`, by steps (`step` > 0) or by factors; they need not meet
// `end`. Returns kInvalidArgument if the sequence does not end, or has too many members.
absl::StatusOr<std::vector<int>> Sizes(int begin, int end, int step, double factor);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_PERF_OPTIONS_H_
