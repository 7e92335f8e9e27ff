#include "tools/ceilings.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/device_memory.h"
#include "runtime/failure.h"
#include "runtime/gpu_status.h"
#include "runtime/symmetric_heap.h"
#include "runtime/trace.h"
#include "tools/ceilings_kernels.h"
#include "tools/statistics.h"

namespace octet {
namespace {

constexpr int kRepetitions = 15;
constexpr int kBarriers = 2000;
constexpr int kRowVecs = 896;  // 7168 16-bit elements

// The median over repetitions of the slowest rank. `times`: [rank][repetition].
double SlowestMedian(const std::vector<std::vector<double>>& times) {
  std::vector<double> slowest(times[0].size());
  for (const std::vector<double>& rank : times) {
    for (size_t i = 0; i < rank.size(); ++i) slowest[i] = std::max(slowest[i], rank[i]);
  }
  return Summarize(slowest).median;
}

// One rank's events, destroyed with it.
class Stopwatch {
 public:
  absl::Status Init() {
    OCTET_RETURN_IF_GPU_ERROR(hipEventCreate(&start_));
    return OCTET_GPU(hipEventCreate(&stop_));
  }
  ~Stopwatch() {
    if (start_ != nullptr) static_cast<void>(hipEventDestroy(start_));
    if (stop_ != nullptr) static_cast<void>(hipEventDestroy(stop_));
  }
  absl::Status Start(Rank& rank) { return OCTET_GPU(hipEventRecord(start_, rank.stream())); }
  absl::Status Stop(Rank& rank) { return OCTET_GPU(hipEventRecord(stop_, rank.stream())); }
  absl::StatusOr<double> Microseconds() const {
    float ms = 0;
    OCTET_RETURN_IF_GPU_ERROR(hipEventElapsedTime(&ms, start_, stop_));
    return static_cast<double>(ms) * 1e3;
  }

 private:
  hipEvent_t start_ = nullptr;
  hipEvent_t stop_ = nullptr;
};

// Device time of what `enqueue` enqueues, after the GPUs have been lined up.
absl::StatusOr<double> TimeOnDevice(Node& node, absl::FunctionRef<absl::Status(Rank&)> enqueue) {
  std::vector<std::vector<double>> times(static_cast<size_t>(node.num_ranks()));
  std::vector<Stopwatch> watches(times.size());
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    Stopwatch& watch = watches[static_cast<size_t>(rank.rank())];
    OCTET_RETURN_IF_ERROR(watch.Init());
    for (int i = 0; i < kRepetitions; ++i) {
      OCTET_RETURN_IF_ERROR(rank.CoordinatedLaunch([&]() -> absl::Status {
        OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
        OCTET_RETURN_IF_ERROR(watch.Start(rank));
        OCTET_RETURN_IF_ERROR(enqueue(rank));
        return watch.Stop(rank);
      }));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_ASSIGN_OR_RETURN(const double us, watch.Microseconds());
      times[static_cast<size_t>(rank.rank())].push_back(us);
    }
    return absl::OkStatus();
  }));
  return SlowestMedian(times);
}

absl::StatusOr<double> MeasureAllToAll(Node& node) {
  const GpuInfo& gpu = node.topology().gpus[0];
  const int num_ranks = node.num_ranks();
  if (num_ranks == 1) return 0.0;
  // Long against a launch on a GPU, short on a CPU.
  const int64_t bytes_per_rank = node.topology().platform == "emulation" ? 1 << 20 : 100 << 20;
  const int64_t row_bytes = kRowVecs * 16;
  const int rows = static_cast<int>(bytes_per_rank / row_bytes / (num_ranks - 1));
  OCTET_ASSIGN_OR_RETURN(
      const std::unique_ptr<SymmetricHeap> heap,
      SymmetricHeap::Create(node, static_cast<size_t>(row_bytes * rows * num_ranks)));
  std::vector<DeviceMemory> sources(static_cast<size_t>(num_ranks));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    DeviceMemory& source = sources[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(source, DeviceMemory::Allocate(static_cast<size_t>(row_bytes * rows)));
    return OCTET_GPU(hipMemsetAsync(source.as<void>(), 0x5a, source.bytes(), rank.stream()));
  }));
  const int threads = std::min(512, gpu.wave_size * 8);
  const LaunchShape shape = {.blocks = 2 * gpu.num_compute_units, .threads = threads};
  OCTET_ASSIGN_OR_RETURN(const double us, TimeOnDevice(node, [&](Rank& rank) {
                           const AllToAllParams params = {
                               .peers = heap->peers(rank.rank()),
                               .source = sources[static_cast<size_t>(rank.rank())].as<void>(),
                               .row_vecs = kRowVecs,
                               .rows_per_peer = rows};
                           return OCTET_GPU(LaunchAllToAll(params, shape, rank.stream()));
                         }));
  return static_cast<double>(row_bytes * rows * (num_ranks - 1)) / us / 1e3;
}

