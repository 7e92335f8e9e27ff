#include "tools/report/memory_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "octet/enum_names.h"
#include "tools/support/text_table.h"

namespace octet {
namespace {

constexpr size_t kMostExperts = 16;  // that the text lists

}  // namespace

std::string LayerMemoryText(const LayerMemory& memory, const LayerMemory* even, int num_ranks) {
  const MoeLayerConfig& c = memory.config;
  std::string text = Comment(absl::StrCat(
      "octet layer --memory: bytes of each of ", num_ranks, " ranks; E ", c.num_experts, ", K ",
      c.topk, ", H ", c.hidden, ", I ", c.intermediate, ", T ", c.max_tokens_per_rank, ", ",
      EnumName(c.dtype), ", weights ", EnumName(c.weights), c.fp8_rows ? " times rows of fp8" : "",
      ", strategy ", EnumName(c.strategy), ", fusion ", EnumName(c.fusion),
      "; nothing is allocated"));
  const TextTable table({{.name = "bytes", .width = 16}, {.name = "use", .width = 11}});
  absl::StrAppend(&text, table.Head());
  const auto row = [&](size_t bytes, absl::string_view use, absl::string_view name) {
    std::string line = table.Row({absl::StrCat(bytes), std::string(use)});
    line.pop_back();
    absl::StrAppend(&text, line, "  ", name, "\n");
  };
  for (const MemoryPiece& piece : memory.pieces) row(piece.bytes, EnumName(piece.use), piece.name);
  for (const EnumEntry<MemoryUse>& use : EnumTable(MemoryUse())) {
    row(memory.Bytes(use.value), use.name, "all");
  }
  const size_t beside = memory.BytesBesideWeights();
  row(beside, "", "all but weights");
  row(beside + memory.Bytes(MemoryUse::kWeights), "", "all");
  if (even == nullptr) return text;
  const size_t needed = even->BytesBesideWeights();
  const std::string capacity =
      c.capacity_rows > 0 ? absl::StrCat("capacity_rows ", c.capacity_rows) : "room for all rows";
  absl::StrAppend(
      &text, Comment(absl::StrFormat(
                 "Even routing brings %d rows to a rank and needs %d bytes beside weights; with %s "
                 "it is %.3f times as much.",
                 even->config.capacity_rows, needed, capacity,
                 static_cast<double>(beside) / static_cast<double>(std::max<size_t>(needed, 1)))));
  return text;
}

std::string LoadsText(const ExpertLoads& loads, int num_ranks) {
  const std::vector<int64_t>& rows = loads.rows;
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return rows[a] != rows[b] ? rows[a] > rows[b] : a < b; });
  std::vector<int64_t> of_rank(static_cast<size_t>(num_ranks), 0);
  for (size_t e = 0; e < rows.size(); ++e) {
    of_rank[e * static_cast<size_t>(num_ranks) / rows.size()] += rows[e];
  }
  const auto over_mean = [](int64_t most, int64_t sum, size_t count) {
    return sum == 0
               ? 1.0
               : static_cast<double>(most) * static_cast<double>(count) / static_cast<double>(sum);
  };
  std::string text = Comment(absl::StrFormat(
      "Rows of all calls, as counted on the GPUs: %d; the fullest expert has %.2f times the mean, "
      "the fullest rank %.2f times.",
      all, over_mean(rows[order.front()], all, rows.size()),
      over_mean(*std::max_element(of_rank.begin(), of_rank.end()), all, of_rank.size())));
  const TextTable table({{.name = "expert", .width = 8},
                         {.name = "rows", .width = 14},
                         {.name = "share", .unit = "%", .width = 9}});
  absl::StrAppend(&text, table.Head());
  for (size_t i = 0; i < std::min(order.size(), kMostExperts); ++i) {
    const int64_t mine = rows[order[i]];
    const double share = all == 0 ? 0 : 100 * static_cast<double>(mine) / static_cast<double>(all);
    absl::StrAppend(&text, table.Row({absl::StrCat(order[i]), absl::StrCat(mine),
                                      absl::StrFormat("%.2f", share)}));
  }
  if (order.size() > kMostExperts) {
    absl::StrAppend(&text, Comment(absl::StrCat(order.size() - kMostExperts,
                                                " experts have fewer; "
                                                "--loads=F.npy writes all")));
  }
  return text;
}

}  // namespace octet
