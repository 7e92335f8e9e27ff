#include "tools/measure/gemm/gemm_operands.h"

#include <hip/hip_runtime.h>

#include <bit>
#include <cstddef>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/oracle/gemm_reference.h"
#include "kernels/types/gemm_element.h"
#include "octet/dtype.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "tools/measure/gemm/gemm_fill.h"

namespace octet {
namespace {

constexpr int kPatchColumns = 8;  // of the output; with SwiGLU they come from 16 of the product

// Returns the bytes of a row of a, or of b.
int64_t RowBytes(const GroupedGemmConfig& config, const WeightFormat& format) {
  return static_cast<int64_t>(format.Bytes(static_cast<size_t>(config.k)));
}

// Elements [first, first + count).
template <typename T>
absl::StatusOr<std::vector<T>> Download(const void* memory, int64_t first, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(host.data(), static_cast<const T*>(memory) + first,
                                      host.size() * sizeof(T), hipMemcpyDeviceToHost));
  return host;
}

// Eight columns of one row of the output, beginning at `column`.
struct Patch {
  int expert;
  int64_t row;
  int column;
};

// Returns the scales of the weights of a patch: a row, or one of gate and one of up. All of its
// columns have the same, for they begin at a multiple of their number; or each has a row.
absl::StatusOr<std::vector<uint8_t>> WeightScalesOf(const ComputedGemm& gemm, const Patch& patch) {
  const GroupedGemmConfig& config = gemm.config;
  const int kinds = config.activation == GemmActivation::kSwiGlu ? 2 : 1;
  const int64_t rows = config.weight_scale_rows();
  const int64_t row_bytes = config.scale_words() * int64_t{sizeof(uint32_t)};
  if (config.weight_format().block_rows == 1) {
    const int64_t row = int64_t{patch.expert} * config.n + int64_t{kinds} * patch.column;
    return Download<uint8_t>(gemm.args.b_scales, row * row_bytes,
                             int64_t{kinds} * kPatchColumns * row_bytes);
  }
  std::vector<uint8_t> scales;
  for (int kind = 0; kind < kinds; ++kind) {
    const int64_t row =
        patch.expert * rows + kind * (rows / kinds) + patch.column / kGemmScaleGroup;
    OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> of_kind,
                           Download<uint8_t>(gemm.args.b_scales, row * row_bytes, row_bytes));
    scales.insert(scales.end(), of_kind.begin(), of_kind.end());
  }
  return scales;
}

// Compares a patch with the reference, as a product of one row and as many columns as it needs.
absl::Status CheckPatch(const ComputedGemm& gemm, const Patch& patch, GemmCheck& check) {
  const GroupedGemmConfig& config = gemm.config;
  const int columns = kPatchColumns * config.n / config.out_columns();
  const int64_t weight_row =
      int64_t{patch.expert} * config.n + patch.column / kPatchColumns * columns;
  HostGemm host;
  host.config = config;
  host.config.experts = 1;
  host.config.n = columns;
  const int64_t row_bytes = RowBytes(config, config.row_format());
  const int64_t weight_bytes = RowBytes(config, config.weight_format());
  OCTET_ASSIGN_OR_RETURN(const std::vector<uint8_t> a,
                         Download<uint8_t>(gemm.args.a, patch.row * row_bytes, row_bytes));
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<uint8_t> b,
      Download<uint8_t>(gemm.args.b, weight_row * weight_bytes, columns * weight_bytes));
  const auto out_bytes = static_cast<int64_t>(config.out_bytes());
  OCTET_ASSIGN_OR_RETURN(
      const std::vector<uint8_t> out,
      Download<uint8_t>(gemm.args.out,
                        (patch.row * config.out_columns() + patch.column) * out_bytes,
                        kPatchColumns * out_bytes));
  std::vector<uint8_t> a_scales;
  std::vector<uint8_t> b_scales;
  if (config.row_format().has_scales()) {
    const int64_t scale_bytes = config.row_scale_words() * int64_t{sizeof(uint32_t)};
    OCTET_ASSIGN_OR_RETURN(
        a_scales, Download<uint8_t>(gemm.args.a_scales, patch.row * scale_bytes, scale_bytes));
  }
  if (config.weight_format().has_scales()) {
    OCTET_ASSIGN_OR_RETURN(b_scales, WeightScalesOf(gemm, patch));
  }
  host.a = a;
  host.b = b;
  host.a_scales = a_scales;
  host.b_scales = b_scales;
  if (!gemm.bias.empty()) {
    host.bias = gemm.bias.subspan(static_cast<size_t>(weight_row), static_cast<size_t>(columns));
  }
  if (!gemm.row_scale.empty()) {
    host.row_scale = gemm.row_scale.subspan(static_cast<size_t>(patch.row), 1);
  }
  for (int c = 0; c < kPatchColumns; ++c) {
    const GemmExpectation want = ExpectedElement(host, 0, 0, c);
    const auto index = static_cast<size_t>(c);
    ++check.checked;
    if (OutputMeets(config, want, out.data(), index)) continue;
    if (check.wrong++ == 0) {
      check.first_wrong =
          absl::StrCat("row ", patch.row, " of expert ", patch.expert, ", column ",
                       patch.column + c, " is ", OutputElement(config, out.data(), index),
                       " and should be ", want.value, " +- ", want.error);
    }
  }
  return absl::OkStatus();
}

