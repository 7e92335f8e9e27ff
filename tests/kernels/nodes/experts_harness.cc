#include "tests/kernels/nodes/experts_harness.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/fused/products.h"
#include "kernels/oracle/reference.h"
#include "octet/grouped_gemm.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "tests/support/gemm_problem.h"
#include "tests/support/host_copy.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

template <typename T>
void AppendTo(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

template <typename T>
const T* OrNull(const DeviceMemory& memory) {
  return memory.bytes() == 0 ? nullptr : memory.as<T>();
}

}  // namespace

std::string ExpertsProblem::Text() const {
  const EpConfig& ep = config.ep;
  return absl::StrCat("seed ", seed, ": ", EnumName(ep.strategy), " ", EnumName(rows), " ",
                      EnumName(ep.dtype), " ", EnumName(ep.dispatch_format), " E ", ep.num_experts,
                      " K ", ep.topk, " H ", ep.hidden, " M ", ep.max_tokens_per_rank, " I ",
                      config.intermediate, " ", EnumName(config.activation), " then ",
                      EnumName(config.second_format), " weights in ", EnumName(config.weights_in),
                      " alignment ", ep.high_throughput.expert_alignment, bias ? " bias" : "");
}

ExpertsProblem DrawExpertsProblem(std::mt19937_64& rng, const NodesOfRanks& shape) {
  const auto draw = [&rng](int least, int most) {
    return least + static_cast<int>(rng() % static_cast<uint64_t>(most - least + 1));
  };
  ExpertsProblem problem;
  problem.seed = static_cast<uint32_t>(rng() % 10000);
  problem.bias = draw(0, 1) == 0;
  problem.rows = draw(0, 1) == 0 ? RailRows::kBlocks : RailRows::kCounted;
  problem.chunk_tokens = draw(0, 6);
  RoutedExpertsConfig& config = problem.config;
  config.intermediate = 16 * draw(1, 4);
  config.activation = draw(0, 1) == 0 ? GemmActivation::kNone : GemmActivation::kSwiGlu;
  EpConfig& ep = config.ep;
  ep.num_experts = shape.num_nodes * shape.ranks_per_node * draw(1, 4);
  ep.topk = draw(1, std::min(ep.num_experts, 6));
  ep.hidden = 16 * draw(1, 12);
  ep.max_tokens_per_rank = draw(1, 12);
  ep.max_blocks = 2;
  constexpr Strategy kStrategies[] = {Strategy::kHighThroughput, Strategy::kLowLatency,
                                      Strategy::kDirect, Strategy::kAuto};
  ep.strategy = kStrategies[draw(0, 3)];
  if (draw(0, 2) == 0) ep.dtype = DType::kFloat16;
  const bool plain = ep.strategy == Strategy::kDirect || ep.strategy == Strategy::kAuto;
  if (ep.dtype == DType::kBFloat16 && !plain && draw(0, 1) == 0) {
    ep.dispatch_format =
        ep.strategy == Strategy::kLowLatency ? DispatchFormat::kQuantizedFp8 : DispatchFormat::kFp8;
  }
  if (ep.dtype == DType::kBFloat16 && draw(0, 1) == 0) config.second_format = GemmFormat::kFp8;
  if (ep.strategy == Strategy::kHighThroughput) {
    if (draw(0, 1) == 0) config.weights_in = WeightsIn::kFirstProduct;
    if (draw(0, 2) == 0) ep.high_throughput.expert_alignment = 8;
  }
  return problem;
}

absl::StatusOr<std::unique_ptr<ExpertsHarness>> ExpertsHarness::Create(
    const JoinedNodes& nodes, const ExpertsProblem& problem) {
  auto harness = absl::WrapUnique(new ExpertsHarness(nodes, problem));
  const RailOptions rails = {.rows = problem.rows,
                             .chunk_tokens = problem.chunk_tokens,
                             .intranode_order = nodes.shape().intranode_order};
  for (const JoinedNodes::OneNode& node : nodes.nodes()) {
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<RoutedExperts> experts,
                           RoutedExperts::Create(*node.domain, problem.config, {.rails = rails}));
    harness->experts_.push_back(std::move(experts));
  }
  harness->weights_.resize(Size(nodes.num_ranks()));
  harness->calls_.resize(Size(nodes.num_ranks()));
  OCTET_RETURN_IF_ERROR(nodes.OneByOne([&](Rank&, int global) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(harness->weights_[Size(global)], Upload(harness->WeightsOf(global)));
    return absl::OkStatus();
  }));
  OCTET_RETURN_IF_ERROR(harness->MakeOracle());
  return harness;
}

