#include "tests/kernels/fused/fused_harness.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/fused/products.h"
#include "octet/expert_parallel.h"
#include "runtime/base/status_macros.h"
#include "tests/support/host_copy.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

size_t Index(const Rank& rank) { return static_cast<size_t>(rank.rank()); }

const void* VoidOrNull(const DeviceMemory& memory) {
  return memory.bytes() == 0 ? nullptr : memory.as<void>();
}

const float* FloatsOrNull(const DeviceMemory& memory) {
  return memory.bytes() == 0 ? nullptr : memory.as<float>();
}

template <typename T>
std::string Difference(const char* name, const std::vector<T>& got, const std::vector<T>& want) {
  if (got.size() != want.size()) {
    return absl::StrCat(name, " has ", got.size(), " elements and should have ", want.size());
  }
  const auto differs = std::mismatch(got.begin(), got.end(), want.begin());
  if (differs.first == got.end()) return "";
  return absl::StrCat(name, "[", differs.first - got.begin(), "] is ", *differs.first,
                      " and should be ", *differs.second);
}

std::string FirstDifference(const FusedOutput& got, const FusedOutput& want) {
  for (const std::string& found :
       {Difference("expert_offsets", got.expert_offsets, want.expert_offsets),
        Difference("sources", got.sources, want.sources), Difference("h", got.h, want.h),
        Difference("y", got.y, want.y)}) {
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

std::string FusedProblem::Text() const {
  const EpConfig& ep = config.ep;
  return absl::StrCat("seed ", seed, ": ", num_ranks, " ranks, ", EnumName(ep.strategy), " ",
                      EnumName(ep.dtype), " ", EnumName(ep.dispatch_format), " E ", ep.num_experts,
                      " K ", ep.topk, " H ", ep.hidden, " M ", ep.max_tokens_per_rank, " I ",
                      config.intermediate, " ", EnumName(config.first_format), " ",
                      EnumName(config.activation), " then ", EnumName(config.second_format),
                      config.second_fp8_rows ? " of fp8 rows " : " ", EnumName(ep.scale_format),
                      " weights in ", EnumName(config.weights_in), " ", EnumName(ep.combine_order),
                      " ", EnumName(ep.combine_method), " alignment ",
                      ep.high_throughput.expert_alignment, bias ? " bias" : "");
}

std::string FirstDifference(const FusedOutputs& got, const FusedOutputs& want) {
  if (got.size() != want.size()) return "the numbers of calls differ";
  for (size_t call = 0; call < got.size(); ++call) {
    for (size_t rank = 0; rank < got[call].size(); ++rank) {
      const std::string found = FirstDifference(got[call][rank], want[call][rank]);
      if (!found.empty()) return absl::StrCat("call ", call, ", rank ", rank, ": ", found);
    }
  }
  return "";
}

absl::StatusOr<std::unique_ptr<FusedHarness>> FusedHarness::Create(const FusedProblem& problem) {
  auto harness = absl::WrapUnique(new FusedHarness());
  harness->problem_ = problem;
  harness->ranks_.resize(static_cast<size_t>(problem.num_ranks));
  OCTET_ASSIGN_OR_RETURN(harness->node_,
                         Node::Create({.num_ranks = problem.num_ranks, .on_failure = nullptr}));
  if (problem.traced_blocks > 0) {
    OCTET_ASSIGN_OR_RETURN(
        harness->trace_,
        TraceCollector::Create(*harness->node_, problem.traced_blocks, problem.traced_events,
                               RoutedExperts::kTraceTracks));
  }
  OCTET_ASSIGN_OR_RETURN(
      harness->experts_,
      RoutedExperts::Create(*harness->node_, problem.config, {.trace = harness->trace_.get()}));
  OCTET_ASSIGN_OR_RETURN(harness->separate_,
                         ExpertParallel::Create(*harness->node_, problem.config.ep));
  harness->problem_.config = harness->experts_->config();
  OCTET_RETURN_IF_ERROR(
      harness->node_->Run([&](const Rank& rank) { return harness->InitRank(rank); }));
  return harness;
}

absl::Status FusedHarness::InitRank(const Rank& rank) {
  RankState& mine = ranks_[Index(rank)];
  const GroupedGemmConfig first = FirstProduct(problem_.config, rank.num_ranks());
  const GroupedGemmConfig second = SecondProduct(problem_.config, rank.num_ranks());
  OCTET_ASSIGN_OR_RETURN(mine.first, GroupedGemm::Create(first));
  OCTET_ASSIGN_OR_RETURN(mine.second, GroupedGemm::Create(second));
  Weights& weights = mine.weights;
  const std::vector<int32_t> no_rows(static_cast<size_t>(first.experts));
  GemmProblemOptions options = {.bias = problem_.bias};
  options.seed = problem_.seed * 100 + static_cast<uint32_t>(rank.rank());
  weights.first = MakeGemmProblem(first, no_rows, options);
  ++options.seed;
  weights.second = MakeGemmProblem(second, no_rows, options);
  if (problem_.bias) {
    std::mt19937 rng(options.seed);
    std::uniform_real_distribution<float> uniform(-2, 2);
    weights.y_bias.resize(static_cast<size_t>(problem_.config.ep.hidden));
    for (uint16_t& bits : weights.y_bias) {
      bits = BitsFromFloat(problem_.config.ep.dtype, uniform(rng));
    }
  }
  OCTET_ASSIGN_OR_RETURN(weights.b1, octet::Upload(weights.first.b));
  OCTET_ASSIGN_OR_RETURN(weights.b1_scales, octet::Upload(weights.first.b_scales));
  OCTET_ASSIGN_OR_RETURN(weights.bias1, octet::Upload(weights.first.bias));
  OCTET_ASSIGN_OR_RETURN(weights.b2, octet::Upload(weights.second.b));
  OCTET_ASSIGN_OR_RETURN(weights.b2_scales, octet::Upload(weights.second.b_scales));
  OCTET_ASSIGN_OR_RETURN(weights.bias2, octet::Upload(weights.second.bias));
  OCTET_ASSIGN_OR_RETURN(weights.y_bias_on_gpu, octet::Upload(weights.y_bias));
  OCTET_ASSIGN_OR_RETURN(mine.second_out,
                         DeviceMemory::Allocate(static_cast<size_t>(second.max_rows) *
                                                problem_.config.ep.dtype_row_bytes()));
  return second.row_format().has_scales() ? InitQuantizer(second, mine) : absl::OkStatus();
}

absl::Status FusedHarness::InitQuantizer(const GroupedGemmConfig& second, RankState& mine) const {
  OCTET_ASSIGN_OR_RETURN(mine.quantizer,
                         RowQuantizer::Create({.dtype = problem_.config.ep.dtype,
                                               .columns = second.k,
                                               .scale_format = second.scale_format,
                                               .max_rows = static_cast<int32_t>(second.max_rows)}));
  OCTET_ASSIGN_OR_RETURN(mine.quantized, DeviceMemory::Allocate(mine.quantizer->Fp8Bytes()));
  OCTET_ASSIGN_OR_RETURN(mine.quantized_scales,
                         DeviceMemory::Allocate(mine.quantizer->ScaleBytes()));
  return absl::OkStatus();
}

StepInput FusedHarness::Draw(const std::vector<int>& tokens, double drop) {
  WorkloadSpec spec;
  spec.num_ranks = problem_.num_ranks;
  spec.config = problem_.config.ep;
  spec.tokens = tokens;
  spec.drop = drop;
  spec.seed = problem_.seed * uint64_t{1000} + draws_++ * uint64_t{100};
  const std::unique_ptr<Workload> workload = Workload::Create(spec).value();
  workload->Generate(0);
  StepInput input;
  input.ranks.assign(workload->ranks().begin(), workload->ranks().end());
  return input;
}

std::vector<int> FusedHarness::DrawTokens() {
  std::mt19937 rng(problem_.seed * 1000 + static_cast<uint32_t>(draws_));
  std::uniform_int_distribution<int> uniform(0, problem_.config.ep.max_tokens_per_rank);
  std::vector<int> tokens(ranks_.size());
  for (int& count : tokens) count = uniform(rng);
  return tokens;
}

absl::StatusOr<FusedHarness::CallMemory> FusedHarness::Upload(const Rank& rank,
                                                              const StepInput& input) const {
  const StepInput::PerRank& mine = input.ranks[Index(rank)];
  const EpConfig& ep = problem_.config.ep;
  CallMemory memory;
  memory.num_tokens = mine.num_tokens;
  const auto rows = static_cast<size_t>(ep.max_rows(rank.num_ranks()));
  const std::vector<uint16_t> h(rows * static_cast<size_t>(problem_.config.intermediate),
                                kUnwritten);
  const std::vector<uint16_t> y(
      static_cast<size_t>(mine.num_tokens) * static_cast<size_t>(ep.hidden), kUnwritten);
  if (ep.dispatch_format == DispatchFormat::kFp8) {
    OCTET_ASSIGN_OR_RETURN(memory.x, octet::Upload(mine.fp8));
  } else {
    OCTET_ASSIGN_OR_RETURN(memory.x, octet::Upload(mine.x));
  }
  OCTET_ASSIGN_OR_RETURN(memory.scales, octet::Upload(mine.scales));
  OCTET_ASSIGN_OR_RETURN(memory.topk_idx, octet::Upload(mine.topk_idx));
  OCTET_ASSIGN_OR_RETURN(memory.topk_weights, octet::Upload(mine.topk_weights));
  OCTET_ASSIGN_OR_RETURN(memory.h, octet::Upload(h));
  OCTET_ASSIGN_OR_RETURN(memory.y, octet::Upload(y));
  return memory;
}

absl::Status FusedHarness::UploadInto(const Rank& rank, const StepInput& input,
                                      const CallMemory& memory) const {
  const StepInput::PerRank& mine = input.ranks[Index(rank)];
  const bool fp8 = problem_.config.ep.dispatch_format == DispatchFormat::kFp8;
  OCTET_RETURN_IF_ERROR(fp8 ? ToDevice(memory.x, mine.fp8) : ToDevice(memory.x, mine.x));
  OCTET_RETURN_IF_ERROR(ToDevice(memory.scales, mine.scales));
  OCTET_RETURN_IF_ERROR(ToDevice(memory.topk_idx, mine.topk_idx));
  OCTET_RETURN_IF_ERROR(ToDevice(memory.topk_weights, mine.topk_weights));
  for (const DeviceMemory* out : {&memory.h, &memory.y}) {
    OCTET_RETURN_IF_ERROR(
        ToDevice(*out, std::vector<uint16_t>(out->bytes() / sizeof(uint16_t), kUnwritten)));
  }
  return absl::OkStatus();
}

absl::StatusOr<FusedOutput> FusedHarness::Download(const Rank& /*rank*/,
                                                   const CallMemory& memory) const {
  FusedOutput output;
  OCTET_ASSIGN_OR_RETURN(
      output.h, ToHost<uint16_t>(memory.h.as<void>(), memory.h.bytes() / sizeof(uint16_t)));
  OCTET_ASSIGN_OR_RETURN(
      output.y, ToHost<uint16_t>(memory.y.as<void>(), memory.y.bytes() / sizeof(uint16_t)));
  return output;
}

DispatchGemmArgs FusedHarness::dispatch_args(const Rank& rank, const CallMemory& memory) const {
  const Weights& weights = ranks_[Index(rank)].weights;
  const DispatchFormat format = problem_.config.ep.dispatch_format;
  DispatchGemmArgs args = {.dispatch = {.x = memory.x.as<void>(),
                                        .topk_idx = memory.topk_idx.as<int32_t>(),
                                        .topk_weights = memory.topk_weights.as<float>(),
                                        .num_tokens = memory.num_tokens},
                           .b = weights.b1.as<void>(),
                           .b_scales = VoidOrNull(weights.b1_scales),
                           .bias = FloatsOrNull(weights.bias1),
                           .out = memory.h.as<void>()};
  if (format == DispatchFormat::kFp8) {
    args.dispatch.high_throughput.x_scales = memory.scales.as<void>();
  }
  return args;
}

GemmCombineArgs FusedHarness::combine_args(const Rank& rank, const CallMemory& memory) const {
  const Weights& weights = ranks_[Index(rank)].weights;
  return {.a = memory.h.as<void>(),
          .b = weights.b2.as<void>(),
          .b_scales = VoidOrNull(weights.b2_scales),
          .bias = FloatsOrNull(weights.bias2),
          .y_bias = FloatsOrNull(weights.y_bias_on_gpu),
          .y = memory.y.as<void>()};
}

absl::StatusOr<Received> FusedHarness::EnqueueFused(Rank& rank, const CallMemory& memory) {
  OCTET_ASSIGN_OR_RETURN(const FusedReceived received,
                         experts_->DispatchGemm(rank, dispatch_args(rank, memory)));
  OCTET_RETURN_IF_ERROR(experts_->GemmCombine(rank, received, combine_args(rank, memory)));
  return received.received;
}

absl::StatusOr<Received> FusedHarness::EnqueueSeparate(Rank& rank, const CallMemory& memory) {
  const RankState& mine = ranks_[Index(rank)];
  const DispatchGemmArgs dispatch = dispatch_args(rank, memory);
  const GemmCombineArgs combine = combine_args(rank, memory);
  const bool weighted_h = problem_.config.weights_in == WeightsIn::kFirstProduct;
  OCTET_ASSIGN_OR_RETURN(Received received, separate_->Dispatch(rank, dispatch.dispatch));
  OCTET_RETURN_IF_ERROR(
      mine.first->Run({.a = received.x,
                       .b = dispatch.b,
                       .a_scales = received.scales,
                       .b_scales = dispatch.b_scales,
                       .expert_offsets = received.expert_offsets,
                       .expert_counts = received.expert_counts,
                       .bias = dispatch.bias,
                       .row_scale = weighted_h ? received.high_throughput.row_weights : nullptr,
                       .out = dispatch.out},
                      rank.stream()));
  GroupedGemmArgs second = {.a = dispatch.out,
                            .b = combine.b,
                            .b_scales = combine.b_scales,
                            .expert_offsets = received.expert_offsets,
                            .expert_counts = received.expert_counts,
                            .bias = combine.bias,
                            .out = mine.second_out.as<void>()};
  if (mine.quantizer.has_value()) {
    const int experts = problem_.config.ep.num_local_experts(rank.num_ranks());
    second.a = mine.quantized.as<void>();
    second.a_scales = mine.quantized_scales.as<void>();
    OCTET_RETURN_IF_ERROR(mine.quantizer->Run({.x = dispatch.out,
                                               .fp8 = mine.quantized.as<void>(),
                                               .scales = mine.quantized_scales.as<void>(),
                                               .num_rows = received.expert_offsets + experts},
                                              rank.stream()));
  }
  OCTET_RETURN_IF_ERROR(mine.second->Run(second, rank.stream()));
  OCTET_RETURN_IF_ERROR(separate_->Combine(rank, received.handle,
                                           {.expert_out = mine.second_out.as<void>(),
                                            .y = combine.y,
                                            .bias = combine.y_bias,
                                            .high_throughput = {.unweighted = weighted_h}}));
  return received;
}

absl::StatusOr<FusedOutputs> FusedHarness::RunCalls(const std::vector<StepInput>& inputs,
                                                    const Enqueue& enqueue) {
  FusedOutputs outputs(inputs.size(), std::vector<FusedOutput>(ranks_.size()));
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    std::vector<CallMemory>& calls = ranks_[Index(rank)].calls;
    calls.clear();
    for (const StepInput& input : inputs) {
      OCTET_ASSIGN_OR_RETURN(calls.emplace_back(), Upload(rank, input));
    }
    Received received;
    for (size_t call = 0; call < inputs.size(); ++call) {
      OCTET_ASSIGN_OR_RETURN(received, enqueue(rank, call, calls[call]));
    }
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    for (size_t call = 0; call < inputs.size(); ++call) {
      OCTET_ASSIGN_OR_RETURN(outputs[call][Index(rank)], Download(rank, calls[call]));
    }
    FusedOutput& last = outputs.back()[Index(rank)];
    const auto offsets =
        static_cast<size_t>(problem_.config.ep.num_local_experts(rank.num_ranks())) + 1;
    OCTET_ASSIGN_OR_RETURN(last.expert_offsets, ToHost<int32_t>(received.expert_offsets, offsets));
    const auto rows = static_cast<size_t>(last.expert_offsets.back());
    OCTET_ASSIGN_OR_RETURN(
        last.sources,
        ToHost<int32_t>(received.sources, rows * sizeof(RowSource) / sizeof(int32_t)));
    return absl::OkStatus();
  }));
  return outputs;
}

