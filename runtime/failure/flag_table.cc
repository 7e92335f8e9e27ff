#include "runtime/failure/flag_table.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace octet {
namespace {

// Aligns columns two spaces apart, the first to the left, all further ones to the right.
std::string Aligned(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    absl::StrAppend(&text, "\n  ", line[0], std::string(widths[0] - line[0].size(), ' '));
    for (size_t i = 1; i < line.size(); ++i) {
      absl::StrAppend(&text, "  ", std::string(widths[i] - line[i].size(), ' '), line[i]);
    }
    absl::StripTrailingAsciiWhitespace(&text);
  }
  return text;
}

}  // namespace

std::string FlagTableText(const FlagTable& table) {
  const bool expected = std::any_of(table.rows.begin(), table.rows.end(),
                                    [](const auto& row) { return !row.expected.empty(); });
  size_t num_peers = 0;
  for (const FlagTable::Row& row : table.rows) num_peers = std::max(num_peers, row.peers.size());

  std::vector<std::vector<std::string>> lines(1);
  lines[0].emplace_back();
  if (expected) lines[0].emplace_back("expected");
  for (size_t peer = 0; peer < num_peers; ++peer) lines[0].push_back(absl::StrCat(peer, " "));
  for (const FlagTable::Row& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    line.push_back(absl::StrCat("rank ", row.rank));
    if (expected) line.push_back(row.expected);
    for (const FlagTable::Cell& cell : row.peers) {
      line.push_back(absl::StrCat(cell.seen, cell.behind ? "*" : " "));
    }
  }
  return absl::StrCat("\n", table.title, ", * behind", Aligned(lines));
}

}  // namespace octet