void ExpertsHarness::HostWeights::Append(const HostWeights& more) {
  AppendTo(b1, more.b1);
  AppendTo(b1_scales, more.b1_scales);
  AppendTo(b2, more.b2);
  AppendTo(b2_scales, more.b2_scales);
  AppendTo(bias1, more.bias1);
  AppendTo(bias2, more.bias2);
}

ExpertsHarness::HostWeights ExpertsHarness::WeightsOf(int global) const {
  const RoutedExpertsConfig& config = problem_.config;
  const GroupedGemmConfig first = FirstProduct(config, nodes_.num_ranks());
  const GroupedGemmConfig second = SecondProduct(config, nodes_.num_ranks());
  const std::vector<int32_t> no_rows(Size(first.experts));
  GemmProblemOptions options = {.bias = problem_.bias};
  options.seed = problem_.seed * 100 + 2 * static_cast<uint32_t>(global);
  const GemmProblem one = MakeGemmProblem(first, no_rows, options);
  ++options.seed;
  const GemmProblem two = MakeGemmProblem(second, no_rows, options);
  HostWeights weights;
  weights.b1 = one.b;
  weights.b1_scales = one.b_scales;
  weights.bias1 = one.bias;
  weights.b2 = two.b;
  weights.b2_scales = two.b_scales;
  weights.bias2 = two.bias;
  if (!problem_.bias) return weights;
  std::mt19937 rng(options.seed);
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (int i = 0; i < config.ep.hidden; ++i) {
    weights.y_bias.push_back(BitsFromFloat(config.ep.dtype, uniform(rng)));
  }
  return weights;
}

absl::StatusOr<ExpertsHarness::Weights> ExpertsHarness::Upload(const HostWeights& host) {
  Weights weights;
  OCTET_ASSIGN_OR_RETURN(weights.b1, octet::Upload(host.b1));
  OCTET_ASSIGN_OR_RETURN(weights.b1_scales, octet::Upload(host.b1_scales));
  OCTET_ASSIGN_OR_RETURN(weights.bias1, octet::Upload(host.bias1));
  OCTET_ASSIGN_OR_RETURN(weights.b2, octet::Upload(host.b2));
  OCTET_ASSIGN_OR_RETURN(weights.b2_scales, octet::Upload(host.b2_scales));
  OCTET_ASSIGN_OR_RETURN(weights.bias2, octet::Upload(host.bias2));
  OCTET_ASSIGN_OR_RETURN(weights.y_bias, octet::Upload(host.y_bias));
  return weights;
}

absl::StatusOr<ExpertsHarness::CallMemory> ExpertsHarness::Upload(const RoutedExpertsConfig& config,
                                                                  int num_ranks,
                                                                  const StepInput::PerRank& mine) {
  CallMemory memory;
  memory.num_tokens = mine.num_tokens;
  if (config.ep.dispatch_format == DispatchFormat::kFp8) {
    OCTET_ASSIGN_OR_RETURN(memory.x, octet::Upload(mine.fp8));
    OCTET_ASSIGN_OR_RETURN(memory.scales, octet::Upload(mine.scales));
  } else {
    OCTET_ASSIGN_OR_RETURN(memory.x, octet::Upload(mine.x));
  }
  OCTET_ASSIGN_OR_RETURN(memory.topk_idx, octet::Upload(mine.topk_idx));
  OCTET_ASSIGN_OR_RETURN(memory.topk_weights, octet::Upload(mine.topk_weights));
  const std::vector<uint16_t> h(Size(config.ep.max_rows(num_ranks)) * Size(config.intermediate),
                                kUnwritten);
  const std::vector<uint16_t> y(Size(mine.num_tokens) * Size(config.ep.hidden), kUnwritten);
  OCTET_ASSIGN_OR_RETURN(memory.h, octet::Upload(h));
  OCTET_ASSIGN_OR_RETURN(memory.y, octet::Upload(y));
  return memory;
}

