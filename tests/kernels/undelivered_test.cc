// A dispatch that fails after its counts have come, when rows do not: nothing that is enqueued
// behind it may find a row in memory that was not written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/direct/layout.h"
#include "kernels/ep/device/call_layout.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/low_latency/layout.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/epoch.h"
#include "runtime/gpu/gpu_status.h"
#include "tests/support/ep_harness.h"
#include "tests/support/host_copy.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/strategy_variants.h"
#include "tools/step/step_executor.h"

namespace octet {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kSilent = 2;
constexpr size_t kExperts = 6;
constexpr size_t kLocal = kExperts / kRanks;

class UndeliveredTest : public ::testing::TestWithParam<StrategyCase> {
 protected:
  void Make() {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (kRanks > gpus) GTEST_SKIP() << kRanks << " ranks on " << gpus << " GPUs";
    EpConfig config;
    config.num_experts = kExperts;
    config.topk = 2;
    config.hidden = 64;
    config.max_tokens_per_rank = 4;
    GetParam().ApplyTo(config);
    config.tuning = {.blocks = 4, .waves_per_block = 2};
    absl::StatusOr<std::unique_ptr<EpHarness>> harness =
        EpHarness::Create(kRanks, config, {.timeout = absl::Seconds(1)});
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
  }

  StepInput Random() {
    return RandomStep(rng_, harness_->ep().config(), std::vector<int>(kRanks, 4));
  }

  // Writes into the memory of all ranks what the silent rank would announce in call `epoch`: a row
  // for the first expert of each rank.
  absl::Status Announce(uint64_t epoch) {
    return harness_->node().Run([&](Rank& rank) -> absl::Status {
      const int me = rank.rank();
      std::vector<uint64_t> words;
      CallLayout layout = {};
      const EpConfig& config = harness_->ep().config();
      const auto add = [&](int count) {
        words.push_back(device::PackEpochCount(epoch, static_cast<uint32_t>(count)));
      };
      switch (config.strategy) {
        case Strategy::kHighThroughput:
          layout = high_throughput::MakeLayout(config, kRanks);
          for (size_t e = 0; e < kExperts; ++e) add(e % kLocal == 0 ? 1 : 0);
          for (int r = 0; r < kRanks; ++r) add(1);
          break;
        case Strategy::kLowLatency:
          layout = low_latency::MakeLayout(config, kRanks);
          for (size_t e = 0; e < kLocal; ++e) add(e == 0 ? 1 : 0);
          add(1);
          break;
        default:
          layout = direct::MakeLayout(config, kRanks);
          for (size_t e = 0; e < kLocal; ++e) add(e == 0 ? 1 : 0);
      }
      char* base = harness_->heap().peers(me).base[me];
      return OCTET_GPU(hipMemcpy(layout.Count(base, epoch, kSilent, 0), words.data(),
                                 words.size() * sizeof(uint64_t), hipMemcpyHostToDevice));
    });
  }

  // Fills the arrays that consumers index with, as an earlier owner of the memory may have left
  // them: with an expert that exists and rows that do not.
  absl::Status FillWithLeftovers(Rank& rank, const Received& received) const {
    const EpConfig& config = harness_->ep().config();
    const bool tokens = config.output == Output::kDeduplicated;
    const auto fill = [&](const void* memory, int byte, size_t bytes) {
      if (memory == nullptr) return absl::OkStatus();
      return OCTET_GPU(hipMemsetAsync(const_cast<void*>(memory), byte, bytes, rank.stream()));
    };
    const size_t rows = tokens ? static_cast<size_t>(kRanks * config.max_tokens_per_rank)
                               : static_cast<size_t>(received.max_rows);
    OCTET_RETURN_IF_ERROR(fill(received.sources, 0, rows * sizeof(RowSource)));
    OCTET_RETURN_IF_ERROR(fill(received.high_throughput.row_index, 0x7e, rows * sizeof(int32_t)));
    return fill(received.high_throughput.recv_topk_idx, 0,
                rows * static_cast<size_t>(config.topk) * sizeof(int32_t));
  }

