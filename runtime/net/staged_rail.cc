#include "runtime/net/staged_rail.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "runtime/capture.h"
#include "runtime/failure.h"
#include "runtime/gpu_status.h"
#include "runtime/net/link.h"
#include "runtime/net/outcome.h"
#include "runtime/status_macros.h"

namespace octet {
namespace {

constexpr uint32_t kArrivalSite = 0;

}  // namespace

// ---- StagedRails

StagedRails::StagedRails(Node& node, Progress& progress)
    : node_(node.Share()), progress_(progress), memory_(std::make_unique<NodeMemory>(node)) {}

absl::StatusOr<std::unique_ptr<StagedRails>> StagedRails::Create(Node& node, Progress& progress) {
  auto rails = std::unique_ptr<StagedRails>(new StagedRails(node, progress));
  rails->client_ = NodeClient::Register(node, rails.get());
  for (int node_index = 0; node_index < progress.num_nodes(); ++node_index) {
    rails->names_.push_back(absl::StrCat("node ", node_index));
  }
  for (int rank = 0; rank < node.num_ranks(); ++rank) {
    auto rail = std::make_unique<StagedRail>(*rails, rank);
    OCTET_ASSIGN_OR_RETURN(rail->posted_, rails->memory_->Pinned<uint64_t>(1));
    OCTET_ASSIGN_OR_RETURN(rail->arrived_, rails->memory_->Pinned<uint64_t>(progress.num_nodes()));
    std::fill(rail->posted_.begin(), rail->posted_.end(), 0);
    std::fill(rail->arrived_.begin(), rail->arrived_.end(), 0);
    rails->rails_.push_back(std::move(rail));
  }
  OCTET_RETURN_IF_ERROR(
      node.Run([](Rank& /*rank*/) { return OCTET_GPU(device::LoadAwaitArrivals()); }));
  progress.SetNumRails(node.num_ranks());
  return rails;
}

StagedRails::~StagedRails() {
  NodeClient::Unregister(*node_, client_);
  if (!progress_.left_unfinished()) return;
  [[maybe_unused]] const NodeMemory* left = memory_.release();  // MPI may still use it
}

Rail& StagedRails::rail(int rank) const { return *rails_[rank]; }

absl::Status StagedRails::Describe(int rank, const device::FailureRecord& record) const {
  const NodeFailure failure = RecordedFailure(rank, record, kExchangePhase, "the bytes of node");
  return WithFailure(
      failure, absl::DeadlineExceededError(absl::StrCat(
                   kExchangePhase, " waited ", WaitText(failure.waited), " for rank ", rank, " of ",
                   names_[record.index], ": exchange ", record.expected, ", seen ", record.seen)));
}

// ---- StagedRail

absl::Status StagedRail::Reserve(size_t send_bytes, size_t recv_bytes) {
  // Graphs may have captured the memory that has been there before, so it stays.
  if (send_bytes > send_.size()) {
    OCTET_ASSIGN_OR_RETURN(send_, rails_.memory_->Pinned<char>(send_bytes));
  }
  if (recv_bytes > recv_.size()) {
    OCTET_ASSIGN_OR_RETURN(recv_, rails_.memory_->Pinned<char>(recv_bytes));
  }
  return absl::OkStatus();
}

absl::Status StagedRail::Check(const Rank& rank, absl::Span<const RailPart> parts) const {
  if (!rails_.open_) {
    return absl::FailedPreconditionError("Rail::Exchange outside World::Run");
  }
  if (!rank.IsOf(*rails_.node_) || rank.rank() != rank_) {
    return absl::FailedPreconditionError(
        absl::StrCat("Rail::Exchange of rank ", rank_, "'s rail on rank ", rank.rank(),
                     rank.IsOf(*rails_.node_) ? "" : " of another node"));
  }
  if (parts.size() != static_cast<size_t>(num_nodes())) {
    return absl::InvalidArgumentError(
        absl::StrCat("Rail::Exchange of ", parts.size(), " parts between ", num_nodes(), " nodes"));
  }
  size_t send_bytes = 0;
  size_t recv_bytes = 0;
  for (int other = 0; other < num_nodes(); ++other) {
    if (other == node()) continue;
    const RailPart& part = parts[other];
    if (std::max(part.send_bytes, part.recv_bytes) > Link::kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("Rail::Exchange of ", part.send_bytes, " bytes to and ", part.recv_bytes,
                       " bytes from node ", other, ": ", Link::kMaxBytes, " are the most"));
    }
    send_bytes += part.send_bytes;
    recv_bytes += part.recv_bytes;
  }
  if (send_bytes > send_.size() || recv_bytes > recv_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Rail::Exchange sends ", send_bytes, " bytes and receives ", recv_bytes,
                     "; Rail::Reserve has made room for ", send_.size(), " and ", recv_.size()));
  }
  return absl::OkStatus();
}

