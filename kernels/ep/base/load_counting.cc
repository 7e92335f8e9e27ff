#include "kernels/ep/base/load_counting.h"

#include <algorithm>
#include <bit>

#include "kernels/ep/base/fill_memory.h"
#include "kernels/ep/base/load_reading.h"
#include "octet/topology.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/gpu/on_device.h"

namespace octet {
namespace {

int WindowOf(const LoadOptions& options) { return std::max(options.window, 1); }

// Some more calls than the window has: as many may end while it is read.
size_t SlotsOf(int window) {
  constexpr int kMore = 8;
  return std::bit_ceil(Size(window + kMore));
}

}  // namespace

size_t LoadCounterBytes(const LoadOptions& options, int num_counters) {
  if (!options.count) return 0;
  return (1 + SlotsOf(WindowOf(options))) * Size(num_counters) * sizeof(uint64_t);
}

LoadCounting::LoadCounting(Node& node)
    : node_(node.Share()), memory_(node), ranks_(Size(node.num_ranks())) {}

LoadCounting::~LoadCounting() {
  const bool ready = node_->ReadyToFree();
  for (const OfRank& mine : ranks_) {
    if (mine.stream != nullptr && ready) static_cast<void>(hipStreamDestroy(mine.stream));
  }
}

absl::Status LoadCounting::InitRank(Rank& rank, const LoadOptions& options, int num_counters) {
  if (!options.count) return absl::OkStatus();
  OfRank& mine = ranks_[Size(rank.rank())];
  mine.counters.window = WindowOf(options);
  mine.counters.slots = static_cast<int>(SlotsOf(mine.counters.window));
  OCTET_RETURN_IF_GPU_ERROR(LoadReadLoads());
  OCTET_RETURN_IF_GPU_ERROR(hipStreamCreateWithFlags(&mine.stream, hipStreamNonBlocking));
  OCTET_RETURN_IF_ERROR(Allocate(mine, num_counters));
  return Reset(rank);
}

absl::Status LoadCounting::CountExperts(Rank& rank, int num_experts) {
  OCTET_RETURN_IF_ERROR(Allocate(ranks_[Size(rank.rank())], num_experts));
  return Reset(rank);
}

absl::Status LoadCounting::Allocate(OfRank& mine, int num_counters) {
  const size_t n = Size(num_counters);
  OCTET_ASSIGN_OR_RETURN(mine.totals, memory_.Device<uint64_t>(n));
  OCTET_ASSIGN_OR_RETURN(mine.calls, memory_.Device<uint64_t>(Size(mine.counters.slots) * n));
  OCTET_ASSIGN_OR_RETURN(mine.read, memory_.Pinned<uint64_t>(2 * n));
  mine.counters.totals = mine.totals.data();
  mine.counters.calls = mine.calls.data();
  mine.counters.num_counters = num_counters;
  return absl::OkStatus();
}

absl::Status LoadCounting::EnqueueRead(int rank) const {
  const OfRank& of = ranks_[Size(rank)];
  OCTET_ASSIGN_OR_RETURN(const auto on_device,
                         OnDevice::Of(node_->topology().gpus[Size(rank)].device));
  return OCTET_GPU(LaunchReadLoads({.counters = of.counters, .read = of.read.data()}, of.stream));
}

absl::Status LoadCounting::AppendRead(int rank, ExpertLoads& loads) const {
  const OfRank& of = ranks_[Size(rank)];
  OCTET_RETURN_IF_GPU_ERROR(hipStreamSynchronize(of.stream));
  const auto windows = of.read.begin() + of.counters.num_counters;
  loads.rows.insert(loads.rows.end(), of.read.begin(), windows);
  loads.window.insert(loads.window.end(), windows, of.read.end());
  return absl::OkStatus();
}

absl::StatusOr<ExpertLoads> LoadCounting::Read(int rank) const {
  ExpertLoads loads;
  const MutexLock lock(&reading_);
  OCTET_RETURN_IF_ERROR(EnqueueRead(rank));
  OCTET_RETURN_IF_ERROR(AppendRead(rank, loads));
  return loads;
}

absl::StatusOr<ExpertLoads> LoadCounting::Read() const {
  ExpertLoads all;
  const MutexLock lock(&reading_);
  const int num_ranks = static_cast<int>(ranks_.size());
  for (int rank = 0; rank < num_ranks; ++rank) OCTET_RETURN_IF_ERROR(EnqueueRead(rank));
  for (int rank = 0; rank < num_ranks; ++rank) OCTET_RETURN_IF_ERROR(AppendRead(rank, all));
  return all;
}

absl::Status LoadCounting::Reset(Rank& rank) const {
  OCTET_RETURN_IF_ERROR(Fill(rank, ranks_[Size(rank.rank())].totals, 0));
  return ClearWindow(rank);
}

absl::Status LoadCounting::ClearWindow(Rank& rank) const {
  return Fill(rank, ranks_[Size(rank.rank())].calls, 0);
}

}  // namespace octet
