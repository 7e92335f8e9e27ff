#include "octet/graph.h"

#include <hip/hip_runtime.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/capture.h"
#include "runtime/node/capture_need.h"

namespace octet {

namespace {

void DestroyExecutable(void* executable) {
  (void)hipGraphExecDestroy(static_cast<hipGraphExec_t>(executable));
}

}  // namespace

void CaptureNeeds::Add(Rank& rank, std::shared_ptr<const CaptureNeed> need) {
  if (!rank.captures_ || absl::c_linear_search(rank.capture_needs_, need)) return;
  rank.capture_needs_.push_back(std::move(need));
}

absl::StatusOr<Graph> Graph::Capture(Rank& rank, absl::FunctionRef<absl::Status()> enqueue) {
  const hipStream_t stream = rank.stream();
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(rank.Barrier("the capture of a graph"));
  const uint64_t coordinated_before = rank.coordinated_launches_;
  rank.capture_needs_.clear();
  // Restricts this thread only: other ranks may capture or call HIP meanwhile.
  OCTET_RETURN_IF_GPU_ERROR(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  rank.captures_ = true;
  absl::Status enqueued = enqueue();
  rank.captures_ = false;
  if (!enqueued.ok()) {
    AbandonCapture(stream);
    return enqueued;
  }
  hipGraph_t captured = nullptr;
  OCTET_RETURN_IF_GPU_ERROR(hipStreamEndCapture(stream, &captured));
  hipGraphExec_t executable = nullptr;
  const hipError_t error = hipGraphInstantiate(&executable, captured, nullptr, nullptr, 0);
  (void)hipGraphDestroy(captured);
  OCTET_RETURN_IF_ERROR(GpuStatus(error, "hipGraphInstantiate"));
  Graph graph(rank, std::shared_ptr<void>(executable, DestroyExecutable),
              rank.coordinated_launches_ != coordinated_before);
  graph.needs_ = std::exchange(rank.capture_needs_, {});
  // Upload now: the first launch would otherwise do it, and may allocate.
  OCTET_RETURN_IF_GPU_ERROR(hipGraphUpload(executable, stream));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(rank.Barrier("the end of a capture"));
  return graph;
}

absl::Status Graph::Launch(Rank& rank) const {
  if (executable_ == nullptr) {
    return absl::FailedPreconditionError(
        "the graph has been moved to another object; launch that one");
  }
  if (!rank.IsOf(*node_)) {
    return absl::FailedPreconditionError(
        "the graph was captured on another node than that of the rank that launches it");
  }
  if (rank.rank() != rank_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the graph was captured by rank ", rank_, ", and this is rank ", rank.rank(),
                     "; each rank launches the graphs that it has captured itself"));
  }
  if (const absl::Status complete = rank.CheckComplete(); !complete.ok()) {
    return absl::Status(complete.code(),
                        absl::StrCat("a graph cannot be launched: ", complete.message()));
  }
  for (const std::shared_ptr<const CaptureNeed>& need : needs_) {
    if (!need->gone) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("a graph cannot be launched without ", need->what, ": capture it again"));
  }
  rank.launched_graphs_.insert(executable_);
  const auto launch = [&] {
    return OCTET_GPU(hipGraphLaunch(static_cast<hipGraphExec_t>(executable_.get()), rank.stream()));
  };
  return coordinated_ ? rank.CoordinatedLaunch(launch, "a graph launch") : launch();
}

}  // namespace octet
