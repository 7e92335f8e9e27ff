// Tuning files.
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ep/strategy_registry.h"
#include "kernels/tuning/tuning.h"
#include "kernels/types/gemm_element.h"
#include "runtime/base/status_macros.h"

namespace octet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

// The lists of entries: of strategies, of grouped products, and of calls with both.
constexpr absl::string_view kEntries = "entries";
constexpr absl::string_view kGemm = "gemm";
constexpr absl::string_view kFused = "fused";
constexpr auto kFileFields = std::to_array<absl::string_view>({"schema", kEntries, kGemm, kFused});

// The field of entries for kAuto, in addition to those of any entry.
constexpr absl::string_view kChosen = "chosen";

// The fields of any strategy's entry, in addition to those of its tuning.
constexpr auto kFields = std::to_array<absl::string_view>(
    {"platform", "gpu", "ranks", "strategy", "rows", "row_bytes", "format", "received", "note"});
constexpr auto kGemmFields = std::to_array<absl::string_view>(
    {"gpu", "dtype", "n", "k", "rows", "activation", "tiles", "note"});

constexpr auto kFusedFields = std::to_array<absl::string_view>(
    {"platform", "gpu", "ranks", "call", "rows", "row_bytes", "format", "experts", "intermediate",
     "activation", "fusion", "tiles", "note"});
constexpr absl::string_view kExperts = "experts";  // optional

// The numbers of an entry's tuning that each call has, if its fusion is not kNone.
struct FusedField {
  absl::string_view name;
  int FusedTuning::* number;
  int most;
  bool optional = false;  // missing: 0
};
constexpr int kMostPercent = 100;
constexpr int kMostStages = 2;
constexpr FusedField kDispatchGemmFields[] = {
    {"send_percent", &FusedTuning::send_percent, kMostPercent},
    {"fill_percent", &FusedTuning::fill_percent, kMostPercent},
    {"stages", &FusedTuning::stages, kMostStages, true}};
constexpr FusedField kGemmCombineFields[] = {
    {"combine_percent", &FusedTuning::combine_percent, kMostPercent, true},
    {"row_parts", &FusedTuning::row_parts, kMaxRowParts}};
constexpr absl::string_view kSendOrder = "send_order";  // of DispatchGemm, both optional
constexpr absl::string_view kTileWaits = "tile_waits";

absl::Span<const FusedField> FieldsOf(FusedCall call) {
  if (call == FusedCall::kDispatchGemm) return kDispatchGemmFields;
  return kGemmCombineFields;
}

// Returns the fields of an entry for `strategy`.
std::vector<absl::string_view> FieldsOf(Strategy strategy) {
  std::vector<absl::string_view> fields(kFields.begin(), kFields.end());
  if (strategy == Strategy::kAuto) fields.push_back(kChosen);
  for (const TuningField& field : TuningFieldsOf(strategy)) fields.push_back(field.name);
  return fields;
}

