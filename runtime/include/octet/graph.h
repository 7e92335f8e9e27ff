// What a rank enqueues on its stream, captured once and launched again with one call.
#ifndef OCTET_GRAPH_H_
#define OCTET_GRAPH_H_

#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"

namespace octet {

// Owns an executable graph. Not to be destroyed while a launch of it is under way: after the
// Node::Run of the last one, or a Rank::Synchronize.
class Graph {
 public:
  // Captures what `enqueue` puts on rank.stream(), which is not executed. On a rank's thread inside
  // Node::Run, by every rank together, since kernels of peers may only run again when all are done
  // here: waits for the rank's stream and for the other ranks, before and after. `enqueue` may do
  // what Rank::CoordinatedLaunch and the platform's capture allow; its error comes back, and then
  // there is no graph. kUnimplemented: the platform does not capture.
  static absl::StatusOr<Graph> Capture(Rank& rank, absl::FunctionRef<absl::Status()> enqueue);

  // Enqueues all of it on the stream of the rank that has captured it: a coordinated launch if one
  // was captured, so by every rank that is waited for, as often and in the same order. Waits for no
  // launch before it. kFailedPrecondition if the rank has something outstanding, such as a send
  // without its receive, which the graph would continue.
  absl::Status Launch(Rank& rank) const;

 private:
  // The platform's executable graph.
  using Executable = std::unique_ptr<void, void (*)(void*)>;

  Graph(Executable executable, bool coordinated)
      : executable_(std::move(executable)), coordinated_(coordinated) {}

  Executable executable_;
  bool coordinated_;
};

}  // namespace octet

#endif  // OCTET_GRAPH_H_
