// What a captured graph needs for as long as it is launched.
#ifndef OCTET_RUNTIME_NODE_CAPTURE_NEED_H_
#define OCTET_RUNTIME_NODE_CAPTURE_NEED_H_

#include <atomic>
#include <memory>

#include "octet/node.h"

namespace octet {

struct CaptureNeed {
  const char* what = "";           // for the error: "the communicator of NCCL"
  std::atomic<bool> gone = false;  // graphs must not be launched any longer
};

// To be called on the rank's thread when something is enqueued: Graph::Launch of the graph that
// is being made refuses to launch once the need is gone. Does nothing without a capture, and for
// captures without Graph.
class CaptureNeeds {
 public:
  static void Add(Rank& rank, std::shared_ptr<const CaptureNeed> need);
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_CAPTURE_NEED_H_
