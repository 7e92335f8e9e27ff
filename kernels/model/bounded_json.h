// JSON of others, as a tree that stays small.
#ifndef OCTET_KERNELS_MODEL_BOUNDED_JSON_H_
#define OCTET_KERNELS_MODEL_BOUNDED_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octet {

using Json = nlohmann::json;

// Returns the object that `text` is, without what is nested more than a few levels deep.
// kInvalidArgument for what is no JSON, with line and column, and for what is no object; errors
// begin with `origin`. NaN and infinities, which Python writes, are no JSON.
absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view origin);

// Returns a value for a message: one line, not long.
std::string Shown(const Json& value);

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_BOUNDED_JSON_H_
