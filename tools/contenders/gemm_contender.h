// The contenders of `octet gemm`: the vendor's libraries of matrix products, loaded at run time.
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

// The product of one expert that has rows.
struct ExpertGemm {
  int rows;
  const void* a;  // [rows][K]
  const void* b;  // [N][K]
  void* out;      // [rows][N]
};

// out[row] = a[row] · b[expert]ᵀ, with the experts' rows known to the host and packed.
struct ContenderGemm {
  std::vector<int32_t> rows;  // of each expert
  int n;
  int k;
  DType dtype;
  const void* a;  // this GPU's memory, as GroupedGemmArgs
  const void* b;
  void* out;

  // Returns the products of the experts that have rows.
  std::vector<ExpertGemm> Experts() const;
};

// Libraries have columns where we have rows, so they compute outᵀ = b · aᵀ. Belongs to the GPU that
// is current in Prepare. Not thread-safe.
class GemmContender {
 public:
  virtual ~GemmContender() = default;

  virtual absl::string_view name() const = 0;  // "cublas_grouped"

  // Takes the operands of the calls of Run until the next Prepare. Untimed: may load, allocate and
  // wait for the GPU.
  // kUnavailable, with the reason, without the library or one that has what is needed.
  virtual absl::Status Prepare(const ContenderGemm& gemm) = 0;

  // Whether a Prepare for no more experts than an earlier one had does none of that, so that it may
  // be part of a timed call that learns only then how many rows experts have.
  virtual bool prepares_in_calls() const { return false; }

  // Enqueues the products.
  virtual absl::Status Run(GpuStream stream) = 0;
};

// Returns all contenders of a platform (Topology::platform), whether or not their libraries are
// installed: those of cublas_contenders.h, or of hipblaslt_contender.h, or none.
std::vector<std::unique_ptr<GemmContender>> MakeGemmContenders(absl::string_view platform);

// Returns the one of that name. kUnavailable if it is another platform's; kInvalidArgument, with
// all names, if there is no such name.
absl::StatusOr<std::unique_ptr<GemmContender>> MakeGemmContender(absl::string_view platform,
                                                                 absl::string_view name);

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_GEMM_CONTENDER_H_
