// What `octet gemm` measures beside the grouped product: cuBLAS, loaded at run time.
#ifndef OCTET_TOOLS_CONTENDERS_GEMM_CONTENDER_H_
#define OCTET_TOOLS_CONTENDERS_GEMM_CONTENDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/dtype.h"
#include "octet/gpu.h"

namespace octet {

// out[row] = a[row] · b[expert]ᵀ, with the experts' rows known to the host and packed.
struct ContenderGemm {
  std::vector<int32_t> rows;  // of each expert
  int n;
  int k;
  DType dtype;
  const void* a;  // this GPU's memory, as GroupedGemmArgs
  const void* b;
  void* out;
};

class GemmContender {
 public:
  virtual ~GemmContender() = default;
  virtual absl::string_view name() const = 0;
  // Enqueues the products.
  virtual absl::Status Run(const ContenderGemm& gemm, GpuStream stream) = 0;
};

// cuBLAS, one call for each expert that has rows. kUnavailable, with the reason, without the
// library.
absl::StatusOr<std::unique_ptr<GemmContender>> MakeCublasContender();

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_GEMM_CONTENDER_H_