// Reads one object of the file. Errors say where the object is.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  absl::Status CheckFields(absl::Span<const absl::string_view> known) const {
    for (const auto& [name, value] : json_.items()) {
      if (absl::c_linear_search(known, name)) continue;
      return absl::InvalidArgumentError(absl::StrCat(where_, ": unknown field '", name, "'"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> String(absl::string_view field) const {
    OCTET_ASSIGN_OR_RETURN(const Json* const value, Find(field));
    if (!value->is_string()) return Wrong(field, *value, "a string");
    return value->get<std::string>();
  }

  absl::StatusOr<Strategy> ParseStrategy(absl::string_view field) const {
    OCTET_ASSIGN_OR_RETURN(const std::string name, String(field));
    absl::StatusOr<Strategy> strategy = ParseEnum<Strategy>("strategy", name);
    if (strategy.ok()) return strategy;
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ": ", field, ": ", strategy.status().message()));
  }

  // Return the value whose name the field holds; `absent` if there is no such field.
  template <typename T>
  absl::StatusOr<T> OneOf(absl::string_view field, T absent) const {
    return json_.contains(field) ? OneOf<T>(field) : absent;
  }
  template <typename T>
  absl::StatusOr<T> OneOf(absl::string_view field) const {
    OCTET_ASSIGN_OR_RETURN(const std::string name, String(field));
    const absl::StatusOr<T> value = ParseEnum<T>(field, name);
    return value.ok() ? value : Wrong(field, name, absl::StrCat("one of ", EnumNames<T>()));
  }

  bool Has(absl::string_view field) const { return json_.contains(field); }

  // Sets `*value` if there is such a field.
  template <typename T>
  absl::Status SetIfPresent(absl::string_view field, std::optional<T>* value) const {
    if (!Has(field)) return absl::OkStatus();
    OCTET_ASSIGN_OR_RETURN(*value, OneOf<T>(field));
    return absl::OkStatus();
  }

  absl::StatusOr<int> Positive(absl::string_view field) const {
    OCTET_ASSIGN_OR_RETURN(const Json* const value, Find(field));
    if (!IsNatural(*value, 1, std::numeric_limits<int>::max())) {
      return Wrong(field, *value, "a whole number from 1 up");
    }
    return value->get<int>();
  }

  absl::StatusOr<TuningRange> Range(absl::string_view field) const {
    OCTET_ASSIGN_OR_RETURN(const Json* const value, Find(field));
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if (!value->is_array() || value->size() != 2 || !IsNatural((*value)[0], 0, kMost) ||
        !IsNatural((*value)[1], (*value)[0].get<int64_t>(), kMost)) {
      return Wrong(field, *value, "[first, last], two whole numbers");
    }
    return TuningRange{(*value)[0].get<int64_t>(), (*value)[1].get<int64_t>()};
  }

 private:
  static bool IsNatural(const Json& value, int64_t low, int64_t high) {
    // The parser returns numbers that do not fit into int64_t as floating-point or unsigned
    // numbers.
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return false;
    }
    const auto number = value.get<int64_t>();
    return low <= number && number <= high;
  }
  absl::StatusOr<const Json*> Find(absl::string_view field) const {
    const auto found = json_.find(field);
    if (found == json_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(where_, ": field '", field, "' is missing"));
    }
    return &*found;
  }
  absl::Status Wrong(absl::string_view field, const Json& value, absl::string_view wanted) const {
    return absl::InvalidArgumentError(absl::StrCat(
        where_, ": ", field, " is ", value.dump(-1, ' ', false, Json::error_handler_t::replace),
        "; it must be ", wanted));
  }

  const Json& json_;
  const std::string where_;
};

absl::StatusOr<TuningEntry> ParseEntry(const Json& json, const std::string& where) {
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(where, " is no object"));
  const Reader reader(json, where);
  TuningEntry entry;
  OCTET_ASSIGN_OR_RETURN(entry.key.platform, reader.String("platform"));
  OCTET_ASSIGN_OR_RETURN(entry.key.gpu, reader.String("gpu"));
  OCTET_ASSIGN_OR_RETURN(entry.key.num_ranks, reader.Positive("ranks"));
  OCTET_ASSIGN_OR_RETURN(entry.key.strategy, reader.ParseStrategy("strategy"));
  OCTET_ASSIGN_OR_RETURN(entry.key.rows, reader.Range("rows"));
  OCTET_ASSIGN_OR_RETURN(entry.key.row_bytes, reader.Range("row_bytes"));
  OCTET_ASSIGN_OR_RETURN(entry.key.format, reader.OneOf("format", DispatchFormat::kSame));
  OCTET_ASSIGN_OR_RETURN(entry.key.received, reader.OneOf("received", Output::kPackedExperts));
  OCTET_RETURN_IF_ERROR(reader.CheckFields(FieldsOf(entry.key.strategy)));
  if (entry.key.strategy == Strategy::kAuto) {
    OCTET_ASSIGN_OR_RETURN(entry.chosen, reader.ParseStrategy(kChosen));
    if (entry.chosen == Strategy::kAuto) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": auto is chosen for auto"));
    }
  }
  for (const TuningField& field : TuningFieldsOf(entry.key.strategy)) {
    if (field.number != nullptr) {
      OCTET_ASSIGN_OR_RETURN(entry.tuning.*field.number, reader.Positive(field.name));
    } else {
      OCTET_ASSIGN_OR_RETURN(entry.tuning.row_copies, reader.OneOf(field.name, RowCopies::kAuto));
    }
  }
  if (entry.tuning.row_parts > kMaxRowParts) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": row_parts is ", entry.tuning.row_parts,
                                                   "; it must be ", kMaxRowParts, " at most"));
  }
  if (json.contains("note")) {
    OCTET_ASSIGN_OR_RETURN(entry.note, reader.String("note"));
  }
  return entry;
}

