// Placements as JSON (docs/formats.md#placement), the files of `octet balance`.
#ifndef OCTET_PLACEMENT_JSON_H_
#define OCTET_PLACEMENT_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/placement.h"

namespace octet {

// Parses a placement. `origin` is the text's name in errors, which are kInvalidArgument with the
// member that is missing, unknown or wrong.
absl::StatusOr<Placement> ParsePlacement(absl::string_view json, absl::string_view origin);

// `placement` must not be empty.
std::string PlacementToJson(const Placement& placement);

}  // namespace octet

#endif  // OCTET_PLACEMENT_JSON_H_
