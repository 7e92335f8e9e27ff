#include "bench/step_workloads.h"

#include "absl/strings/str_cat.h"

namespace octet {
namespace {

// With `tokens` on every rank.
RunOptions Fixed(const RunOptions& common, const std::string& name, int experts, int topk,
                 int hidden, int tokens) {
  RunOptions options = common;
  options.name = name;
  WorkloadSpec& spec = options.workload;
  spec.num_experts = experts;
  spec.topk = topk;
  spec.hidden = hidden;
  spec.max_tokens = tokens;
  spec.tokens.assign(static_cast<size_t>(spec.num_ranks), tokens);
  spec.dtype = DType::kBFloat16;
  return options;
}

std::vector<RunOptions> Possible(std::vector<RunOptions> all) {
  std::vector<RunOptions> possible;
  for (RunOptions& options : all) {
    if (CompleteOptions(options).ok()) possible.push_back(options);
  }
  return possible;
}

}  // namespace

std::vector<RunOptions> StepWorkloads(const RunOptions& common) {
  std::vector<RunOptions> all;
  for (RunOptions& options : ChallengeShapes(common)) {
    if (!options.benchmark) continue;
    options.name = absl::StrCat("challenge", all.size() + 1);
    all.push_back(options);
  }
  for (const int tokens : {1, 16, 64, 128, 256, 512}) {
    all.push_back(Fixed(common, absl::StrCat("decode_T", tokens), 256, 8, 7168, tokens));
  }
  for (const int tokens : {4096, 8192}) {
    all.push_back(Fixed(common, absl::StrCat("prefill_T", tokens), 256, 8, 7168, tokens));
  }
  return Possible(all);
}

std::vector<RunOptions> SmallStepWorkloads(const RunOptions& common) {
  std::vector<RunOptions> all;
  const int experts = 4 * common.workload.num_ranks;
  all.push_back(Fixed(common, "small_T4", experts, 4, 256, 4));
  all.push_back(Fixed(common, "small_drawn", experts, 2, 512, 8));
  all.back().workload.tokens.clear();
  all.back().workload.dtype = DType::kFloat16;
  return Possible(all);
}

}  // namespace octet
