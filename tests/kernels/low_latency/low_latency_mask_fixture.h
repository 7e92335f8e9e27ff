// low_latency with ranks that may be masked: steps in which some ranks are silent, held against the
// reference. In emulation under a schedule, whose virtual time lets waits expire at once.
#ifndef OCTET_TESTS_KERNELS_LOW_LATENCY_LOW_LATENCY_MASK_FIXTURE_H_
#define OCTET_TESTS_KERNELS_LOW_LATENCY_LOW_LATENCY_MASK_FIXTURE_H_

#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/dtype.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/peers.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/failure_record.h"
#include "runtime/failure/failure.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/node/node_client.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/node/node_kernels.h"

namespace octet {

inline constexpr int kRanks = 4;
inline constexpr absl::Duration kNodeTimeout = absl::Seconds(20);

// On GPUs waits really take their time; a step of emulated ones takes longer, of virtual time.
inline absl::Duration MaskTimeout() {
  const absl::StatusOr<Topology> topology = DiscoverTopology();
  return topology.ok() && topology->emulated() ? absl::Seconds(1) : absl::Milliseconds(100);
}

constexpr RankSet Only(int rank) { return RankSet{1} << rank; }
constexpr bool Has(RankSet ranks, int rank) { return ((ranks >> rank) & 1) != 0; }

// How far a rank comes in a step.
enum class Part { kAll, kDispatch, kNothing };

class LowLatencyMaskTest : public ::testing::Test {
 protected:
  static EpConfig Config(Output output = Output::kPackedExperts,
                         CombineOrder order = CombineOrder::kPerRank) {
    EpConfig config;
    config.num_experts = 3 * kRanks;
    config.topk = 3;
    config.hidden = 144;
    config.max_tokens_per_rank = 9;
    config.output = output;
    config.combine_order = order;
    config.strategy = Strategy::kLowLatency;
    config.low_latency.failure_policy = FailurePolicy::kMask;
    config.low_latency.mask_timeout = MaskTimeout();
    config.low_latency.statistics = true;
    config.tuning = {.blocks = 4, .waves_per_block = 2};
    return config;
  }

  // Skips the test where there are fewer GPUs: `if (IsSkipped()) return;`.
  void Make(const EpConfig& config, absl::Duration timeout = kNodeTimeout) {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (gpus < kRanks) GTEST_SKIP() << kRanks << " ranks on " << gpus << " GPUs";
    harness_.reset();
    absl::StatusOr<std::unique_ptr<EpHarness>> harness =
        EpHarness::Create(kRanks, config, {.timeout = timeout});
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
    absent_ = 0;
  }

  const EpConfig& config() { return harness_->ep().config(); }
  StepInput Random() {
    return RandomStep(rng_, config(), RandomTokens(rng_, config(), kRanks), 0.1);
  }

  // What is left of a step for the others: nobody of `without` has tokens, and nothing is chosen
  // there.
  StepInput Without(StepInput input, RankSet without) {
    const int num_local = config().num_local_experts(kRanks);
    for (int r = 0; r < kRanks; ++r) {
      StepInput::PerRank& rank = input.ranks[static_cast<size_t>(r)];
      if (Has(without, r)) rank = {};
      for (int32_t& id : rank.topk_idx) {
        if (id >= 0 && Has(without, id / num_local)) id = -1;
      }
    }
    return input;
  }

  absl::Status OnRanks(const std::function<absl::Status(Rank&, ExpertParallel&)>& body) {
    return harness_->node().Run([&](Rank& rank) { return body(rank, harness_->ep()); });
  }