absl::StatusOr<double> MeasureHostBarrier(Node& node) {
  std::vector<double> us(static_cast<size_t>(node.num_ranks()));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    const absl::Time start = absl::Now();
    for (int i = 0; i < kBarriers; ++i) OCTET_RETURN_IF_ERROR(rank.Barrier());
    us[static_cast<size_t>(rank.rank())] =
        absl::ToDoubleMicroseconds(absl::Now() - start) / kBarriers;
    return absl::OkStatus();
  }));
  return *std::max_element(us.begin(), us.end());
}

absl::Status MeasureClocks(Node& node, Ceilings& ceilings) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<TraceCollector> trace,
                         TraceCollector::Create(node, 1, 1));
  const auto num_ranks = static_cast<size_t>(node.num_ranks());
  std::vector<std::vector<uint64_t>> starts(num_ranks);  // ticks of the rank's own clock
  std::vector<Stopwatch> watches(num_ranks);
  std::vector<DeviceMemory> clocks(num_ranks);
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    OCTET_RETURN_IF_ERROR(watches[r].Init());
    OCTET_ASSIGN_OR_RETURN(clocks[r], DeviceMemory::Allocate(sizeof(uint64_t)));
    for (int i = 0; i < kRepetitions; ++i) {
      OCTET_RETURN_IF_ERROR(rank.CoordinatedLaunch(
          [&] { return OCTET_GPU(LaunchReadClock(clocks[r].as<uint64_t>(), rank.stream())); }));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      uint64_t clock = 0;
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpy(&clock, clocks[r].as<void>(), sizeof(clock), hipMemcpyDeviceToHost));
      starts[r].push_back(clock);
    }
    return absl::OkStatus();
  }));
  OCTET_ASSIGN_OR_RETURN(ceilings.empty_launch_us, TimeOnDevice(node, [&](Rank& rank) {
                           uint64_t* clock =
                               clocks[static_cast<size_t>(rank.rank())].as<uint64_t>();
                           return OCTET_GPU(LaunchReadClock(clock, rank.stream()));
                         }));
  std::vector<double> skews;
  for (size_t i = 0; i < static_cast<size_t>(kRepetitions); ++i) {
    double first = 0;  // rank 0's, on its own clock
    double last = 0;
    for (size_t r = 1; r < num_ranks; ++r) {
      const auto ticks = static_cast<double>(static_cast<int64_t>(starts[r][i] - starts[0][i]));
      const double ns =
          ticks * 1e9 / static_cast<double>(DeviceClockHz()) - trace->clock_offsets()[r].offset_ns;
      first = std::min(first, ns);
      last = std::max(last, ns);
    }
    skews.push_back((last - first) / 1e3);
  }
  ceilings.launch_skew_us = Summarize(skews).median;
  for (const TraceCollector::ClockOffset& offset : trace->clock_offsets()) {
    ceilings.clock_round_trip_us =
        std::max(ceilings.clock_round_trip_us, offset.round_trip_ns / 1e3);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Ceilings> MeasureCeilings(Node& node) {
  Ceilings ceilings;
  OCTET_ASSIGN_OR_RETURN(ceilings.all_to_all_gbps, MeasureAllToAll(node));
  OCTET_ASSIGN_OR_RETURN(ceilings.host_barrier_us, MeasureHostBarrier(node));
  OCTET_RETURN_IF_ERROR(MeasureClocks(node, ceilings));
  return ceilings;
}

}  // namespace octet