std::vector<StagedPart> StagedRail::Place(absl::Span<const RailPart> parts) const {
  std::vector<StagedPart> placed(parts.size());
  char* send = send_.data();
  char* recv = recv_.data();
  for (int other = 0; other < num_nodes(); ++other) {
    if (other == node()) continue;
    const RailPart& part = parts[other];
    placed[other] = {send, part.send_bytes, recv, part.recv_bytes};
    send += part.send_bytes;
    recv += part.recv_bytes;
  }
  return placed;
}

absl::Status StagedRail::Exchange(Rank& rank, absl::Span<const RailPart> parts) {
  OCTET_RETURN_IF_ERROR(Check(rank, parts));
  if (num_nodes() == 1) return absl::OkStatus();
  Call& call = NewCall();
  call.rail = this;
  call.captured = IsCapturing(rank.stream());
  call.parts = Place(parts);
  const device::FailurePort port = NodeClient::PortOf(rank, rails_.client_);
  call.abort_word = port.abort_word;

  const hipStream_t stream = rank.stream();
  for (size_t other = 0; other < parts.size(); ++other) {
    const StagedPart& staged = call.parts[other];
    if (staged.send_bytes == 0) continue;
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(staged.send, parts[other].send, staged.send_bytes,
                                             hipMemcpyDeviceToHost, stream));
  }
  OCTET_RETURN_IF_GPU_ERROR(hipLaunchHostFunc(stream, &StagedRail::RunCall, &call));
  const device::ArrivalParams arrival = {.port = port,
                                         .site = kArrivalSite,
                                         .posted = posted_.data(),
                                         .arrived = arrived_.data(),
                                         .num_nodes = num_nodes(),
                                         .node = node()};
  OCTET_RETURN_IF_ERROR(
      rank.LaunchWaiting([&] { return OCTET_GPU(device::LaunchAwaitArrivals(arrival, stream)); }));
  for (size_t other = 0; other < parts.size(); ++other) {
    const StagedPart& staged = call.parts[other];
    if (staged.recv_bytes == 0) continue;
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(parts[other].recv, staged.recv, staged.recv_bytes,
                                             hipMemcpyHostToDevice, stream));
  }
  return absl::OkStatus();
}

StagedRail::Call& StagedRail::NewCall() {
  for (Call& call : calls_) {
    if (call.free.exchange(false, std::memory_order_acquire)) return call;
  }
  return calls_.emplace_back();  // elements of a deque keep their place
}

void StagedRail::RunCall(void* call) {
  auto* mine = static_cast<Call*>(call);
  mine->rail->Post(*mine);
  if (!mine->captured) mine->free.store(true, std::memory_order_release);
}

void StagedRail::Post(const Call& call) {
  // After a failure the rest of the stream goes on; other nodes are not to see any of it.
  if (std::atomic_ref<const uint32_t>(*call.abort_word).load(std::memory_order_acquire) != 0) {
    return;
  }
  const uint64_t number = posted_.front() + 1;
  std::atomic_ref<uint64_t>(posted_.front()).store(number, std::memory_order_release);
  rails_.progress_.Post(
      {.rail = rank_, .number = number, .arrived = arrived_.data(), .parts = call.parts});
}

}  // namespace octet