  // A step in which each rank does its part, and those that are absent already do nothing; what it
  // must have delivered to those that do all. From then on who has not done all is absent.
  void Step(const std::function<Part(int rank)>& part, const std::vector<Form>& forms,
            const std::vector<int>& tokens = {}) {
    const StepInput input = tokens.empty() ? Random() : RandomStep(rng_, config(), tokens, 0.1);
    ASSERT_OK(harness_->Upload(input));
    RankSet no_dispatch = absent_;
    for (int r = 0; r < kRanks; ++r) {
      if (part(r) == Part::kNothing) no_dispatch |= Only(r);
      if (part(r) != Part::kAll) absent_ |= Only(r);
    }
    ASSERT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
      const int r = rank.rank();
      if (Has(no_dispatch, r)) return absl::OkStatus();
      if (!Has(absent_, r)) {
        return harness_->RunStep(rank, forms[static_cast<size_t>(r) % forms.size()]);
      }
      return ep.Dispatch(rank, harness_->dispatch_args(r)).status();
    }));
    CheckStep(input, no_dispatch, absent_);
  }
  void Step(RankSet silent, const std::vector<Form>& forms = {Form::kFused}) {
    Step([&](int rank) { return Has(silent, rank) ? Part::kNothing : Part::kAll; }, forms);
  }

  // What a step of `input` has delivered to those that are not absent, without these ranks.
  void CheckStep(const StepInput& input, RankSet no_dispatch, RankSet no_combine) {
    StepInput received = input;
    for (int r = 0; r < kRanks; ++r) {
      if (Has(no_dispatch, r)) received.ranks[static_cast<size_t>(r)] = {};
    }
    for (int r = 0; r < kRanks; ++r) {
      if (Has(absent_, r)) continue;
      EXPECT_OK(harness_->CheckReceived(received, r));
      const LeftOut& left_out = *harness_->received(r).low_latency.left_out;
      EXPECT_EQ(left_out.dispatch, no_dispatch) << "rank " << r;
      EXPECT_EQ(left_out.combine, no_combine) << "rank " << r;
    }
    EXPECT_OK(harness_->CheckY(Without(input, no_combine | absent_)));
  }

  void ExpectMasks(RankSet masked) {
    EXPECT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
      if (Has(absent_, rank.rank())) return absl::OkStatus();
      OCTET_ASSIGN_OR_RETURN(const RankSet mine, ep.MaskedRanks(rank));
      EXPECT_EQ(mine, masked) << "rank " << rank.rank();
      return absl::OkStatus();
    }));
  }

  // All ranks but `still_masked` are there again.
  void Unmask(RankSet still_masked = 0) {
    EXPECT_OK(
        OnRanks([&](Rank& rank, ExpertParallel& ep) { return ep.Unmask(rank, still_masked); }));
    absent_ = still_masked;
  }

  std::vector<EpStatistics> Statistics() {
    std::vector<EpStatistics> statistics(kRanks);
    EXPECT_OK(OnRanks([&](Rank& rank, ExpertParallel& ep) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(statistics[static_cast<size_t>(rank.rank())], ep.Statistics(rank));
      return absl::OkStatus();
    }));
    return statistics;
  }
  absl::Status ResetStatistics() {
    return OnRanks([](Rank& rank, ExpertParallel& ep) { return ep.ResetStatistics(rank); });
  }

  // What kernels of different ranks tell each other, in pinned memory.
  struct Signals {
    uint64_t set = 0;
    struct PerRank {
      uint64_t passed = 0;
      std::array<uint32_t, kMaxRanks> masks = {};
    };
    std::array<PerRank, kRanks> ranks = {};
  };
  void SetUp() override {
    void* memory = nullptr;
    ASSERT_EQ(hipHostMalloc(&memory, sizeof(Signals), hipHostMallocPortable | hipHostMallocMapped),
              hipSuccess);
    signals_ = new (memory) Signals();
  }
  void TearDown() override {
    harness_.reset();
    EXPECT_EQ(hipHostFree(signals_), hipSuccess);
  }

  static void Poke(uint64_t* word, uint64_t value) {
    EXPECT_EQ(hipMemcpy(word, &value, sizeof(value), hipMemcpyHostToDevice), hipSuccess);
  }

  // Kernels on the rank's stream: one that sets the signal; one that waits until it is set, but no
  // longer than `limit`.
  absl::Status EnqueueSignal(Rank& rank) {
    return EnqueueExchange(rank, &signals_->set, nullptr, {});
  }
  absl::Status EnqueueWait(Rank& rank, absl::Duration limit) {
    return EnqueueExchange(rank, nullptr, &signals_->set, limit);
  }
  absl::Status EnqueueExchange(Rank& rank, uint64_t* to, const uint64_t* flag,
                               absl::Duration limit) {
    Signals::PerRank& mine = signals_->ranks[static_cast<size_t>(rank.rank())];
    device::FailurePort port = NodeClient::PortOf(rank, 0);
    port.masks = mine.masks.data();  // a wait that expires leaves, and that is all
    port.deadline_ticks =
        static_cast<uint64_t>(absl::ToDoubleSeconds(limit) * static_cast<double>(DeviceClockHz()));
    const int other = (rank.rank() + 1) % kRanks;
    return OCTET_GPU(LaunchExchange({.port = port,
                                     .site = {0, other, 0},
                                     .to = to,
                                     .flag = flag,
                                     .epoch = 1,
                                     .passed = &mine.passed},
                                    rank.stream()));
  }

  // Rank 3 comes to its dispatch, or if it `dispatches` to its combine, when the others have given
  // it up and are in the midst of `later_steps` further steps, which choose `topk_idx` (of each
  // rank).
  absl::Status LateStep(Rank& rank, ExpertParallel& ep, bool dispatches, int later_steps,
                        const std::vector<DeviceMemory>& topk_idx) {
    const auto r = static_cast<size_t>(rank.rank());
    DispatchArgs args = harness_->dispatch_args(rank.rank());
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    if (rank.rank() == 3) {
      if (!dispatches) OCTET_RETURN_IF_ERROR(EnqueueWait(rank, kNodeTimeout));
      OCTET_ASSIGN_OR_RETURN(const Received received, ep.Dispatch(rank, args));
      if (dispatches) OCTET_RETURN_IF_ERROR(EnqueueWait(rank, kNodeTimeout));
      combine.expert_out = received.x;
      return ScaledCombine(ep, rank, received.handle, combine);
    }
    OCTET_RETURN_IF_ERROR(harness_->RunStep(rank, Form::kFused));
    args.topk_idx = topk_idx[r].as<int32_t>();
    for (int step = 0; step < later_steps; ++step) {
      OCTET_ASSIGN_OR_RETURN(const Received received, ep.Dispatch(rank, args));
      combine.expert_out = received.x;
      // In the step whose rows come home to where rank 3's were to come.
      if (step == 1 && rank.rank() == 0) OCTET_RETURN_IF_ERROR(EnqueueSignal(rank));
      OCTET_RETURN_IF_ERROR(PoisonY(rank, args, combine));
      OCTET_RETURN_IF_ERROR(ScaledCombine(ep, rank, received.handle, combine));
    }
    return absl::OkStatus();
  }
  // Two steps at the same time, with so much work before their combines.
  absl::Status TwoSteps(Rank& rank, ExpertParallel& ep, uint64_t work_ticks) {
    const DispatchArgs args = harness_->dispatch_args(rank.rank());
    ScaledCombineArgs combine = harness_->combine_args(rank.rank());
    std::array<Received, 2> received;
    std::array<DispatchHandle, 2> handles;
    for (DispatchHandle& handle : handles) {
      OCTET_ASSIGN_OR_RETURN(handle, ep.DispatchSend(rank, args));
    }
    for (size_t i = 0; i < handles.size(); ++i) {
      OCTET_ASSIGN_OR_RETURN(received[i], ep.DispatchReceive(rank, handles[i]));
    }
    if (work_ticks > 0) OCTET_RETURN_IF_GPU_ERROR(LaunchWork(work_ticks, rank.stream()));
    for (size_t i = 0; i < handles.size(); ++i) {
      combine.expert_out = received[i].x;
      OCTET_RETURN_IF_ERROR(ScaledCombineSend(ep, rank, handles[i], combine));
    }
    for (const DispatchHandle& handle : handles) {
      OCTET_RETURN_IF_ERROR(ScaledCombineReceive(ep, rank, handle, combine));
    }
    return absl::OkStatus();
  }
  absl::Status PoisonY(Rank& rank, const DispatchArgs& args, const CombineArgs& combine) {
    return OCTET_GPU(hipMemsetAsync(
        combine.y, 0xff, static_cast<size_t>(args.num_tokens) * config().dtype_row_bytes(),
        rank.stream()));
  }

  std::mt19937_64 rng_{20'261'122};
  std::unique_ptr<EpHarness> harness_;
  RankSet absent_ = 0;
  Signals* signals_ = nullptr;
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_LOW_LATENCY_LOW_LATENCY_MASK_FIXTURE_H_
