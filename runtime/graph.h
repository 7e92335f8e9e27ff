// What a rank enqueues on its stream, captured once and launched again with one call.
#ifndef OCTET_RUNTIME_GRAPH_H_
#define OCTET_RUNTIME_GRAPH_H_

#include <hip/hip_runtime.h>

#include <memory>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/node.h"

namespace octet {

// Whether what is enqueued on the stream goes into a graph (hipStreamBeginCapture). A GPU that
// cannot tell says so in whatever is enqueued next.
bool IsCapturing(hipStream_t stream);

// Ends the capture of the stream, if there is one, and throws away what it has.
void AbandonCapture(hipStream_t stream);

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
  // launch before it. kFailedPrecondition if the rank has something outstanding
  // (NodeClient::CheckComplete): the graph would go on with it.
  absl::Status Launch(Rank& rank) const;

 private:
  struct Destroy {
    void operator()(hipGraphExec_t executable) const { (void)hipGraphExecDestroy(executable); }
  };
  using Executable = std::unique_ptr<std::remove_pointer_t<hipGraphExec_t>, Destroy>;

  Graph(hipGraphExec_t executable, bool coordinated)
      : executable_(executable), coordinated_(coordinated) {}

  Executable executable_;
  bool coordinated_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_GRAPH_H_
