// What commands ask of a grouped product, and its operands in the current GPU's memory.
#ifndef OCTET_TOOLS_MEASURE_GEMM_GEMM_SETUP_H_
#define OCTET_TOOLS_MEASURE_GEMM_GEMM_SETUP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/gemm_tiles.h"
#include "octet/gpu.h"
#include "octet/grouped_gemm.h"
#include "runtime/memory/device_memory.h"
#include "tools/measure/gemm/gemm_operands.h"
#include "tools/measure/probe/clock_probe.h"
#include "tools/step/l2_flush.h"

namespace octet {

struct GemmOptions {
  std::vector<int32_t> rows;  // of each expert
  int n = 0;
  int k = 0;
  DType dtype = DType::kBFloat16;
  GemmFormat format = GemmFormat::kSame;
  bool fp8_rows = false;  // as in GroupedGemmConfig
  ScaleFormat scale_format = ScaleFormat::kFloat32;
  GemmActivation activation = GemmActivation::kNone;
  GemmOutput output = GemmOutput::kDtype;
  bool bias = false;
  bool row_scale = false;
  std::vector<std::optional<GemmTiles>> tiles;  // measured in turn; nullopt: the library's choice
  bool use_measured_tuning = true;              // as in GroupedGemmConfig
  int blocks = 0;
  int iters = 20;
  int warmup = 2;
  int samples = 256;  // patches of one row and eight columns of the output that are checked
  uint32_t seed = 4;
  std::string dump;  // folder for the operands and the last output; empty: none

  GroupedGemmConfig Config() const;  // with the library's choice of tiles
  double Flops() const;
  double WeightBytes() const;              // of the experts that have rows, without scales
  size_t element_bytes() const;            // of rows
  absl::string_view operand_name() const;  // "bf16", "mxfp4", "fp8_mxfp4"
};

// The operands, and what empties the caches before each product.
struct GemmOperandSet {
  DeviceMemory a, b, a_scales, b_scales, out, offsets, bias, row_scale;
  L2Flush flush;
  std::vector<int32_t> host_offsets;
  std::vector<float> host_bias;
  std::vector<float> host_row_scale;
};

// Random operands, which the seed decides. kResourceExhausted if they do not fit.
absl::StatusOr<GemmOperandSet> MakeOperands(const GemmOptions& options, bool emulated);

GroupedGemmArgs ArgsOf(const GemmOptions& options, const GemmOperandSet& operands);

// Compares options.samples parts of the output with float64. The product must be done.
absl::StatusOr<GemmCheck> CheckOperands(const GemmOptions& options, const GemmOperandSet& operands);

struct TimedProduct {
  double us = 0;
  std::optional<double> mhz;  // of the compute units, the mean; if they have a clock
};

// Times what `enqueue` puts onto the null stream, with the L2 flushed before it.
absl::StatusOr<TimedProduct> TimeProduct(const L2Flush& flush, const ClockProbe& clock,
                                         absl::FunctionRef<absl::Status(GpuStream)> enqueue);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_GEMM_GEMM_SETUP_H_
