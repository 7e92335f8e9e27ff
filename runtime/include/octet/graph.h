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

// Owns an executable graph. May be destroyed at any time: a launch in progress is completed.
//
// What a graph uses must live as long as it is launched. Launch knows and refuses it if an
// ExpertParallel, RoutedExperts or MoeLayer whose calls were captured has been destroyed since; it
// cannot know of a GroupedGemm, or of memory of the caller's.
class Graph {
 public:
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  // Captures the work that `enqueue` puts on rank.stream(), without executing it. Every rank must
  // call it together, on its thread inside Node::Run: before and after the capture it waits for the
  // rank's stream and for all ranks, since kernels of peers may run again only when all captures
  // are done. `enqueue` may do what Rank::CoordinatedLaunch and the platform's capture allow; if it
  // returns an error, so does Capture, and no graph is made. kUnimplemented: the platform cannot
  // capture.
  static absl::StatusOr<Graph> Capture(Rank& rank, absl::FunctionRef<absl::Status()> enqueue);

  // Enqueues the whole graph on the stream of the rank that captured it; for another rank,
  // kInvalidArgument, or kFailedPrecondition if it is of another node. If a coordinated launch
  // was captured, this is one too: every rank that the graph waits for must launch as often and in
  // the same order. Does not wait for earlier launches. kFailedPrecondition if the rank has
  // something outstanding, such as a send without its receive, which the graph would continue, or
  // if what the graph uses is gone (above, and World::Run), so that it has to be captured again.
  absl::Status Launch(Rank& rank) const;

 private:
  Graph(const Rank& rank, std::shared_ptr<void> executable, bool coordinated)
      : node_(rank.node().Share()),
        rank_(rank.rank()),
        executable_(std::move(executable)),
        coordinated_(coordinated) {}

  std::shared_ptr<const Node> node_;
  int rank_;
  std::shared_ptr<void> executable_;
  bool coordinated_;
  std::vector<std::shared_ptr<const CaptureNeed>> needs_;
};

}  // namespace octet

#endif  // OCTET_GRAPH_H_
