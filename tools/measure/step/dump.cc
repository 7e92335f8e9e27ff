#include "tools/measure/step/dump.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "kernels/ep/strategy_registry.h"
#include "octet/dtype.h"
#include "octet/fp8.h"
#include "runtime/base/status_macros.h"
#include "tools/step/run_json.h"
#include "tools/support/atomic_file.h"
#include "tools/support/commit.h"
#include "tools/support/npy.h"

namespace octet {
namespace {

constexpr int kSchema = 1;
constexpr absl::string_view kProgram = "octet run --dump";
constexpr absl::string_view kMeta = "meta.json";
constexpr size_t kMostMetaBytes = size_t{1} << 20;

// Every array that a dump may have, as rank{r}_{name}.npy.
constexpr auto kArrays = std::to_array<absl::string_view>({"x",
                                                           "x_fp8",
                                                           "x_scales",
                                                           "topk_idx",
                                                           "topk_weights",
                                                           "y",
                                                           "recv_x",
                                                           "recv_scales",
                                                           "recv_row",
                                                           "recv_src",
                                                           "recv_expert",
                                                           "expert_counts",
                                                           "expert_offsets",
                                                           "ranges",
                                                           "split_counts",
                                                           "source_offsets",
                                                           "row_weights",
                                                           "row_index",
                                                           "recv_topk_idx",
                                                           "recv_topk_weights"});

bool ConsumeDigits(absl::string_view& text) {
  const auto end = absl::c_find_if_not(text, [](char c) { return absl::ascii_isdigit(c); });
  const auto digits = static_cast<size_t>(end - text.begin());
  text.remove_prefix(digits);
  return digits > 0;
}

// Whether WriteDump makes files of this name, their temporary ones (NAME.PID.tmp) included.
bool IsOurs(absl::string_view name) {
  if (absl::ConsumeSuffix(&name, ".tmp")) {
    while (!name.empty() && absl::ascii_isdigit(name.back())) name.remove_suffix(1);
    absl::ConsumeSuffix(&name, ".");
  }
  if (name == kMeta) return true;
  return absl::ConsumePrefix(&name, "rank") && ConsumeDigits(name) &&
         absl::ConsumePrefix(&name, "_") && absl::ConsumeSuffix(&name, ".npy") &&
         absl::c_linear_search(kArrays, name);
}

std::string PathOf(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

// The names of the files in `folder`, all of which must be of a dump.
absl::StatusOr<std::vector<std::string>> OldFiles(const std::string& folder) {
  OCTET_ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(folder));
  for (const std::string& name : names) {
    bool ours = IsOurs(name);
    if (name == kMeta) {
      const absl::StatusOr<std::string> text = ReadFile(PathOf(folder, name), kMostMetaBytes);
      const Json json = Json::parse(text.ok() ? *text : "", nullptr, false);
      ours = json.is_object() && json.contains("program") &&
             json["program"] == Json(std::string(kProgram));
    }
    if (!ours) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot dump into ", folder, ": it has ", name,
                       ", which is not of a dump; name a new folder, or that of a dump"));
    }
  }
  return names;
}

// An array of one rank. Its elements must outlive it.
struct Array {
  absl::string_view name;
  NpyType type;
  std::vector<int64_t> shape;
  const void* data;
  std::vector<absl::string_view> dimensions;  // docs/formats.md says what the letters are
};

// Columns [0, width) of rows of `stride` bytes.
std::vector<uint8_t> Trim(const std::vector<uint8_t>& rows, size_t stride, size_t width) {
  std::vector<uint8_t> trimmed;
  trimmed.reserve(rows.size() / stride * width);
  for (size_t row = 0; row < rows.size(); row += stride) {
    const auto begin = rows.begin() + static_cast<ptrdiff_t>(row);
    trimmed.insert(trimmed.end(), begin, begin + static_cast<ptrdiff_t>(width));
  }
  return trimmed;
}

// The arrays of one rank, and the memory of those that are made for it.
class RankArrays {
 public:
  // `first`: the number among all ranks of this node's rank 0.
  RankArrays(const Dump& dump, size_t first, size_t rank)
      : dump_(dump),
        config_(dump.options.nodes.num_nodes > 1 ? IntranodeConfig(dump.config, dump.options.nodes)
                                                 : dump.config) {
    AddInput(dump.workload.inputs()[first + rank]);
    const RankOutput& output = dump.outputs[rank];
    Add("y", row_type(), {{"T", num_tokens_}, {"H", config_.hidden}}, output.y.data());
    AddRows(output.received);
    AddLayout(output.received.layout);
  }
  RankArrays(const RankArrays&) = delete;
  RankArrays& operator=(const RankArrays&) = delete;

