// wgmma: a warpgroup multiplies 64 rows by 16 to 256 columns, 32 bytes of K at a time, both
// operands in shared memory.
//
// In the accumulators, thread t of the warpgroup has, of rows t/32 * 16 + t%32/4 (+ 8) and columns
// 8*j + t%4 * 2 (+ 1), the elements [4*j + 2 * (row is the second) + (column is the second)].
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_WGMMA_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_WGMMA_H_

#include <cstdint>

#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

// The lower half of the descriptor of a tile whose rows are 128 bytes of K, swizzled by the copy
// unit; the tile is 1024-byte aligned. The next 32 bytes of K are 2 further. The upper half, which
// is the same for all, says that eight rows are 1024 bytes and names the swizzle.
__device__ __forceinline__ uint32_t TileDescriptor(uint32_t address) {
  constexpr uint32_t kLeadingOffset = uint32_t{1} << 16;  // not used with this swizzle
  return (address & 0x3ffff) >> 4 | kLeadingOffset;
}
__device__ __forceinline__ uint64_t WholeDescriptor(uint32_t lower) {
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return lower | kEightRows | kSwizzle128;
}
// The first of the two rows that the thread's accumulators belong to; the other is 8 more.
__device__ __forceinline__ int OwnWgmmaRow() {
  return static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
}

// A value that all lanes have. The compiler then knows, and computes with it once for all lanes.
template <typename Word>
__device__ __forceinline__ Word UniformOf(Word value) {
  return __shfl_sync(0xffffffffU, value, 0);
}

// Before the first wgmma, and after other code has touched the accumulators.
__device__ __forceinline__ void BeginWgmma() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitWgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the last `groups` groups are done.
template <int groups>
__device__ __forceinline__ void WaitWgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

// Wgmma<columns, element>::Multiply(sums, a, b, accumulate): sums (+)= a · bᵀ, by descriptors.
template <int columns, GemmElement element>
struct Wgmma;

// The accumulators as operands, eight at a time.
#define OCTET_SUMS_8(i)                                                               \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define OCTET_SUMS_16(i) OCTET_SUMS_8(i), OCTET_SUMS_8((i) + 8)
#define OCTET_SUMS_32(i) OCTET_SUMS_16(i), OCTET_SUMS_16((i) + 16)
#define OCTET_SUMS_64(i) OCTET_SUMS_32(i), OCTET_SUMS_32((i) + 32)
#define OCTET_SUMS_96(i) OCTET_SUMS_64(i), OCTET_SUMS_32((i) + 64)
#define OCTET_SUMS_128(i) OCTET_SUMS_64(i), OCTET_SUMS_64((i) + 64)
// Their names in the instruction.
#define OCTET_NAMES_0_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define OCTET_NAMES_8_16 "%8,%9,%10,%11,%12,%13,%14,%15"
#define OCTET_NAMES_16_32 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define OCTET_NAMES_32_64                                                        \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50," \
  "%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define OCTET_NAMES_64_96                                                        \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82," \
  "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define OCTET_NAMES_96_128                                                       \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,"  \
  "%127"

