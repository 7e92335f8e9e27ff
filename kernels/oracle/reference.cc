#include "kernels/oracle/reference.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "kernels/ep/ep_plan.h"
#include "kernels/ep/physical.h"
#include "kernels/types/fp8_rows.h"
#include "octet/dtype.h"

namespace octet {
namespace {

// The conversions of octet/dtype.h with the dtype as a template parameter, so that compilers
// vectorise loops over rows.
template <DType dtype>
float ToFloat(uint16_t bits) {
  if constexpr (dtype == DType::kFloat16) {
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  } else {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
}

template <DType dtype>
uint16_t FromFloat(float value) {
  if constexpr (dtype == DType::kFloat16) {
    return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  } else {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const auto rounded = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    return value != value ? uint16_t{0x7fff} : rounded;
  }
}

template <DType dtype>
void ScaleRow(const uint16_t* row, float scale, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i) out[i] = FromFloat<dtype>(ToFloat<dtype>(row[i]) * scale);
}

// Loads the row that experts receive for a token.
template <DType dtype>
void LoadRow(const EpConfig& config, const RankInput& input, size_t token, std::vector<float>& x) {
  if (input.fp8.empty()) {
    const uint16_t* row = input.x.data() + token * x.size();
    for (size_t h = 0; h < x.size(); ++h) x[h] = ToFloat<dtype>(row[h]);
    return;
  }
  const RankInput row = input.Tokens(config, token, 1);
  Dequantize(config, row.fp8, row.scales, absl::MakeSpan(x));
}

// A token as its experts receive it.
struct ReceivedToken {
  absl::Span<const int32_t> experts;  // [K]
  absl::Span<const float> weights;    // [K]; empty: all 1
  const std::vector<float>& x;
  absl::Span<const uint16_t> outputs;  // [K][H]; empty: those of the stand-in
};

// sum[h] += Σ w · y over the choices of a token with chosen(expert), ascending. Returns the number
// of these choices.
template <DType dtype, typename Chosen>
int AddChoices(const ReceivedToken& token, absl::Span<const float> expert_scale, Chosen chosen,
               std::vector<float>& sum) {
  int added = 0;
  const std::vector<float>& x = token.x;
  for (size_t k = 0; k < token.experts.size(); ++k) {
    const int32_t expert = token.experts[k];
    if (expert < 0 || !chosen(expert)) continue;
    const float scale = expert_scale[static_cast<size_t>(expert)];
    const float weight = token.weights.empty() ? 1.0F : token.weights[k];
    for (size_t h = 0; h < sum.size(); ++h) {
      const uint16_t output = token.outputs.empty() ? FromFloat<dtype>(x[h] * scale)
                                                    : token.outputs[k * sum.size() + h];
      sum[h] += weight * ToFloat<dtype>(output);
    }
    ++added;
  }
  return added;
}

template <DType dtype>
std::vector<uint16_t> Combine(const EpConfig& config, int num_ranks, const RankInput& input,
                              absl::Span<const float> expert_scale,
                              absl::Span<const uint16_t> bias) {
  const auto hidden = static_cast<size_t>(config.hidden);
  const int num_local = config.num_local_experts(num_ranks);
  const bool per_rank = EpPlan::ByRules(config, num_ranks).combine_order == CombineOrder::kPerRank;
  std::vector<uint16_t> y(hidden * static_cast<size_t>(input.num_tokens));
  std::vector<float> x(hidden);
  std::vector<float> sum(hidden);
  std::vector<float> part(hidden);
  for (size_t t = 0; t < static_cast<size_t>(input.num_tokens); ++t) {
    LoadRow<dtype>(config, input, t, x);
    const auto topk = static_cast<size_t>(config.topk);
    const ReceivedToken token = {
        .experts = absl::MakeConstSpan(input.topk_idx).subspan(t * topk, topk),
        .weights = input.topk_weights.empty()
                       ? absl::Span<const float>()
                       : absl::MakeConstSpan(input.topk_weights).subspan(t * topk, topk),
        .x = x,
        .outputs = input.outputs.empty() ? input.outputs
                                         : input.outputs.subspan(t * topk * hidden, topk * hidden)};
    const auto add = [&](auto chosen, std::vector<float>& to) {
      std::fill(to.begin(), to.end(), 0.0F);
      return AddChoices<dtype>(token, expert_scale, chosen, to);
    };
    if (per_rank) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (int rank = 0; rank < num_ranks; ++rank) {
        if (add([&](int32_t expert) { return expert / num_local == rank; }, part) == 0) continue;
        for (size_t h = 0; h < hidden; ++h) sum[h] += ToFloat<dtype>(FromFloat<dtype>(part[h]));
      }
    } else {
      add([](int32_t) { return true; }, sum);
    }
    for (size_t h = 0; h < bias.size(); ++h) sum[h] += ToFloat<dtype>(bias[h]);
    for (size_t h = 0; h < hidden; ++h) y[t * hidden + h] = FromFloat<dtype>(sum[h]);
  }
  return y;
}

template <DType dtype>
bool IsNan(uint16_t bits) {
  constexpr uint16_t kInfinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
  return (bits & 0x7fff) > kInfinity;
}

template <DType dtype>
bool SameRow(absl::Span<const uint16_t> a, absl::Span<const uint16_t> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(IsNan<dtype>(a[i]) && IsNan<dtype>(b[i]))) return false;
  }
  return true;
}

