#include <dlfcn.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/contenders/gemm_contender.h"

namespace octet {
namespace {

// The part of cublas_v2.h that is needed, by the values that the library's interface fixes.
using Handle = void*;
constexpr int kNoTranspose = 0;
constexpr int kTranspose = 1;
constexpr int kFloat16Type = 2;
constexpr int kBFloat16Type = 14;
constexpr int kComputeFloat32 = 68;
constexpr int kDefaultAlgorithm = -1;

struct CublasLibrary {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*set_stream)(Handle, GpuStream);
  int (*gemm)(Handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
              const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
              const void* beta, void* c, int c_type, int ldc, int compute, int algorithm);
};

absl::StatusOr<const CublasLibrary*> LoadOnce() {
  void* handle = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
    if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) return absl::UnavailableError(dlerror());
  auto* const library = new CublasLibrary();  // stays loaded
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) absl::StrAppend(&missing, missing.empty() ? "" : ", ", name);
  };
  find(library->create, "cublasCreate_v2");
  find(library->destroy, "cublasDestroy_v2");
  find(library->set_stream, "cublasSetStream_v2");
  find(library->gemm, "cublasGemmEx");
  if (!missing.empty()) return absl::UnavailableError(absl::StrCat("libcublas lacks ", missing));
  return library;
}

absl::Status ToStatus(int result, absl::string_view call) {
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, " returned ", result));
}

class CublasContender final : public GemmContender {
 public:
  CublasContender(const CublasLibrary& library, Handle handle)
      : library_(library), handle_(handle) {}
  ~CublasContender() override { library_.destroy(handle_); }

  absl::string_view name() const override { return "cublas"; }

  // cuBLAS has columns where we have rows: outᵀ = b · aᵀ.
  absl::Status Run(const ContenderGemm& gemm, GpuStream stream) override {
    if (const absl::Status status =
            ToStatus(library_.set_stream(handle_, stream), "cublasSetStream");
        !status.ok()) {
      return status;
    }
    const int type = gemm.dtype == DType::kFloat16 ? kFloat16Type : kBFloat16Type;
    const float one = 1;
    const float zero = 0;
    const auto* a = static_cast<const char*>(gemm.a);
    const auto* b = static_cast<const char*>(gemm.b);
    auto* out = static_cast<char*>(gemm.out);
    const size_t row_bytes = static_cast<size_t>(gemm.k) * InfoOf(gemm.dtype).bytes;
    const size_t out_row_bytes = static_cast<size_t>(gemm.n) * InfoOf(gemm.dtype).bytes;
    for (const int32_t rows : gemm.rows) {
      if (rows > 0) {
        const absl::Status status =
            ToStatus(library_.gemm(handle_, kTranspose, kNoTranspose, gemm.n, rows, gemm.k, &one, b,
                                   type, gemm.k, a, type, gemm.k, &zero, out, type, gemm.n,
                                   kComputeFloat32, kDefaultAlgorithm),
                     "cublasGemmEx");
        if (!status.ok()) return status;
      }
      a += static_cast<size_t>(rows) * row_bytes;
      b += static_cast<size_t>(gemm.n) * row_bytes;
      out += static_cast<size_t>(rows) * out_row_bytes;
    }
    return absl::OkStatus();
  }

 private:
  const CublasLibrary& library_;
  Handle handle_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GemmContender>> MakeCublasContender() {
  static const auto* const kLibrary = new absl::StatusOr<const CublasLibrary*>(LoadOnce());
  if (!kLibrary->ok()) return kLibrary->status();
  Handle handle = nullptr;
  if (const absl::Status status = ToStatus((**kLibrary)->create(&handle), "cublasCreate");
      !status.ok()) {
    return status;
  }
  return std::make_unique<CublasContender>(***kLibrary, handle);
}

}  // namespace octet
