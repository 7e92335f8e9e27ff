#include "runtime/net/pack.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

std::string Pack(absl::Span<const std::string> fields) {
  std::string packed;
  for (const std::string& field : fields) absl::StrAppend(&packed, field.size(), ":", field);
  return packed;
}

std::optional<std::vector<std::string>> Unpack(absl::string_view packed) {
  std::vector<std::string> fields;
  while (!packed.empty()) {
    const size_t colon = packed.find(':');
    size_t size = 0;
    if (colon == absl::string_view::npos || !absl::SimpleAtoi(packed.substr(0, colon), &size)) {
      return std::nullopt;
    }
    packed.remove_prefix(colon + 1);
    if (size > packed.size()) return std::nullopt;
    fields.emplace_back(packed.substr(0, size));
    packed.remove_prefix(size);
  }
  return fields;
}

std::string PackStatus(const absl::Status& status) {
  std::vector<std::string> fields = {absl::StrCat(status.raw_code()),
                                     std::string(status.message())};
  status.ForEachPayload([&fields](absl::string_view url, const absl::Cord& payload) {
    fields.emplace_back(url);
    fields.emplace_back(payload);
  });
  return Pack(fields);
}

absl::Status UnpackStatus(absl::string_view packed) {
  const std::optional<std::vector<std::string>> fields = Unpack(packed);
  int code = 0;
  if (!fields.has_value() || fields->size() < 2 || fields->size() % 2 != 0 ||
      !absl::SimpleAtoi(fields->front(), &code)) {
    return absl::InternalError("a node has sent a Status that cannot be read");
  }
  absl::Status status(static_cast<absl::StatusCode>(code), (*fields)[1]);
  for (size_t i = 2; i < fields->size(); i += 2) {
    status.SetPayload((*fields)[i], absl::Cord(absl::string_view((*fields)[i + 1])));
  }
  return status;
}

}  // namespace octet
