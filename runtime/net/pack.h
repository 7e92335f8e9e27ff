// Several strings in one, for messages between the processes of a World.
#ifndef OCTET_RUNTIME_NET_PACK_H_
#define OCTET_RUNTIME_NET_PACK_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

// Returns a string from which Unpack makes the same fields again. They may contain anything.
std::string Pack(absl::Span<const std::string> fields);

// Returns nullopt if `packed` is not what Pack returns.
std::optional<std::vector<std::string>> Unpack(absl::string_view packed);

// A Status with its payloads. A string that PackStatus has not made unpacks to kInternal.
std::string PackStatus(const absl::Status& status);
absl::Status UnpackStatus(absl::string_view packed);

}  // namespace octet

#endif  // OCTET_RUNTIME_NET_PACK_H_
