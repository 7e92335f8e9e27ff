// Steps of high_throughput in every form that it has, held against the reference to the bit.
// Experts run on the host between dispatch and combine, each with a factor of its own.
#ifndef OCTET_TESTS_KERNELS_HIGH_THROUGHPUT_FIXTURE_H_
#define OCTET_TESTS_KERNELS_HIGH_THROUGHPUT_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "kernels/reference.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "runtime/device_memory.h"
#include "tests/support/ep_harness.h"
#include "tests/support/node_fixture.h"

namespace octet {

class HighThroughputTest : public NodeTest {
 protected:
  // What travels beside the routing.
  struct Payload {
    std::vector<uint8_t> rows;     // [T][row_bytes]
    std::vector<uint32_t> scales;  // [T][scale_words]
    std::vector<int32_t> scatter;  // [T][K], or empty
  };
  struct Step {
    StepInput input;  // x: what experts work on; the rows that travel are the payload
    std::vector<Payload> payloads;
  };
  struct Memory {
    DeviceMemory x, scales, scatter, topk_idx, topk_weights, expert_out, y, bias;
    Received received;
  };

  static EpConfig Config(int num_experts, int topk, int hidden, int max_tokens);

  // In the place of what there was. Skips the test where there are fewer GPUs.
  void Make(int num_ranks, const EpConfig& config, absl::Duration timeout = absl::Seconds(10));

  // `scatter`: with places given, in an order of their own.
  Step RandomStepOf(const std::vector<int>& tokens, double drop = 0, bool scatter = false);

  absl::Status Upload(const Step& step);
  DispatchArgs Args(const Step& step, int rank) const;

  // `cached`: handles of each rank whose layouts are used again.
  absl::Status Dispatch(const Step& step, const std::vector<DispatchHandle>& cached = {},
                        bool weights = true);
  std::vector<DispatchHandle> Handles() const;  // of the last dispatch

  // What must arrive on a rank.
  ReferenceReceived Expect(const Step& step, int rank, bool weights = true) const;

  // Everything that a dispatch of `step` has delivered on all ranks.
  void CheckDispatch(const Step& step, bool weights = true);

  // Experts on the host, and the combine of `handles` (those of the last dispatch), checked.
  // `weights`: those of the routing took part, else all are 1.
  absl::Status Combine(const Step& step, const std::vector<DispatchHandle>& handles,
                       const std::vector<uint16_t>& bias = {}, bool weights = true);

  // What the experts make of `step`, into expert_out of all ranks.
  absl::Status RunExperts(const Step& step, bool weights = true);

  // Whether `y` on this rank is what the experts' rows come to.
  absl::Status CheckY(const Step& step, int rank, const void* y,
                      const std::vector<uint16_t>& bias = {}, bool weights = true) const;

  // Dispatch and combine, all of it checked.
  void RunStep(const Step& step);

  std::mt19937_64 rng_{20261121};
  std::unique_ptr<ExpertParallel> ep_;
  EpConfig config_;
  std::vector<Memory> ranks_;

 private:
  absl::Status Allocate(Rank& rank);
  std::vector<int32_t> RandomScatter(const std::vector<int32_t>& topk_idx);
  std::vector<RankInput> Views(const Step& step, bool weights) const;
  std::vector<uint16_t> RowOutput(const Step& step, int rank, const RowSource& row) const;
  std::vector<uint16_t> TokenOutput(const Step& step, int rank, const RowSource& token,
                                    bool weights) const;
  std::vector<uint16_t> ExpertOutputs(const Step& step, int rank, bool weights) const;
  absl::Status CheckRank(const Step& step, int rank, bool weights) const;
  absl::Status CheckRows(const Step& step, const std::vector<RowSource>& rows,
                         const Received& got) const;
};

}  // namespace octet

#endif  // OCTET_TESTS_KERNELS_HIGH_THROUGHPUT_FIXTURE_H_
