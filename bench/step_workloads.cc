#include "bench/step_workloads.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/workload/routing.h"

namespace octet {
namespace {

struct Shape {
  int experts;
  int topk;
  int hidden;
};
constexpr Shape kServing = {.experts = 256, .topk = 8, .hidden = 7168};
constexpr Shape kServingE288 = {.experts = 288, .topk = 8, .hidden = 7168};
constexpr Shape kTritonWide = {.experts = 384, .topk = 8, .hidden = 1536};
constexpr Shape kTritonWeighted = {.experts = 256, .topk = 6, .hidden = 6144};
constexpr Shape kFused = {.experts = 64, .topk = 8, .hidden = 1536};

// Returns `common` with BF16 rows of `shape` and `tokens` tokens on every rank.
RunSpec Fixed(const RunSpec& common, absl::string_view name, const Shape& shape, int tokens) {
  RunSpec options = common;
  options.name = absl::StrCat(name, "_T", tokens);
  WorkloadSpec& spec = options.workload;
  spec.config.num_experts = shape.experts;
  spec.config.topk = shape.topk;
  spec.config.hidden = shape.hidden;
  spec.config.max_tokens_per_rank = tokens;
  spec.tokens.assign(static_cast<size_t>(spec.num_ranks), tokens);
  spec.config.dtype = DType::kBFloat16;
  return options;
}

RunSpec WithFormat(RunSpec options, DispatchFormat format) {
  options.workload.config.dispatch_format = format;
  return options;
}

RunSpec WithDrop(RunSpec options, double drop) {
  options.workload.drop = drop;
  return options;
}

// Returns shapes with routings other than uniform, of 128 and of 4096 tokens.
std::vector<RunSpec> OtherRoutings(const RunSpec& common) {
  constexpr std::array<std::pair<absl::string_view, absl::string_view>, 3> kRoutings = {
      {{"zipf", "zipf:1.1"}, {"group", "group:4/8"}, {"one_expert", "one_expert"}}};
  std::vector<RunSpec> all;
  for (const auto& [name, text] : kRoutings) {
    for (RunSpec options : {Fixed(common, absl::StrCat("decode_", name), kServing, 128),
                            Fixed(common, absl::StrCat("prefill_", name), kServing, 4096)}) {
      options.workload.routing = *ParseRouting(text);
      all.push_back(std::move(options));
    }
  }
  return all;
}

std::vector<RunSpec> Possible(std::vector<RunSpec> all) {
  std::vector<RunSpec> possible;
  for (RunSpec& options : all) {
    if (CompleteSpec(options).ok()) possible.push_back(options);
  }
  return possible;
}

}  // namespace

std::vector<RunSpec> StepWorkloads(const RunSpec& common) {
  std::vector<RunSpec> all;
  for (RunSpec& options : ChallengeShapes(common)) {
    if (!options.benchmark) continue;
    options.name = absl::StrCat("challenge", all.size() + 1);
    all.push_back(options);
  }
  for (const int tokens : {1, 16, 64, 128, 256, 512}) {
    const RunSpec decode = Fixed(common, "decode", kServing, tokens);
    const RunSpec fp8 = Fixed(common, "decode_fp8", kServing, tokens);
    all.push_back(decode);
    all.push_back(WithFormat(fp8, DispatchFormat::kQuantizedFp8));
  }
  for (const int tokens : {1, 16, 64, 128}) {
    const RunSpec decode = Fixed(common, "decode_E288", kServingE288, tokens);
    const RunSpec fp8 = Fixed(common, "decode_E288_fp8", kServingE288, tokens);
    all.push_back(decode);
    all.push_back(WithFormat(fp8, DispatchFormat::kQuantizedFp8));
  }
  for (const int tokens : {4096, 8192}) {
    all.push_back(Fixed(common, "prefill", kServing, tokens));
    const RunSpec fp8 = Fixed(common, "prefill_fp8", kServing, tokens);
    all.push_back(WithFormat(fp8, DispatchFormat::kFp8));
  }
  for (RunSpec& options : OtherRoutings(common)) all.push_back(std::move(options));
  constexpr double kDropped = 0.3;
  all.push_back(WithDrop(Fixed(common, "triton", kTritonWide, 32768), kDropped));
  all.push_back(WithDrop(Fixed(common, "triton_weighted", kTritonWeighted, 4096), kDropped));
  all.push_back(Fixed(common, "fused", kFused, 32768));
  return Possible(all);
}

std::vector<RunSpec> SmallStepWorkloads(const RunSpec& common) {
  std::vector<RunSpec> all;
  const int experts = 4 * common.workload.num_ranks;
  const Shape narrow = {.experts = experts, .topk = 4, .hidden = 256};
  all.push_back(Fixed(common, "small", narrow, 4));
  all.push_back(WithFormat(Fixed(common, "small_fp8", narrow, 4), DispatchFormat::kQuantizedFp8));
  all.push_back(Fixed(common, "small", {.experts = experts, .topk = 2, .hidden = 512}, 8));
  all.back().name = "small_drawn";
  all.back().workload.tokens.clear();
  all.back().workload.config.dtype = DType::kFloat16;
  return Possible(all);
}

}  // namespace octet
