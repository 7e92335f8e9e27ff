// Transports rows by NCCL's or RCCL's grouped sends and receives: an all-to-all with counts.
#ifndef OCTET_TOOLS_CONTENDERS_NCCL_TRANSPORT_H_
#define OCTET_TOOLS_CONTENDERS_NCCL_TRANSPORT_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/scoped_event.h"
#include "runtime/net/rails/nccl_library.h"
#include "tools/contenders/sorted_exchange.h"

namespace octet {

// One communicator for each rank, all in this process.
class NcclCommunicators {
 public:
  // Connects all pairs. Takes seconds. Not during Run.
  static absl::StatusOr<std::shared_ptr<NcclCommunicators>> Create(Node& node);
  ~NcclCommunicators();
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;

  const NcclLibrary& library() const { return library_; }
  ncclComm_t of(const Rank& rank) const { return comms_[static_cast<size_t>(rank.rank())]; }

 private:
  NcclCommunicators(const NcclLibrary& library, int num_ranks)
      : library_(library), comms_(static_cast<size_t>(num_ranks)) {}

  const NcclLibrary& library_;
  std::vector<ncclComm_t> comms_;
};

class NcclTransport final : public RowTransport {
 public:
  NcclTransport(std::shared_ptr<const NcclCommunicators> communicators, int num_ranks)
      : communicators_(std::move(communicators)), ranks_(static_cast<size_t>(num_ranks)) {}

  absl::string_view name() const override { return NcclName(); }
  absl::Status Prepare(Rank& rank, const std::vector<ExchangeBuffers*>& buffers) override;
  absl::Status StartCounts(Rank& rank) override;
  absl::Status FinishCounts(Rank& rank) override;
  absl::Status Exchange(Rank& rank, Direction direction) override;
  int64_t CountBytes(int num_ranks, int num_local_experts) const override;

 private:
  struct RankState {
    ExchangeBuffers* buffers = nullptr;
    ScopedEvent counted;
  };
  RankState& StateOf(const Rank& rank) { return ranks_[static_cast<size_t>(rank.rank())]; }

  const std::shared_ptr<const NcclCommunicators> communicators_;
  std::vector<RankState> ranks_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_NCCL_TRANSPORT_H_
