// The domain of a call: the ranks that make it together, those of one node (octet/node.h) or of
// several (octet/world.h). ExpertParallel, RoutedExperts and MoeLayer are created on either.
#ifndef OCTET_DOMAIN_H_
#define OCTET_DOMAIN_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "octet/enum_names.h"

namespace octet {

class Node;
class Rail;  // runtime/net/rails/rail.h
class Rank;

// What carries bytes between the GPUs of different nodes.
enum class RailTransport {
  // kNccl on GPUs, if all processes find the library and the communicators come up; else kMpi. In
  // emulation, and with one node: kMpi.
  kAuto,
  // Copies through pinned memory of the hosts, and MPI between these.
  kMpi,
  // NCCL or RCCL, loaded at run time: one communicator for the ranks i of all nodes, from GPU
  // memory to GPU memory.
  kNccl,
};
absl::Span<const EnumEntry<RailTransport>> EnumTable(RailTransport);  // names: octet/enum_names.h

// Functions marked *collective* are called by the processes of all nodes, in the same order, by one
// thread at a time and not inside Run. Within one node they need nobody.
class Domain {
 public:
  virtual ~Domain() = default;

  // This process's node.
  virtual Node& node() = 0;
  virtual int num_nodes() const = 0;
  virtual int node_index() const = 0;  // of this process: 0 .. num_nodes() - 1
  virtual int num_ranks() const = 0;   // of all nodes

  int ranks_per_node() const { return num_ranks() / num_nodes(); }
  bool several_nodes() const { return num_nodes() > 1; }
  // Returns the number of a rank of this node among those of all nodes.
  int GlobalRank(int local_rank) const { return node_index() * ranks_per_node() + local_rank; }

  // Connects rank `local_rank` of this node with the ranks of that number on the other nodes.
  // nullptr within a node.
  virtual Rail* rail(int local_rank) const = 0;
  // Returns what carries bytes between nodes; kAuto within a node.
  virtual RailTransport transport() const = 0;

  // Collective. Runs `body` on every rank of every node; see Node::Run and World::Run.
  virtual absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body) = 0;
  // Collective. Returns OK if all nodes have given the same value, else kInvalidArgument: "the
  // nodes differ in `what`: 1 on node 0, 2 on node 1". Of a value with members, "a 1, b 2", those
  // are named that differ.
  virtual absl::Status Agree(absl::string_view what, absl::string_view value) = 0;
  // Collective. Returns the bytes that each node has given, by node. For a few kilobytes.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes) = 0;
  // Collective. Returns OK on all nodes if all have given OK, else on all of them the error of one,
  // with "node n: ": what comes next needs all nodes.
  virtual absl::Status Together(const absl::Status& mine) = 0;

 protected:
  Domain() = default;
  Domain(const Domain&) = default;
  Domain& operator=(const Domain&) = default;
};

}  // namespace octet

#endif  // OCTET_DOMAIN_H_
