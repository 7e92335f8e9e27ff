// Which experts a token chooses: the generators of --routing, and recorded choices from a file.
#ifndef OCTET_TOOLS_WORKLOAD_ROUTING_H_
#define OCTET_TOOLS_WORKLOAD_ROUTING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/support/npy.h"
#include "tools/workload/philox.h"

namespace octet {

enum class RoutingKind {
  kUniform,    // K different experts, each as likely as any other
  kZipf,       // K different experts, drawn by popularity: the n-th most popular of them has
               // probability proportional to n^-S; which one that is, the seed says
  kGroup,      // A of B groups of neighbouring experts, then K different experts of those
  kOneExpert,  // k = 0 goes to expert 0, the others are dropped
  kFile,       // as recorded
};

struct RoutingSpec {
  RoutingKind kind = RoutingKind::kUniform;
  double zipf_exponent = 0;  // S
  bool zipf_sorted = false;  // expert n is the n-th most popular one, so the first ranks have most
  int groups_chosen = 0;     // A
  int num_groups = 0;        // B
  std::string path;
  std::string text = "uniform";  // as written by the user
};

// Parses "uniform", "zipf:S", "zipf_sorted:S", "group:A/B", "one_expert" or "file:PATH".
absl::StatusOr<RoutingSpec> ParseRouting(absl::string_view text);

// Returns an error if `spec` does not fit these numbers of experts and choices.
absl::Status CheckRouting(const RoutingSpec& spec, int num_experts, int topk);

// Choices recorded for some ranks.
struct RecordedRouting {
  int topk = 0;
  std::vector<std::vector<int32_t>> topk_idx;  // by rank: [T][K]
  int num_tokens(size_t rank) const {
    return topk == 0 ? 0 : static_cast<int>(topk_idx[rank].size() / static_cast<size_t>(topk));
  }
};

// Reads an array [ranks][T][K], or [T][K], which is split evenly over the ranks in order, of int32
// or int64. Returns kInvalidArgument for any other shape or type.
absl::StatusOr<RecordedRouting> RecordedFromNpy(const NpyArray& array, int num_ranks);

// Returns OK if all ids are experts or -1 (dropped), and those of a token differ. Otherwise the
// error names the first id that is wrong, with rank, token, k and value.
absl::Status CheckRecorded(const RecordedRouting& routing, int num_experts);

// Draws the choices of tokens. The kind must not be kFile. Thread-safe.
class RoutingGenerator {
 public:
  // `spec` must have passed CheckRouting.
  RoutingGenerator(const RoutingSpec& spec, int num_experts, uint64_t seed);

  // Memory for a thread's draws, reused from token to token.
  struct Scratch {
    std::vector<int32_t> experts;
    std::vector<double> keys;
  };

  // Draws one token's K choices into `topk_idx`, from `stream` alone.
  void Draw(PhiloxStream& stream, Scratch& scratch, absl::Span<int32_t> topk_idx) const;

 private:
  const RoutingSpec spec_;
  const int num_experts_;
  std::vector<double> log_unpopularity_;  // kZipf, [E]: S · log(n) of each expert
};

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_ROUTING_H_
