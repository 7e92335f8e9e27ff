#include "tools/workload/workload.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/types/fp8_rows.h"
#include "runtime/base/status_macros.h"
#include "tools/support/parallel_for.h"
#include "tools/workload/normal.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

// The purpose of a stream of random numbers: word 3 of its counters. Word 2 is the step, word 1 the
// token.
enum class Purpose : uint32_t { kNumTokens, kRows, kExperts, kWeights, kDrops };

constexpr size_t kTokensPerTask = 16;

// Random words generated and used at a time, few enough for the first-level cache.
constexpr size_t kChunk = 512;

PhiloxStream Stream(uint64_t seed, Purpose purpose, uint32_t step, size_t token) {
  return PhiloxStream(seed, static_cast<uint32_t>(token), step, static_cast<uint32_t>(purpose));
}

// Fills `row`, whose length is a multiple of 4, with standard normals as bits of `dtype`.
void FillRow(uint64_t seed, uint32_t step, size_t token, DType dtype, absl::Span<uint16_t> row) {
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const size_t n = row.size();
  std::array<uint32_t, kChunk> words;
  std::array<float, kChunk> normals;
  for (size_t first = 0; first < n; first += kChunk) {
    const size_t size = std::min(kChunk, n - first);
    for (size_t i = 0; i < size; i += 4) {
      const PhiloxCounter block =
          Philox({static_cast<uint32_t>((first + i) / 4), static_cast<uint32_t>(token), step,
                  static_cast<uint32_t>(Purpose::kRows)},
                 key);
      std::copy(block.begin(), block.end(), &words[i]);
    }
    NormalsFromWords(words.data(), size, normals.data());
    for (size_t i = 0; i < size; ++i) row[first + i] = BitsFromFloat(dtype, normals[i]);
  }
}

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

absl::Status CheckTokens(const WorkloadSpec& spec, int rank, int64_t tokens) {
  if (tokens >= 0 && tokens <= spec.config.max_tokens_per_rank) return absl::OkStatus();
  return Invalid(absl::StrCat("rank ", rank, " is to have ", tokens,
                              " tokens; it must be from 0 to max_tokens, which is ",
                              spec.config.max_tokens_per_rank));
}

absl::StatusOr<std::vector<int>> ChooseTokens(const WorkloadSpec& spec) {
  std::vector<int> tokens = spec.tokens;
  if (spec.routing.kind == RoutingKind::kFile) {
    tokens.clear();
    for (size_t r = 0; r < spec.recorded->topk_idx.size(); ++r) {
      tokens.push_back(spec.recorded->num_tokens(r));
    }
  } else if (tokens.empty()) {
    if (spec.config.max_tokens_per_rank < 2) {
      return Invalid(
          "max_tokens is 1, and from 1 to max_tokens - 1 there is no number of tokens "
          "to draw; give the number");
    }
    for (int r = 0; r < spec.num_ranks; ++r) {
      PhiloxStream stream = Stream(spec.seed + static_cast<uint64_t>(r), Purpose::kNumTokens, 0, 0);
      tokens.push_back(1 + static_cast<int>(stream.Below(
                               static_cast<uint32_t>(spec.config.max_tokens_per_rank - 1))));
    }
  }
  if (tokens.size() != static_cast<size_t>(spec.num_ranks)) {
    return Invalid(absl::StrCat("numbers of tokens are given for ", tokens.size(), " ranks; ",
                                spec.num_ranks, " are to run"));
  }
  for (int r = 0; r < spec.num_ranks; ++r) {
    OCTET_RETURN_IF_ERROR(CheckTokens(spec, r, tokens[static_cast<size_t>(r)]));
  }
  return tokens;
}

}  // namespace

// FNV-1a of the ids, 64 bits.
std::string RecordedDigest(const WorkloadSpec& spec) {
  constexpr uint64_t kOffset = 0xcbf29ce484222325;
  constexpr uint64_t kPrime = 0x100000001b3;
  if (spec.recorded == nullptr) return "";
  uint64_t hash = kOffset;
  for (const std::vector<int32_t>& ids : spec.recorded->topk_idx) {
    for (const int32_t id : ids) {
      for (int bit = 0; bit < 32; bit += 8) {
        hash = (hash ^ (static_cast<uint32_t>(id) >> bit & 0xff)) * kPrime;
      }
    }
  }
  return absl::StrFormat("%016x", hash);
}

