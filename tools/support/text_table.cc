#include "tools/support/text_table.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace octet {
namespace {

constexpr absl::string_view kMark = "#";

// Appends one line of the input.
void AppendComment(absl::string_view text, size_t indent, std::string& out) {
  std::string line(kMark);
  bool empty = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    // Keeps runs of blanks: the words between them are empty.
    if (!empty && line.size() + 1 + word.size() > kTextWidth) {
      absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(line), "\n");
      line = absl::StrCat(kMark, std::string(indent, ' '));
    }
    absl::StrAppend(&line, " ", word);
    empty = false;
  }
  absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(line), "\n");
}

}  // namespace

std::string CellOf(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%.4g", *value) : "-";
}

std::string Comment(absl::string_view text, size_t indent) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    AppendComment(line, indent, out);
  }
  return out;
}

std::string TextTable::Head() const {
  std::vector<std::string> names;
  std::vector<std::string> units;
  bool has_units = false;
  for (const TableColumn& column : columns_) {
    names.push_back(column.name);
    units.push_back(column.unit);
    has_units = has_units || !column.unit.empty();
  }
  std::string head;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line = Row(cells);
    line[0] = kMark[0];
    absl::StrAppend(&head, absl::StripTrailingAsciiWhitespace(line), "\n");
  };
  add(names);
  if (has_units) add(units);
  return head;
}

std::string TextTable::Row(const std::vector<std::string>& cells) const {
  std::string row;
  for (size_t i = 0; i < columns_.size(); ++i) {
    absl::StrAppendFormat(&row, " %*s", columns_[i].width - 1, cells[i]);
  }
  return row + "\n";
}

}  // namespace octet