absl::StatusOr<GemmTuningEntry> ParseGemmEntry(const Json& json, const std::string& where) {
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(where, " is no object"));
  const Reader reader(json, where);
  GemmTuningEntry entry;
  OCTET_ASSIGN_OR_RETURN(entry.key.gpu, reader.String("gpu"));
  OCTET_ASSIGN_OR_RETURN(entry.key.element, reader.OneOf<device::GemmElement>("dtype"));
  OCTET_ASSIGN_OR_RETURN(entry.key.n, reader.Positive("n"));
  OCTET_ASSIGN_OR_RETURN(entry.key.k, reader.Positive("k"));
  OCTET_ASSIGN_OR_RETURN(entry.key.rows, reader.Range("rows"));
  OCTET_ASSIGN_OR_RETURN(entry.key.activation, reader.OneOf<GemmActivation>("activation"));
  OCTET_ASSIGN_OR_RETURN(entry.tiles, reader.OneOf<GemmTiles>("tiles"));
  OCTET_RETURN_IF_ERROR(reader.CheckFields(kGemmFields));
  if (json.contains("note")) {
    OCTET_ASSIGN_OR_RETURN(entry.note, reader.String("note"));
  }
  return entry;
}

absl::StatusOr<FusedChoice> ParseFusedChoice(const Reader& reader, const std::string& where,
                                             FusedCall call) {
  FusedChoice choice;
  OCTET_ASSIGN_OR_RETURN(choice.fusion, reader.OneOf<Fusion>("fusion"));
  const bool combines = call == FusedCall::kGemmCombine;
  if (choice.fusion == Fusion::kAuto ||
      (!combines && (choice.fusion == Fusion::kSerial || choice.fusion == Fusion::kEpilogue))) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": fusion is ", EnumName(choice.fusion),
                                                   ", which ", EnumName(call), " cannot take"));
  }
  if (choice.fusion == Fusion::kNone) return choice;
  OCTET_ASSIGN_OR_RETURN(choice.tuning.tiles, reader.OneOf<GemmTiles>("tiles"));
  if (!combines) {
    OCTET_RETURN_IF_ERROR(reader.SetIfPresent(kSendOrder, &choice.tuning.send_order));
    OCTET_RETURN_IF_ERROR(reader.SetIfPresent(kTileWaits, &choice.tuning.tile_waits));
  }
  for (const FusedField& field : FieldsOf(call)) {
    if (field.optional && !reader.Has(field.name)) continue;
    OCTET_ASSIGN_OR_RETURN(choice.tuning.*field.number, reader.Positive(field.name));
    if (choice.tuning.*field.number <= field.most) continue;
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", field.name, " is ",
                                                   choice.tuning.*field.number, "; it must be ",
                                                   field.most, " at most"));
  }
  return choice;
}