absl::StatusOr<FusedOutputs> FusedHarness::Fused(const std::vector<StepInput>& inputs,
                                                 const Between& between) {
  return RunCalls(
      inputs, [&](Rank& rank, size_t call, const CallMemory& memory) -> absl::StatusOr<Received> {
        OCTET_ASSIGN_OR_RETURN(const Received received, EnqueueFused(rank, memory));
        if (between && call + 1 < inputs.size()) {
          OCTET_RETURN_IF_ERROR(between(rank, call, memory));
        }
        return received;
      });
}

absl::StatusOr<FusedOutputs> FusedHarness::Separate(const std::vector<StepInput>& inputs) {
  return RunCalls(inputs, [&](Rank& rank, size_t /*call*/, const CallMemory& memory) {
    return EnqueueSeparate(rank, memory);
  });
}

absl::StatusOr<std::string> FusedHarness::Compare(const std::vector<StepInput>& inputs,
                                                  const Between& between) {
  OCTET_ASSIGN_OR_RETURN(FusedOutputs got, Fused(inputs, between));
  OCTET_ASSIGN_OR_RETURN(FusedOutputs want, Separate(inputs));
  if (problem_.config.ep.variant.slots == Slots::kAtomic) {  // rows lie in any order
    for (FusedOutputs* outputs : {&got, &want}) {
      for (std::vector<FusedOutput>& call : *outputs) {
        for (FusedOutput& output : call) {
          output.h.clear();
          output.sources.clear();
        }
      }
    }
  }
  return FirstDifference(got, want);
}

}  // namespace octet
