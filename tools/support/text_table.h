// Tables and comments for a terminal: lines of at most kTextWidth columns. Data is in columns that
// awk and people can read; everything else follows a '#'.
#ifndef OCTET_TOOLS_SUPPORT_TEXT_TABLE_H_
#define OCTET_TOOLS_SUPPORT_TEXT_TABLE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace octet {

inline constexpr int kTextWidth = 100;

// Returns `text` after "# ", broken at blanks into lines of at most kTextWidth; `indent` blanks
// precede each line but the first. Line breaks in `text` stay. The result ends with a line break.
std::string Comment(absl::string_view text, size_t indent = 0);

struct TableColumn {
  std::string name;
  std::string unit = {};
  int width;  // including the blank before it
};

// Returns four digits of `value`, or "-".
std::string CellOf(std::optional<double> value);

// Right-aligned columns. A cell that is wider than its column pushes the rest of its line to the
// right; a blank still separates it from its neighbours.
class TextTable {
 public:
  explicit TextTable(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // Returns two lines that begin with '#': names, and units if there are any.
  std::string Head() const;
  // Returns a line. `cells` has one cell for each column.
  std::string Row(const std::vector<std::string>& cells) const;

 private:
  std::vector<TableColumn> columns_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_TEXT_TABLE_H_
