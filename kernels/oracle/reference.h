// The serial reference: what dispatch and combine must produce, to the bit.
#ifndef OCTET_KERNELS_ORACLE_REFERENCE_H_
#define OCTET_KERNELS_ORACLE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/ep/nodes_of_ranks.h"
#include "octet/ep_config.h"
#include "octet/placement.h"
#include "octet/row_source.h"

namespace octet {

// One rank's input, in host memory.
struct RankInput {
  int num_tokens = 0;
  absl::Span<const uint16_t> x;          // [T][H], bits of config.dtype
  absl::Span<const int32_t> topk_idx;    // [T][K], -1: dropped
  absl::Span<const float> topk_weights;  // [T][K]; empty: all 1
  // The 8-bit floats that experts receive in place of x, [T][H], and their scales,
  // [T][config.scale_words()] (kernels/types/fp8_rows.h). Empty: experts receive x.
  absl::Span<const uint8_t> fp8 = {};
  absl::Span<const uint32_t> scales = {};
  // DispatchFormat::kBytes: the rows that experts receive in place of x, [T][config.row_bytes].
  // Empty: experts receive x.
  absl::Span<const uint8_t> bytes = {};
  absl::Span<const int32_t> scatter_idx = {};  // [T][K], as in DispatchArgs; empty: token order
  // [T][K][H] What the experts made of each choice, of the dtype. Empty: what the stand-in makes.
  absl::Span<const uint16_t> outputs = {};
  // With a placement: the rank that dispatches these tokens, and the first one's number there.
  int rank = 0;
  int first_token = 0;

  // Returns `count` tokens from `first` on.
  RankInput Tokens(const EpConfig& config, size_t first, size_t count) const;
};

// The inputs of the calls beneath a placement (kernels/ep/physical.h); without a placement, views
// of `inputs` as they are. What they point to must outlive this object.
class PhysicalInputs {
 public:
  PhysicalInputs(const EpConfig& config, absl::Span<const RankInput> inputs);

  absl::Span<const RankInput> inputs() const { return inputs_; }

 private:
  std::vector<std::vector<int32_t>> ids_;  // by rank
  std::vector<RankInput> inputs_;
};

// Returns the factor of each slot, [R · S], of those of the experts' stand-ins.
std::vector<float> PhysicalScales(const Placement& placement, absl::Span<const float> scales);

// The result of a dispatch; the fields are those of Received.
struct ReferenceReceived {
  std::vector<int32_t> expert_counts;
  std::vector<int32_t> expert_offsets;  // empty with kRankMajor
  std::vector<RowSource> sources;       // of rows in expert order, padding included
  // The received rows, if each token is received once.
  std::vector<RowSource> tokens;  // by (source rank, token), each with its first choice
  std::vector<int32_t> source_offsets;
  std::vector<float> row_weights;  // of each of `sources`
  std::vector<int32_t> row_index;
  // If tokens are not received once.
  std::vector<int32_t> places;  // of each of `sources`: its row in Received::x
  std::vector<RowRange> ranges;
  std::vector<int32_t> split_counts;  // [R][L], for every output
  // kDeduplicated only.
  std::vector<int32_t> recv_topk_idx;
  std::vector<float> recv_topk_weights;

  // Returns the sources of the rows of Received::x.
  const std::vector<RowSource>& rows(const EpConfig& config) const {
    return config.rows_once() ? tokens : sources;
  }
};

// Returns what `rank` receives when each rank r dispatches inputs[r]. The rows themselves are
// inputs[source.rank].x[source.token].
ReferenceReceived ReferenceDispatch(const EpConfig& config, absl::Span<const RankInput> inputs,
                                    int rank);

// The pointwise stand-in for an expert: multiplies each element by `scale` and rounds it to the
// dtype. For rows of 8-bit floats, the elements are the result of Dequantize.
void ReferenceExpert(DType dtype, absl::Span<const uint16_t> row, float scale,
                     absl::Span<uint16_t> out);

// Returns y [T][H] of one rank of `num_ranks`, where expert e is the stand-in with factor
// expert_scale[e] ([E]) unless there are input.outputs. It is computed in float32; each product and
// each sum is rounded. A dropped choice adds nothing; a token without choices gives +0.
// config.combine_order selects the order of addition. kAuto is the strategy's own order, and
// Strategy::kAuto follows the built-in rules, so pass ExpertParallel::config().
//   kFlat     acc = +0; for k ascending acc = acc + (w · y_k); rounded to the dtype at the end.
//   kPerRank  p = kFlat over the choices of one rank, rounded to the dtype; acc = +0; for ranks
//             with such choices ascending acc = acc + p; rounded to the dtype at the end.
// `bias` ([H] of the dtype, or empty) is added to acc before the last rounding.
std::vector<uint16_t> ReferenceCombine(const EpConfig& config, int num_ranks,
                                       const RankInput& input, absl::Span<const float> expert_scale,
                                       absl::Span<const uint16_t> bias = {});

// Returns y of one rank of `num_nodes` nodes with `ranks_per_node` ranks each, as of
// kernels/nodes. `config` and `expert_scale` are over all nodes:
//   kPerNode  p = ReferenceCombine over the choices of one node, without bias, in the order
//             nodes.intranode_order; acc = +0; for nodes with such choices ascending acc = acc + p;
//             `bias` is added; rounded to the dtype at the end.
std::vector<uint16_t> ReferenceCombine(const EpConfig& config, const NodesOfRanks& nodes,
                                       const RankInput& input, absl::Span<const float> expert_scale,
                                       absl::Span<const uint16_t> bias = {});

// Returns whether two rows are equal to the bit, where any NaN equals any other.
bool SameBits(DType dtype, absl::Span<const uint16_t> a, absl::Span<const uint16_t> b);

}  // namespace octet

#endif  // OCTET_KERNELS_ORACLE_REFERENCE_H_
