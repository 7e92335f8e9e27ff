#include "tools/support/domain.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/rails/rail.h"
#include "tools/support/bytes.h"
#include "tools/support/watched_node.h"

namespace octet {
namespace {

// A barrier exchanges so many bytes with each node.
constexpr size_t kBarrierBytes = 16;

size_t BytesOfAll(const Domain& domain) {
  return kBarrierBytes * static_cast<size_t>(domain.num_nodes());
}

}  // namespace

absl::StatusOr<std::shared_ptr<Domain>> JoinDomain(const Launch& launch,
                                                   const DomainOptions& options) {
  if (launch.several()) return launch.join(launch, options);
  OCTET_RETURN_IF_ERROR(options.prepared);
  return CreateWatchedNode({.num_ranks = options.num_ranks, .timeout = options.timeout});
}

std::string PrefixOf(const Domain& domain) {
  return domain.several_nodes() ? absl::StrCat("node ", domain.node_index(), ": ") : "";
}

absl::StatusOr<std::vector<double>> Largest(Domain& domain, absl::Span<const double> mine) {
  std::vector<double> largest(mine.begin(), mine.end());
  if (!domain.several_nodes()) return largest;
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> all, domain.AllGather(BytesOf(mine)));
  for (size_t n = 0; n < all.size(); ++n) {
    std::vector<double> theirs;
    if (!AppendBytes(all[n], theirs) || theirs.size() != largest.size()) {
      return absl::InternalError(absl::StrCat("node ", n, " gives ", all[n].size(), " bytes for ",
                                              largest.size(), " numbers"));
    }
    for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], theirs[i]);
  }
  return largest;
}

absl::StatusOr<DomainBarrier> DomainBarrier::Create(Domain& domain) {
  DomainBarrier barrier(domain);
  if (!domain.several_nodes()) return barrier;
  const size_t bytes = BytesOfAll(domain);
  absl::Status reserved;
  for (int r = 0; r < domain.ranks_per_node(); ++r) {
    reserved.Update(domain.rail(r)->Reserve(bytes, bytes));
  }
  OCTET_RETURN_IF_ERROR(domain.Together(reserved));
  barrier.memory_.resize(static_cast<size_t>(domain.ranks_per_node()));
  OCTET_RETURN_IF_ERROR(domain.Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(barrier.memory_[static_cast<size_t>(rank.rank())],
                           DeviceMemory::Allocate(2 * bytes));
    return absl::OkStatus();
  }));
  return barrier;
}

absl::Status DomainBarrier::Meet(Rank& rank) {
  char* const sent = memory_[static_cast<size_t>(rank.rank())].as<char>();
  char* const received = sent + BytesOfAll(*domain_);
  std::vector<RailPart> parts;
  for (size_t n = 0; n < static_cast<size_t>(domain_->num_nodes()); ++n) {
    parts.push_back({.send = sent + n * kBarrierBytes,
                     .send_bytes = kBarrierBytes,
                     .recv = received + n * kBarrierBytes,
                     .recv_bytes = kBarrierBytes});
  }
  return domain_->rail(rank.rank())->Exchange(rank, parts);
}

// A rank has met all ranks of the other nodes when all ranks of its own node have met their peers.
absl::Status DomainBarrier::Arrive(Rank& rank) {
  OCTET_RETURN_IF_ERROR(rank.Barrier());
  if (memory_.empty()) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(Meet(rank));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  return rank.Barrier();
}

absl::Status DomainBarrier::Enqueue(Rank& rank) {
  OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
  if (memory_.empty()) return absl::OkStatus();
  OCTET_RETURN_IF_ERROR(Meet(rank));
  return rank.EnqueueNodeBarrier();
}

}  // namespace octet
