#include "tools/measure/step/soak.h"

#include <hip/hip_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/schedule.h"
#include "tools/support/progress.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

constexpr uint32_t kShapesPerNode = 4;

// Word 3 of the counters from which the ranks of a node are drawn.
constexpr uint32_t kNodeStream = 0x6e6f6465;

// Returns all ranks for the first node and for most others.
int DrawRanks(uint64_t seed, uint32_t node, int most) {
  constexpr uint32_t kOneInFewer = 4;
  PhiloxStream stream(seed, node, 0, kNodeStream);
  if (node == 0 || stream.Below(kOneInFewer) != 0) return most;
  return 1 + static_cast<int>(stream.Below(static_cast<uint32_t>(most)));
}

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  size_t resident = 0;
  file >> pages >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Returns the memory in use on the GPUs of the first `num_ranks` ranks, each counted once.
absl::StatusOr<SoakMemory> MemoryInUse(const Topology& topology, int num_ranks) {
  SoakMemory memory = {.host = ResidentBytes()};
  int current = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&current));
  std::set<int> devices;
  for (int rank = 0; rank < num_ranks; ++rank) devices.insert(topology.gpus[rank].device);
  for (const int device : devices) {
    size_t free = 0;
    size_t all = 0;
    OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(device));
    OCTET_RETURN_IF_GPU_ERROR(hipMemGetInfo(&free, &all));
    memory.gpus += all - free;
  }
  OCTET_RETURN_IF_GPU_ERROR(hipSetDevice(current));
  return memory;
}

SoakTally TallyOf(const RunResult& result) {
  SoakTally tally = {.shapes = 1,
                     .fused_steps = static_cast<int64_t>(result.warmup.size()) +
                                    static_cast<int64_t>(result.steps.size()),
                     .phased_steps = static_cast<int64_t>(result.by_phases.size())};
  for (const std::vector<StepResult>* steps : {&result.warmup, &result.steps, &result.by_phases}) {
    for (const StepResult& step : *steps) {
      for (const RankStepResult& rank : step.ranks) {
        tally.rows += rank.rows_received;
        tally.wire_bytes += rank.wire_bytes;
      }
    }
  }
  return tally;
}

// One soak and its current state.
class Soaking {
 public:
  Soaking(const Topology& topology, const SoakSpec& options, ShapeRunner run_shape, Domain* joined)
      : topology_(topology), run_shape_(run_shape), joined_(joined), domain_(joined) {
    result_.options = options;
    result_.tallies.resize(SoakVariants().size());
  }

  SoakResult Run() {
    result_.status = RunShapes();
    result_.elapsed = Elapsed();
    return std::move(result_);
  }

 private:
  absl::Duration Elapsed() const {
    return absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }

  absl::Status RunShapes() {
    const SoakSpec& options = result_.options;
    const Progress progress(joined_ == nullptr || IsFirst(*joined_));
    result_.nodes = joined_ == nullptr ? 0 : joined_->num_nodes();
    bool half_over = false;
    for (uint32_t shape = 0;; ++shape) {
      OCTET_ASSIGN_OR_RETURN(const bool over, IsOver());
      if (shape > 0 && over) break;
      progress.Show(absl::StrCat(shape, " shapes, second"),
                    static_cast<int>(absl::ToInt64Seconds(Elapsed())),
                    static_cast<int>(absl::ToInt64Seconds(options.duration)));
      if (joined_ == nullptr && shape % kShapesPerNode == 0) {
        OCTET_RETURN_IF_ERROR(MakeNode(shape / kShapesPerNode));
      }
      OCTET_RETURN_IF_ERROR(RunShape(shape));
      if (shape == 0) OCTET_RETURN_IF_ERROR(Measure(result_.start));
      if (!std::exchange(half_over, Elapsed() >= options.duration / 2) && half_over) {
        OCTET_RETURN_IF_ERROR(Measure(result_.half));
      }
    }
    OCTET_RETURN_IF_ERROR(Measure(result_.end));
    const absl::Status grown = CheckGrowth(result_);
    return joined_ == nullptr ? grown : joined_->Together(grown);
  }