absl::StatusOr<FusedTuningEntry> ParseFusedEntry(const Json& json, const std::string& where) {
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(where, " is no object"));
  const Reader reader(json, where);
  FusedTuningEntry entry;
  TuningKey& links = entry.key.links;
  OCTET_ASSIGN_OR_RETURN(links.platform, reader.String("platform"));
  OCTET_ASSIGN_OR_RETURN(links.gpu, reader.String("gpu"));
  OCTET_ASSIGN_OR_RETURN(links.num_ranks, reader.Positive("ranks"));
  links.strategy = Strategy::kHighThroughput;
  OCTET_ASSIGN_OR_RETURN(links.rows, reader.Range("rows"));
  OCTET_ASSIGN_OR_RETURN(links.row_bytes, reader.Range("row_bytes"));
  OCTET_ASSIGN_OR_RETURN(links.format, reader.OneOf("format", DispatchFormat::kSame));
  OCTET_ASSIGN_OR_RETURN(entry.key.call, reader.OneOf<FusedCall>("call"));
  if (reader.Has(kExperts)) {
    OCTET_ASSIGN_OR_RETURN(entry.key.num_experts, reader.Positive(kExperts));
  }
  OCTET_ASSIGN_OR_RETURN(entry.key.intermediate, reader.Positive("intermediate"));
  OCTET_ASSIGN_OR_RETURN(entry.key.activation, reader.OneOf<GemmActivation>("activation"));
  std::vector<absl::string_view> fields(kFusedFields.begin(), kFusedFields.end());
  for (const FusedField& field : FieldsOf(entry.key.call)) fields.push_back(field.name);
  if (entry.key.call == FusedCall::kDispatchGemm) {
    fields.insert(fields.end(), {kSendOrder, kTileWaits});
  }
  OCTET_RETURN_IF_ERROR(reader.CheckFields(fields));
  OCTET_ASSIGN_OR_RETURN(entry.choice, ParseFusedChoice(reader, where, entry.key.call));
  if (json.contains("note")) {
    OCTET_ASSIGN_OR_RETURN(entry.note, reader.String("note"));
  }
  return entry;
}

