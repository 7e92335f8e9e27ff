#include "tools/measure/step/compute_work.h"

#include <algorithm>
#include <cstddef>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/gpu/scoped_event.h"
#include "runtime/memory/device_memory.h"
#include "tools/measure/step/compute_kernel.h"
#include "tools/measure/step/device_timer.h"

namespace octet {
namespace {

constexpr int kThreads = 256;

// For the measurement of a round.
constexpr int kProbeRounds = 1 << 14;
constexpr int kRepetitions = 5;
constexpr double kMostRounds = 1 << 28;

}  // namespace

struct ComputeWork::RankState {
  ~RankState() {
    if (stream != nullptr) (void)hipStreamDestroy(stream);
  }

  hipStream_t stream = nullptr;
  ScopedEvent before;
  ScopedEvent done;
  DeviceMemory out;
};

absl::StatusOr<std::unique_ptr<ComputeWork>> ComputeWork::Create(Node& node, double us,
                                                                 int blocks) {
  auto work =
      absl::WrapUnique(new ComputeWork(node, LaunchShape{.blocks = blocks, .threads = kThreads}));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return work->InitRank(rank); }));
  OCTET_RETURN_IF_ERROR(work->Measure(us));
  return work;
}

ComputeWork::ComputeWork(Node& node, const LaunchShape& shape) : node_(node), shape_(shape) {
  for (int r = 0; r < node.num_ranks(); ++r) ranks_.push_back(std::make_unique<RankState>());
}

ComputeWork::~ComputeWork() = default;

absl::Status ComputeWork::InitRank(Rank& rank) {
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_GPU_ERROR(LoadCompute());
  OCTET_RETURN_IF_GPU_ERROR(hipStreamCreateWithFlags(&mine.stream, hipStreamNonBlocking));
  OCTET_ASSIGN_OR_RETURN(mine.before, ScopedEvent::Create());
  OCTET_ASSIGN_OR_RETURN(mine.done, ScopedEvent::Create());
  const size_t threads = static_cast<size_t>(shape_.blocks) * static_cast<size_t>(shape_.threads);
  OCTET_ASSIGN_OR_RETURN(mine.out, DeviceMemory::Allocate(threads * sizeof(uint32_t)));
  return absl::OkStatus();
}

absl::Status ComputeWork::Measure(double us) {
  OCTET_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::Create(node_));
  const auto time = [&]() {
    return timer.MedianTime(kRepetitions, [this](Rank& rank) { return Enqueue(rank); });
  };
  OCTET_ASSIGN_OR_RETURN(const double launch_us, time());
  rounds_ = kProbeRounds;
  OCTET_ASSIGN_OR_RETURN(const double probe_us, time());
  const double per_us = kProbeRounds / std::max(probe_us - launch_us, 1.0);
  rounds_ = static_cast<int>(std::clamp(us * per_us, 1.0, kMostRounds));
  OCTET_ASSIGN_OR_RETURN(measured_us_, time());
  return absl::OkStatus();
}

absl::Status ComputeWork::Launch(Rank& rank, hipStream_t stream) const {
  ComputeParams params = {};
  params.out = StateOf(rank).out.as<uint32_t>();
  params.rounds = rounds_;
  params.tag = tag_;
  if (trace_ != nullptr) {
    params.trace = trace_->buffer(rank.rank());
    params.trace.events += static_cast<size_t>(first_block_) * params.trace.capacity;
    params.trace.counts += first_block_;
    params.trace.num_blocks -= static_cast<uint32_t>(first_block_);
  }
  return OCTET_GPU(LaunchCompute(params, shape_, stream));
}

absl::Status ComputeWork::Enqueue(Rank& rank) { return Launch(rank, rank.stream()); }

absl::Status ComputeWork::EnqueueBeside(Rank& rank, absl::FunctionRef<absl::Status()> enqueue) {
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_ERROR(mine.before.Record(rank.stream()));
  OCTET_RETURN_IF_ERROR(enqueue());
  OCTET_RETURN_IF_ERROR(mine.before.Hold(mine.stream));
  OCTET_RETURN_IF_ERROR(Launch(rank, mine.stream));
  OCTET_RETURN_IF_ERROR(mine.done.Record(mine.stream));
  return mine.done.Hold(rank.stream());
}

absl::Status ComputeWork::Verify(Rank& rank) const {
  const DeviceMemory& out = StateOf(rank).out;
  std::vector<uint32_t> values(out.bytes() / sizeof(uint32_t));
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(values.data(), out.as<void>(), out.bytes(), hipMemcpyDeviceToHost));
  // All rounds together equal one multiplication and one addition.
  uint32_t factor = 1;
  uint32_t summand = 0;
  for (int round = 0; round < rounds_; ++round) {
    factor *= kComputeFactor;
    summand = summand * kComputeFactor + kComputeSummand;
  }
  for (size_t thread = 0; thread < values.size(); ++thread) {
    const uint32_t expected = static_cast<uint32_t>(thread) * factor + summand;
    if (values[thread] == expected) continue;
    return absl::DataLossError(absl::StrCat("thread ", thread, " of the compute kernel has ",
                                            values[thread], "; it must be ", expected));
  }
  return absl::OkStatus();
}

void ComputeWork::Record(const TraceCollector* trace, int first_block, uint32_t tag) {
  trace_ = trace;
  first_block_ = first_block;
  tag_ = tag;
}

}  // namespace octet
