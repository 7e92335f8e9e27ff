// Work that a rank enqueues on its stream, captured once and launched repeatedly with one call.
#ifndef OCTET_GRAPH_H_
#define OCTET_GRAPH_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "octet/node.h"

namespace octet {

// Owns an executable graph. Must not be destroyed while a launch is in progress: wait for the
// Node::Run of the last launch, or call Rank::Synchronize.
class Graph {
 public:
  // Captures the work that `enqueue` puts on rank.stream(), without executing it. Every rank must
  // call it together, on its thread inside Node::Run: before and after the capture it waits for the
  // rank's stream and for all ranks, since kernels of peers may run again only when all captures
  // are done. `enqueue` may do what Rank::CoordinatedLaunch and the platform's capture allow; if it
  // returns an error, so does Capture, and no graph is made. kUnimplemented: the platform cannot
  // capture.
  static absl::StatusOr<Graph> Capture(Rank& rank, absl::FunctionRef<absl::Status()> enqueue);

  // Enqueues the whole graph on the stream of the rank that captured it. If a coordinated launch
  // was captured, this is one too: every rank that the graph waits for must launch as often and in
  // the same order. Does not wait for earlier launches. kFailedPrecondition if the rank has
  // something outstanding, such as a send without its receive, which the graph would continue, or
  // if what the graph uses is gone (World::Run), so that it has to be captured again.
  absl::Status Launch(Rank& rank) const;

 private:
  using Executable = std::unique_ptr<void, void (*)(void*)>;

  Graph(Executable executable, bool coordinated)
      : executable_(std::move(executable)), coordinated_(coordinated) {}

  Executable executable_;
  bool coordinated_;
  std::vector<std::shared_ptr<const CaptureNeed>> needs_;
};

}  // namespace octet

#endif  // OCTET_GRAPH_H_
