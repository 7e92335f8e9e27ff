// The flags that are bound to a RunSpec, and those of `octet run`.
#ifndef OCTET_TOOLS_COMMANDS_RUN_FLAGS_H_
#define OCTET_TOOLS_COMMANDS_RUN_FLAGS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/domain.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "tools/commands/command_line.h"
#include "tools/measure/step/soak.h"
#include "tools/step/run_spec.h"

namespace octet {

// Names of flags that several commands have. What a step is:
inline constexpr auto kStepFlags = std::to_array<absl::string_view>(
    {"ranks", "experts", "topk", "hidden", "dtype", "routing", "drop", "expert", "fuse_expert",
     "seed", "iters", "warmup", "align"});
// How its strategy runs it:
inline constexpr auto kVariantFlags = std::to_array<absl::string_view>(
    {"slots", "flags", "combine_order", "combine_method", "row_copies"});
// Its launches:
inline constexpr auto kLaunchFlags =
    std::to_array<absl::string_view>({"blocks", "send_blocks", "waves", "row_parts", "max_blocks",
                                      "send_waves", "combine_send_waves"});
// In which form rows are sent and received:
inline constexpr auto kFormatFlags = std::to_array<absl::string_view>(
    {"format", "scales", "scale_group", "received", "duplicates", "expert_alignment", "host_totals",
     "capacity_rows", "cached", "failure_policy", "statistics"});
// How calls over several nodes are made:
inline constexpr auto kNodesFlags = std::to_array<absl::string_view>(
    {"rail_transport", "rail_rows", "rail_chunk", "intranode_order"});

// Adds the flags of these names, bound to `run`, but for those that `line` has already.
void AddFlags(CommandLine& line, RunSpec& run, absl::Span<const absl::string_view> names);
inline void AddFlags(CommandLine& line, RunSpec& run,
                     std::initializer_list<absl::string_view> names) {
  AddFlags(line, run, absl::MakeConstSpan(names.begin(), names.size()));
}

// Discovers the GPUs. If they are emulated, flags that were not given get their defaults there.
absl::StatusOr<Topology> DiscoverGpus(CommandLine& line);
// Returns their number. If they cannot be counted, it is the largest, so that errors of the command
// line are reported first.
int NumGpus(const absl::StatusOr<Topology>& topology);

// Sets, once the flags are read, the ranks of each node and of all nodes; by default there is
// one for each of `num_gpus` GPUs, which are also the most. The launch says how many nodes there
// are. Errors are kInvalidArgument, kNotFound or those of the file system, with one sentence.
absl::Status ResolveRanks(const CommandLine& line, int num_gpus, RunSpec& run);

// Sets the tokens of every rank, and reads the file of --routing. Neither is checked by Validate or
// by Workload::Check. Errors as above.
absl::Status ResolveChoices(const CommandLine& line, WorkloadSpec& workload);

// Reads the file of --placement. Errors as above.
absl::Status ResolvePlacement(RunSpec& run);

// All of these, and completes the run.
absl::Status ResolveShape(const CommandLine& line, int num_gpus, RunSpec& run);

// Returns kInvalidArgument if one of kNodesFlags was given on a single node.
absl::Status CheckNodesFlags(const CommandLine& line);
// Returns kInvalidArgument if --graph cannot capture calls of `strategy` over several nodes.
absl::Status CheckGraphOverNodes(RailRows rows, Strategy strategy);

// The values of the flags of `octet run`.
struct RunFlags {
  RunSpec run = {};
  std::string workload = {};  // its name; empty: the shape of `run`
  int soak_seconds = 0;
  std::string schedule = {};
};
void AddRunFlags(CommandLine& line, RunFlags& flags);

// Returns the shapes that are asked for, complete: one, or those of --workload. Nothing is launched
// or written. Errors as above.
absl::StatusOr<std::vector<RunSpec>> ResolveRun(const CommandLine& line, const RunFlags& flags,
                                                int num_gpus);

// Returns the soak that is asked for; Given("soak") must hold. Errors as above.
absl::StatusOr<SoakSpec> ResolveSoak(const CommandLine& line, const RunFlags& flags, int num_gpus);

// Returns "octet run --ranks=8 ...", which runs the shape by itself.
std::string CommandOf(const RunSpec& run);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_RUN_FLAGS_H_
