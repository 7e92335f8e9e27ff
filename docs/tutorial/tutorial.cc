// The host's side of the tutorial: makes a node and a heap, runs each step, and compares.
//
//   tutorial [STEP]    one of the five steps; without it, all
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "docs/tutorial/exchange.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/node_client.h"

namespace octet::tutorial {
namespace {

constexpr int kCalls = 4;                              // of each step but the first
constexpr absl::Duration kTimeout = absl::Seconds(3);  // a busy machine may be slow

// An element of the row from rank `from` to rank `to`, without the number of the call.
int32_t ElementOf(int from, int to, int i) { return 1'000'000 * from + 10'000 * to + i; }

class Exchange : public NodeClient {
 public:
  static absl::StatusOr<std::unique_ptr<Exchange>> Create(Node& node) {
    auto exchange = std::unique_ptr<Exchange>(new Exchange(node));
    OCTET_RETURN_IF_ERROR(exchange->Allocate());
    // On each rank's own thread, whose GPU is current.
    OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return exchange->InitRank(rank); }));
    return exchange;
  }
  ~Exchange() override { Unregister(node_, id_); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Enqueues a kernel on all ranks; `epoch` as in Params.
  absl::Status Launch(Rank& rank, const Kernel& kernel, uint64_t epoch = 0) const {
    return rank.CoordinatedLaunch([&] { return LaunchAlone(rank, kernel, epoch); });
  }
  // Without waiting on the host for the other ranks.
  absl::Status LaunchAlone(Rank& rank, const Kernel& kernel, uint64_t epoch = 0) const {
    Params params = params_;
    params.peers = heap_->peers(rank.rank());
    params.epoch = epoch;
    params.port = PortOf(rank, id_);
    return OCTET_GPU(kernel.launch(params, rank.stream()));
  }

  // Waits for the stream, and compares the sums of the rows of calls 1 to `calls` from `sources`.
  absl::Status Check(Rank& rank, const std::vector<int>& sources, int calls) const {
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    std::vector<int32_t> received(static_cast<size_t>(rank.num_ranks()) * kRow);
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(received.data(),
                                        params_.received.Mine(heap_->peers(rank.rank())),
                                        received.size() * sizeof(int32_t), hipMemcpyDeviceToHost));
    for (const int source : sources) {
      for (int i = 0; i < kRow; ++i) {
        const int32_t is = received[static_cast<size_t>(source) * kRow + i];
        const int32_t want = calls * ElementOf(source, rank.rank(), i) + calls * (calls + 1) / 2;
        if (is == want) continue;
        return absl::InternalError(absl::StrCat("element ", i, " of the sum of rank ", source,
                                                "'s rows is ", is, ", not ", want));
      }
    }
    return absl::OkStatus();
  }

 private:
  explicit Exchange(Node& node) : node_(node), id_(Register(node, this, "exchange")) {}

  absl::Status Allocate() {
    const auto ranks = static_cast<size_t>(node_.num_ranks());
    OCTET_ASSIGN_OR_RETURN(heap_, SymmetricHeap::Create(node_, 1 << 20));
    OCTET_ASSIGN_OR_RETURN(params_.rows, heap_->Allocate<int32_t>(ranks * kRow));
    OCTET_ASSIGN_OR_RETURN(params_.flags, heap_->Allocate<uint64_t>(ranks));
    OCTET_ASSIGN_OR_RETURN(params_.credits, heap_->Allocate<uint64_t>(ranks));
    OCTET_ASSIGN_OR_RETURN(params_.send, heap_->Allocate<int32_t>(ranks * kRow));
    OCTET_ASSIGN_OR_RETURN(params_.received, heap_->Allocate<int32_t>(ranks * kRow));
    OCTET_ASSIGN_OR_RETURN(params_.call, heap_->Allocate<device::CallEpoch>(1));
    return absl::OkStatus();
  }

  absl::Status InitRank(Rank& rank) {
    for (const Kernel& kernel : {kStep1, kStep2Send, kStep2Take, kStep3, kStep4, kStep5}) {
      OCTET_RETURN_IF_GPU_ERROR(kernel.load());
    }
    std::vector<int32_t> rows;
    for (int to = 0; to < rank.num_ranks(); ++to) {
      for (int i = 0; i < kRow; ++i) rows.push_back(ElementOf(rank.rank(), to, i));
    }
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(params_.send.Mine(heap_->peers(rank.rank())), rows.data(),
                                        rows.size() * sizeof(int32_t), hipMemcpyHostToDevice));
    return Recover(rank);
  }

  // NodeClient: the words for a wait that has failed.
  absl::Status Describe(int rank, const device::FailureRecord& record) const override {
    return DeadlineStatus(
        RecordedFailure(rank, record, "exchange", record.site == kRowSite ? "row flag" : "credit"));
  }
  // NodeClient: the state of a new exchange, from which all ranks begin again.
  absl::Status Recover(Rank& rank) override {
    const device::PeerBases peers = heap_->peers(rank.rank());
    const size_t bytes = rank.num_ranks() * sizeof(uint64_t);
    static constexpr device::CallEpoch kFirst = {.epoch = 1, .blocks_started = 0};
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(params_.flags.Mine(peers), 0, bytes, rank.stream()));
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(
        params_.received.Mine(peers), 0, rank.num_ranks() * kRow * sizeof(int32_t), rank.stream()));
    OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(params_.credits.Mine(peers), 0, bytes, rank.stream()));
    return OCTET_GPU(hipMemcpyAsync(params_.call.Mine(peers), &kFirst, sizeof(kFirst),
                                    hipMemcpyHostToDevice, rank.stream()));
  }

  Node& node_;
  const uint32_t id_;
  std::unique_ptr<SymmetricHeap> heap_;
  Params params_ = {};
};