float WeightOf(const EpConfig& config, absl::Span<const RankInput> inputs, const RowSource& row) {
  const RankInput& source = inputs[static_cast<size_t>(row.rank)];
  const int flat = row.token * config.topk + row.k;
  return source.topk_weights.empty() ? 1.0F : source.topk_weights[static_cast<size_t>(flat)];
}

// Adds the choices of each received token among the experts from `first` on.
void AddChoicesOfTokens(const EpConfig& config, absl::Span<const RankInput> inputs, int first,
                        ReferenceReceived& received) {
  const int num_local = config.num_local_experts(static_cast<int>(inputs.size()));
  for (const RowSource& token : received.tokens) {
    const RankInput& source = inputs[static_cast<size_t>(token.rank)];
    for (int k = 0; k < config.topk; ++k) {
      const int flat_index = token.token * config.topk + k;
      const auto flat = static_cast<size_t>(flat_index);
      const int local = source.topk_idx[flat] - first;
      const bool here = local >= 0 && local < num_local;
      const RowSource choice = {token.rank, token.token, k, local};
      received.recv_topk_idx.push_back(here ? local : -1);
      received.recv_topk_weights.push_back(here ? WeightOf(config, inputs, choice) : 0.0F);
    }
  }
}

// Adds the places of rows in expert order.
void AddPlaces(const EpConfig& config, size_t num_ranks, ReferenceReceived& received) {
  const size_t num_local = received.expert_counts.size();
  const auto tokens = static_cast<size_t>(config.max_tokens_per_rank);
  const size_t most_choices = std::min(static_cast<size_t>(config.topk), num_local);
  received.ranges.resize(num_local * num_ranks);
  received.split_counts.resize(num_ranks * num_local);
  for (const RowSource& source : received.sources) {
    if (source.rank < 0) continue;
    const auto expert = static_cast<size_t>(source.local_expert);
    const auto rank = static_cast<size_t>(source.rank);
    ++received.ranges[expert * num_ranks + rank].count;
    ++received.split_counts[rank * num_local + expert];
  }
  std::vector<size_t> next_of_rank(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) next_of_rank[rank] = rank * tokens * most_choices;
  for (size_t expert = 0; expert < num_local; ++expert) {
    size_t next = config.output == Output::kExpertMajor
                      ? expert * num_ranks * tokens
                      : static_cast<size_t>(received.expert_offsets[expert]);
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      RowRange& range = received.ranges[expert * num_ranks + rank];
      size_t& first = config.output == Output::kRankMajor ? next_of_rank[rank] : next;
      range.first = static_cast<int32_t>(first);
      first += static_cast<size_t>(range.count);
    }
  }
  std::vector<int32_t> taken(received.ranges.size());
  for (size_t i = 0; i < received.sources.size(); ++i) {
    const RowSource& source = received.sources[i];
    if (source.rank < 0) {
      received.places.push_back(static_cast<int32_t>(i));
      continue;
    }
    const size_t pair =
        static_cast<size_t>(source.local_expert) * num_ranks + static_cast<size_t>(source.rank);
    received.places.push_back(received.ranges[pair].first + taken[pair]++);
  }
}

