#include "tests/support/gemm_problem.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "octet/ep_config.h"
#include "octet/fp4_format.h"
#include "octet/fp8_format.h"
#include "octet/native_fp8.h"

namespace octet {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<uint8_t> RandomElements(const GemmProblem& p, size_t count, std::mt19937& rng) {
  // Sums of four uniform numbers: nearly normal, and cheap. 8-bit floats use more of their range.
  std::vector<uint8_t> elements(count * p.element_bytes());
  const float unit = p.HasFp8Rows() ? 2 : 148;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = rng();
    const int sum =
        static_cast<int>((bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) + (bits >> 24)) -
        510;
    p.Set(elements, i, static_cast<float>(sum) / unit);
  }
  return elements;
}

// Both halves of a byte are an element, so any byte will do.
std::vector<uint8_t> RandomBytes(size_t count, std::mt19937& rng) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
  return bytes;
}

// Scales around 1/64, of `rows` rows; bytes that are no scale are random, too.
std::vector<uint8_t> RandomScales(const GroupedGemmConfig& config, const WeightFormat& format,
                                  size_t rows, std::mt19937& rng) {
  const bool mxfp4 = format.element == TensorType::kFloat4E2m1;
  const int words = mxfp4 ? config.scale_words() : config.row_scale_words();
  std::vector<uint8_t> bytes(rows * static_cast<size_t>(words) * sizeof(float));
  if (format.scale == ScaleFormat::kUe8m0) {
    constexpr uint8_t kLeast = 127 - 10;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(kLeast + rng() % 8);
    if (!mxfp4) return bytes;
    const size_t row_bytes = bytes.size() / rows;
    for (size_t i = 0; i < bytes.size(); ++i) {  // NaN, if it were one
      if (i % row_bytes >= static_cast<size_t>(config.k) / kMxBlock) bytes[i] = 0xff;
    }
    return bytes;
  }
  std::uniform_real_distribution<float> uniform(0.001F, 0.03F);
  for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    const float scale = uniform(rng);
    std::memcpy(&bytes[i], &scale, sizeof(scale));
  }
  return bytes;
}

}  // namespace

void GemmProblem::Set(std::vector<uint8_t>& elements, size_t index, float value) const {
  if (HasFp8Rows()) {
    elements[index] = Fp8FromFloat<NativeFp8>(value).bits;
  } else {
    const uint16_t bits = BitsFromFloat(config.dtype, value);
    std::memcpy(&elements[2 * index], &bits, sizeof(bits));
  }
}

std::string GemmProblem::Text() const {
  return absl::StrCat(
      "N ", config.n, " K ", config.k, " ",
      HasFp8Rows() ? absl::StrCat("fp8 ", std::string(EnumName(config.scale_format)))
                   : std::string(EnumName(config.dtype)),
      IsMxfp4() ? " mxfp4" : "", config.activation == GemmActivation::kSwiGlu ? " swiglu" : "",
      config.output == GemmOutput::kFloat32 ? " to float32" : "", bias.empty() ? "" : " bias",
      row_scale.empty() ? "" : " scale", " rows ", absl::StrJoin(counts, ","));
}
GemmProblem MakeGemmProblem(const GroupedGemmConfig& config, const std::vector<int32_t>& rows,
                            const GemmProblemOptions& options) {
  GemmProblem p;
  p.config = config;
  p.config.experts = static_cast<int>(rows.size());
  p.counts = rows;
  p.offsets = {0};
  for (const int32_t count : rows) p.offsets.push_back(p.offsets.back() + count + options.padding);
  p.config.max_rows = p.offsets.back() + 3;
  std::mt19937 rng(options.seed);
  const auto n = static_cast<size_t>(config.n);
  const auto k = static_cast<size_t>(config.k);
  const auto max_rows = static_cast<size_t>(p.config.max_rows);
  p.a = RandomElements(p, max_rows * k, rng);
  p.b = p.IsMxfp4() ? RandomBytes(rows.size() * n * k / 2, rng)
                    : RandomElements(p, rows.size() * n * k, rng);
  if (p.HasFp8Rows()) p.a_scales = RandomScales(p.config, p.config.row_format(), max_rows, rng);
  if (p.HasFp8Rows() || p.IsMxfp4()) {
    p.b_scales = RandomScales(p.config, p.config.weight_format(),
                              rows.size() * static_cast<size_t>(p.config.weight_scale_rows()), rng);
  }
  // Rows that are nobody's must not matter.
  for (size_t e = 0; e < rows.size(); ++e) {
    const auto first = static_cast<size_t>(p.offsets[e]) + static_cast<size_t>(rows[e]);
    const size_t end = e + 1 < rows.size() ? static_cast<size_t>(p.offsets[e + 1]) : max_rows;
    for (size_t i = first * k; i < end * k; ++i) p.Set(p.a, i, kNan);
  }
  std::uniform_real_distribution<float> uniform(-2, 2);
  if (options.bias) p.bias.resize(rows.size() * n);
  if (options.row_scale) p.row_scale.resize(max_rows);
  for (float& bias : p.bias) bias = uniform(rng);
  for (float& scale : p.row_scale) scale = uniform(rng);
  return p;
}

