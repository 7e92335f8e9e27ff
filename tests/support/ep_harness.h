// One node and one ExpertParallel, and steps on them that are held against the reference.
#ifndef OCTET_TESTS_SUPPORT_EP_HARNESS_H_
#define OCTET_TESTS_SUPPORT_EP_HARNESS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/reference.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/symmetric_heap.h"
#include "runtime/device_memory.h"

namespace octet {

// The input of one step, all ranks, in host memory.
struct StepInput {
  struct PerRank {
    int num_tokens = 0;
    std::vector<uint16_t> x;
    std::vector<int32_t> topk_idx;
    std::vector<float> topk_weights;
    // What dispatch makes of x with DispatchFormat::kQuantizedFp8.
    std::vector<uint8_t> fp8;
    std::vector<uint32_t> scales;
  };
  std::vector<PerRank> ranks;
  std::vector<float> expert_scale;  // [E]

  std::vector<RankInput> views() const;
};

// Random x (with NaNs, infinities, zeros of both signs and subnormals strewn in; in quantised rows
// so few that most groups have none, and groups of zeros), weights and routing; each (token, k) is
// dropped with probability `drop`.
StepInput RandomStep(std::mt19937_64& rng, const EpConfig& config,
                     const std::vector<int>& num_tokens, double drop = 0.0);
// num_tokens of each rank drawn from 0 .. M.
std::vector<int> RandomTokens(std::mt19937_64& rng, const EpConfig& config, int num_ranks);

// How a rank goes through a step.
enum class Form {
  kFused,           // Dispatch, Combine with the expert applied on the way
  kSplit,           // the four phases one by one
  kSeparateExpert,  // Dispatch, a pointwise kernel, Combine
  kCached,          // as kFused, with the layout of the dispatch before, if there was one
};

class EpHarness {
 public:
  static absl::StatusOr<std::unique_ptr<EpHarness>> Create(int num_ranks, const EpConfig& config,
                                                           NodeOptions options = {});

  // Runs the step, rank r in forms[r % forms.size()]. The Status of Node::Run, or kDataLoss that
  // says what differs from the reference.
  absl::Status Step(const StepInput& input, const std::vector<Form>& forms = {Form::kFused});

  // All steps in one Run and with nothing on the host between them, so that ranks may be calls
  // apart. Of the steps y is compared, of the last one also what was received.
  absl::Status Steps(const std::vector<StepInput>& inputs,
                     const std::vector<Form>& forms = {Form::kFused});

  // The same with an even number of steps, two of which are on their way at the same time: with
  // kSplit, both are dispatched before the first is received, and so with their combines; otherwise
  // both are dispatched before they are combined. Of all of them y is compared.
  absl::Status StepsInPairs(const std::vector<StepInput>& inputs, const std::vector<Form>& forms);

  // One dispatch, and a combine of it for each of `inputs`, which differ in expert_scale alone,
  // with nothing on the host between them. Of all of them y is compared.
  absl::Status CombinesOfOneDispatch(const std::vector<StepInput>& inputs);

  // As many dispatches as can be on their way and one more, with no combine that would keep the
  // ranks together. Those after the first have one token at most. Rank `late` receives the first
  // `late_by` after it has sent what it can; what it then counts is compared.
  absl::Status LateReceiver(const StepInput& input, int late,
                            absl::Duration late_by = absl::ZeroDuration());

  Node& node() { return *node_; }
  ExpertParallel& ep() { return *ep_; }
  // What peers write into.
  const SymmetricHeap& heap() const { return *heap_; }

  // Compares y of what was last uploaded.
  absl::Status CheckY(const StepInput& input, absl::Span<const uint16_t> bias = {});
  // As it is on the GPU, [T][H].
  absl::StatusOr<std::vector<uint16_t>> Y(int rank) const;

  // A step of what was last uploaded by one rank, which keeps what it receives; then what it has
  // received. For steps that some ranks take part in.
  absl::Status RunStep(Rank& rank, Form form);
  const Received& received(int rank) const { return received_[static_cast<size_t>(rank)]; }
  absl::Status CheckReceived(const StepInput& input, int rank) const;

  // Copies the step's input to the GPUs. Step does it by itself.
  absl::Status Upload(const StepInput& input);
  DispatchArgs dispatch_args(int rank) const;
  CombineArgs combine_args(int rank) const;

 private:
  struct Buffers {
    DeviceMemory x, topk_idx, topk_weights, y, expert_scale, expert_out;
    int num_tokens = 0;
  };
  DispatchArgs DispatchArgsOf(const Buffers& b) const;
  CombineArgs CombineArgsOf(const Buffers& b, const Received& received) const;
  // What goes home: the rows as they were received, if combine can apply the experts.
  absl::StatusOr<CombineArgs> ApplyExperts(Rank& rank, Form form, const Received& received,
                                           const Buffers& b) const;
  absl::Status Allocate(Rank& rank, Buffers& b) const;
  absl::Status Upload(const StepInput& input, int rank, Buffers& b) const;
  absl::Status RunRank(Rank& rank, Form form, int num_rows, const Buffers& b);
  std::vector<int> NumRows(const StepInput& input) const;
  // All steps in one Run, by body(rank, the rank's buffers of each step). Compares all y.
  absl::Status InOneRun(
      const std::vector<StepInput>& inputs,
      const std::function<absl::Status(Rank&, const std::vector<const Buffers*>&)>& body);
  absl::Status RunPair(Rank& rank, Form form, std::array<const Buffers*, 2> b);
  absl::Status KeepReceived(Rank& rank, int num_rows);
  absl::Status CheckRanges(const ReferenceReceived& want, const Received& got, int rank) const;
  int MostRows() const { return static_cast<int>(received_rows_[0].bytes() / RowBytes()); }
  // Rows that there are; where they lie apart, all that there is memory for.
  int RowsToCompare(const ReferenceReceived& want) const;
  size_t RowBytes() const { return config_.dtype_row_bytes(); }
  absl::Status CheckY(const StepInput& input, int rank, const Buffers& b,
                      absl::Span<const uint16_t> bias = {}) const;

  EpConfig config_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<SymmetricHeap> heap_;
  std::unique_ptr<ExpertParallel> ep_;
  std::vector<Buffers> buffers_;
  std::vector<Received> received_;
  std::vector<DeviceMemory> received_rows_;  // of each rank's last dispatch
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_EP_HARNESS_H_
