// Steps of high_throughput on an EpHarness.
#ifndef OCTET_TESTS_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_FIXTURE_H_
#define OCTET_TESTS_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_FIXTURE_H_

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node/node_fixture.h"
#include "tests/support/random_step.h"

namespace octet {

class HighThroughputTest : public NodeTest {
 protected:
  static EpConfig Config(int num_experts, int topk, int hidden, int max_tokens) {
    EpConfig config;
    config.num_experts = num_experts;
    config.topk = topk;
    config.hidden = hidden;
    config.max_tokens_per_rank = max_tokens;
    config.strategy = Strategy::kHighThroughput;
    // By default, small calls of emulated GPUs have too few blocks and waves to race.
    if (OCTET_TEST_EMULATED) config.tuning = {.blocks = 4, .waves_per_block = 2};
    return config;
  }

  // In the place of what there was. Skips the test where there are fewer GPUs.
  void Make(int num_ranks, const EpConfig& config, absl::Duration timeout = absl::Seconds(10)) {
    if (num_ranks > NumGpus()) GTEST_SKIP() << num_ranks << " ranks on " << NumGpus() << " GPUs";
    harness_.reset();
    absl::StatusOr<std::unique_ptr<EpHarness>> harness =
        EpHarness::Create(num_ranks, config, {.timeout = timeout});
    ASSERT_OK(harness.status());
    harness_ = *std::move(harness);
  }

  const EpConfig& config() const { return harness_->config(); }
  ExpertParallel& ep() { return harness_->ep(); }
  StepBuffers& buffers(const Rank& rank) { return harness_->buffers(rank.rank()); }
  Received& received(const Rank& rank) { return harness_->received(rank.rank()); }
  DispatchArgs args(const Rank& rank) const { return harness_->dispatch_args(rank.rank()); }

  // `scatter`: with places given, in an order of their own. Rows that are not of the dtype are
  // random bytes.
  StepInput RandomStepOf(const std::vector<int>& tokens, double drop = 0, bool scatter = false) {
    StepInput input = RandomStep(rng_, config(), tokens, drop);
    SendRandomBytes(rng_, config(), input);
    if (scatter) ScatterRandomly(rng_, config(), input);
    return input;
  }

  // Dispatch and combine, all of it checked.
  void RunStep(const StepInput& input) { EXPECT_OK(harness_->StepInParts(input)); }

  std::mt19937_64 rng_{20261121};
  std::unique_ptr<EpHarness> harness_;
};

#define MAKE_OR_SKIP(...) \
  Make(__VA_ARGS__);      \
  if (HasFatalFailure() || IsSkipped()) return

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_HIGH_THROUGHPUT_HIGH_THROUGHPUT_FIXTURE_H_
