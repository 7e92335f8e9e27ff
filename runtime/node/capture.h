// Queries and abandons the capture of a stream into a graph.
#ifndef OCTET_RUNTIME_NODE_CAPTURE_H_
#define OCTET_RUNTIME_NODE_CAPTURE_H_

#include "octet/gpu.h"

namespace octet {

// Returns whether work enqueued on `stream` goes into a graph instead of being executed. Returns
// false if the GPU cannot tell: the next call that enqueues something then returns the error.
bool IsCapturing(GpuStream stream);

// Ends the capture of `stream`, if any, and discards what it has captured.
void AbandonCapture(GpuStream stream);

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_CAPTURE_H_
