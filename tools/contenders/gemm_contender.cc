#include "tools/contenders/gemm_contender.h"

#include <cstddef>

#include "tools/contenders/cublas_contenders.h"
#include "tools/contenders/hipblaslt_contender.h"

namespace octet {

std::vector<ExpertGemm> ContenderGemm::Experts() const {
  const auto* a_rows = static_cast<const char*>(a);
  const auto* b_rows = static_cast<const char*>(b);
  auto* out_rows = static_cast<char*>(out);
  const size_t row_bytes = static_cast<size_t>(k) * InfoOf(dtype).bytes;
  const size_t out_row_bytes = static_cast<size_t>(n) * InfoOf(dtype).bytes;
  std::vector<ExpertGemm> experts;
  for (const int32_t count : rows) {
    if (count > 0) experts.push_back({count, a_rows, b_rows, out_rows});
    a_rows += static_cast<size_t>(count) * row_bytes;
    b_rows += static_cast<size_t>(n) * row_bytes;
    out_rows += static_cast<size_t>(count) * out_row_bytes;
  }
  return experts;
}

std::vector<std::unique_ptr<GemmContender>> MakeGemmContenders(absl::string_view platform) {
  if (platform == "nvidia") return MakeCublasContenders();
  std::vector<std::unique_ptr<GemmContender>> contenders;
  if (platform == "amd") contenders.push_back(MakeHipblasltContender());
  return contenders;
}

}  // namespace octet