// A row of an expert, before the rows of all experts are put together.
struct Row {
  RowSource source;
  int32_t token;  // among ReferenceReceived::tokens
};

// Moves the rows of `source`, the last ones of each expert, to where its input says.
void Scatter(const EpConfig& config, const RankInput& input, size_t source,
             std::vector<std::vector<Row>>& rows) {
  for (std::vector<Row>& expert : rows) {
    const auto begin = std::find_if(expert.begin(), expert.end(), [&](const Row& row) {
      return row.source.rank == static_cast<int32_t>(source);
    });
    const std::vector<Row> in_token_order(begin, expert.end());
    for (const Row& row : in_token_order) {
      const int flat = row.source.token * config.topk + row.source.k;
      *(begin + input.scatter_idx[static_cast<size_t>(flat)]) = row;
    }
  }
}

}  // namespace

PhysicalInputs::PhysicalInputs(const EpConfig& config, absl::Span<const RankInput> inputs)
    : inputs_(inputs.begin(), inputs.end()) {
  if (config.placement.empty()) return;
  for (RankInput& input : inputs_) {
    ids_.push_back(
        PhysicalIds(config.placement, input.rank, input.topk_idx, config.topk, input.first_token));
    input.topk_idx = ids_.back();
  }
}

std::vector<float> PhysicalScales(const Placement& placement, absl::Span<const float> scales) {
  std::vector<float> of_slots;
  for (const int32_t expert : placement.slots()) {
    const bool free = expert == Placement::kFreeSlot;
    of_slots.push_back(free ? 1.0F : scales[static_cast<size_t>(expert)]);
  }
  return of_slots;
}

RankInput RankInput::Tokens(const EpConfig& config, size_t first, size_t count) const {
  const auto part = [&](auto span, int width) {
    const auto each = static_cast<size_t>(width);
    return span.empty() ? span : span.subspan(first * each, count * each);
  };
  return {.num_tokens = static_cast<int>(count),
          .x = part(x, config.hidden),
          .topk_idx = part(topk_idx, config.topk),
          .topk_weights = part(topk_weights, config.topk),
          .fp8 = part(fp8, config.hidden),
          .scales = part(scales, config.scale_words()),
          .bytes = part(bytes, config.high_throughput.row_bytes),
          .scatter_idx = part(scatter_idx, config.topk),
          .outputs = part(outputs, config.topk * config.hidden),
          .rank = rank,
          .first_token = first_token + static_cast<int>(first)};
}

ReferenceReceived ReferenceDispatch(const EpConfig& config, absl::Span<const RankInput> inputs,
                                    int rank) {
  if (!config.placement.empty()) {
    const PhysicalInputs physical(config, inputs);
    return ReferenceDispatch(PhysicalConfig(config), physical.inputs(), rank);
  }
  const int num_local = config.num_local_experts(static_cast<int>(inputs.size()));
  const int first = rank * num_local;
  std::vector<std::vector<Row>> rows(static_cast<size_t>(num_local));
  ReferenceReceived received;
  received.source_offsets.push_back(0);
  for (size_t source = 0; source < inputs.size(); ++source) {
    const int32_t* id = inputs[source].topk_idx.data();
    for (int t = 0; t < inputs[source].num_tokens; ++t) {
      int choices = 0;
      for (int k = 0; k < config.topk; ++k, ++id) {
        const int local = *id - first;
        if (local < 0 || local >= num_local) continue;
        const RowSource origin = {static_cast<int32_t>(source), t, k, local};
        if (choices++ == 0) received.tokens.push_back(origin);
        const auto token = static_cast<int32_t>(received.tokens.size() - 1);
        rows[static_cast<size_t>(local)].push_back({origin, token});
      }
    }
    if (!inputs[source].scatter_idx.empty()) Scatter(config, inputs[source], source, rows);
    received.source_offsets.push_back(static_cast<int32_t>(received.tokens.size()));
  }
  received.expert_offsets.push_back(0);
  for (const std::vector<Row>& expert : rows) {
    received.expert_counts.push_back(static_cast<int32_t>(expert.size()));
    for (const Row& row : expert) {
      received.sources.push_back(row.source);
      received.row_weights.push_back(WeightOf(config, inputs, row.source));
      received.row_index.push_back(row.token);
    }
    while (received.sources.size() % static_cast<size_t>(config.high_throughput.expert_alignment) !=
           0) {
      received.sources.push_back({-1, -1, -1, -1});
      received.row_weights.push_back(0.0F);
      received.row_index.push_back(-1);
    }
    received.expert_offsets.push_back(static_cast<int32_t>(received.sources.size()));
  }
  AddPlaces(config, inputs.size(), received);
  // If rows lie apart, an expert's rows begin after the room for all rows of the previous experts.
  for (size_t i = 0; i < received.expert_offsets.size() && config.rows_apart(); ++i) {
    received.expert_offsets[i] =
        static_cast<int32_t>(i * inputs.size()) * config.max_tokens_per_rank;
  }
  if (config.output == Output::kRankMajor) received.expert_offsets.clear();
  if (config.output == Output::kDeduplicated) AddChoicesOfTokens(config, inputs, first, received);
  return received;
}

