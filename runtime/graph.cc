#include "runtime/graph.h"

#include <hip/hip_runtime.h>

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/gpu_status.h"
#include "runtime/node.h"
#include "runtime/status_macros.h"

namespace octet {

bool IsCapturing(hipStream_t stream) {
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  return OCTET_GPU(hipStreamIsCapturing(stream, &capture)).ok() &&
         capture != hipStreamCaptureStatusNone;
}

void AbandonCapture(hipStream_t stream) {
  if (!IsCapturing(stream)) return;
  hipGraph_t graph = nullptr;
  // An error says that the capture was invalid. It has ended all the same.
  (void)OCTET_GPU(hipStreamEndCapture(stream, &graph));
  if (graph != nullptr) (void)hipGraphDestroy(graph);
}

absl::StatusOr<Graph> Graph::Capture(Rank& rank, absl::FunctionRef<absl::Status()> enqueue) {
  const hipStream_t stream = rank.stream();
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(rank.Barrier("the capture of a graph"));
  const uint64_t coordinated_before = rank.coordinated_launches_;
  // Of this thread only: the other ranks' may do what they like.
  OCTET_RETURN_IF_GPU_ERROR(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  if (absl::Status enqueued = enqueue(); !enqueued.ok()) {
    AbandonCapture(stream);
    return enqueued;
  }
  hipGraph_t captured = nullptr;
  OCTET_RETURN_IF_GPU_ERROR(hipStreamEndCapture(stream, &captured));
  hipGraphExec_t executable = nullptr;
  const hipError_t error = hipGraphInstantiate(&executable, captured, nullptr, nullptr, 0);
  (void)hipGraphDestroy(captured);
  OCTET_RETURN_IF_ERROR(GpuStatus(error, "hipGraphInstantiate"));
  Graph graph(executable, rank.coordinated_launches_ != coordinated_before);
  // Now rather than in the first launch: it may allocate.
  OCTET_RETURN_IF_GPU_ERROR(hipGraphUpload(executable, stream));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(rank.Barrier("the end of a capture"));
  return graph;
}

absl::Status Graph::Launch(Rank& rank) const {
  if (const absl::Status complete = rank.CheckComplete(); !complete.ok()) {
    return absl::Status(complete.code(),
                        absl::StrCat("a graph cannot be launched: ", complete.message()));
  }
  const auto launch = [&] { return OCTET_GPU(hipGraphLaunch(executable_.get(), rank.stream())); };
  return coordinated_ ? rank.CoordinatedLaunch(launch, "a graph launch") : launch();
}

}  // namespace octet
