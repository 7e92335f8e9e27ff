// Problems for grouped products in tests: random operands, the product on the GPU, and the first
// element of it that is wrong.
#ifndef OCTET_TESTS_SUPPORT_GEMM_PROBLEM_H_
#define OCTET_TESTS_SUPPORT_GEMM_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/oracle/gemm_reference.h"
#include "octet/grouped_gemm.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "tests/support/host_copy.h"

namespace octet {

inline constexpr uint16_t kUnwritten = 0x7fff;  // a NaN of both dtypes, and two of float32

// A product to compute. Rows of padding follow every expert's rows and the last expert.
struct GemmProblem {
  GroupedGemmConfig config;
  std::vector<int32_t> offsets;
  std::vector<int32_t> counts;
  std::vector<uint8_t> a;  // elements, whatever their size is; fewer bits in b of MXFP4
  std::vector<uint8_t> b;
  std::vector<float> bias;
  std::vector<float> row_scale;
  std::vector<uint8_t> a_scales;
  std::vector<uint8_t> b_scales;

  bool HasFp8Rows() const { return config.format == GemmFormat::kFp8 || config.fp8_rows; }
  bool IsMxfp4() const { return config.format == GemmFormat::kMxfp4; }
  size_t element_bytes() const { return HasFp8Rows() ? 1 : 2; }
  // Rounds `value` to element `index` of a or b; of MXFP4, of a.
  void Set(std::vector<uint8_t>& elements, size_t index, float value) const;

  std::string Text() const;
  HostGemm Host() const { return {config, a, b, bias, row_scale, a_scales, b_scales}; }
};

struct GemmProblemOptions {
  int padding = 0;  // rows after every expert
  bool bias = false;
  bool row_scale = false;
  uint32_t seed = 1;
};

GemmProblem MakeGemmProblem(const GroupedGemmConfig& config, const std::vector<int32_t>& rows,
                            const GemmProblemOptions& options = {});

// A problem in the GPU's memory.
class GemmOnGpu {
 public:
  static absl::StatusOr<GemmOnGpu> Make(const GemmProblem& p);

  GroupedGemmArgs& args() { return args_; }
  // The output's bytes, two at a time.
  absl::StatusOr<std::vector<uint16_t>> Out() const {
    OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
    return ToHost<uint16_t>(out_.as<void>(), out_words_);
  }
  absl::Status ClearOut() const {
    return ToDevice(out_, std::vector<uint16_t>(out_words_, kUnwritten));
  }

 private:
  DeviceMemory a_, b_, offsets_, counts_, bias_, row_scale_, a_scales_, b_scales_, out_;
  size_t out_words_ = 0;  // of two bytes
  GroupedGemmArgs args_;
};

absl::StatusOr<std::vector<uint16_t>> ComputeGemm(const GemmProblem& p);

// The output of the rows that are somebody's, row by row.
std::vector<GemmExpectation> ExpectedGemm(const GemmProblem& p);

// The first element that is not what it must be; empty if there is none.
std::string FirstWrongElement(const GemmProblem& p, const std::vector<GemmExpectation>& expected,
                              const std::vector<uint16_t>& out);

// Copies a vector to new memory.
template <typename T>
absl::StatusOr<DeviceMemory> Upload(const std::vector<T>& host) {
  OCTET_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(host.size() * sizeof(T)));
  OCTET_RETURN_IF_ERROR(ToDevice(memory, host));
  return memory;
}

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_GEMM_PROBLEM_H_
