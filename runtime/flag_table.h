// How far the flags of one kind have come on each rank, as a table for people.
#ifndef OCTET_RUNTIME_FLAG_TABLE_H_
#define OCTET_RUNTIME_FLAG_TABLE_H_

#include <string>
#include <vector>

namespace octet {

struct FlagTable {
  struct Cell {
    std::string seen;
    bool behind = false;
  };
  struct Row {
    int rank = 0;          // who waits
    std::string expected;  // empty if the cells say it
    std::vector<Cell> peers;
  };
  std::string title;
  std::vector<Row> rows;
};

// The title and a line for each row under a line of ranks, what is behind marked with '*', each
// after a newline:
//
//   row counts: epoch seen from each rank, * behind
//             expected   0    1
//     rank 0        42  42  41*
std::string FlagTableText(const FlagTable& table);

}  // namespace octet

#endif  // OCTET_RUNTIME_FLAG_TABLE_H_
