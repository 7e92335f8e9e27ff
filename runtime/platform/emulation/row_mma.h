// Products of 16 rows of weights with a few tokens, by one wave, on emulated GPUs.
// runtime/platform/README.md states the contract.
//
// Waves of 32 lanes have NVIDIA's layout of operands and sums, those of 64 have AMD's. The lanes
// put what they hold into shared memory, and each computes its sums from there.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_ROW_MMA_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_ROW_MMA_H_

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "octet/fp4_format.h"
#include "octet/fp8_format.h"
#include "octet/fp8_scale.h"
#include "octet/native_fp8.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device {

template <GemmElement element>
class RowMma {
 public:
  static constexpr int kRowParts = 2;  // of 64 lanes each has one row, twice
  static constexpr int kMinTokens = 8;
  static constexpr int kWaves = 4;
  static constexpr int kRing = (9 << 10) + 256;  // more than two pieces of 32 rows of MXFP4
  static constexpr int kSmallRing = 4 << 10;
  static int Tokens() { return kWaveSize / 4; }

  static int FirstRow(int part) { return IsWide() ? 0 : part * 8; }
  static int Row(int part) { return IsWide() ? Lane() % 16 : Lane() / 4 + part * 8; }
  static int Token() { return IsWide() ? Lane() % 16 : Lane() / 4; }
  static int Group() { return IsWide() ? Lane() / 16 : Lane() % 4; }
  static int SumRow(int i) { return IsWide() ? Lane() / 16 * 4 + i : Lane() / 4 + i / 2 * 8; }
  static int SumToken(int i) { return IsWide() ? Lane() % 16 : Lane() % 4 * 2 + i % 2; }

  static void Multiply(const Vec16 (&rows)[kRowParts], const Vec16& tokens, float (&sums)[4]) {
    Operands& mine = OperandsOfWave();
    for (int part = 0; part < kRowParts; ++part) Unpack(rows[part], mine.rows[Row(part)] + First());
    Unpack(tokens, mine.tokens[Token()] + First());
    SyncWave();
    for (int i = 0; i < 4; ++i) {
      const float* const row = mine.rows[SumRow(i)];
      const float* const token = mine.tokens[SumToken(i)];
      for (int column = 0; column < kColumns; ++column) sums[i] += row[column] * token[column];
    }
    SyncWave();
  }

 private:
  static constexpr int kColumns = 32;
  struct Operands {
    float rows[16][kColumns];
    float tokens[16][kColumns];
  };

  static bool IsWide() { return kWaveSize == 64; }
  static int First() { return Group() * 8; }
  static Operands& OperandsOfWave() {
    __shared__ Operands operands[kWaves];
    return operands[Wave()];
  }
  static void Unpack(const Vec16& v, float* to) {
    for (int i = 0; i < 4; ++i) {
      const float2 pair = element == GemmElement::kFp16 ? UnpackFp16(v.w[i]) : UnpackBf16(v.w[i]);
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  }
};

// Eight FP8 numbers as bfloat16, exactly.
inline Vec16 Bf16FromNativeFp8(uint32_t low, uint32_t high) {
  Vec16 out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t bytes = (i < 2 ? low : high) >> (i % 2 * 16);
    out.w[i] = PackBf16(FloatFromFp8(NativeFp8{static_cast<uint8_t>(bytes)}),
                        FloatFromFp8(NativeFp8{static_cast<uint8_t>(bytes >> 8)}));
  }
  return out;
}

inline constexpr bool kOneMxfp4Conversion = true;
inline bool AreUsualMxfp4Scales(uint32_t /*largest*/) { return true; }
// Eight MXFP4 numbers of a word times their scale, as bfloat16, in their order.
template <bool usual>
inline Vec16 Bf16FromMxfp4(uint32_t word, uint32_t exponent) {
  const float scale = ScaleFromUe8m0(static_cast<uint8_t>(exponent));
  Vec16 out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = word >> (8 * i);
    out.w[i] = PackBf16(FloatFromFp4(pair) * scale, FloatFromFp4(pair >> 4) * scale);
  }
  return out;
}
inline Vec16 InOrderOfMxfp4(const Vec16& v) { return v; }

}  // namespace octet::device

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_ROW_MMA_H_
