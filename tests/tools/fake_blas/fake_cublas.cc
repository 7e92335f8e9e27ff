// A fake of libcublas.so.13: the functions that octet uses, for BF16. Arguments that octet should
// not pass are refused.
#include <cstddef>
#include <set>
#include <vector>

#include "tests/tools/fake_blas/fake_gemm.h"

// The names are cuBLAS's, and so are the parameters.
// NOLINTBEGIN(readability-identifier-naming, readability-function-size)
namespace {

using octet::fake::EnqueueOnce;
using octet::fake::Gemm;
using octet::fake::kBFloat16Type;
using octet::fake::Multiply;

constexpr int kInvalidValue = 7;
constexpr int kTranspose = 1;
constexpr int kNoTranspose = 0;
constexpr int kComputeFloat32 = 68;

struct Handle {
  void* stream;
};

std::set<void*>& StreamsUsed() {
  static auto& streams = *new std::set<void*>();
  return streams;
}

bool AreOneAndZero(const void* alpha, const void* beta) {
  return *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0;
}

}  // namespace

extern "C" {

void octet_fake_set_enqueue(octet::fake::Enqueue enqueue) { octet::fake::enqueue = enqueue; }
size_t octet_fake_streams_used() { return StreamsUsed().size(); }

int cublasCreate_v2(void** handle) {
  *handle = new Handle();
  return 0;
}

int cublasDestroy_v2(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}

int cublasSetStream_v2(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}

int cublasGemmEx(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                 const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
                 const void* beta, void* c, int c_type, int ldc, int compute, int algorithm) {
  if (trans_a != kTranspose || trans_b != kNoTranspose || m < 1 || n < 1 || k < 1 || lda < k ||
      ldb < k || ldc < m || a_type != kBFloat16Type || b_type != a_type || c_type != a_type ||
      compute != kComputeFloat32 || algorithm != -1 || !AreOneAndZero(alpha, beta)) {
    return kInvalidValue;
  }
  void* const stream = static_cast<Handle*>(handle)->stream;
  StreamsUsed().insert(stream);
  const Gemm gemm = {m, n, k, a, lda, b, ldb, c, ldc};
  return EnqueueOnce(stream, [gemm] { Multiply(gemm); });
}

int cublasGemmGroupedBatchedEx(void* handle, const int* trans_a, const int* trans_b, const int* m,
                               const int* n, const int* k, const void* alpha, const void* const* a,
                               int a_type, const int* lda, const void* const* b, int b_type,
                               const int* ldb, const void* beta, void* const* c, int c_type,
                               const int* ldc, int groups, const int* group_size, int compute) {
  if (a_type != kBFloat16Type || b_type != a_type || c_type != a_type || groups < 1 ||
      compute != kComputeFloat32) {
    return kInvalidValue;
  }
  std::vector<Gemm> gemms;
  for (int i = 0; i < groups; ++i) {
    if (trans_a[i] != kTranspose || trans_b[i] != kNoTranspose || group_size[i] != 1 || m[i] < 1 ||
        n[i] < 1 || k[i] < 1 || lda[i] < k[i] || ldb[i] < k[i] || ldc[i] < m[i] ||
        !AreOneAndZero(static_cast<const float*>(alpha) + i, static_cast<const float*>(beta) + i)) {
      return kInvalidValue;
    }
    gemms.push_back({m[i], n[i], k[i], nullptr, lda[i], nullptr, ldb[i], nullptr, ldc[i]});
  }
  // The GPU reads the arrays of matrices.
  return EnqueueOnce(static_cast<Handle*>(handle)->stream, [gemms, a, b, c]() mutable {
    for (size_t i = 0; i < gemms.size(); ++i) {
      gemms[i].a = a[i];
      gemms[i].b = b[i];
      gemms[i].c = c[i];
      Multiply(gemms[i]);
    }
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming, readability-function-size)