  const std::vector<Array>& arrays() const { return arrays_; }

 private:
  struct Dimension {
    absl::string_view letter;
    int64_t size;
  };

  void Add(absl::string_view name, NpyType type, const std::vector<Dimension>& dimensions,
           const void* data) {
    Array& array = arrays_.emplace_back(
        Array{.name = name, .type = type, .shape = {}, .data = data, .dimensions = {}});
    for (const auto& [letter, size] : dimensions) {
      array.shape.push_back(size);
      array.dimensions.push_back(letter);
    }
  }

  // Empty vectors are arrays that this configuration or strategy does not have.
  void AddInt32(absl::string_view name, const std::vector<int32_t>& values,
                const std::vector<Dimension>& dimensions) {
    if (!values.empty()) Add(name, NpyType::kInt32, dimensions, values.data());
  }

  NpyType row_type() const {
    return config_.dtype == DType::kFloat16 ? NpyType::kFloat16 : NpyType::kUint16;
  }
  int64_t num_ranks() const { return static_cast<int64_t>(dump_.outputs.size()); }
  int64_t num_local() const { return config_.num_local_experts(static_cast<int>(num_ranks())); }

  void AddScales(absl::string_view name, Dimension rows, absl::Span<const uint32_t> words) {
    const bool bytes = config_.scale_format == ScaleFormat::kUe8m0;
    const int64_t columns =
        config_.scale_words() * static_cast<int64_t>(bytes ? sizeof(uint32_t) : 1);
    Add(name, bytes ? NpyType::kUint8 : NpyType::kFloat32, {rows, {"G", columns}}, words.data());
  }

  void AddInput(const RankInput& input) {
    num_tokens_ = input.num_tokens;
    const Dimension tokens = {"T", num_tokens_};
    Add("x", row_type(), {tokens, {"H", config_.hidden}}, input.x.data());
    if (config_.x_scale_words() > 0) {
      Add("x_fp8", NpyType::kUint8, {tokens, {"H", config_.hidden}}, input.fp8.data());
      AddScales("x_scales", tokens, input.scales);
    }
    const Dimension topk = {"K", dump_.config.topk};
    Add("topk_idx", NpyType::kInt32, {tokens, topk}, input.topk_idx.data());
    Add("topk_weights", NpyType::kFloat32, {tokens, topk}, input.topk_weights.data());
  }

  void AddRows(const ReceivedRows& received) {
    const Dimension rows = {"X", static_cast<int64_t>(received.places.size())};
    if (InfoOf(config_.dispatch_format).bytes) {
      Add("recv_x", NpyType::kUint8, {rows, {"B", config_.high_throughput.row_bytes}},
          received.x.data());
    } else if (config_.scale_words() > 0) {
      fp8_ = Trim(received.x, config_.received_row_bytes(), static_cast<size_t>(config_.hidden));
      Add("recv_x", NpyType::kUint8, {rows, {"H", config_.hidden}}, fp8_.data());
      AddScales("recv_scales", rows, received.scales);
    } else {
      Add("recv_x", row_type(), {rows, {"H", config_.hidden}}, received.x.data());
    }
    if (config_.rows_apart()) {
      Add("recv_row", NpyType::kInt32, {rows}, received.places.data());
    }
  }

  void AddLayout(const ReceivedLayout& layout) {
    const Dimension ranks = {"R", num_ranks()};
    const Dimension local = {"L", num_local()};
    for (const RowSource& source : layout.sources) {
      sources_.insert(sources_.end(), {source.rank, source.token, source.k});
      experts_.push_back(source.local_expert);
    }
    const Dimension rows = {config_.output == Output::kDeduplicated ? "X" : "N",
                            static_cast<int64_t>(layout.sources.size())};
    Add("recv_src", NpyType::kInt32, {rows, {"3", 3}}, sources_.data());
    Add("recv_expert", NpyType::kInt32, {rows}, experts_.data());
    AddInt32("expert_counts", layout.expert_counts, {local});
    AddInt32("expert_offsets", layout.expert_offsets, {{"L+1", num_local() + 1}});
    for (const RowRange& range : layout.ranges) {
      ranges_.insert(ranges_.end(), {range.first, range.count});
    }
    AddInt32("ranges", ranges_, {local, ranks, {"2", 2}});
    AddInt32("split_counts", layout.split_counts, {ranks, local});
    AddInt32("source_offsets", layout.source_offsets, {{"R+1", num_ranks() + 1}});
    // Arrays of rows may be empty because there are no rows; which there are depends on the
    // strategy and the configuration alone.
    if (!Has(config_.strategy, &StrategyInfo::keeps_layouts)) return;
    if (config_.output == Output::kDeduplicated) {
      const Dimension topk = {dump_.options.nodes.num_nodes > 1 ? "J" : "K", config_.topk};
      Add("recv_topk_idx", NpyType::kInt32, {rows, topk}, layout.recv_topk_idx.data());
      Add("recv_topk_weights", NpyType::kFloat32, {rows, topk}, layout.recv_topk_weights.data());
      return;
    }
    Add("row_weights", NpyType::kFloat32, {rows}, layout.row_weights.data());
    if (config_.high_throughput.duplicates == Duplicates::kIndex) {
      Add("row_index", NpyType::kInt32, {rows}, layout.row_index.data());
    }
  }