absl::Status ExpertsHarness::Enqueue(Rank& rank, RoutedExperts& experts, const Weights& weights,
                                     const CallMemory& memory) {
  const bool scaled = experts.config().ep.dispatch_format == DispatchFormat::kFp8;
  OCTET_ASSIGN_OR_RETURN(
      const FusedReceived received,
      experts.DispatchGemm(
          rank, {.dispatch = {.x = memory.x.as<void>(),
                              .topk_idx = memory.topk_idx.as<int32_t>(),
                              .topk_weights = memory.topk_weights.as<float>(),
                              .num_tokens = memory.num_tokens,
                              .high_throughput = {.x_scales =
                                                      scaled ? memory.scales.as<void>() : nullptr}},
                 .b = weights.b1.as<void>(),
                 .b_scales = OrNull<void>(weights.b1_scales),
                 .bias = OrNull<float>(weights.bias1),
                 .out = memory.h.as<void>()}));
  return experts.GemmCombine(rank, received,
                             {.a = memory.h.as<void>(),
                              .b = weights.b2.as<void>(),
                              .b_scales = OrNull<void>(weights.b2_scales),
                              .bias = OrNull<float>(weights.bias2),
                              .y_bias = OrNull<void>(weights.y_bias),
                              .y = memory.y.as<void>()});
}

// With one choice of weight 1 for each token, y is the expert's output.
absl::Status ExpertsHarness::MakeOracle() {
  RoutedExpertsConfig config = problem_.config;
  config.ep.topk = 1;
  config.ep.max_tokens_per_rank *= problem_.config.ep.topk;
  config.ep.high_throughput.expert_alignment = 1;
  if (config.ep.dispatch_format != DispatchFormat::kQuantizedFp8) {
    config.ep.strategy = Strategy::kHighThroughput;
  }
  OCTET_ASSIGN_OR_RETURN(oracle_node_, Node::Create({.num_ranks = 1, .on_failure = nullptr}));
  OCTET_ASSIGN_OR_RETURN(oracle_, RoutedExperts::Create(*oracle_node_, config));
  HostWeights all;
  for (int global = 0; global < nodes_.num_ranks(); ++global) all.Append(WeightsOf(global));
  return oracle_node_->Run([&](Rank&) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(oracle_weights_.emplace_back(), Upload(all));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<uint16_t>> ExpertsHarness::Outputs(const StepInput::PerRank& mine) {
  const EpConfig& ep = problem_.config.ep;
  const size_t words = Size(ep.scale_words());
  const size_t hidden = Size(ep.hidden);
  const bool weighted = problem_.config.weights_in == WeightsIn::kFirstProduct;
  StepInput::PerRank choices;
  choices.num_tokens = mine.num_tokens * ep.topk;
  choices.topk_idx = mine.topk_idx;
  choices.topk_weights = mine.topk_weights;
  if (!weighted) std::ranges::fill(choices.topk_weights, 1.0F);
  const auto repeat = [&](auto& to, const auto& rows, size_t token, size_t each) {
    if (rows.empty()) return;
    const auto first = rows.begin() + static_cast<ptrdiff_t>(token * each);
    to.insert(to.end(), first, first + static_cast<ptrdiff_t>(each));
  };
  for (size_t i = 0; i < Size(choices.num_tokens); ++i) {
    repeat(choices.x, mine.x, i / Size(ep.topk), hidden);
    repeat(choices.fp8, mine.fp8, i / Size(ep.topk), hidden);
    repeat(choices.scales, mine.scales, i / Size(ep.topk), words);
  }
  std::vector<uint16_t> outputs;
  OCTET_RETURN_IF_ERROR(oracle_node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const CallMemory memory, Upload(oracle_->config(), 1, choices));
    OCTET_RETURN_IF_ERROR(Enqueue(rank, *oracle_, oracle_weights_.front(), memory));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_ASSIGN_OR_RETURN(
        outputs, ToHost<uint16_t>(memory.y.as<void>(), Size(choices.num_tokens) * hidden));
    return absl::OkStatus();
  }));
  return outputs;
}

