#include "kernels/types/row_quantizer.h"

#include <hip/hip_runtime.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/types/quantize_rows.h"
#include "launch_limits.h"
#include "octet/gemm_tiles.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"

namespace octet {
namespace {

constexpr int kColumnUnit = 16;  // columns of a 16-byte vector of 8-bit floats

absl::Status CheckConfig(const RowQuantizerConfig& config) {
  if (config.columns < kColumnUnit || config.columns % kColumnUnit != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RowQuantizerConfig::columns is ", config.columns,
                     "; it must be a positive multiple of ", kColumnUnit));
  }
  if (config.max_rows >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("RowQuantizerConfig::max_rows is ",
                                                 config.max_rows, "; it must not be negative"));
}

// The launch for at most `rows` rows.
LaunchShape ShapeOf(const RowQuantizerConfig& config, int32_t rows, int compute_units,
                    int wave_size) {
  constexpr int kWavesPerBlock = 4;
  constexpr int kBlocksPerUnit = 16;
  const int64_t row_bytes = int64_t{rows} * config.columns * sizeof(uint16_t);
  const platform::LaunchLimits limits = platform::DefaultLaunchLimits(row_bytes);
  const int waves = std::min(kWavesPerBlock, limits.waves);
  const int64_t wave_columns = int64_t{kQuantizeLaneColumns} * wave_size;
  const int64_t parts = rows * ((config.columns + wave_columns - 1) / wave_columns);
  const int64_t most = std::min(compute_units * kBlocksPerUnit, limits.blocks);
  return {.blocks = static_cast<int>(std::min((parts + waves - 1) / waves, most)),
          .threads = waves * wave_size};
}

}  // namespace

absl::StatusOr<RowQuantizer> RowQuantizer::Create(const RowQuantizerConfig& config) {
  OCTET_RETURN_IF_ERROR(CheckConfig(config));
  int device = 0;
  int compute_units = 0;
  int wave_size = 0;
  OCTET_RETURN_IF_GPU_ERROR(hipGetDevice(&device));
  OCTET_RETURN_IF_GPU_ERROR(
      hipDeviceGetAttribute(&compute_units, hipDeviceAttributeMultiprocessorCount, device));
  OCTET_RETURN_IF_GPU_ERROR(hipDeviceGetAttribute(&wave_size, hipDeviceAttributeWarpSize, device));
  OCTET_RETURN_IF_GPU_ERROR(LoadQuantizeRows(config.dtype == DType::kFloat16));
  return RowQuantizer(config, compute_units, wave_size);
}

absl::Status RowQuantizer::Run(const QuantizeRowsArgs& args, GpuStream stream) const {
  const int32_t most =
      args.num_rows != nullptr ? config_.max_rows : std::min(args.rows, config_.max_rows);
  if (most <= 0) return absl::OkStatus();
  const QuantizeRowsParams params = {.x = args.x,
                                     .fp8 = args.fp8,
                                     .scales = static_cast<uint32_t*>(args.scales),
                                     .num_rows = args.num_rows,
                                     .max_rows = most,
                                     .columns = config_.columns,
                                     .scale_words = scale_words(),
                                     .scale_format = config_.scale_format};
  const LaunchShape shape = ShapeOf(config_, most, compute_units_, wave_size_);
  return OCTET_GPU(LaunchQuantizeRows(params, config_.dtype == DType::kFloat16, shape, stream));
}

int RowQuantizer::scale_words() const {
  return Fp8ScaleWords(config_.columns, kGemmScaleGroup, config_.scale_format);
}

size_t RowQuantizer::Fp8Bytes() const {
  return static_cast<size_t>(config_.max_rows) * static_cast<size_t>(config_.columns);
}

size_t RowQuantizer::ScaleBytes() const {
  return static_cast<size_t>(config_.max_rows) * static_cast<size_t>(scale_words()) *
         sizeof(uint32_t);
}

}  // namespace octet