#define OCTET_WGMMA(columns, element, type, tail, names, a_name, b_name, p_name, sums)       \
  template <>                                                                                \
  struct Wgmma<columns, element> {                                                           \
    static __device__ __forceinline__ void Multiply(float (&d)[(columns) / 2], uint32_t a,   \
                                                    uint32_t b, int accumulate) {            \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " p_name                                   \
                   ", 0;\n"                                                                  \
                   "wgmma.mma_async.sync.aligned.m64n" #columns type " {" names "}, " a_name \
                   ", " b_name ", p, 1, 1" tail ";}"                                         \
                   : sums                                                                    \
                   : "l"(WholeDescriptor(a)), "l"(WholeDescriptor(b)), "r"(accumulate));     \
    }                                                                                        \
  };
#define OCTET_WGMMA_16(element, type, tail) \
  OCTET_WGMMA(16, element, type, tail, OCTET_NAMES_0_8, "%8", "%9", "%10", OCTET_SUMS_8(0))
#define OCTET_WGMMA_32(element, type, tail)                                                       \
  OCTET_WGMMA(32, element, type, tail, OCTET_NAMES_0_8 "," OCTET_NAMES_8_16, "%16", "%17", "%18", \
              OCTET_SUMS_16(0))
#define OCTET_WGMMA_64(element, type, tail)                                                        \
  OCTET_WGMMA(64, element, type, tail, OCTET_NAMES_0_8 "," OCTET_NAMES_8_16 "," OCTET_NAMES_16_32, \
              "%32", "%33", "%34", OCTET_SUMS_32(0))
#define OCTET_WGMMA_128(element, type, tail)                                                    \
  OCTET_WGMMA(128, element, type, tail,                                                         \
              OCTET_NAMES_0_8 "," OCTET_NAMES_8_16 "," OCTET_NAMES_16_32 "," OCTET_NAMES_32_64, \
              "%64", "%65", "%66", OCTET_SUMS_64(0))
#define OCTET_WGMMA_192(element, type, tail)                                                   \
  OCTET_WGMMA(192, element, type, tail,                                                        \
              OCTET_NAMES_0_8 "," OCTET_NAMES_8_16 "," OCTET_NAMES_16_32 "," OCTET_NAMES_32_64 \
                              "," OCTET_NAMES_64_96,                                           \
              "%96", "%97", "%98", OCTET_SUMS_96(0))
#define OCTET_WGMMA_256(element, type, tail)                                                   \
  OCTET_WGMMA(256, element, type, tail,                                                        \
              OCTET_NAMES_0_8 "," OCTET_NAMES_8_16 "," OCTET_NAMES_16_32 "," OCTET_NAMES_32_64 \
                              "," OCTET_NAMES_64_96 "," OCTET_NAMES_96_128,                    \
              "%128", "%129", "%130", OCTET_SUMS_128(0))
// The last operands say that neither 16-bit operand is transposed; 8-bit operands cannot be.
#define OCTET_WGMMA_BF16(columns) \
  OCTET_WGMMA_##columns(GemmElement::kBf16, "k16.f32.bf16.bf16", ", 0, 0")
#define OCTET_WGMMA_FP16(columns) \
  OCTET_WGMMA_##columns(GemmElement::kFp16, "k16.f32.f16.f16", ", 0, 0")
#define OCTET_WGMMA_FP8(columns) OCTET_WGMMA_##columns(GemmElement::kFp8, "k32.f32.e4m3.e4m3", "")
OCTET_WGMMA_BF16(16)
OCTET_WGMMA_BF16(32)
OCTET_WGMMA_BF16(64)
OCTET_WGMMA_BF16(192)
OCTET_WGMMA_BF16(256)
OCTET_WGMMA_FP16(16)
OCTET_WGMMA_FP16(32)
OCTET_WGMMA_FP16(64)
OCTET_WGMMA_FP16(192)
OCTET_WGMMA_FP16(256)
OCTET_WGMMA_FP8(16)
OCTET_WGMMA_FP8(32)
OCTET_WGMMA_FP8(64)
OCTET_WGMMA_FP8(128)
OCTET_WGMMA_FP8(192)

// WgmmaOfRegisters<columns>::Multiply(sums, a, b, accumulate): the same in bfloat16 with `a` in
// registers. Thread t of the warpgroup has, of rows t/32 * 16 + t%32/4 (+ 8) and columns t%4 * 2
// and the next (+ 8), the pairs [(row is the second) + 2 * (column is in the second eight)].
template <int columns, GemmElement element>
struct WgmmaOfRegisters;

#define OCTET_WGMMA_REGISTERS(columns, element, type, tail, names, a_names, b_name, p_name, sums) \
  template <>                                                                                     \
  struct WgmmaOfRegisters<columns, element> {                                                     \
    static __device__ __forceinline__ void Multiply(float (&d)[(columns) / 2],                    \
                                                    const uint32_t (&a)[4], uint32_t b,           \
                                                    int accumulate) {                             \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " p_name                                        \
                   ", 0;\n"                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #columns type " {" names "}, {" a_names    \
                   "}, " b_name ", p, 1, 1" tail ";}"                                             \
                   : sums                                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(WholeDescriptor(b)),         \
                     "r"(accumulate));                                                            \
    }                                                                                             \
  };
#define OCTET_WGMMA_REGISTERS_ALL(element, type, tail)                                           \
  OCTET_WGMMA_REGISTERS(16, element, type, tail, OCTET_NAMES_0_8, "%8,%9,%10,%11", "%12", "%13", \
                        OCTET_SUMS_8(0))                                                         \
  OCTET_WGMMA_REGISTERS(32, element, type, tail, OCTET_NAMES_0_8 "," OCTET_NAMES_8_16,           \
                        "%16,%17,%18,%19", "%20", "%21", OCTET_SUMS_16(0))                       \
  OCTET_WGMMA_REGISTERS(64, element, type, tail,                                                 \
                        OCTET_NAMES_0_8 "," OCTET_NAMES_8_16 "," OCTET_NAMES_16_32,              \
                        "%32,%33,%34,%35", "%36", "%37", OCTET_SUMS_32(0))                       \
  OCTET_WGMMA_REGISTERS(128, element, type, tail,                                                \
                        OCTET_NAMES_0_8 "," OCTET_NAMES_8_16 "," OCTET_NAMES_16_32               \
                                        "," OCTET_NAMES_32_64,                                   \
                        "%64,%65,%66,%67", "%68", "%69", OCTET_SUMS_64(0))
OCTET_WGMMA_REGISTERS_ALL(GemmElement::kBf16, "k16.f32.bf16.bf16", ", 0")
OCTET_WGMMA_REGISTERS_ALL(GemmElement::kFp8, "k32.f32.e4m3.e4m3", "")

#undef OCTET_WGMMA_REGISTERS
#undef OCTET_WGMMA_REGISTERS_ALL
#undef OCTET_WGMMA_BF16
#undef OCTET_WGMMA_FP16
#undef OCTET_WGMMA_FP8
#undef OCTET_WGMMA
#undef OCTET_WGMMA_16
#undef OCTET_WGMMA_32
#undef OCTET_WGMMA_64
#undef OCTET_WGMMA_128
#undef OCTET_WGMMA_192
#undef OCTET_WGMMA_256
#undef OCTET_NAMES_0_8
#undef OCTET_NAMES_8_16
#undef OCTET_NAMES_16_32
#undef OCTET_NAMES_32_64
#undef OCTET_NAMES_64_96
#undef OCTET_NAMES_96_128
#undef OCTET_SUMS_8
#undef OCTET_SUMS_16
#undef OCTET_SUMS_32
#undef OCTET_SUMS_64
#undef OCTET_SUMS_96
#undef OCTET_SUMS_128

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_WGMMA_H_