std::vector<int> AllRanks(const Rank& rank) {
  std::vector<int> ranks(rank.num_ranks());
  for (int r = 0; r < rank.num_ranks(); ++r) ranks[r] = r;
  return ranks;
}

absl::Status Step1(Exchange& exchange, Rank& rank) {
  OCTET_RETURN_IF_ERROR(exchange.Launch(rank, kStep1, 1));
  return exchange.Check(rank, {rank.rank()}, 1);
}

absl::Status Step2(Exchange& exchange, Rank& rank) {
  for (int call = 1; call <= kCalls; ++call) {
    OCTET_RETURN_IF_ERROR(exchange.Launch(rank, kStep2Send, call));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(rank.Barrier());  // all ranks have sent
    OCTET_RETURN_IF_ERROR(exchange.Launch(rank, kStep2Take));
    OCTET_RETURN_IF_ERROR(exchange.Check(rank, AllRanks(rank), call));
    OCTET_RETURN_IF_ERROR(rank.Barrier());  // all ranks have taken
  }
  return absl::OkStatus();
}

absl::Status Step3(Exchange& exchange, Rank& rank) {
  for (int call = 1; call <= kCalls; ++call) {
    OCTET_RETURN_IF_ERROR(exchange.Launch(rank, kStep3, call));
    OCTET_RETURN_IF_ERROR(exchange.Check(rank, AllRanks(rank), call));
    OCTET_RETURN_IF_ERROR(rank.Barrier());  // all ranks have taken
  }
  return absl::OkStatus();
}

absl::Status Step4(Exchange& exchange, Rank& rank) {
  for (int call = 1; call <= kCalls; ++call) {
    OCTET_RETURN_IF_ERROR(exchange.Launch(rank, kStep4, call));
  }
  return exchange.Check(rank, AllRanks(rank), kCalls);
}

absl::Status Step5(Exchange& exchange, Rank& rank) {
  for (int call = 1; call <= kCalls; ++call) {
    OCTET_RETURN_IF_ERROR(exchange.Launch(rank, kStep5));
  }
  return exchange.Check(rank, AllRanks(rank), kCalls);
}

// One more call, without rank 1: Run returns who waited for what.
absl::Status Step5WithoutRank1(Exchange& exchange, Rank& rank) {
  if (rank.rank() == 1) return absl::OkStatus();
  return rank.LaunchWaiting([&] { return exchange.LaunchAlone(rank, kStep5); });
}

absl::Status RunStep(int step) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Node> node,
                         Node::Create({.timeout = kTimeout, .on_failure = nullptr}));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Exchange> exchange, Exchange::Create(*node));
  const auto run = [&](absl::Status (*body)(Exchange&, Rank&)) {
    return node->Run([&](Rank& rank) { return body(*exchange, rank); });
  };
  constexpr absl::Status (*kSteps[])(Exchange&, Rank&) = {Step1, Step2, Step3, Step4, Step5};
  OCTET_RETURN_IF_ERROR(run(kSteps[step - 1]));
  std::printf("step %d: %d ranks have the rows of all\n", step, node->num_ranks());
  if (step != 5 || node->num_ranks() == 1) return absl::OkStatus();

  const absl::Status failure = run(Step5WithoutRank1);
  if (failure.code() != absl::StatusCode::kDeadlineExceeded) {
    return absl::InternalError(absl::StrCat("without rank 1: ", failure.ToString()));
  }
  std::printf("without rank 1: %s\n", std::string(FirstLine(failure)).c_str());
  OCTET_RETURN_IF_ERROR(run(Step5));
  std::printf("with it again: the rows of all\n");
  return absl::OkStatus();
}

}  // namespace
}  // namespace octet::tutorial

int main(int argc, char** argv) {
  int only = 0;
  if (argc > 2 || (argc == 2 && (!absl::SimpleAtoi(argv[1], &only) || only < 1 || only > 5))) {
    std::fprintf(stderr, "usage: tutorial [STEP]    STEP is 1 to 5; without it, all\n");
    return 2;
  }
  for (int step = 1; step <= 5; ++step) {
    if (only != 0 && step != only) continue;
    if (const absl::Status status = octet::tutorial::RunStep(step); !status.ok()) {
      std::fprintf(stderr, "step %d: %s\n", step, std::string(status.message()).c_str());
      return 1;
    }
  }
  return 0;
}