  const Dump& dump_;
  const EpConfig config_;  // of what the ranks of a node have received
  int64_t num_tokens_ = 0;
  std::vector<Array> arrays_;
  std::vector<uint8_t> fp8_;
  std::vector<int32_t> sources_;
  std::vector<int32_t> experts_;
  std::vector<int32_t> ranges_;
};

std::string MetaJson(const Dump& dump, const std::vector<Array>& arrays) {
  const EpConfig& config = dump.config;
  std::vector<int> tokens;
  for (const RankInput& input : dump.workload.inputs()) tokens.push_back(input.num_tokens);
  const bool fp8 = config.scale_words() > 0;
  Json json = {
      {"schema", kSchema},
      {"program", std::string(kProgram)},
      {"commit", std::string(Commit())},
      {"platform", ToJson(dump.topology)},
      {"config", ConfigToJson(dump.options, config, tokens)},
      {"fp8_form", fp8 ? Json(std::string(EnumName(WithNativeFp8(config.fp8_form)))) : Json()},
      {"row_bytes", config.received_row_bytes()}};
  for (const Array& array : arrays) {
    Json& entry = json["arrays"][std::string(array.name)];
    entry["dtype"] = std::string(NpyTypeName(array.type));
    for (const absl::string_view letter : array.dimensions) {
      entry["shape"].push_back(std::string(letter));
    }
  }
  return JsonText(json);
}

absl::Status RemoveDump(const std::string& folder) {
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> old_files, OldFiles(folder));
  OCTET_RETURN_IF_ERROR(RemoveFile(PathOf(folder, kMeta)));
  for (const std::string& name : old_files) {
    OCTET_RETURN_IF_ERROR(RemoveFile(PathOf(folder, name)));
  }
  return absl::OkStatus();
}

// Writes the arrays of this node's ranks. `first`: the number of rank 0 among all ranks. Sets
// `meta`.
absl::Status WriteArrays(const std::string& folder, const Dump& dump, size_t first,
                         std::string& meta) {
  for (size_t rank = 0; rank < dump.outputs.size(); ++rank) {
    const RankArrays rank_arrays(dump, first, rank);
    for (const Array& array : rank_arrays.arrays()) {
      const std::string name = absl::StrCat("rank", first + rank, "_", array.name, ".npy");
      OCTET_RETURN_IF_ERROR(WriteNpy(PathOf(folder, name), array.type, array.shape, array.data));
    }
    if (rank == 0) meta = MetaJson(dump, rank_arrays.arrays());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareDump(const std::string& folder) {
  OCTET_RETURN_IF_ERROR(MakeFolder(folder));
  OCTET_RETURN_IF_ERROR(OldFiles(folder).status());
  return ProbeWrite(PathOf(folder, kMeta));
}

absl::Status WriteDump(Domain& domain, const std::string& folder, const Dump& dump) {
  // In turn, since the nodes may share the folder.
  for (int n = 0; n < domain.num_nodes(); ++n) {
    OCTET_RETURN_IF_ERROR(
        domain.Together(n == domain.node_index() ? RemoveDump(folder) : absl::OkStatus()));
  }
  std::string meta;
  OCTET_RETURN_IF_ERROR(
      domain.Together(WriteArrays(folder, dump, static_cast<size_t>(domain.GlobalRank(0)), meta)));
  return domain.Together(IsFirst(domain) ? WriteFileAtomically(PathOf(folder, kMeta), {meta})
                                         : absl::OkStatus());
}

}  // namespace octet
