#include "tools/contenders/gemm_contender.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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

absl::StatusOr<std::unique_ptr<GemmContender>> MakeGemmContender(absl::string_view platform,
                                                                 absl::string_view name) {
  std::string names;
  bool known = false;
  for (const absl::string_view owner : {"nvidia", "amd"}) {
    for (std::unique_ptr<GemmContender>& contender : MakeGemmContenders(owner)) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", contender->name());
      if (contender->name() != name) continue;
      if (owner == platform) return std::move(contender);
      known = true;
    }
  }
  if (known) {
    return absl::UnavailableError(absl::StrCat("the platform ", platform, " has no ", name));
  }
  return absl::InvalidArgumentError(absl::StrCat("products '", name, "' is not one of ", names));
}

}  // namespace octet
