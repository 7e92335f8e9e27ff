#include "runtime/node/capture.h"

#include <hip/hip_runtime.h>

#include "runtime/gpu/gpu_status.h"

namespace octet {

bool IsCapturing(GpuStream stream) {
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  return OCTET_GPU(hipStreamIsCapturing(stream, &capture)).ok() &&
         capture != hipStreamCaptureStatusNone;
}

void AbandonCapture(GpuStream stream) {
  if (!IsCapturing(stream)) return;
  hipGraph_t graph = nullptr;
  // An error says that the capture was invalid. The capture has ended nevertheless.
  (void)OCTET_GPU(hipStreamEndCapture(stream, &graph));
  if (graph != nullptr) (void)hipGraphDestroy(graph);
}

}  // namespace octet
