// The flags of `octet run` and their values.
#ifndef OCTET_TOOLS_COMMANDS_RUN_OPTIONS_H_
#define OCTET_TOOLS_COMMANDS_RUN_OPTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "octet/domain.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/symmetric_heap.h"
#include "tools/commands/command_line.h"
#include "tools/workload/workload.h"

namespace octet {

// The names of flags that several commands share; each command adds its own. What a step is:
inline constexpr auto kStepFlags = std::to_array<absl::string_view>(
    {"ranks", "experts", "topk", "hidden", "dtype", "routing", "drop", "expert", "fuse_expert",
     "seed", "iters", "warmup", "align"});
// Which strategy runs it, and how:
inline constexpr auto kStrategyFlags = std::to_array<absl::string_view>(
    {"strategy", "slots", "flags", "combine_order", "combine_method", "row_copies"});
// Its launches:
inline constexpr auto kLaunchFlags =
    std::to_array<absl::string_view>({"blocks", "send_blocks", "waves", "row_parts", "max_blocks",
                                      "send_waves", "combine_send_waves"});
// The flags that say in which form rows are sent and received.
inline constexpr auto kFormatFlags = std::to_array<absl::string_view>(
    {"format", "scales", "scale_group", "received", "duplicates", "expert_alignment", "host_totals",
     "cached", "failure_policy", "statistics"});

// How calls over several nodes are made (RailOptions).
inline constexpr auto kNodesFlags = std::to_array<absl::string_view>(
    {"rail_transport", "rail_rows", "rail_chunk", "intranode_order"});

// The choices that these flags make.
struct NodesChoices {
  RailTransport transport = RailTransport::kAuto;
  RailRows rows = RailRows::kAuto;
  int chunk_tokens = 0;
  CombineOrder intranode_order = CombineOrder::kAuto;
};
// Returns kInvalidArgument if they are wrong, or given on a single node.
absl::StatusOr<NodesChoices> ParseNodesChoices(const CommandLine& line);
// Returns kInvalidArgument if --graph cannot capture calls of `strategy` over several nodes.
absl::Status CheckGraphOverNodes(RailRows rows, Strategy strategy);

// The factor of the pointwise stand-in for expert e of E, on rank r.
enum class ExpertKind {
  kId,    // 1 + e / E, in float32: no two experts alike
  kRank,  // 1 + r, the challenge's
};
absl::Span<const EnumEntry<ExpertKind>> EnumTable(ExpertKind);

// Where the timed interval of a step begins.
enum class Align {
  kHost,    // at a barrier of the host threads
  kDevice,  // at a barrier of the GPUs after it
};
absl::Span<const EnumEntry<Align>> EnumTable(Align);

// One shape to run.
struct RunOptions {
  std::string name;        // in a workload of several shapes; else empty
  bool benchmark = false;  // counts in the workload's geometric mean
  WorkloadSpec workload;   // and the configuration of the calls, over all nodes
  NodesOfRanks nodes;
  RailTransport rail_transport = RailTransport::kAuto;  // with several nodes
  RailRows rail_rows = RailRows::kAuto;                 // with several nodes
  int rail_chunk = 0;                                   // tokens; with several nodes
  ExpertKind expert = ExpertKind::kId;
  bool fuse_expert = true;
  int iters = 0;
  int warmup = 0;
  bool check = true;
  bool cached = false;  // steps use a layout that was made before they are timed
  bool graph = false;   // timed steps replay a captured step (octet perf)
  Align align = Align::kHost;
  absl::Duration timeout = absl::ZeroDuration();  // zero: the node's own default
  bool ceilings = false;                          // measure them in the same run
  size_t heap_bytes = 0;                          // zero: as many as are needed
  std::string dump;                               // folder; empty: none
  std::string json;                               // file; empty: none
  std::string trace;                              // file; empty: none
};

// SoakOptions::max_growth of soaks that are long enough (docs/testing.md).
inline constexpr size_t kMaxSoakGrowth = 32'000'000;

// Random shapes for some time: octet run --soak (tools/measure/step/soak.h).
struct SoakOptions {
  int num_ranks = 0;  // of a node, at most
  uint64_t seed = 0;
  absl::Duration duration = absl::ZeroDuration();
  absl::Duration timeout = absl::ZeroDuration();        // zero: the node's own default
  RailTransport rail_transport = RailTransport::kAuto;  // with several nodes
  // By how many bytes the host's resident memory may grow after half of the time. Empty: any.
  std::optional<size_t> max_growth;
  std::string json;  // file; empty: none
};

// Returns the names of the flags, in the order of --help.
absl::Span<const absl::string_view> RunFlags();

// Returns the shapes that the flags ask for: one, or those of --workload. Reads the file of
// --routing. `num_gpus`: the most ranks of a node, and their default number. The launch says how
// many nodes there are. Errors are kInvalidArgument, kNotFound or those of the file system, with
// one sentence; nothing is launched or written.
absl::StatusOr<std::vector<RunOptions>> ParseRunOptions(const CommandLine& line, int num_gpus);

// Returns the soak that the flags ask for; Given("soak") must hold. Errors as above.
absl::StatusOr<SoakOptions> ParseSoakOptions(const CommandLine& line, int num_gpus);

// For commands with more than one strategy or number of tokens: returns everything else that the
// flags say about one shape. The shape still needs both, and CompleteOptions. Errors as above.
absl::StatusOr<RunOptions> ParseShapeOptions(const CommandLine& line, int num_gpus);

// Returns the number of ranks of each node.
int RanksPerNode(const RunOptions& options);

// Returns the bytes of symmetric heap that the calls need on each GPU.
absl::StatusOr<HeapSize> HeapBytesOf(const RunOptions& options);

// Returns ExpertParallelOptions::rails.
RailOptions RailOptionsOf(const RunOptions& options);

// For commands that need the tokens' choices and no rows: returns what the flags say about ranks,
// experts, tokens and routing. Neither checked by Validate nor by Workload::Check. Errors as above.
absl::StatusOr<WorkloadSpec> ParseChoicesOptions(const CommandLine& line, int num_gpus);

// Returns `common` with each of the challenge's shapes, named; they still need CompleteOptions.
std::vector<RunOptions> ChallengeShapes(const RunOptions& common);

// Completes options.workload.config, and checks that all options fit together.
absl::Status CompleteOptions(RunOptions& options);

// Returns the factors of all experts, [E].
std::vector<float> ExpertScales(ExpertKind kind, int num_experts, int num_ranks);

}  // namespace octet

#endif  // OCTET_TOOLS_COMMANDS_RUN_OPTIONS_H_
