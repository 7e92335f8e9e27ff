// A node whose ranks wait for each other on the GPU, for tests of Node::Run.
#ifndef OCTET_TESTS_RUNTIME_NODE_RUN_FIXTURE_H_
#define OCTET_TESTS_RUNTIME_NODE_RUN_FIXTURE_H_

#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/node_client.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"

namespace octet {

inline constexpr uint32_t kRingSite = 7;
inline constexpr uint32_t kInputSite = 8;

// A flag for every rank on every rank, and a kernel that passes them round a ring.
class Ring : public NodeClient {
 public:
  static absl::StatusOr<std::unique_ptr<Ring>> Create(Node& node) {
    auto ring = std::unique_ptr<Ring>(new Ring(node));
    OCTET_ASSIGN_OR_RETURN(ring->heap_, SymmetricHeap::Create(node, 1 << 14));
    OCTET_ASSIGN_OR_RETURN(ring->flags_, ring->heap_->Allocate<uint64_t>(kMaxRanks));
    OCTET_ASSIGN_OR_RETURN(ring->passed_, ring->heap_->Allocate<uint64_t>(1));
    ring->id_ = NodeClient::Register(node, ring.get());
    return ring;
  }
  ~Ring() override { NodeClient::Unregister(node_, id_); }

  absl::Status Describe(int rank, const device::FailureRecord& record) const override {
    if (record.kind == device::FailureKind::kInput) {
      return WithFailure(
          RecordedFailure(rank, record, "ring", "token"),
          absl::InvalidArgumentError(absl::StrCat("site ", record.site, " refused token ",
                                                  record.index, ": value ", record.seen)));
    }
    return DeadlineStatus(
        RecordedFailure(rank, record, absl::StrCat("ring site ", record.site), "token flag"));
  }

  absl::Status Recover(Rank& rank) override {
    ++recoveries_;
    OCTET_RETURN_IF_ERROR(recover_status_);
    return OCTET_GPU(hipMemsetAsync(heap_->peers(rank.rank()).base[rank.rank()], 0,
                                    heap_->bytes_used(), rank.stream()));
  }

  // Tells the next rank, waits for the one before.
  absl::Status Enqueue(Rank& rank, uint64_t epoch, bool send = true) {
    const int n = rank.num_ranks();
    const int before = (rank.rank() + n - 1) % n;
    const device::PeerBases peers = heap_->peers(rank.rank());
    uint64_t* to = flags_.On(peers, (rank.rank() + 1) % n) + rank.rank();
    return OCTET_GPU(LaunchExchange({.port = NodeClient::PortOf(rank, id_),
                                     .site = {kRingSite, before, 100U + before},
                                     .to = send ? to : nullptr,
                                     .flag = flags_.Mine(peers) + before,
                                     .epoch = epoch,
                                     .passed = passed_.Mine(peers)},
                                    rank.stream()));
  }
  absl::Status EnqueueRefusal(Rank& rank, uint64_t value) const {
    return OCTET_GPU(LaunchRefuse(
        {.port = NodeClient::PortOf(rank, id_), .site = {kInputSite, -1, 3}, .value = value},
        rank.stream()));
  }
  // How often this rank's kernel has got past its wait. The stream must be idle.
  absl::StatusOr<uint64_t> Passed(Rank& rank) const {
    uint64_t passed = 0;
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(&passed, passed_.Mine(heap_->peers(rank.rank())),
                                        sizeof(passed), hipMemcpyDeviceToHost));
    return passed;
  }

  int recoveries() const { return recoveries_; }
  void set_recover_status(absl::Status status) { recover_status_ = std::move(status); }

 private:
  explicit Ring(Node& node) : node_(node) {}

  Node& node_;
  std::unique_ptr<SymmetricHeap> heap_;
  SymmetricPtr<uint64_t> flags_;  // [from]
  SymmetricPtr<uint64_t> passed_;
  uint32_t id_ = 0;
  std::atomic<int> recoveries_{0};
  absl::Status recover_status_;
};

class NodeRunTest : public NodeTest {
 protected:
  static constexpr int kRanks = 4;

  void Make(absl::Duration timeout = absl::Seconds(10), int num_ranks = kRanks) {
    MakeNode(num_ranks, timeout);
    if (IsSkipped()) return;
    absl::StatusOr<std::unique_ptr<Ring>> ring = Ring::Create(*node_);
    ASSERT_OK(ring.status());
    ring_ = *std::move(ring);
  }

  // One healthy exchange on all ranks, from a fresh state.
  absl::Status GoodRun(uint64_t epoch = 1) {
    return node_->Run([&](Rank& rank) -> absl::Status {
      OCTET_RETURN_IF_ERROR(rank.CoordinatedLaunch([&] { return ring_->Enqueue(rank, epoch); }));
      OCTET_RETURN_IF_ERROR(rank.Synchronize());
      OCTET_ASSIGN_OR_RETURN(const uint64_t passed, ring_->Passed(rank));
      if (passed != epoch) return absl::DataLossError(absl::StrCat("passed ", passed, " times"));
      return absl::OkStatus();
    });
  }

  // On a rank's thread that is to be stuck until a failure is told, or for good.
  void WaitForNote() const {
    const absl::Time latest = absl::Now() + absl::Seconds(60);
    while (Noted().empty() && absl::Now() < latest) absl::SleepFor(absl::Milliseconds(1));
  }

  std::unique_ptr<Ring> ring_;  // gone before the node
};

}  // namespace octet

#endif  // OCTET_TESTS_RUNTIME_NODE_RUN_FIXTURE_H_