void ReferenceExpert(DType dtype, absl::Span<const uint16_t> row, float scale,
                     absl::Span<uint16_t> out) {
  if (dtype == DType::kFloat16) {
    ScaleRow<DType::kFloat16>(row.data(), scale, row.size(), out.data());
  } else {
    ScaleRow<DType::kBFloat16>(row.data(), scale, row.size(), out.data());
  }
}

std::vector<uint16_t> ReferenceCombine(const EpConfig& config, int num_ranks,
                                       const RankInput& input, absl::Span<const float> expert_scale,
                                       absl::Span<const uint16_t> bias) {
  if (!config.placement.empty()) {
    const PhysicalInputs physical(config, {input});
    return ReferenceCombine(PhysicalConfig(config), num_ranks, physical.inputs()[0],
                            PhysicalScales(config.placement, expert_scale), bias);
  }
  return config.dtype == DType::kFloat16
             ? Combine<DType::kFloat16>(config, num_ranks, input, expert_scale, bias)
             : Combine<DType::kBFloat16>(config, num_ranks, input, expert_scale, bias);
}

std::vector<uint16_t> ReferenceCombine(const EpConfig& config, const NodesOfRanks& nodes,
                                       const RankInput& input, absl::Span<const float> expert_scale,
                                       absl::Span<const uint16_t> bias) {
  if (!config.placement.empty()) {
    const PhysicalInputs physical(config, {input});
    return ReferenceCombine(PhysicalConfig(config), nodes, physical.inputs()[0],
                            PhysicalScales(config.placement, expert_scale), bias);
  }
  // All choices stay, those of other nodes as -1.
  EpConfig intranode = IntranodeConfig(config, nodes);
  intranode.topk = config.topk;
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto topk = static_cast<size_t>(config.topk);
  const auto of_node = static_cast<size_t>(intranode.num_experts);
  std::vector<float> sum(hidden * static_cast<size_t>(input.num_tokens));
  for (int node = 0; node < nodes.num_nodes; ++node) {
    const int first = node * intranode.num_experts;
    std::vector<int32_t> ids;
    for (const int32_t id : input.topk_idx) {
      ids.push_back(id >= first && id < first + intranode.num_experts ? id - first : -1);
    }
    RankInput here = input;
    here.topk_idx = ids;
    const std::vector<uint16_t> part =
        ReferenceCombine(intranode, nodes.ranks_per_node, here,
                         expert_scale.subspan(static_cast<size_t>(first), of_node));
    for (size_t i = 0; i < sum.size(); ++i) {
      const auto choices = absl::MakeConstSpan(ids).subspan(i / hidden * topk, topk);
      const bool chosen = absl::c_any_of(choices, [](int32_t id) { return id >= 0; });
      if (chosen) sum[i] += FloatFromBits(config.dtype, part[i]);
    }
  }
  std::vector<uint16_t> y(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    const float last =
        bias.empty() ? sum[i] : sum[i] + FloatFromBits(config.dtype, bias[i % hidden]);
    y[i] = BitsFromFloat(config.dtype, last);
  }
  return y;
}

bool SameBits(DType dtype, absl::Span<const uint16_t> a, absl::Span<const uint16_t> b) {
  if (a.size() != b.size()) return false;
  return dtype == DType::kFloat16 ? SameRow<DType::kFloat16>(a, b)
                                  : SameRow<DType::kBFloat16>(a, b);
}

}  // namespace octet