  // Whether the time is over, as the first node sees it.
  absl::StatusOr<bool> IsOver() const {
    const bool over = Elapsed() >= result_.options.duration;
    if (joined_ == nullptr) return over;
    OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           joined_->AllGather(over ? "over" : ""));
    return !all.front().empty();
  }

  absl::Status MakeNode(uint32_t index) {
    const SoakSpec& options = result_.options;
    own_.reset();
    OCTET_ASSIGN_OR_RETURN(
        own_, JoinDomain({}, {.num_ranks = DrawRanks(options.seed, index, options.num_ranks),
                              .timeout = options.timeout}));
    domain_ = own_.get();
    ++result_.nodes;
    return absl::OkStatus();
  }

  // Returns the limits of the first node's shapes, which all nodes run.
  absl::StatusOr<ShapeLimits> Limits(const NodesOfRanks& of) const {
    ShapeLimits limits = LimitsOf(topology_, of);
    if (joined_ == nullptr) return limits;
    const std::string own(reinterpret_cast<const char*>(&limits), sizeof(limits));
    OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> all, joined_->AllGather(own));
    std::memcpy(&limits, all.front().data(), sizeof(limits));
    return limits;
  }

  absl::Status RunShape(uint32_t shape) {
    const SoakSpec& options = result_.options;
    const NodesOfRanks of = {.num_nodes = domain_->num_nodes(),
                             .ranks_per_node = domain_->ranks_per_node()};
    OCTET_ASSIGN_OR_RETURN(const ShapeLimits limits, Limits(of));
    RunSpec run = RandomShape(options.seed, shape, of, limits);
    run.timeout = options.timeout;
    run.rail_transport = options.rail_transport;
    result_.failed = run;
    OCTET_RETURN_IF_ERROR(CompleteSpec(run));
    OCTET_ASSIGN_OR_RETURN(const RunResult done, run_shape_(*domain_, run));
    if (const std::string difference = FirstDifference(done); !difference.empty()) {
      return absl::DataLossError(absl::StrCat("wrong results: ", difference));
    }
    result_.failed.reset();
    const SoakTally tally = TallyOf(done);
    result_.total.Add(tally);
    for (size_t i = 0; i < result_.tallies.size(); ++i) {
      const SoakVariant& variant = SoakVariants()[i];
      if (variant.strategy == run.workload.config.strategy &&
          variant.options == run.workload.config.variant) {
        result_.tallies[i].Add(tally);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Measure(SoakMemory& memory) const {
    OCTET_ASSIGN_OR_RETURN(memory, MemoryInUse(topology_, result_.options.num_ranks));
    return absl::OkStatus();
  }

  const Topology& topology_;
  const ShapeRunner run_shape_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Domain* const joined_;
  std::shared_ptr<Domain> own_;
  Domain* domain_;  // either of them
  SoakResult result_;
};

}  // namespace

void SoakTally::Add(const SoakTally& other) {
  shapes += other.shapes;
  fused_steps += other.fused_steps;
  phased_steps += other.phased_steps;
  rows += other.rows;
  wire_bytes += other.wire_bytes;
}

absl::Status CheckGrowth(const SoakResult& result) {
  const std::optional<size_t> most = result.options.max_growth;
  const size_t before = result.half.host;
  const size_t after = result.end.host;
  if (!most.has_value() || before == 0 || after <= before || after - before <= *most) {
    return absl::OkStatus();
  }
  const auto megabytes = [](size_t bytes) {
    constexpr double kBytesPerMegabyte = 1e6;
    return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / kBytesPerMegabyte);
  };
  return absl::DataLossError(absl::StrCat("memory leaks: the process had ", megabytes(before),
                                          " of host memory after half of the time and ",
                                          megabytes(after), " at the end, which is more than ",
                                          megabytes(*most), " more"));
}

SoakResult Soak(const Topology& topology, const SoakSpec& options, ShapeRunner run_shape,
                Domain* joined) {
  return Soaking(topology, options, run_shape, joined).Run();
}

}  // namespace octet
