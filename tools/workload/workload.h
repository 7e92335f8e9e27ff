// The inputs of a run: how many tokens each rank has, which experts they choose, their weights and
// rows. They are made from counters (philox.h): the same seed gives the same bits on every
// platform, with any number of threads.
#ifndef OCTET_TOOLS_WORKLOAD_WORKLOAD_H_
#define OCTET_TOOLS_WORKLOAD_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/oracle/reference.h"
#include "octet/ep_config.h"
#include "tools/workload/routing.h"
#include "tools/workload/step_input.h"

namespace octet {

struct WorkloadSpec {
  int num_ranks = 0;
  // Of the calls. Rows have its H elements of its dtype; if it has scales, they are also quantized
  // as its experts receive them (kernels/types/fp8_rows.h).
  EpConfig config = {};
  std::vector<int> tokens = {};  // of each rank; empty: drawn from 1 to M-1, as the challenge does
  RoutingSpec routing = {};
  std::shared_ptr<const RecordedRouting> recorded = {};  // with RoutingKind::kFile
  double drop = 0;                                       // probability that a (token, k) is dropped
  uint64_t seed = 0;                                     // rank r draws with seed + r
};

// Returns a text that is the same for equal recorded routings and, most likely, for no others;
// empty without one. For nodes that must have read the same file.
std::string RecordedDigest(const WorkloadSpec& spec);

// Generates the inputs: rows are standard normal, rounded to float32 and then to the dtype; weights
// are uniform in [0, 1). Not thread-safe.
class Workload {
 public:
  // Returns kInvalidArgument if no number of tokens can be drawn (M = 1), a number of tokens
  // exceeds M or the numbers are for another number of ranks, the routing does not fit E and K, the
  // recording is of other ranks, of another K or of experts that do not exist, or drop is outside
  // [0, 1].
  static absl::StatusOr<std::unique_ptr<Workload>> Create(const WorkloadSpec& spec);

  // Returns the same errors as Create, without using Create's memory.
  static absl::Status Check(const WorkloadSpec& spec);

  // Generates rows, choices and weights of step `step`, on all cores. A rank's number of tokens and
  // a recorded routing are the same in all steps; everything else differs from step to step.
  void Generate(uint32_t step);

  const WorkloadSpec& spec() const { return spec_; }
  int num_tokens(int rank) const { return num_tokens_[static_cast<size_t>(rank)]; }
  // Return the last step's inputs, by rank; valid until the next Generate.
  absl::Span<const RankInput> inputs() const { return inputs_; }
  absl::Span<const StepInput::PerRank> ranks() const { return step_.ranks; }

 private:
  Workload(const WorkloadSpec& spec, std::vector<int> num_tokens);
  static absl::StatusOr<std::vector<int>> Resolve(const WorkloadSpec& spec);
  void GenerateTokens(uint32_t step, size_t rank, size_t begin, size_t end);

  const WorkloadSpec spec_;
  const RoutingGenerator routing_;
  const std::vector<int> num_tokens_;
  StepInput step_;
  std::vector<RankInput> inputs_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_WORKLOAD_H_
