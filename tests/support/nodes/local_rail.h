// Rails between several nodes of one process, for tests.
#ifndef OCTET_TESTS_SUPPORT_NODES_LOCAL_RAIL_H_
#define OCTET_TESTS_SUPPORT_NODES_LOCAL_RAIL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "octet/node.h"
#include "runtime/net/rails/rail.h"

namespace octet {

// The rails of all local ranks of all nodes. A thread for each local rank carries out the
// exchanges: it reads rows at once and delivers them late, on purpose. Who sends rows that are not
// complete sends older ones, and so reads who does not wait for the stream. Must outlive the Runs
// of its nodes. Useless after an error.
class LocalRails {
 public:
  LocalRails(int num_nodes, int ranks_per_node);
  ~LocalRails();

  // Returns the rails of node `number`, by local rank. Once for each node; not during Run.
  absl::StatusOr<std::vector<Rail*>> Connect(int number, Node& node);
  // Returns the bytes that have crossed between different nodes.
  int64_t bytes() const;

 private:
  class Carrier;
  class OneRail;

  std::vector<std::unique_ptr<Carrier>> carriers_;  // by local rank
  std::vector<std::unique_ptr<OneRail>> rails_;
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NODES_LOCAL_RAIL_H_
