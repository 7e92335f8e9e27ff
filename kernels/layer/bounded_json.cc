#include "kernels/layer/bounded_json.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace octet {
namespace {

constexpr int kMostDepth = 4;

}  // namespace

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view origin) {
  const auto keep = [](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
    return depth <= kMostDepth;
  };
  Json json = Json::parse(text.begin(), text.end(), keep, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(origin, " is no JSON"));
  }
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(origin, " is no JSON object"));
  }
  return json;
}

std::string Shown(const Json& value) {
  constexpr size_t kMost = 100;
  if (value.is_object()) return "an object";
  const std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kMost ? text : absl::StrCat(text.substr(0, kMost), "...");
}

}  // namespace octet
