// Runs random shapes one after the other until the time is over, and verifies each to the bit.
#ifndef OCTET_TOOLS_MEASURE_STEP_SOAK_H_
#define OCTET_TOOLS_MEASURE_STEP_SOAK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/domain.h"
#include "octet/topology.h"
#include "tools/measure/step/random_shape.h"
#include "tools/measure/step/run.h"
#include "tools/step/run_spec.h"
#include "tools/support/domain.h"

namespace octet {

// SoakSpec::max_growth of soaks that are long enough (docs/testing.md).
inline constexpr size_t kMaxSoakGrowth = 32'000'000;

// Random shapes for some time.
struct SoakSpec {
  int num_ranks = 0;  // of a node, at most
  uint64_t seed = 0;
  absl::Duration duration = absl::ZeroDuration();
  absl::Duration timeout = absl::ZeroDuration();        // zero: the node's own default
  RailTransport rail_transport = RailTransport::kAuto;  // with several nodes
  // By how many bytes the host's resident memory may grow after half of the time. Empty: any.
  std::optional<size_t> max_growth;
  std::string json;  // file; empty: none
};

// Counts the runs with one variant of a strategy, or with all variants.
struct SoakTally {
  int64_t shapes = 0;
  int64_t fused_steps = 0;  // verified ones only
  int64_t phased_steps = 0;
  int64_t rows = 0;        // received
  int64_t wire_bytes = 0;  // dispatch and combine

  void Add(const SoakTally& other);
};

// Bytes in use: growth over a long soak is a leak.
struct SoakMemory {
  size_t host = 0;  // resident, of the process
  size_t gpus = 0;  // of all GPUs together, by any process
};

struct SoakResult {
  SoakSpec options;
  std::vector<SoakTally> tallies;  // in the order of SoakVariants()
  SoakTally total;
  int64_t nodes = 0;
  absl::Duration elapsed;
  SoakMemory start;  // after the first shape
  SoakMemory half;   // when half of the time was over
  SoakMemory end;    // after the last shape
  // The first failure, which ended the soak: kDataLoss for wrong results, else the error of
  // ExecuteRun; after the last shape, of CheckGrowth.
  absl::Status status;
  std::optional<RunSpec> failed;  // the shape that did, as it was drawn
};

// Returns kDataLoss if options.max_growth is given and exceeded, with a sentence; OK if the soak
// was not measured after half of the time.
absl::Status CheckGrowth(const SoakResult& result);

// How one shape is run: ExecuteRun, except in tests.
using ShapeRunner = absl::FunctionRef<absl::StatusOr<RunResult>(Domain&, const RunSpec&)>;

// Draws and runs at least one shape, on nodes with at most options.num_ranks ranks: most of them
// with that many, the others with fewer. The shapes are a function of the seed, the ranks and the
// machine. Shows its progress on stderr.
//
// `joined`: several nodes, on which all shapes are run instead. Collective then; the first node
// decides when the time is over.
SoakResult Soak(const Topology& topology, const SoakSpec& options, ShapeRunner run_shape,
                Domain* joined = nullptr);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_SOAK_H_