  absl::Status Step(Rank& rank, bool split, bool silent) {
    if (silent && rank.rank() == kSilent) {
      OCTET_RETURN_IF_ERROR(rank.Barrier());  // of each launch that sends
      return rank.Barrier();
    }
    const int r = rank.rank();
    const StepExecutor executor(harness_->ep(), {.split = split});
    return executor.Enqueue(rank, harness_->buffers(r), received_[static_cast<size_t>(r)]);
  }

  // A step in which all take part.
  absl::Status GoodStep() {
    const StepInput input = Random();
    OCTET_RETURN_IF_ERROR(harness_->Upload(input));
    OCTET_RETURN_IF_ERROR(
        harness_->node().Run([&](Rank& rank) { return Step(rank, false, false); }));
    return harness_->CheckY(input);
  }

  // Whatever says on rank `r` how many rows there are.
  void ExpectNothing(int r) const {
    const Received& received = received_[static_cast<size_t>(r)];
    EXPECT_THAT(*ToHost<int32_t>(received.expert_counts, kLocal), Each(0)) << "rank " << r;
    if (received.expert_offsets != nullptr) {
      EXPECT_THAT(*ToHost<int32_t>(received.expert_offsets, kLocal + 1), Each(0)) << "rank " << r;
    }
    if (received.high_throughput.source_offsets != nullptr) {
      EXPECT_THAT(*ToHost<int32_t>(received.high_throughput.source_offsets, kRanks + 1), Each(0))
          << "rank " << r;
    }
    if (received.low_latency.split_counts != nullptr) {
      EXPECT_THAT(*ToHost<int32_t>(received.low_latency.split_counts, kLocal * kRanks), Each(0))
          << "rank " << r;
    }
    if (received.low_latency.ranges == nullptr) return;
    const absl::StatusOr<std::vector<RowRange>> ranges =
        ToHost<RowRange>(received.low_latency.ranges, kLocal * kRanks);
    ASSERT_OK(ranges.status());
    for (const RowRange& range : *ranges) EXPECT_EQ(range.count, 0) << "rank " << r;
  }

  std::mt19937_64 rng_{5};
  std::unique_ptr<EpHarness> harness_;
  std::vector<Received> received_ = std::vector<Received>(kRanks);
};

TEST_P(UndeliveredTest, RowsThatDoNotComeAreNotCounted) {
  Make();
  if (HasFatalFailure() || IsSkipped()) return;
  uint64_t first = 1;  // epoch after the last reset
  for (const bool split : {false, true}) {
    SCOPED_TRACE(split ? "split" : "fused");
    // The memory has held rows, and the other ranks have every credit that they wait for. With
    // low_latency, both halves of it.
    const int calls = harness_->ep().config().strategy == Strategy::kLowLatency ? 2 : 1;
    for (int call = 0; call < calls; ++call) {
      ASSERT_OK(GoodStep());
      ASSERT_OK(harness_->node().Run([&](Rank& rank) {
        return FillWithLeftovers(rank, received_[static_cast<size_t>(rank.rank())]);
      }));
    }
    ASSERT_OK(harness_->Upload(Random()));
    ASSERT_OK(Announce(first + static_cast<uint64_t>(calls)));
    const absl::Status status =
        harness_->node().Run([&](Rank& rank) { return Step(rank, split, true); });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 HasSubstr("dispatch-receive waited")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 2's"));
    EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("for rank 2's row count")));
    for (int r = 0; r < kSilent; ++r) ExpectNothing(r);
    first += uint64_t{1} << 28;
  }
  EXPECT_OK(GoodStep());
}

INSTANTIATE_TEST_SUITE_P(All, UndeliveredTest, ::testing::ValuesIn(DispatchVariants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet
