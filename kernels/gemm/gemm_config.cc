#include "kernels/gemm/gemm_config.h"

namespace octet {

int GroupedGemmConfig::scale_words() const {
  const WeightFormat weights = weight_format();
  return weights.has_scales() ? ScaleWords(weights, k) : 0;
}

int GroupedGemmConfig::row_scale_words() const {
  const WeightFormat rows = row_format();
  return rows.has_scales() ? ScaleWords(rows, k) : 0;
}

int GroupedGemmConfig::weight_scale_rows() const {
  const WeightFormat weights = weight_format();
  if (!weights.has_scales()) return 0;
  // Gate and up, whose rows alternate, have blocks of their own.
  const int matrices = activation == GemmActivation::kSwiGlu ? 2 : 1;
  return matrices * static_cast<int>(weights.BlocksOfRows(static_cast<size_t>(n / matrices)));
}

int ScaleWords(const WeightFormat& format, int columns) {
  constexpr int kWordsOfVec = 4;  // of 16 bytes
  const int words = Fp8ScaleWords(columns, format.block_columns, format.scale);
  if (InfoOf(format).quantizes_rows) return words;
  return (words + kWordsOfVec - 1) / kWordsOfVec * kWordsOfVec;
}

size_t InputRowBytes(const GroupedGemmConfig& config) {
  return config.row_format().Bytes(static_cast<size_t>(config.k));
}

size_t WeightBytes(const GroupedGemmConfig& config) {
  return static_cast<size_t>(config.experts) * static_cast<size_t>(config.n) *
         config.weight_format().Bytes(static_cast<size_t>(config.k));
}

size_t OutputRowBytes(const GroupedGemmConfig& config) {
  return static_cast<size_t>(config.out_columns()) * config.out_bytes();
}

}  // namespace octet
