// A fake of libhipblaslt.so.1: the functions that octet uses, for BF16. Arguments that octet should
// not pass are refused.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/tools/fake_blas/fake_gemm.h"

// The names are hipBLASLt's, and so are the parameters.
// NOLINTBEGIN(readability-identifier-naming, readability-function-size)
namespace {

using octet::fake::EnqueueOnce;
using octet::fake::Gemm;
using octet::fake::kBFloat16Type;
using octet::fake::Multiply;

constexpr int kInvalidValue = 3;
constexpr int kFloat32Type = 0;
constexpr int kComputeFloat32 = 2;
constexpr int kTransposeA = 0;
constexpr int kTransposeB = 1;
constexpr int kTranspose = 112;
constexpr int kNoTranspose = 111;
constexpr int kMostWorkspace = 1;

struct Operation {
  std::array<int32_t, 2> transpose = {kNoTranspose, kNoTranspose};
};

struct Layout {
  uint64_t rows;
  uint64_t columns;
  int64_t ld;
};

struct Preference {
  uint64_t workspace_bytes = 0;
};

// The problem that an algorithm was found for: the first bytes of hipblasLtMatmulHeuristicResult_t.
struct Algorithm {
  uint64_t columns;
  uint64_t workspace_bytes;
};

bool Fit(const Operation& operation, const Layout& a, const Layout& b, const Layout& c) {
  return operation.transpose[0] == kTranspose && operation.transpose[1] == kNoTranspose &&
         a.rows == b.rows && c.rows == a.columns && c.columns == b.columns && b.columns > 0;
}

template <typename T>
int Delete(void* object) {
  delete static_cast<T*>(object);
  return 0;
}

}  // namespace

extern "C" {

void octet_fake_set_enqueue(octet::fake::Enqueue enqueue) { octet::fake::enqueue = enqueue; }

int hipblasLtCreate(void** handle) {
  *handle = new int(0);
  return 0;
}
int hipblasLtDestroy(void* handle) { return Delete<int>(handle); }

int hipblasLtMatmulDescCreate(void** operation, int compute, int scale_type) {
  if (compute != kComputeFloat32 || scale_type != kFloat32Type) return kInvalidValue;
  *operation = new Operation();
  return 0;
}
int hipblasLtMatmulDescDestroy(void* operation) { return Delete<Operation>(operation); }
int hipblasLtMatmulDescSetAttribute(void* operation, int attribute, const void* value,
                                    size_t bytes) {
  if ((attribute != kTransposeA && attribute != kTransposeB) || bytes != sizeof(int32_t)) {
    return kInvalidValue;
  }
  std::memcpy(&static_cast<Operation*>(operation)->transpose.at(static_cast<size_t>(attribute)),
              value, bytes);
  return 0;
}

int hipblasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                                int64_t ld) {
  if (type != kBFloat16Type || ld < static_cast<int64_t>(rows)) return kInvalidValue;
  *layout = new Layout{rows, columns, ld};
  return 0;
}
int hipblasLtMatrixLayoutDestroy(void* layout) { return Delete<Layout>(layout); }

int hipblasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference();
  return 0;
}
int hipblasLtMatmulPreferenceDestroy(void* preference) { return Delete<Preference>(preference); }
int hipblasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value,
                                          size_t bytes) {
  if (attribute != kMostWorkspace || bytes != sizeof(uint64_t)) return kInvalidValue;
  std::memcpy(&static_cast<Preference*>(preference)->workspace_bytes, value, bytes);
  return 0;
}

int hipblasLtMatmulAlgoGetHeuristic(void* /*handle*/, void* operation, void* a, void* b, void* c,
                                    void* d, void* preference, int requested, void* found,
                                    int* num_found) {
  if (c != d || requested != 1 ||
      !Fit(*static_cast<Operation*>(operation), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
           *static_cast<Layout*>(c))) {
    return kInvalidValue;
  }
  const Algorithm algorithm = {static_cast<Layout*>(b)->columns,
                               static_cast<Preference*>(preference)->workspace_bytes};
  std::memcpy(found, &algorithm, sizeof(algorithm));
  *num_found = 1;
  return 0;
}

int hipblasLtMatmul(void* /*handle*/, void* operation, const void* alpha, const void* a,
                    void* a_layout, const void* b, void* b_layout, const void* beta, const void* c,
                    void* c_layout, void* d, void* d_layout, const void* algorithm, void* workspace,
                    size_t workspace_bytes, void* stream) {
  const Layout& by_a = *static_cast<Layout*>(a_layout);
  const Layout& by_b = *static_cast<Layout*>(b_layout);
  const Layout& by_c = *static_cast<Layout*>(c_layout);
  Algorithm chosen = {};
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  if (!Fit(*static_cast<Operation*>(operation), by_a, by_b, by_c) || c != d ||
      c_layout != d_layout || chosen.columns != by_b.columns ||
      workspace_bytes < chosen.workspace_bytes || workspace == nullptr ||
      *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0) {
    return kInvalidValue;
  }
  const Gemm gemm = {static_cast<int>(by_c.rows), static_cast<int>(by_c.columns),
                     static_cast<int>(by_a.rows), a,
                     static_cast<int>(by_a.ld),   b,
                     static_cast<int>(by_b.ld),   d,
                     static_cast<int>(by_c.ld)};
  return EnqueueOnce(stream, [gemm] { Multiply(gemm); });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming, readability-function-size)
