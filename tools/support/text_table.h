// Tables and comments for a terminal: lines of at most kTextWidth columns, data in columns that awk
// and people can read, everything else behind a '#'.
#ifndef OCTET_TOOLS_SUPPORT_TEXT_TABLE_H_
#define OCTET_TOOLS_SUPPORT_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace octet {

inline constexpr int kTextWidth = 100;

// `text` behind "# ", broken at blanks into lines of kTextWidth at most; `indent` blanks stand
// before each line but the first. Line breaks in `text` stay. Ends with a line break.
std::string Comment(absl::string_view text, size_t indent = 0);

struct TableColumn {
  std::string name;
  std::string unit = {};
  int width;  // with the blank before it
};

// Right-aligned columns. A cell that is wider than its column pushes the rest of its line to the
// right, and a blank still parts it from its neighbours.
class TextTable {
 public:
  explicit TextTable(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // Two lines behind '#': names, and units where there are any.
  std::string Head() const;
  // A line. Has as many cells as there are columns.
  std::string Row(const std::vector<std::string>& cells) const;

 private:
  std::vector<TableColumn> columns_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_SUPPORT_TEXT_TABLE_H_
