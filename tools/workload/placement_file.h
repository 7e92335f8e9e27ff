// Placements in files: JSON, or .npy (docs/formats.md#placement).
#ifndef OCTET_TOOLS_WORKLOAD_PLACEMENT_FILE_H_
#define OCTET_TOOLS_WORKLOAD_PLACEMENT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/placement.h"

namespace octet {

// Reads a placement of `num_experts` experts on `num_ranks` ranks; .npy if `path` ends so, else
// JSON. Errors name the path: those of reading, or kInvalidArgument for what is no placement or one
// of other numbers.
absl::StatusOr<Placement> ReadPlacement(const std::string& path, int num_experts, int num_ranks);

// Writes the file completely or not at all, .npy (int32) if `path` ends so, else JSON.
absl::Status WritePlacement(const std::string& path, const Placement& placement);

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_PLACEMENT_FILE_H_