// Parses the array `list` of the file, each member with `parse`.
template <typename Entry>
absl::StatusOr<std::vector<Entry>> ParseList(
    const Json& list, const std::string& where,
    absl::StatusOr<Entry> (*parse)(const Json& json, const std::string& where)) {
  if (!list.is_array()) return absl::InvalidArgumentError(absl::StrCat(where, " must be an array"));
  std::vector<Entry> entries;
  for (size_t i = 0; i < list.size(); ++i) {
    OCTET_ASSIGN_OR_RETURN(Entry entry, parse(list[i], absl::StrCat(where, "[", i, "]")));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Json ToObject(const TuningEntry& entry) {
  Json json = {{"platform", entry.key.platform},
               {"gpu", entry.key.gpu},
               {"ranks", entry.key.num_ranks},
               {"strategy", std::string(EnumName(entry.key.strategy))},
               {"rows", {entry.key.rows.first, entry.key.rows.last}},
               {"row_bytes", {entry.key.row_bytes.first, entry.key.row_bytes.last}},
               {"format", std::string(EnumName(entry.key.format))},
               {"received", std::string(EnumName(entry.key.received))}};
  for (const TuningField& field : TuningFieldsOf(entry.key.strategy)) {
    Json& value = json[std::string(field.name)];
    if (field.number != nullptr) {
      value = entry.tuning.*field.number;
    } else {
      value = field.Text(entry.tuning);
    }
  }
  if (entry.key.strategy == Strategy::kAuto) {
    json[std::string(kChosen)] = std::string(EnumName(entry.chosen));
  }
  if (!entry.note.empty()) json["note"] = entry.note;
  return json;
}

Json ToObject(const GemmTuningEntry& entry) {
  Json json = {{"gpu", entry.key.gpu},
               {"dtype", std::string(EnumName(entry.key.element))},
               {"n", entry.key.n},
               {"k", entry.key.k},
               {"rows", {entry.key.rows.first, entry.key.rows.last}},
               {"activation", std::string(EnumName(entry.key.activation))},
               {"tiles", std::string(EnumName(entry.tiles))}};
  if (!entry.note.empty()) json["note"] = entry.note;
  return json;
}

Json ToObject(const FusedTuningEntry& entry) {
  const TuningKey& links = entry.key.links;
  Json json = {{"platform", links.platform},
               {"gpu", links.gpu},
               {"ranks", links.num_ranks},
               {"call", std::string(EnumName(entry.key.call))},
               {"rows", {links.rows.first, links.rows.last}},
               {"row_bytes", {links.row_bytes.first, links.row_bytes.last}},
               {"format", std::string(EnumName(links.format))}};
  if (entry.key.num_experts > 0) json[std::string(kExperts)] = entry.key.num_experts;
  json["intermediate"] = entry.key.intermediate;
  json["activation"] = std::string(EnumName(entry.key.activation));
  json["fusion"] = std::string(EnumName(entry.choice.fusion));
  if (entry.choice.fusion != Fusion::kNone) {
    const FusedTuning& tuning = entry.choice.tuning;
    json["tiles"] = std::string(EnumName(tuning.tiles.value_or(GemmTiles::kWide)));
    for (const FusedField& field : FieldsOf(entry.key.call)) {
      if (field.optional && tuning.*field.number == 0) continue;
      json[std::string(field.name)] = tuning.*field.number;
    }
    if (entry.key.call == FusedCall::kDispatchGemm) {
      if (tuning.send_order.has_value()) {
        json[std::string(kSendOrder)] = std::string(EnumName(*tuning.send_order));
      }
      if (tuning.tile_waits.has_value()) {
        json[std::string(kTileWaits)] = std::string(EnumName(*tuning.tile_waits));
      }
    }
  }
  if (!entry.note.empty()) json["note"] = entry.note;
  return json;
}

// Returns the member of the file that holds the entries, each on one line.
template <typename Entry>
std::string ListText(absl::string_view name, const std::vector<Entry>& entries) {
  std::string lines;
  for (const Entry& entry : entries) {
    absl::StrAppend(&lines, lines.empty() ? "\n" : ",\n", "    ",
                    ToObject(entry).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return absl::StrCat("  \"", name, "\": [", lines, lines.empty() ? "]" : "\n  ]");
}

}  // namespace

absl::StatusOr<TuningTable> TuningTable::Parse(absl::string_view json, absl::string_view origin) {
  Json parsed;
  try {
    parsed = Json::parse(json);
  } catch (const Json::exception& error) {
    // "[the exception's name] parse error at line 3, column 7: ..."
    const absl::string_view what = error.what();
    return absl::InvalidArgumentError(
        absl::StrCat(origin, " is no JSON: ", what.substr(what.find("] ") + 2)));
  }
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(origin, " is no JSON object"));
  }
  const auto schema = parsed.find("schema");
  if (schema == parsed.end() || *schema != kSchema) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ": schema must be ", kSchema, ", the one that this library knows"));
  }
  OCTET_RETURN_IF_ERROR(Reader(parsed, std::string(origin)).CheckFields(kFileFields));
  TuningTable table;
  table.origin_ = std::string(origin);
  OCTET_ASSIGN_OR_RETURN(
      table.entries_,
      ParseList(parsed.value(kEntries, Json()), absl::StrCat(origin, ": ", kEntries), ParseEntry));
  OCTET_ASSIGN_OR_RETURN(table.gemm_entries_,
                         ParseList(parsed.value(kGemm, Json::array()),
                                   absl::StrCat(origin, ": ", kGemm), ParseGemmEntry));
  OCTET_ASSIGN_OR_RETURN(table.fused_entries_,
                         ParseList(parsed.value(kFused, Json::array()),
                                   absl::StrCat(origin, ": ", kFused), ParseFusedEntry));
  return table;
}

std::string TuningTable::ToJson() const {
  const std::string gemm =
      gemm_entries_.empty() ? "" : absl::StrCat(",\n", ListText(kGemm, gemm_entries_));
  const std::string fused =
      fused_entries_.empty() ? "" : absl::StrCat(",\n", ListText(kFused, fused_entries_));
  return absl::StrCat("{\n  \"schema\": ", kSchema, ",\n", ListText(kEntries, entries_), gemm,
                      fused, "\n}\n");
}

}  // namespace octet
