// Reads the members of a JSON object.
#ifndef OCTET_KERNELS_MODEL_JSON_READER_H_
#define OCTET_KERNELS_MODEL_JSON_READER_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/model/bounded_json.h"
#include "kernels/model/safetensors.h"
#include "runtime/base/status_macros.h"

namespace octet {

// Reads the members of an object, which must live as long. A member that is null counts as missing,
// unless its function says otherwise. Errors begin with `origin` and name the member.
class JsonReader {
 public:
  JsonReader(const Json& json, absl::string_view origin) : json_(json), origin_(origin) {}

  bool Has(absl::string_view member) const { return Find(member) != nullptr; }
  bool IsNull(absl::string_view member) const {
    const auto found = json_.find(member);
    return found != json_.end() && found->is_null();
  }

  bool IsList(absl::string_view member) const {
    const Json* const value = Find(member);
    return value != nullptr && value->is_array();
  }

  // Return a whole number from `least` up; `absent` if there is no such member. null is then an
  // error: `transformers` does not take it for the default.
  absl::StatusOr<int> Natural(absl::string_view member, int least, int absent) const {
    OCTET_RETURN_IF_ERROR(CheckNotNull(member));
    return Has(member) ? Natural(member, least) : absent;
  }
  absl::StatusOr<int> Natural(absl::string_view member, int least) const {
    OCTET_ASSIGN_OR_RETURN(const Json* const value, Get(member));
    const std::optional<int> number = AsNatural(*value);
    if (number.has_value() && *number >= least) return *number;
    return Wrong(member, *value, absl::StrCat("a whole number from ", least, " up"));
  }

  // Returns a truth value; null, Python's None, is false.
  absl::StatusOr<bool> Bool(absl::string_view member, bool absent) const {
    if (IsNull(member)) return false;
    const Json* const value = Find(member);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) return Wrong(member, *value, "true or false");
    return value->get<bool>();
  }

  // Returns a number; null is an error, as above.
  absl::StatusOr<float> Float(absl::string_view member, float absent) const {
    OCTET_RETURN_IF_ERROR(CheckNotNull(member));
    const Json* const value = Find(member);
    if (value == nullptr) return absent;
    const double number = value->is_number() ? value->get<double>() : NAN;
    constexpr double kMost = std::numeric_limits<float>::max();
    if (!(std::abs(number) <= kMost)) return Wrong(member, *value, "a number");
    return static_cast<float>(number);
  }

  absl::StatusOr<std::string> String(absl::string_view member, absl::string_view absent) const {
    return Has(member) ? String(member) : std::string(absent);
  }
  absl::StatusOr<std::string> String(absl::string_view member) const {
    OCTET_ASSIGN_OR_RETURN(const Json* const value, Get(member));
    if (!value->is_string()) return Wrong(member, *value, "a string");
    return value->get<std::string>();
  }

  // Returns the numbers of a list; none if there is no such member.
  absl::StatusOr<std::vector<int>> Naturals(absl::string_view member) const {
    std::vector<int> numbers;
    const Json* const value = Find(member);
    if (value == nullptr) return numbers;
    constexpr absl::string_view kWhat = "a list of whole numbers";
    if (!value->is_array()) return Wrong(member, *value, kWhat);
    for (const Json& each : *value) {
      const std::optional<int> number = AsNatural(each);
      if (!number.has_value()) return Wrong(member, *value, kWhat);
      numbers.push_back(*number);
    }
    return numbers;
  }

  // Returns an error if the member's text is not `supported`, which it also is if it is missing.
  absl::Status Only(absl::string_view member, absl::string_view supported) const {
    OCTET_ASSIGN_OR_RETURN(const std::string text, String(member, supported));
    if (text == supported) return absl::OkStatus();
    return Unsupported(member, text, absl::StrCat("'", supported, "'"));
  }

  absl::Status Unsupported(absl::string_view member, const Json& value,
                           absl::string_view supported) const {
    return absl::InvalidArgumentError(absl::StrCat(origin_, ": ", member, " ", Shown(value),
                                                   " is not supported; it must be ", supported));
  }

  // Returns an error for a member, other than null, that is none of `known`.
  absl::Status OnlyMembers(absl::Span<const absl::string_view> known) const {
    for (const auto& [name, value] : json_.items()) {
      if (value.is_null() || absl::c_linear_search(known, name)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(origin_, ": ", QuotedName(name),
                       " is unknown, and the result might depend on it; remove it if it does not"));
    }
    return absl::OkStatus();
  }

  // Returns a reader of the object that the member is; nothing if there is no such member.
  absl::StatusOr<std::optional<JsonReader>> Object(absl::string_view member) const {
    const Json* const value = Find(member);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) return Wrong(member, *value, "an object");
    return JsonReader(*value, absl::StrCat(origin_, ": ", member));
  }

  // Returns readers of the objects that the members of such an object are.
  absl::StatusOr<std::vector<JsonReader>> Objects(absl::string_view member) const {
    OCTET_ASSIGN_OR_RETURN(const std::optional<JsonReader> outer, Object(member));
    std::vector<JsonReader> objects;
    if (!outer.has_value()) return objects;
    for (const auto& [name, value] : outer->json_.items()) {
      if (!value.is_object()) return outer->Wrong(QuotedName(name), value, "an object");
      objects.emplace_back(value, absl::StrCat(outer->origin_, ": ", QuotedName(name)));
    }
    return objects;
  }

 private:
  static std::optional<int> AsNatural(const Json& value) {
    constexpr int kMost = std::numeric_limits<int>::max();
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{kMost}) {
      return std::nullopt;
    }
    return static_cast<int>(value.get<uint64_t>());
  }

  const Json* Find(absl::string_view member) const {
    const auto found = json_.find(member);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  absl::StatusOr<const Json*> Get(absl::string_view member) const {
    if (const Json* const value = Find(member); value != nullptr) return value;
    return absl::InvalidArgumentError(absl::StrCat(origin_, ": ", member, " is missing"));
  }

  absl::Status CheckNotNull(absl::string_view member) const {
    if (!IsNull(member)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(origin_, ": ", member, " is null; remove it for its default, or give it"));
  }

  absl::Status Wrong(absl::string_view member, const Json& value, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(origin_, ": ", member, " must be ", what, ", and is ", Shown(value)));
  }

  const Json& json_;
  const std::string origin_;
};

}  // namespace octet

#endif  // OCTET_KERNELS_MODEL_JSON_READER_H_
