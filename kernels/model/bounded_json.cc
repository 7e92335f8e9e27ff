#include "kernels/model/bounded_json.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace octet {
namespace {

constexpr int kMostDepth = 7;  // where compressed-tensors describes weights of a nested model

// Returns "parse error at line 3, column 7: ...", without the parser's name of the error and
// without what it quotes of the text, which may be long.
std::string Reason(const Json::exception& error) {
  constexpr size_t kMost = 200;
  absl::string_view what = error.what();
  what = what.substr(what.find("] ") + 2);
  what = what.substr(0, what.find("; last read: "));
  return absl::StrCat(what.substr(0, kMost), what.size() > kMost ? "..." : "");
}

// Returns what to add to an error at a byte, counted from 1, if the name of a number that
// JSON does not have begins there.
std::string NonFinite(absl::string_view text, size_t byte) {
  if (byte == 0 || byte > text.size()) return "";
  const absl::string_view rest = text.substr(byte - 1);
  for (const absl::string_view name : {"NaN", "Infinity"}) {
    if (absl::StartsWith(rest, name)) {
      return absl::StrCat("; ", name, " is no number of JSON: write a finite one");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view origin) {
  const auto keep = [](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
    return depth <= kMostDepth;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), keep);
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, " is no JSON: ", Reason(error), NonFinite(text, error.byte)));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(origin, " is no JSON: ", Reason(error)));
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
