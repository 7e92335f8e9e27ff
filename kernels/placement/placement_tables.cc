#include "kernels/placement/placement_tables.h"

#include <hip/hip_runtime.h>

#include "absl/memory/memory.h"
#include "absl/types/span.h"
#include "kernels/ep/base/whole_gpu.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

using placement::ReplicaRange;

// Adds a source rank's row of PlacementTable::ranges.
void AddRangesOf(const Placement& placement, int source_rank, std::vector<ReplicaRange>& ranges) {
  int32_t first = 0;
  for (int expert = 0; expert < placement.num_experts(); ++expert) {
    const absl::Span<const int32_t> replicas = placement.ReplicasOf(expert);
    const int32_t own = placement.ReplicaOn(source_rank, expert);
    const auto count = static_cast<int32_t>(replicas.size());
    int32_t before_own = 0;
    while (own >= 0 && replicas[Size(before_own)] != own) ++before_own;
    ranges.push_back(own >= 0 ? ReplicaRange{first + before_own, 1} : ReplicaRange{first, count});
    first += count;
  }
}

std::vector<int32_t> AllReplicas(const Placement& placement) {
  std::vector<int32_t> all;
  for (int expert = 0; expert < placement.num_experts(); ++expert) {
    const absl::Span<const int32_t> replicas = placement.ReplicasOf(expert);
    all.insert(all.end(), replicas.begin(), replicas.end());
  }
  return all;
}

}  // namespace

PlacementTables::PlacementTables(Domain& domain, const Options& options)
    : node_(domain.node().Share()),
      first_rank_(domain.GlobalRank(0)),
      options_(options),
      report_({}, options.topk),
      memory_(*node_),
      states_(Size(node_->num_ranks())),
      client_(Register(*node_, this, options.name)) {}

absl::StatusOr<std::unique_ptr<PlacementTables>> PlacementTables::Create(Domain& domain,
                                                                         const Placement& placement,
                                                                         const Options& options) {
  auto tables = absl::WrapUnique(new PlacementTables(domain, options));
  OCTET_RETURN_IF_ERROR(
      domain.node().Run([&](Rank& rank) { return tables->InitRank(rank, placement); }));
  return tables;
}

PlacementTables::Contents PlacementTables::ContentsFor(const Rank& rank,
                                                       const Placement& placement) const {
  const bool all = options_.sources == Sources::kAllRanks;
  const int first = all ? 0 : first_rank_ + rank.rank();
  const int end = all ? placement.num_ranks() : first + 1;
  Contents contents;
  for (int source = first; source < end; ++source) AddRangesOf(placement, source, contents.ranges);
  contents.replicas = AllReplicas(placement);
  const int slots = placement.slots_per_rank();
  for (int expert = 0; expert < placement.num_experts(); ++expert) {
    const int32_t own = placement.ReplicaOn(first_rank_ + rank.rank(), expert);
    contents.locals.push_back(own < 0 ? -1 : own % slots);
  }
  return contents;
}

absl::Status PlacementTables::Replace(Rank& rank, const Placement& placement) {
  const RankState& mine = StateOf(rank);
  const Contents contents = ContentsFor(rank, placement);
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(mine.ranges.data(), contents.ranges.data(),
                                           contents.ranges.size() * sizeof(ReplicaRange),
                                           hipMemcpyHostToDevice, rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(mine.replicas.data(), contents.replicas.data(),
                                           contents.replicas.size() * sizeof(int32_t),
                                           hipMemcpyHostToDevice, rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(mine.locals.data(), contents.locals.data(),
                                           contents.locals.size() * sizeof(int32_t),
                                           hipMemcpyHostToDevice, rank.stream()));
  return rank.Synchronize();
}

absl::Status PlacementTables::InitRank(Rank& rank, const Placement& placement) {
  RankState& mine = StateOf(rank);
  const bool all = options_.sources == Sources::kAllRanks;
  const size_t sources = all ? Size(placement.num_ranks()) : 1;
  OCTET_ASSIGN_OR_RETURN(mine.ranges,
                         memory_.Device<ReplicaRange>(sources * Size(placement.num_experts())));
  OCTET_ASSIGN_OR_RETURN(mine.replicas, memory_.Device<int32_t>(placement.slots().size()));
  OCTET_ASSIGN_OR_RETURN(mine.locals, memory_.Device<int32_t>(Size(placement.num_experts())));
  mine.table = {.ranges = mine.ranges.data(),
                .replicas = mine.replicas.data(),
                .num_experts = placement.num_experts(),
                .first_source = all ? 0 : first_rank_ + rank.rank()};
  OCTET_RETURN_IF_ERROR(Replace(rank, placement));
  if (options_.max_tokens == 0) return absl::OkStatus();
  const size_t choices = Size(options_.max_tokens) * Size(options_.topk);
  for (int32_t*& ids : mine.ids) {
    OCTET_ASSIGN_OR_RETURN(const absl::Span<int32_t> memory, memory_.Device<int32_t>(choices));
    ids = memory.data();
  }
  return OCTET_GPU(placement::LoadTranslate());
}

absl::StatusOr<const int32_t*> PlacementTables::Translate(Rank& rank, const int32_t* topk_idx,
                                                          int num_tokens) {
  RankState& mine = StateOf(rank);
  int32_t* const ids = mine.ids[mine.next];
  if (num_tokens == 0) return ids;
  const int64_t choices = int64_t{num_tokens} * options_.topk;
  OCTET_RETURN_IF_GPU_ERROR(placement::LaunchTranslate({.failure = PortOf(rank, client_),
                                                        .table = mine.table,
                                                        .source_rank = first_rank_ + rank.rank(),
                                                        .topk_idx = topk_idx,
                                                        .num_tokens = num_tokens,
                                                        .topk = options_.topk,
                                                        .physical = ids},
                                                       WholeGpuForThreads(rank, choices),
                                                       rank.stream()));
  mine.next = (mine.next + 1) % mine.ids.size();
  return ids;
}

}  // namespace octet
