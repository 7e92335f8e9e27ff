// Writes the last step of a run as .npy files and a meta.json, so that anybody can check it with
// NumPy alone. docs/formats.md describes every file; tests/tools/cli/check_dump.py is such a check.
#ifndef OCTET_TOOLS_MEASURE_STEP_DUMP_H_
#define OCTET_TOOLS_MEASURE_STEP_DUMP_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "tools/check/verify_step.h"
#include "tools/step/run_spec.h"
#include "tools/support/domain.h"
#include "tools/workload/workload.h"

namespace octet {

struct Dump {
  const Topology& topology;
  const RunSpec& options;
  const EpConfig& config;  // with every choice made
  const Workload& workload;
  absl::Span<const RankOutput> outputs;  // by rank of this node
};

// Creates the folder if it is missing and tries to write into it. Returns kInvalidArgument if that
// fails, or if the folder holds anything that does not belong to an earlier dump. Call it before
// the run.
absl::Status PrepareDump(const std::string& folder);

// Collective. Replaces the dump in `folder`. meta.json is removed first and written last, by the
// first node: if it exists, the dump is complete. Every node writes what its ranks have, into a
// folder of that name: the same one if they share a file system.
absl::Status WriteDump(Domain& domain, const std::string& folder, const Dump& dump);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_DUMP_H_
