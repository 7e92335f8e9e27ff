// The names of enumerators in flags, files and messages. One table holds them for each enum:
//
//   absl::Span<const EnumEntry<Slots>> EnumTable(Slots);
//
// declared beside the enum, in its namespace. Parsers, printers and --help read it.
#ifndef OCTET_ENUM_NAMES_H_
#define OCTET_ENUM_NAMES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace octet {

template <typename T>
struct EnumEntry {
  T value = {};
  absl::string_view name = {};
};

// Returns the name of `value`; "unknown" if it is no enumerator.
template <typename T>
absl::string_view EnumName(T value) {
  for (const EnumEntry<T>& entry : EnumTable(value)) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

// Returns all names in the order of the table: "prefix, atomic".
template <typename T>
std::string EnumNames(absl::string_view separator = ", ") {
  return absl::StrJoin(EnumTable(T{}), separator, [](std::string* out, const EnumEntry<T>& entry) {
    absl::StrAppend(out, entry.name);
  });
}

// Returns the enumerator of this name, or kInvalidArgument: "slots 'x' is not one of prefix,
// atomic" if `what` is "slots".
template <typename T>
absl::StatusOr<T> ParseEnum(absl::string_view what, absl::string_view name) {
  for (const EnumEntry<T>& entry : EnumTable(T{})) {
    if (entry.name == name) return entry.value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", name, "' is not one of ", EnumNames<T>()));
}

}  // namespace octet

#endif  // OCTET_ENUM_NAMES_H_
