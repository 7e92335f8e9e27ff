#include "tests/support/random_step.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "kernels/types/fp8_rows.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

void StrewSpecialValues(std::mt19937_64& rng, const EpConfig& config, std::vector<uint16_t>& x) {
  constexpr std::array<uint16_t, 8> kSpecial = {0x0000, 0x8000, 0x0001, 0x8001,
                                                0x7c00, 0x7f80, 0xff80, 0x7fff};
  for (uint16_t& bits : x) {
    const uint64_t draw = rng();
    if (draw % (config.scale_words() > 0 ? 2048 : 64) != 0) continue;
    bits = kSpecial[(draw >> 16) % kSpecial.size()];
  }
}

// One group of columns in eight: a scale that would divide by zero.
void ZeroSomeGroups(std::mt19937_64& rng, const EpConfig& config, std::vector<uint16_t>& x) {
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto group = static_cast<size_t>(config.scale_group);
  for (size_t row = 0; row < x.size(); row += hidden) {
    for (size_t first = 0; first < hidden; first += group) {
      if (rng() % 8 != 0) continue;
      const size_t end = std::min(first + group, hidden);
      for (size_t i = first; i < end; ++i) x[row + i] = i % 2 == 0 ? 0x0000 : 0x8000;
    }
  }
}

void Quantize(const EpConfig& config, StepInput::PerRank& rank) {
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto words = static_cast<size_t>(config.scale_words());
  rank.fp8.resize(rank.x.size());
  rank.scales.resize(rank.x.size() / hidden * words);
  for (size_t t = 0; t * hidden < rank.x.size(); ++t) {
    ReferenceQuantize(config, absl::MakeConstSpan(rank.x).subspan(t * hidden, hidden),
                      absl::MakeSpan(rank.fp8).subspan(t * hidden, hidden),
                      absl::MakeSpan(rank.scales).subspan(t * words, words));
  }
}

}  // namespace

StepInput RandomStep(std::mt19937_64& rng, const EpConfig& config,
                     const std::vector<int>& num_tokens, double drop) {
  WorkloadSpec spec;
  spec.num_ranks = static_cast<int>(num_tokens.size());
  spec.config = config;
  spec.tokens = num_tokens;
  spec.drop = drop;
  spec.seed = rng();
  const std::unique_ptr<Workload> workload = Workload::Create(spec).value();
  workload->Generate(0);
  StepInput input;
  input.ranks.assign(workload->ranks().begin(), workload->ranks().end());
  for (StepInput::PerRank& rank : input.ranks) {
    StrewSpecialValues(rng, config, rank.x);
    if (config.scale_words() > 0) ZeroSomeGroups(rng, config, rank.x);
    if (config.dispatch_format == DispatchFormat::kQuantizedFp8) Quantize(config, rank);
  }
  for (int e = 0; e < config.num_experts; ++e) {
    input.expert_scale.push_back(1.0F +
                                 static_cast<float>(e) / static_cast<float>(config.num_experts));
  }
  return input;
}

std::vector<int> RandomTokens(std::mt19937_64& rng, const EpConfig& config, int num_ranks) {
  std::vector<int> tokens(static_cast<size_t>(num_ranks));
  for (int& t : tokens) {
    t = static_cast<int>(rng() % (static_cast<uint64_t>(config.max_tokens_per_rank) + 1));
  }
  return tokens;
}

void SendRandomBytes(std::mt19937_64& rng, const EpConfig& config, StepInput& input) {
  const bool fp8 = config.dispatch_format == DispatchFormat::kFp8;
  if (!fp8 && config.dispatch_format != DispatchFormat::kBytes) return;
  input.experts_take_x = true;
  for (StepInput::PerRank& rank : input.ranks) {
    const auto count = static_cast<size_t>(rank.num_tokens);
    std::vector<uint8_t>& rows = fp8 ? rank.fp8 : rank.bytes;
    rows.resize(count * config.dispatch_row_bytes());
    for (uint8_t& byte : rows) byte = static_cast<uint8_t>(rng());
    rank.scales.resize(count * static_cast<size_t>(config.scale_words()));
    for (uint32_t& word : rank.scales) word = static_cast<uint32_t>(rng());
  }
}

void ScatterRandomly(std::mt19937_64& rng, const EpConfig& config, StepInput& input) {
  for (StepInput::PerRank& rank : input.ranks) {
    std::vector<std::vector<size_t>> of_expert(static_cast<size_t>(config.num_experts));
    for (size_t i = 0; i < rank.topk_idx.size(); ++i) {
      if (rank.topk_idx[i] >= 0) of_expert[static_cast<size_t>(rank.topk_idx[i])].push_back(i);
    }
    rank.scatter_idx.assign(rank.topk_idx.size(), -7);
    for (std::vector<size_t>& choices : of_expert) {
      std::shuffle(choices.begin(), choices.end(), rng);
      for (size_t i = 0; i < choices.size(); ++i) {
        rank.scatter_idx[choices[i]] = static_cast<int32_t>(i);
      }
    }
  }
}

}  // namespace octet