absl::StatusOr<GemmOnGpu> GemmOnGpu::Make(const GemmProblem& p) {
  GemmOnGpu gpu;
  gpu.out_words_ = static_cast<size_t>(p.config.max_rows * p.config.out_columns()) *
                   (p.config.out_bytes() / sizeof(uint16_t));
  OCTET_ASSIGN_OR_RETURN(gpu.a_, Upload(p.a));
  OCTET_ASSIGN_OR_RETURN(gpu.b_, Upload(p.b));
  OCTET_ASSIGN_OR_RETURN(gpu.offsets_, Upload(p.offsets));
  OCTET_ASSIGN_OR_RETURN(gpu.counts_, Upload(p.counts));
  OCTET_ASSIGN_OR_RETURN(gpu.bias_, Upload(p.bias));
  OCTET_ASSIGN_OR_RETURN(gpu.row_scale_, Upload(p.row_scale));
  OCTET_ASSIGN_OR_RETURN(gpu.a_scales_, Upload(p.a_scales));
  OCTET_ASSIGN_OR_RETURN(gpu.b_scales_, Upload(p.b_scales));
  OCTET_ASSIGN_OR_RETURN(gpu.out_, Upload(std::vector<uint16_t>(gpu.out_words_, kUnwritten)));
  gpu.args_ = {.a = gpu.a_.as<void>(),
               .b = gpu.b_.as<void>(),
               .a_scales = p.HasFp8Rows() ? gpu.a_scales_.as<void>() : nullptr,
               .b_scales = p.b_scales.empty() ? nullptr : gpu.b_scales_.as<void>(),
               .expert_offsets = gpu.offsets_.as<int32_t>(),
               .expert_counts = gpu.counts_.as<int32_t>(),
               .bias = p.bias.empty() ? nullptr : gpu.bias_.as<float>(),
               .row_scale = p.row_scale.empty() ? nullptr : gpu.row_scale_.as<float>(),
               .out = gpu.out_.as<void>()};
  return gpu;
}

absl::StatusOr<std::vector<uint16_t>> ComputeGemm(const GemmProblem& p) {
  OCTET_ASSIGN_OR_RETURN(GemmOnGpu gpu, GemmOnGpu::Make(p));
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<GroupedGemm> gemm, GroupedGemm::Create(p.config));
  OCTET_RETURN_IF_ERROR(gemm->Run(gpu.args(), nullptr));
  return gpu.Out();
}

std::vector<GemmExpectation> ExpectedGemm(const GemmProblem& p) {
  const HostGemm host = p.Host();
  std::vector<GemmExpectation> expected;
  for (size_t e = 0; e < p.counts.size(); ++e) {
    const int64_t end = std::min<int64_t>(p.offsets[e] + p.counts[e], p.config.max_rows);
    for (int64_t row = p.offsets[e]; row < end; ++row) {
      for (int c = 0; c < p.config.out_columns(); ++c) {
        expected.push_back(ExpectedElement(host, static_cast<int>(e), row, c));
      }
    }
  }
  return expected;
}

std::string FirstWrongElement(const GemmProblem& p, const std::vector<GemmExpectation>& expected,
                              const std::vector<uint16_t>& out) {
  const int columns = p.config.out_columns();
  size_t expert = 0;
  auto next = expected.begin();
  for (int32_t row = 0; row < p.config.max_rows; ++row) {
    while (expert < p.counts.size() && row >= p.offsets[expert + 1]) ++expert;
    const bool written = expert < p.counts.size() && row < p.offsets[expert] + p.counts[expert];
    for (int c = 0; c < columns; ++c) {
      const size_t index =
          static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(c);
      if (!written) {
        const size_t words = p.config.out_bytes() / sizeof(uint16_t);
        for (size_t word = index * words; word < (index + 1) * words; ++word) {
          if (out[word] != kUnwritten) return absl::StrCat("row ", row, ", nobody's, was written");
        }
        continue;
      }
      const GemmExpectation& want = *next++;
      if (OutputMeets(p.config, want, out.data(), index)) continue;
      return absl::StrCat("row ", row, " (expert ", expert, ") column ", c, " is ",
                          OutputElement(p.config, out.data(), index), " and should be ", want.value,
                          " +- ", want.error);
    }
  }
  return "";
}
}  // namespace octet
