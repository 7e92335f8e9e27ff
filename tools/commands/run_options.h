// The flags of `octet run`, and what they mean.
#ifndef OCTET_TOOLS_COMMANDS_RUN_OPTIONS_H_
#define OCTET_TOOLS_COMMANDS_RUN_OPTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "tools/commands/command_line.h"
#include "tools/workload/workload.h"

namespace octet {

// Flags that several commands know, each of which adds its own: what a step is,
inline constexpr auto kStepFlags = std::to_array<absl::string_view>(
    {"ranks", "experts", "topk", "hidden", "dtype", "routing", "drop", "expert", "fuse_expert",
     "seed", "iters", "warmup", "align"});
// who does it, and how,
inline constexpr auto kStrategyFlags = std::to_array<absl::string_view>(
    {"strategy", "slots", "flags", "combine_order", "combine_method", "row_copies"});
// with which launches,
inline constexpr auto kLaunchFlags =
    std::to_array<absl::string_view>({"blocks", "send_blocks", "waves", "row_parts", "max_blocks",
                                      "send_waves", "combine_send_waves"});
// and what is sent and received.
inline constexpr auto kFormatFlags = std::to_array<absl::string_view>(
    {"format", "scales", "scale_group", "received", "duplicates", "expert_alignment", "host_totals",
     "cached", "failure_policy", "statistics"});

// The factor of the pointwise stand-in for expert e of E, on rank r.
enum class ExpertKind {
  kId,    // 1 + e / E, in float32: no two experts alike
  kRank,  // 1 + r, the challenge's
};

// Where the timed interval of a step begins.
enum class Align {
  kHost,    // at a barrier of the host threads
  kDevice,  // at a barrier of the GPUs after it
};

// One shape to run.
struct RunOptions {
  std::string name;        // in a workload of several shapes; else empty
  bool benchmark = false;  // counts in the workload's geometric mean
  EpConfig config;
  WorkloadSpec workload;
  ExpertKind expert = ExpertKind::kId;
  bool fuse_expert = true;
  int iters = 0;
  int warmup = 0;
  bool check = true;
  bool cached = false;  // steps use a layout that was made before they are timed
  bool graph = false;   // timed steps replay what has been captured of one (octet perf)
  Align align = Align::kHost;
  absl::Duration timeout = absl::ZeroDuration();  // zero: the node's own default
  bool ceilings = false;                          // measure them beside the run
  size_t heap_bytes = 0;                          // zero: as many as are needed
  std::string dump;                               // folder; empty: none
  std::string json;                               // file; empty: none
  std::string trace;                              // file; empty: none
};

// Random shapes for a while: octet run --soak (tools/measure/soak.h).
struct SoakOptions {
  int num_ranks = 0;  // at most
  uint64_t seed = 0;
  absl::Duration duration = absl::ZeroDuration();
  absl::Duration timeout = absl::ZeroDuration();  // zero: the node's own default
  std::string json;                               // file; empty: none
};

// Names of the flags, in the order of --help.
absl::Span<const absl::string_view> RunFlags();

// The shapes that the flags ask for: one, or those of --workload. Reads the file of --routing.
// `num_gpus`: the most ranks, and their number unless --ranks says another. kInvalidArgument,
// kNotFound or whatever the file system says, with one sentence; nothing is launched or written.
absl::StatusOr<std::vector<RunOptions>> ParseRunOptions(const CommandLine& line, int num_gpus);

// The soak that the flags ask for, which Given("soak"). Errors as above.
absl::StatusOr<SoakOptions> ParseSoakOptions(const CommandLine& line, int num_gpus);

// For commands with more than one strategy or number of tokens: all else that the flags say about
// one shape. It still needs both, and CompleteOptions. kInvalidArgument and the like as above.
absl::StatusOr<RunOptions> ParseShapeOptions(const CommandLine& line, int num_gpus);

// `common` with each of the challenge's shapes, named; they still need CompleteOptions.
std::vector<RunOptions> ChallengeShapes(const RunOptions& common);

// The configuration that goes with options.workload, and whether all fits together.
absl::Status CompleteOptions(RunOptions& options);

// Whether Combine itself can apply the experts' stand-in: a row of the dtype is received for each
// choice.
bool CanFuseExpert(const EpConfig& config);

// Factors of all experts, [E].
std::vector<float> ExpertScales(ExpertKind kind, int num_experts, int num_ranks);

absl::string_view ExpertKindName(ExpertKind kind);
absl::string_view AlignName(Align align);
absl::string_view SlotsName(Slots slots);
absl::string_view FlagsName(Flags flags);
absl::string_view CombineOrderName(CombineOrder order);
absl::string_view CombineMethodName(CombineMethod method);
absl::string_view ScalesName(ScaleFormat format);
absl::string_view FailurePolicyName(FailurePolicy policy);
absl::string_view DuplicatesName(Duplicates duplicates);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_RUN_OPTIONS_H_