// Returns the rows of an expert.
int64_t RowsOf(const ComputedGemm& gemm, size_t expert) {
  if (!gemm.counts.empty()) return gemm.counts[expert];
  return gemm.offsets[expert + 1] - gemm.offsets[expert];
}

// Returns the place of row `index` of those that experts have.
Patch PatchOfRow(const ComputedGemm& gemm, int64_t index) {
  size_t expert = 0;
  while (index >= RowsOf(gemm, expert)) index -= RowsOf(gemm, expert++);
  return {static_cast<int>(expert), gemm.offsets[expert] + index, 0};
}

}  // namespace

absl::StatusOr<DeviceMemory> RandomGemmElements(const WeightFormat& format, int64_t elements,
                                                uint32_t seed) {
  const size_t bytes = format.Bytes(static_cast<size_t>(elements));
  OCTET_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes));
  OCTET_RETURN_IF_GPU_ERROR(FillNormal(memory.as<uint32_t>(),
                                       static_cast<int64_t>(bytes / sizeof(uint32_t)),
                                       ElementOf(format), seed, nullptr));
  return memory;
}

absl::StatusOr<DeviceMemory> RandomGemmScales(const WeightFormat& of, int64_t number,
                                              uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<uint32_t> words(static_cast<size_t>(number));
  std::uniform_real_distribution<float> uniform(0.5F / kFp8Deviation, 1.5F / kFp8Deviation);
  const ScaleFormat format = of.scale;
  const bool fp8 = of.element == TensorType::kFloat8E4m3;
  const uint32_t about = fp8 ? 127 - 6 : 127 - 1;  // 2^-6, 2^-1
  for (uint32_t& word : words) {
    if (format == ScaleFormat::kUe8m0) {
      for (int shift = 0; shift < 32; shift += 8) word |= (about - 1 + rng() % 3) << shift;
    } else {
      const float scale = uniform(rng);
      word = format == ScaleFormat::kFloat32
                 ? std::bit_cast<uint32_t>(scale)
                 : std::bit_cast<uint32_t>(ScaleFromUe8m0(Ue8m0FromScale(scale)));
    }
  }
  OCTET_ASSIGN_OR_RETURN(DeviceMemory memory,
                         DeviceMemory::Allocate(words.size() * sizeof(uint32_t)));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(memory.as<void>(), words.data(),
                                      words.size() * sizeof(uint32_t), hipMemcpyHostToDevice));
  return memory;
}

absl::StatusOr<GemmCheck> CheckGemmSamples(const ComputedGemm& gemm, int samples, uint32_t seed) {
  GemmCheck check;
  int64_t rows = 0;
  for (size_t e = 0; e + 1 < gemm.offsets.size(); ++e) rows += RowsOf(gemm, e);
  const int groups = gemm.config.out_columns() / kPatchColumns;
  std::mt19937_64 rng(seed);
  for (int i = 0; i < samples && rows > 0; ++i) {
    const int64_t index =
        i == 0 ? rows - 1 : static_cast<int64_t>(rng() % static_cast<uint64_t>(rows));
    const int group = i == 0 ? groups - 1 : static_cast<int>(rng() % static_cast<uint64_t>(groups));
    Patch patch = PatchOfRow(gemm, index);
    patch.column = group * kPatchColumns;
    OCTET_RETURN_IF_ERROR(CheckPatch(gemm, patch, check));
  }
  return check;
}

}  // namespace octet
