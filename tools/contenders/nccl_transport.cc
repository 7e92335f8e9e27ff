#include "tools/contenders/nccl_transport.h"

#include <hip/hip_runtime.h>

#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"

namespace octet {
namespace {

// Calls `enqueue(peer)` for all ranks, as one operation.
absl::Status Group(const NcclLibrary& library, size_t num_ranks,
                   absl::FunctionRef<absl::Status(size_t)> enqueue) {
  OCTET_RETURN_IF_ERROR(library.ToStatus(library.group_start(), "ncclGroupStart"));
  absl::Status status;
  for (size_t peer = 0; peer < num_ranks; ++peer) status.Update(enqueue(peer));
  status.Update(library.ToStatus(library.group_end(), "ncclGroupEnd"));
  return status;
}

}  // namespace

absl::StatusOr<std::shared_ptr<NcclCommunicators>> NcclCommunicators::Create(Node& node) {
  OCTET_ASSIGN_OR_RETURN(const NcclLibrary* library, NcclLibrary::Load());
  auto communicators =
      std::shared_ptr<NcclCommunicators>(new NcclCommunicators(*library, node.num_ranks()));
  ncclUniqueId id;
  OCTET_RETURN_IF_ERROR(library->ToStatus(library->get_unique_id(&id), "ncclGetUniqueId"));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) {
    return library->ToStatus(
        library->comm_init_rank(&communicators->comms_[static_cast<size_t>(rank.rank())],
                                rank.num_ranks(), id, rank.rank()),
        "ncclCommInitRank");
  }));
  // Pairs connect at their first exchange, which must not be timed.
  const auto num_ranks = static_cast<size_t>(node.num_ranks());
  std::vector<DeviceMemory> words(num_ranks);
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) -> absl::Status {
    DeviceMemory& mine = words[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(mine, DeviceMemory::Allocate(2 * num_ranks * sizeof(int32_t)));
    auto* const word = mine.as<int32_t>();
    const ncclComm_t comm = communicators->of(rank);
    return Group(*library, num_ranks, [&](size_t peer) {
      absl::Status status = library->ToStatus(
          library->send(word + peer, 1, ncclInt32, static_cast<int>(peer), comm, rank.stream()),
          "ncclSend");
      status.Update(library->ToStatus(library->recv(word + num_ranks + peer, 1, ncclInt32,
                                                    static_cast<int>(peer), comm, rank.stream()),
                                      "ncclRecv"));
      return status;
    });
  }));
  return communicators;
}

// Destroying the communicators would wait for a failed exchange; aborting them does not.
NcclCommunicators::~NcclCommunicators() {
  for (const ncclComm_t comm : comms_) {
    if (comm != nullptr) static_cast<void>(library_.comm_abort(comm));
  }
}

absl::Status NcclTransport::Prepare(Rank& rank, const std::vector<ExchangeBuffers*>& buffers) {
  RankState& mine = StateOf(rank);
  mine.buffers = buffers[static_cast<size_t>(rank.rank())];
  OCTET_ASSIGN_OR_RETURN(mine.counted, ScopedEvent::Create());
  return absl::OkStatus();
}

absl::Status NcclTransport::StartCounts(Rank& rank) {
  RankState& mine = StateOf(rank);
  const ExchangeBuffers& buffers = *mine.buffers;
  const auto num_local = static_cast<size_t>(buffers.num_local_experts);
  const NcclLibrary& library = communicators_->library();
  const ncclComm_t comm = communicators_->of(rank);
  OCTET_RETURN_IF_ERROR(Group(library, ranks_.size(), [&](size_t peer) {
    absl::Status status =
        library.ToStatus(library.send(buffers.sorted.counts + peer * num_local, num_local,
                                      ncclInt32, static_cast<int>(peer), comm, rank.stream()),
                         "ncclSend");
    status.Update(
        library.ToStatus(library.recv(buffers.arrived.counts + peer * num_local, num_local,
                                      ncclInt32, static_cast<int>(peer), comm, rank.stream()),
                         "ncclRecv"));
    return status;
  }));
  const size_t bytes = ranks_.size() * num_local * sizeof(int32_t);
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(buffers.sent_counts, buffers.sorted.counts, bytes,
                                           hipMemcpyDeviceToHost, rank.stream()));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(buffers.arrived_counts, buffers.arrived.counts, bytes,
                                           hipMemcpyDeviceToHost, rank.stream()));
  return mine.counted.Record(rank.stream());
}

absl::Status NcclTransport::FinishCounts(Rank& rank) {
  RankState& mine = StateOf(rank);
  OCTET_RETURN_IF_ERROR(mine.counted.Wait(rank, "the exchange of counts"));
  ExchangeBuffers& buffers = *mine.buffers;
  const auto fill = [&buffers](const int32_t* counts, std::vector<RowSegment>& segments) {
    RowSegment last;
    for (RowSegment& segment : segments) {
      const int32_t* end = counts + buffers.num_local_experts;
      last = segment = {last.first + last.rows, std::accumulate(counts, end, int64_t{0})};
      counts = end;
    }
  };
  fill(buffers.sent_counts, buffers.sent);
  fill(buffers.arrived_counts, buffers.received);
  return absl::OkStatus();
}

absl::Status NcclTransport::Exchange(Rank& rank, Direction direction) {
  const ExchangeBuffers& buffers = *StateOf(rank).buffers;
  const NcclLibrary& library = communicators_->library();
  const ncclComm_t comm = communicators_->of(rank);
  const auto send = [&](const void* from, const RowSegment& segment, size_t each, size_t peer) {
    if (segment.rows == 0) return absl::OkStatus();
    const char* const begin = static_cast<const char*>(from) + segment.first * each;
    return library.ToStatus(library.send(begin, segment.rows * each, ncclInt8,
                                         static_cast<int>(peer), comm, rank.stream()),
                            "ncclSend");
  };
  const auto recv = [&](void* to, const RowSegment& segment, size_t each, size_t peer) {
    if (segment.rows == 0) return absl::OkStatus();
    char* const begin = static_cast<char*>(to) + segment.first * each;
    return library.ToStatus(library.recv(begin, segment.rows * each, ncclInt8,
                                         static_cast<int>(peer), comm, rank.stream()),
                            "ncclRecv");
  };
  return Group(library, ranks_.size(), [&](size_t peer) -> absl::Status {
    const RowSegment& sent = buffers.sent[peer];
    const RowSegment& received = buffers.received[peer];
    if (direction == Direction::kToOrigin) {
      absl::Status status = send(buffers.arrived.rows, received, buffers.row_bytes, peer);
      status.Update(recv(buffers.sorted.rows, sent, buffers.row_bytes, peer));
      return status;
    }
    absl::Status status = send(buffers.sorted.rows, sent, buffers.row_bytes, peer);
    status.Update(recv(buffers.arrived.rows, received, buffers.row_bytes, peer));
    status.Update(send(buffers.sorted.sorted_flats, sent, sizeof(int32_t), peer));
    status.Update(recv(buffers.arrived.flats, received, sizeof(int32_t), peer));
    return status;
  });
}

int64_t NcclTransport::CountBytes(int num_ranks, int num_local_experts) const {
  return static_cast<int64_t>(num_ranks - 1) * num_local_experts *
         static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace octet
