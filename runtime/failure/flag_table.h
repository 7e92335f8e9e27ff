// Formats as text how far the flags of one kind have come on each rank.
#ifndef OCTET_RUNTIME_FAILURE_FLAG_TABLE_H_
#define OCTET_RUNTIME_FAILURE_FLAG_TABLE_H_

#include <string>
#include <vector>

namespace octet {

struct FlagTable {
  struct Cell {
    std::string seen;
    bool behind = false;
  };
  struct Row {
    int rank = 0;          // the waiting rank
    std::string expected;  // empty if the cells contain it
    std::vector<Cell> peers;
  };
  std::string title;
  std::vector<Row> rows;
};

// Returns the title, a line of ranks and one line per row, each preceded by a newline. Cells that
// are behind are marked with '*':
//
//   row counts: epoch seen from each rank, * behind
//             expected   0    1
//     rank 0        42  42  41*
std::string FlagTableText(const FlagTable& table);

}  // namespace octet

#endif  // OCTET_RUNTIME_FAILURE_FLAG_TABLE_H_
