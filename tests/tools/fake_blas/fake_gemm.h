// Matrix products as BLAS defines them, in stream order but on the host: what the fakes of vendors'
// libraries are made of. On emulated GPUs only, whose memory the host can read and write.
#ifndef OCTET_TESTS_TOOLS_FAKE_BLAS_FAKE_GEMM_H_
#define OCTET_TESTS_TOOLS_FAKE_BLAS_FAKE_GEMM_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace octet::fake {

// Enqueues work(data) on a stream; 0 if that succeeds.
using Enqueue = int (*)(void* stream, void (*work)(void* data), void* data);
inline Enqueue enqueue = nullptr;  // set by the test: a library of its own cannot find HIP

inline constexpr int kBFloat16Type = 14;

// c[m][n] = aᵀ · b, by columns: a is [k][m], b [k][n], both of BF16, as is c.
struct Gemm {
  int m;
  int n;
  int k;
  const void* a;
  int lda;
  const void* b;
  int ldb;
  void* c;
  int ldc;
};

inline float FromBits(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

inline uint16_t ToBits(float value) {
  uint32_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  return static_cast<uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

inline void Multiply(const Gemm& gemm) {
  const auto* a = static_cast<const uint16_t*>(gemm.a);
  const auto* b = static_cast<const uint16_t*>(gemm.b);
  auto* c = static_cast<uint16_t*>(gemm.c);
  for (ptrdiff_t column = 0; column < gemm.n; ++column) {
    for (ptrdiff_t row = 0; row < gemm.m; ++row) {
      float sum = 0;
      for (ptrdiff_t i = 0; i < gemm.k; ++i) {
        sum += FromBits(a[row * gemm.lda + i]) * FromBits(b[column * gemm.ldb + i]);
      }
      c[column * gemm.ldc + row] = ToBits(sum);
    }
  }
}

// Enqueues `work`, a function object that the stream destroys afterwards.
template <typename Work>
int EnqueueOnce(void* stream, Work work) {
  auto* const owned = new Work(std::move(work));
  return enqueue(
      stream,
      [](void* data) {
        auto* const mine = static_cast<Work*>(data);
        (*mine)();
        delete mine;
      },
      owned);
}

}  // namespace octet::fake

#endif  // OCTET_TESTS_TOOLS_FAKE_BLAS_FAKE_GEMM_H_
