#include "runtime/net/rails/staged_rail.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "octet/node.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/net/link.h"
#include "runtime/net/pack.h"
#include "runtime/node/capture.h"

namespace octet {
namespace {

constexpr uint32_t kArrivalSite = 0;

}  // namespace

// ---- StagedRails

StagedRails::StagedRails(Node& node, Progress& progress)
    : Rails(node, progress), memory_(std::make_unique<NodeMemory>(node)) {}

absl::StatusOr<std::unique_ptr<StagedRails>> StagedRails::Create(Node& node, Progress& progress) {
  auto rails = std::unique_ptr<StagedRails>(new StagedRails(node, progress));
  for (int rank = 0; rank < node.num_ranks(); ++rank) {
    auto rail = std::make_unique<StagedRail>(*rails, rank);
    OCTET_ASSIGN_OR_RETURN(rail->posted_, rails->memory_->Pinned<uint64_t>(1));
    OCTET_ASSIGN_OR_RETURN(rail->arrived_, rails->memory_->Pinned<uint64_t>(progress.num_nodes()));
    OCTET_ASSIGN_OR_RETURN(rail->sent_counts_,
                           rails->memory_->Pinned<int32_t>(progress.num_nodes()));
    OCTET_ASSIGN_OR_RETURN(rail->received_counts_,
                           rails->memory_->Pinned<int32_t>(progress.num_nodes()));
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
  if (!progress_.left_unfinished()) return;
  [[maybe_unused]] const NodeMemory* left = memory_.release();  // MPI may still use it
}

Rail& StagedRails::rail(int rank) const { return *rails_[rank]; }

std::string StagedRails::Report() const {
  std::vector<std::string> fields;
  for (const uint64_t posted : progress_.Posted()) fields.push_back(absl::StrCat(posted));
  return Pack(fields);
}

absl::Status StagedRails::Realign(absl::Span<const std::string> reports, absl::Duration limit) {
  std::vector<std::vector<uint64_t>> posted;  // [node][rail]
  for (const std::string& theirs : reports) {
    std::vector<std::string> fields = Unpack(theirs).value_or(std::vector<std::string>());
    fields.resize(rails_.size());
    posted.emplace_back(rails_.size());
    for (size_t rail = 0; rail < rails_.size(); ++rail) {
      static_cast<void>(absl::SimpleAtoi(fields[rail], &posted.back()[rail]));
    }
  }
  return progress_.Realign(std::move(posted), limit);
}

absl::Status StagedRails::Describe(int rank, const device::FailureRecord& record) const {
  return DescribeWait(rank, record, absl::StrCat("seen ", record.seen));
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
  OCTET_RETURN_IF_ERROR(rails_.CheckExchange(rank_, rank, parts));
  const std::vector<ExchangeSize> sizes = SizesOf(parts, num_nodes(), node());
  for (size_t other = 0; other < sizes.size(); ++other) {
    const ExchangeSize& size = sizes[other];
    if (std::max(size.send, size.recv) <= Link::kMaxBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("Rail::Exchange of ", size.send,
                                                   " bytes to and ", size.recv, " bytes from node ",
                                                   other, ": ", Link::kMaxBytes, " are the most"));
  }
  return CheckRoom(SumOf(sizes), {.send = send_.size(), .recv = recv_.size()});
}

std::vector<StagedPart> StagedRail::Place(absl::Span<const RailPart> parts) const {
  std::vector<StagedPart> placed;
  char* send = send_.data();
  char* recv = recv_.data();
  for (const ExchangeSize& size : SizesOf(parts, num_nodes(), node())) {
    placed.push_back({send, size.send, recv, size.recv});
    send += size.send;
    recv += size.recv;
  }
  return placed;
}

absl::Status StagedRail::CopyToHost(const Call& call, absl::Span<const RailPart> parts,
                                    hipStream_t stream) const {
  for (size_t other = 0; other < call.parts.size(); ++other) {
    if (other == static_cast<size_t>(node())) continue;
    char* to = call.parts[other].send;
    for (size_t i = other; i < parts.size(); i += call.parts.size()) {
      if (parts[i].send_bytes == 0) continue;
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpyAsync(to, parts[i].send, parts[i].send_bytes, hipMemcpyDeviceToHost, stream));
      to += parts[i].send_bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status StagedRail::CopyToGpu(const Call& call, absl::Span<const RailPart> parts,
                                   hipStream_t stream) const {
  for (size_t other = 0; other < call.parts.size(); ++other) {
    if (other == static_cast<size_t>(node())) continue;
    const char* from = call.parts[other].recv;
    for (size_t i = other; i < parts.size(); i += call.parts.size()) {
      if (parts[i].recv_bytes == 0) continue;
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemcpyAsync(parts[i].recv, from, parts[i].recv_bytes, hipMemcpyHostToDevice, stream));
      from += parts[i].recv_bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status StagedRail::ExchangeOn(GpuStream stream, Rank& rank,
                                    absl::Span<const RailPart> parts) {
  OCTET_RETURN_IF_ERROR(Check(rank, parts));
  if (num_nodes() == 1) return absl::OkStatus();
  Call& call = NewCall();
  call.rail = this;
  call.captured = IsCapturing(stream);
  call.parts = Place(parts);
  const device::FailurePort port = NodeClient::PortOf(rank, rails_.client_);
  call.abort_word = port.abort_word;

  OCTET_RETURN_IF_ERROR(CopyToHost(call, parts, stream));
  OCTET_RETURN_IF_GPU_ERROR(hipLaunchHostFunc(stream, &StagedRail::RunCall, &call));
  OCTET_RETURN_IF_ERROR(EnqueueAwait(stream, rank, port));
  return CopyToGpu(call, parts, stream);
}

absl::Status StagedRail::ExchangeCounts(Rank& rank, absl::Span<const int32_t> sent,
                                        absl::Span<int32_t> received) {
  const auto nodes = static_cast<size_t>(num_nodes());
  if (sent.size() != nodes || received.size() != nodes) {
    return absl::InvalidArgumentError(absl::StrCat("Rail::ExchangeCounts of ", sent.size(), " and ",
                                                   received.size(), " counts between ", nodes,
                                                   " nodes"));
  }
  std::vector<RailPart> none(nodes);
  OCTET_RETURN_IF_ERROR(rails_.CheckExchange(rank_, rank, none));
  std::fill(received.begin(), received.end(), 0);
  if (nodes == 1) return absl::OkStatus();
  absl::c_copy(sent, sent_counts_.begin());
  std::vector<StagedPart> parts(nodes);
  for (size_t other = 0; other < nodes; ++other) {
    if (other == static_cast<size_t>(node())) continue;
    parts[other] = {reinterpret_cast<char*>(&sent_counts_[other]), sizeof(int32_t),
                    reinterpret_cast<char*>(&received_counts_[other]), sizeof(int32_t)};
  }
  const device::FailurePort port = NodeClient::PortOf(rank, rails_.client_);
  const uint64_t number = posted_.front() + 1;
  Post(parts, port.abort_word);
  // The kernel has the deadline, and says whose counts are missing.
  OCTET_RETURN_IF_ERROR(EnqueueAwait(rank.stream(), rank, port));
  const auto arrived = [&] {
    for (size_t other = 0; other < nodes; ++other) {
      const bool own = other == static_cast<size_t>(node());
      if (!own && std::atomic_ref(arrived_[other]).load(std::memory_order_acquire) < number) {
        return false;
      }
    }
    return true;
  };
  OCTET_RETURN_IF_ERROR(rank.WaitUntil(arrived, "counts from other nodes"));
  if (!arrived()) return absl::InternalError("an exchange has ended without its counts");
  for (size_t other = 0; other < nodes; ++other) {
    if (other != static_cast<size_t>(node())) received[other] = received_counts_[other];
  }
  return absl::OkStatus();
}

absl::Status StagedRail::EnqueueAwait(hipStream_t stream, Rank& rank,
                                      const device::FailurePort& port) {
  const device::ArrivalParams arrival = {.port = port,
                                         .site = kArrivalSite,
                                         .posted = posted_.data(),
                                         .arrived = arrived_.data(),
                                         .num_nodes = num_nodes(),
                                         .node = node()};
  return rank.LaunchWaiting(
      [&] { return OCTET_GPU(device::LaunchAwaitArrivals(arrival, stream)); });
}

StagedRail::Call& StagedRail::NewCall() {
  for (Call& call : calls_) {
    if (call.free.exchange(false, std::memory_order_acquire)) return call;
  }
  return calls_.emplace_back();  // elements of a deque keep their place
}

void StagedRail::RunCall(void* call) {
  auto* mine = static_cast<Call*>(call);
  mine->rail->Post(mine->parts, mine->abort_word);
  if (!mine->captured) mine->free.store(true, std::memory_order_release);
}

void StagedRail::Post(const std::vector<StagedPart>& parts, const uint32_t* abort_word) {
  // After a failure the rest of the stream goes on; other nodes are not to see any of it.
  if (std::atomic_ref<const uint32_t>(*abort_word).load(std::memory_order_acquire) != 0) {
    return;
  }
  const uint64_t number = posted_.front() + 1;
  std::atomic_ref<uint64_t>(posted_.front()).store(number, std::memory_order_release);
  rails_.progress_.Post(
      {.rail = rank_, .number = number, .arrived = arrived_.data(), .parts = parts});
}

}  // namespace octet
