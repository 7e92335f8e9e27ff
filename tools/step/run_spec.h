// A run as plain data: `octet run` and other commands bind their flags to its members, a soak draws
// them, benchmarks set them.
#ifndef OCTET_TOOLS_STEP_RUN_SPEC_H_
#define OCTET_TOOLS_STEP_RUN_SPEC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "octet/domain.h"
#include "octet/enum_names.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/symmetric_heap.h"
#include "tools/workload/workload.h"

namespace octet {

// The factor of the pointwise stand-in for expert e of E, on rank r.
enum class ExpertKind {
  kId,    // 1 + e / E, in float32: no two experts alike
  kRank,  // 1 + r, the challenge's
};
absl::Span<const EnumEntry<ExpertKind>> EnumTable(ExpertKind);

// The beginning of a step's timed interval.
enum class Align {
  kHost,    // at a barrier of the host threads
  kDevice,  // at a barrier of the GPUs after it
};
absl::Span<const EnumEntry<Align>> EnumTable(Align);

// One shape to run.
struct RunSpec {
  std::string name = {};   // in a workload of several shapes; else empty
  bool benchmark = false;  // counts in the workload's geometric mean
  // And the configuration of the calls, over all nodes.
  WorkloadSpec workload = {
      .config = {.num_experts = 256, .topk = 8, .hidden = 7168, .max_tokens_per_rank = 256},
      .seed = 4};
  NodesOfRanks nodes = {.num_nodes = 1, .ranks_per_node = 0};  // 0 ranks: one for each GPU
  RailTransport rail_transport = RailTransport::kAuto;         // with several nodes
  RailRows rail_rows = RailRows::kAuto;                        // with several nodes
  std::string placement = {};  // file, read into the configuration; empty: none
  int rail_chunk = 0;          // tokens; with several nodes
  ExpertKind expert = ExpertKind::kId;
  bool fuse_expert = true;
  int iters = 20;
  int warmup = 2;
  bool check = true;
  bool cached = false;  // steps use a layout that was made before they are timed
  bool graph = false;   // timed steps replay a captured step (octet perf)
  Align align = Align::kHost;
  absl::Duration timeout = absl::ZeroDuration();  // zero: the node's own default
  bool ceilings = false;                          // measure them in the same run
  size_t heap_bytes = 0;                          // zero: as many as are needed
  std::string dump = {};                          // folder; empty: none
  std::string json = {};                          // file; empty: none
  std::string trace = {};                         // file; empty: none
};

// Completes run.workload.config, and checks that all members fit together.
absl::Status CompleteSpec(RunSpec& run);

// Returns `common` with each of the AMD Distributed Challenge's shapes, named; they still need
// CompleteSpec.
std::vector<RunSpec> ChallengeShapes(const RunSpec& common);

// Returns the number of ranks of each node.
int RanksPerNode(const RunSpec& run);

// Returns the bytes of symmetric heap that the calls need on each GPU.
absl::StatusOr<HeapSize> HeapBytesOf(const RunSpec& run);

// Returns ExpertParallelOptions::rails.
RailOptions RailOptionsOf(const RunSpec& run);

// Returns the factors of all experts, [E].
std::vector<float> ExpertScales(ExpertKind kind, int num_experts, int num_ranks);

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_RUN_SPEC_H_