absl::StatusOr<std::vector<int>> Workload::Resolve(const WorkloadSpec& spec) {
  OCTET_RETURN_IF_ERROR(CheckRouting(spec.routing, spec.config.num_experts, spec.config.topk));
  if (!(spec.drop >= 0 && spec.drop <= 1)) {
    return Invalid(absl::StrCat("drop is ", spec.drop, "; it must be from 0 to 1"));
  }
  if (spec.routing.kind == RoutingKind::kFile) {
    if (spec.recorded == nullptr) return Invalid("there is no recorded routing");
    if (spec.recorded->topk != spec.config.topk) {
      return Invalid(absl::StrCat("the recorded routing has ", spec.recorded->topk,
                                  " choices for a token; topk is ", spec.config.topk));
    }
    OCTET_RETURN_IF_ERROR(CheckRecorded(*spec.recorded, spec.config.num_experts));
  }
  return ChooseTokens(spec);
}

absl::Status Workload::Check(const WorkloadSpec& spec) { return Resolve(spec).status(); }

absl::StatusOr<std::unique_ptr<Workload>> Workload::Create(const WorkloadSpec& spec) {
  OCTET_ASSIGN_OR_RETURN(std::vector<int> tokens, Resolve(spec));
  return absl::WrapUnique(new Workload(spec, std::move(tokens)));
}

Workload::Workload(const WorkloadSpec& spec, std::vector<int> num_tokens)
    : spec_(spec),
      routing_(spec.routing, spec.config.num_experts, spec.seed),
      num_tokens_(std::move(num_tokens)) {
  for (const int num : num_tokens_) {
    const auto tokens = static_cast<size_t>(num);
    const size_t choices = tokens * static_cast<size_t>(spec.config.topk);
    StepInput::PerRank& rank = step_.ranks.emplace_back();
    rank.num_tokens = num;
    rank.x.resize(tokens * static_cast<size_t>(spec.config.hidden));
    rank.topk_idx.resize(choices);
    rank.topk_weights.resize(choices);
    if (spec.config.scale_words() == 0) continue;
    rank.fp8.resize(rank.x.size());
    rank.scales.resize(tokens * static_cast<size_t>(spec.config.scale_words()));
  }
  inputs_ = step_.sent();
}

void Workload::GenerateTokens(uint32_t step, size_t rank, size_t begin, size_t end) {
  const uint64_t seed = spec_.seed + rank;
  const auto topk = static_cast<size_t>(spec_.config.topk);
  const auto hidden = static_cast<size_t>(spec_.config.hidden);
  StepInput::PerRank& mine = step_.ranks[rank];
  RoutingGenerator::Scratch scratch;
  for (size_t token = begin; token < end; ++token) {
    const absl::Span<int32_t> ids(&mine.topk_idx[token * topk], topk);
    if (spec_.routing.kind == RoutingKind::kFile) {
      std::copy_n(&spec_.recorded->topk_idx[rank][token * topk], topk, ids.begin());
    } else {
      PhiloxStream experts = Stream(seed, Purpose::kExperts, step, token);
      routing_.Draw(experts, scratch, ids);
    }
    PhiloxStream weights = Stream(seed, Purpose::kWeights, step, token);
    PhiloxStream drops = Stream(seed, Purpose::kDrops, step, token);
    for (size_t k = 0; k < topk; ++k) {
      mine.topk_weights[token * topk + k] = weights.UniformFloat();
      if (drops.UniformDouble() < spec_.drop) ids[k] = -1;
    }
    const absl::Span<uint16_t> x(&mine.x[token * hidden], hidden);
    FillRow(seed, step, token, spec_.config.dtype, x);
    const auto words = static_cast<size_t>(spec_.config.scale_words());
    if (words == 0) continue;
    ReferenceQuantize(spec_.config, x, absl::MakeSpan(&mine.fp8[token * hidden], hidden),
                      absl::MakeSpan(&mine.scales[token * words], words));
  }
}

void Workload::Generate(uint32_t step) {
  struct Task {
    size_t rank;
    size_t begin;
    size_t end;
  };
  std::vector<Task> tasks;
  for (size_t r = 0; r < num_tokens_.size(); ++r) {
    const auto tokens = static_cast<size_t>(num_tokens_[r]);
    for (size_t begin = 0; begin < tokens; begin += kTokensPerTask) {
      tasks.push_back({r, begin, std::min(begin + kTokensPerTask, tokens)});
    }
  }
  ParallelFor(tasks.size(),
              [&](size_t i) { GenerateTokens(step, tasks[i].rank, tasks[i].begin, tasks[i].end); });
}

}  // namespace octet