absl::StatusOr<std::vector<uint16_t>> ExpertsHarness::ReferenceY(const StepInput& input,
                                                                 int global) {
  const StepInput::PerRank& mine = input.ranks[Size(global)];
  OCTET_ASSIGN_OR_RETURN(const std::vector<uint16_t> outputs, Outputs(mine));
  RankInput sums = {.num_tokens = mine.num_tokens,
                    .x = mine.x,
                    .topk_idx = mine.topk_idx,
                    .topk_weights = mine.topk_weights,
                    .outputs = outputs};
  if (problem_.config.weights_in == WeightsIn::kFirstProduct) sums.topk_weights = {};
  const std::vector<float> no_scale(Size(ep().num_experts), 1.0F);
  return ReferenceCombine(ep(), nodes_.shape(), sums, no_scale, WeightsOf(global).y_bias);
}

StepInput ExpertsHarness::Draw(std::mt19937_64& rng, const std::vector<int>& tokens,
                               double drop) const {
  WorkloadSpec spec;
  spec.num_ranks = nodes_.num_ranks();
  spec.config = problem_.config.ep;
  spec.tokens = tokens;
  spec.drop = drop;
  spec.seed = rng();
  const std::unique_ptr<Workload> workload = Workload::Create(spec).value();
  workload->Generate(0);
  StepInput input;
  input.ranks.assign(workload->ranks().begin(), workload->ranks().end());
  return input;
}

absl::Status ExpertsHarness::Call(Rank& rank, int global, const StepInput& input) {
  RoutedExperts& mine = experts(global);
  OCTET_ASSIGN_OR_RETURN(CallMemory memory,
                         Upload(mine.config(), nodes_.num_ranks(), input.ranks[Size(global)]));
  calls_[Size(global)].push_back(std::move(memory));
  return Enqueue(rank, mine, weights_[Size(global)], calls_[Size(global)].back());
}

absl::Status ExpertsHarness::Check(const std::vector<StepInput>& inputs) {
  for (std::vector<CallMemory>& calls : calls_) calls.clear();
  OCTET_RETURN_IF_ERROR(nodes_.OneByOne([&](Rank&, int global) -> absl::Status {
    for (const StepInput& input : inputs) {
      OCTET_ASSIGN_OR_RETURN(
          calls_[Size(global)].emplace_back(),
          Upload(experts(global).config(), nodes_.num_ranks(), input.ranks[Size(global)]));
    }
    return absl::OkStatus();
  }));
  OCTET_RETURN_IF_ERROR(nodes_.Run([&](Rank& rank, int global) -> absl::Status {
    for (const CallMemory& memory : calls_[Size(global)]) {
      OCTET_RETURN_IF_ERROR(Enqueue(rank, experts(global), weights_[Size(global)], memory));
    }
    return absl::OkStatus();
  }));
  std::vector<std::vector<std::vector<uint16_t>>> got(calls_.size());
  OCTET_RETURN_IF_ERROR(nodes_.OneByOne([&](Rank&, int global) -> absl::Status {
    for (const CallMemory& memory : calls_[Size(global)]) {
      OCTET_ASSIGN_OR_RETURN(
          got[Size(global)].emplace_back(),
          ToHost<uint16_t>(memory.y.as<void>(), memory.y.bytes() / sizeof(uint16_t)));
    }
    return absl::OkStatus();
  }));
  for (size_t global = 0; global < got.size(); ++global) {  // the ranks of this process
    for (size_t call = 0; call < got[global].size(); ++call) {
      OCTET_ASSIGN_OR_RETURN(const std::vector<uint16_t> want,
                             ReferenceY(inputs[call], static_cast<int>(global)));
      if (SameBits(ep().dtype, got[global][call], want)) continue;
      return absl::DataLossError(
          absl::StrCat("global rank ", global, ", call ", call, ": y differs"));
    }
  }
  return absl::OkStatus();
}

}  // namespace octet
