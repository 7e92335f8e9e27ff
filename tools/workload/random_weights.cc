#include "tools/workload/random_weights.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/size.h"
#include "tools/support/parallel_for.h"
#include "tools/workload/normal.h"
#include "tools/workload/philox.h"

namespace octet {
namespace {

constexpr size_t kPiece = 4096;  // numbers of one draw

}  // namespace

RandomWeights::Pool RandomWeights::MakePool(DType dtype, size_t elements, double deviation,
                                            uint64_t seed) {
  constexpr uint32_t kWeightDraws = 0x776569;  // tells these draws from others of the seed
  Pool pool;
  const size_t pieces = (elements + kPiece - 1) / kPiece;
  pool.elements.resize(pieces * kPiece);
  ParallelFor(pieces, [&](size_t piece) {
    PhiloxStream stream(seed, kWeightDraws, static_cast<uint32_t>(piece), 0);
    std::vector<uint32_t> words(kPiece);
    std::vector<float> normals(kPiece);
    for (uint32_t& word : words) word = stream.Next();
    NormalsFromWords(words.data(), kPiece, normals.data());
    for (size_t i = 0; i < kPiece; ++i) {
      pool.elements[piece * kPiece + i] =
          BitsFromFloat(dtype, normals[i] * static_cast<float>(deviation));
    }
  });
  return pool;
}

HostTensor RandomWeights::Pool::Take(int rows, int columns) {
  const size_t count = Size(rows) * Size(columns);
  constexpr uint64_t kStep = 0x9E3779B1;  // a prime: no two tensors begin at the same element
  const size_t first = (next++ * kStep) % (elements.size() - count + 1);
  return {.rows = rows,
          .columns = columns,
          .data = reinterpret_cast<const std::byte*>(elements.data() + first)};
}

MlpWeights RandomWeights::TakeMlp(const MoeLayerConfig& config, int between) {
  MlpWeights mlp = {.gate = in_.Take(between, config.hidden),
                    .up = in_.Take(between, config.hidden),
                    .down = mid_.Take(config.hidden, between)};
  for (HostTensor* tensor : {&mlp.gate, &mlp.up, &mlp.down}) tensor->type = type_;
  return mlp;
}

HostTensor RandomWeights::TakeBias(int columns) {
  HostTensor bias = in_.Take(1, columns);
  bias.type = type_;
  return bias;
}

RandomWeights::RandomWeights(const MoeLayerConfig& config, bool router_bias, uint64_t seed)
    : type_(TypeOf(config.dtype)) {
  const int between = std::max(config.intermediate, config.shared_intermediate);
  // So many more than the largest tensor has that tensors begin at different elements.
  constexpr size_t kMore = size_t{1} << 20;
  const size_t largest =
      std::max(Size(between), Size(config.num_experts)) * Size(config.hidden) + kMore;
  in_ = MakePool(config.dtype, largest, 1 / std::sqrt(config.hidden), 2 * seed);
  mid_ = MakePool(config.dtype, Size(between) * Size(config.hidden) + kMore,
                  1 / std::sqrt(config.intermediate), 2 * seed + 1);
  weights_.router = in_.Take(config.num_experts, config.hidden);
  weights_.router.type = type_;
  if (config.logit_bias) weights_.logit_bias = TakeBias(config.num_experts);
  if (router_bias) {
    PhiloxStream stream(seed, 0, 0, 0);
    for (int e = 0; e < config.num_experts; ++e) bias_.push_back(stream.UniformFloat() / 8);
    weights_.router_bias = {.type = TensorType::kFloat32,
                            .rows = 1,
                            .columns = config.num_experts,
                            .data = reinterpret_cast<const std::byte*>(bias_.data())};
  }
  for (int e = 0; e < config.num_experts; ++e) {
    MlpWeights& mlp = weights_.experts.emplace_back(TakeMlp(config, config.intermediate));
    if (!config.expert_biases) continue;
    mlp.gate_bias = TakeBias(config.intermediate);
    mlp.up_bias = TakeBias(config.intermediate);
    mlp.down_bias = TakeBias(config.hidden);
  }
  if (config.shared_intermediate == 0) return;
  weights_.shared = TakeMlp(config, config.shared_intermediate);
  if (!config.shared_gate) return;
  weights_.shared_gate = in_.Take(1, config.hidden);
  weights_.shared_gate.type = type_;
}

}  // namespace octet
