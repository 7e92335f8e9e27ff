// MXFP4 weights on their way to tensor cores that multiply FP8 (E4M3): 64 columns of the product
// and 128 of K become FP8 numbers times one power of two, which follows from the largest of their
// scales (octet/grouped_gemm.h).
#ifndef OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_FP8_H_
#define OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_FP8_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/mxfp4.h"
#include "octet/fp4_format.h"
#include "runtime/platform/gemm_call.h"

namespace octet::device::internal {

inline constexpr int kMxfp4Fp8Columns = 64;  // of the product, whose weights have one largest scale

// The magnitudes of the eight codes as FP8, by how much smaller a block's exponent is than the
// largest: an entry of eight bytes in shared memory for each, from the one for a scale that is NaN
// on. Those of the last are zeros.
class Fp8OfMxfp4 {
 public:
  static constexpr int kHeadroom = 6;  // the largest scale becomes 2^6: its 6 is 384, of 448
  static constexpr int kLast = 19;
  static constexpr uint32_t kEntryBytes = 8;
  static constexpr uint32_t kBytes = (kLast + 2) * kEntryBytes;

  // By all threads of a block, before a barrier of theirs.
  static __device__ __forceinline__ void MakeTable(uint32_t table) {
    constexpr uint8_t kNan = 0x7f;
    for (uint32_t i = threadIdx.x; i < kBytes; i += blockDim.x) {
      const int smaller = static_cast<int>(i / 8) - 1;
      const uint8_t byte = smaller < 0 ? kNan : ByteOf(i % 8, smaller);
      asm volatile("st.shared.u8 [%0], %1;" ::"r"(table + i), "r"(static_cast<uint32_t>(byte))
                   : "memory");
    }
  }

  // Returns the magnitudes of a block whose entry is `entry` bytes from the first.
  static __device__ __forceinline__ uint2 Magnitudes(uint32_t table, uint32_t entry) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(table + entry)
                 : "memory");
    return v;
  }

  // Returns where the entry of an exponent is, from the first.
  static __device__ __forceinline__ uint32_t EntryOf(int largest, uint32_t exponent) {
    const int number = max(min(largest + 1 - static_cast<int>(exponent), kLast + 1), 0);
    return static_cast<uint32_t>(number) * kEntryBytes;
  }

 private:
  static __device__ __forceinline__ uint8_t ByteOf(uint32_t code, int smaller) {
    constexpr float kSmallestNormal = 1.0F / 64;
    constexpr float kPerStep = 512;  // of subnormal numbers
    const float value = ldexpf(FloatFromFp4(code), kHeadroom - smaller);
    if (value < kSmallestNormal) return static_cast<uint8_t>(rintf(value * kPerStep));
    return static_cast<uint8_t>((__float_as_uint(value) >> 20) - (120 << 3));
  }
};

// Converts a word of eight codes: the first four, and the others.
__device__ __forceinline__ uint2 Fp8OfWord(uint32_t word, const uint2& magnitudes) {
  constexpr uint32_t kSigns = 0x80808080U;
  const uint32_t codes = word & 0x77777777U;
  const uint32_t even = word << 4;  // the signs of numbers 0, 2, 4, ... are where bytes have them
  return {
      SelectBytes(magnitudes.x, magnitudes.y, codes) | (SelectBytes(even, word, 0x5140) & kSigns),
      SelectBytes(magnitudes.x, magnitudes.y, codes >> 16) |
          (SelectBytes(even, word, 0x7362) & kSigns)};
}

// Returns what converted weights have to be multiplied by.
__device__ __forceinline__ float ScaleOfLargest(int largest) {
  return __uint_as_float(static_cast<uint32_t>(largest - Fp8OfMxfp4::kHeadroom) << 23);
}

// The exponents of a tile's weights on their way from global to shared memory: those of 512 columns
// of K, a round of four stages, at once, 16 bytes for each of `columns` columns of the product. By
// a warp, of which a lane has every 32nd column.
template <int columns>
class ExponentRounds {
  static constexpr int kWarp = 32;
  static constexpr int kOwn = columns / kWarp;

 public:
  static constexpr int kStages = kMxfp4ScaleBytes / kMxfp4Blocks;
  static constexpr uint32_t kBytes = columns * kMxfp4ScaleBytes;

  // `column`: the first.
  __device__ __forceinline__ ExponentRounds(const GemmOperands& p, int expert, int column)
      : first_(static_cast<const uint4*>(p.scales.b) +
               (static_cast<int64_t>(expert) * p.n + column) *
                   (p.scales.mxfp4_words / kScaleWords)),
        last_(p.n - 1 - column),
        pitch_(p.scales.mxfp4_words / kScaleWords),
        k_(p.k) {}

  // Begins to copy round `round` to `to`. Columns beyond the last repeat it.
  __device__ __forceinline__ void Read(int round, uint32_t to) const {
    if (round * kMxfp4ScaleBytes * kMxBlock < k_) {
      int last = last_;
      // Otherwise the compiler keeps the addresses of all columns, and there are few registers.
      asm volatile("" : "+r"(last));
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        CopyChunk(Place(to, i), first_ + min(i * kWarp + Lane(), last) * pitch_ + round);
      }
    }
    CommitCopies();
  }
  // Until round `round`, which was not read last, is at `at`. Exponents behind the last column of K
  // become zeros.
  __device__ __forceinline__ void Await(int round, uint32_t at) const {
    WaitCopies<1>();
    const int left = k_ / kMxBlock - round * kMxfp4ScaleBytes;
    if (left >= kMxfp4ScaleBytes || left % kMxfp4Blocks == 0) return;
    const auto word_at = static_cast<uint32_t>(left / kMxfp4Blocks * kMxfp4Blocks);
    const uint32_t exist = (1U << (8 * (left % kMxfp4Blocks))) - 1;
#pragma unroll 1
    for (int i = 0; i < kOwn; ++i) {
      const uint32_t word = Place(at, i) + word_at;
      StoreWord(word, LoadWord(word) & exist);
    }
  }

 private:
  static constexpr int kScaleWords = kMxfp4ScaleBytes / 4;

  static __device__ __forceinline__ uint32_t Place(uint32_t round, int i) {
    return round + static_cast<uint32_t>((i * kWarp + Lane()) * kMxfp4ScaleBytes);
  }

  const uint4* first_;  // the first column's
  int last_;
  int pitch_;  // chunks of a column
  int k_;
};

// Four exponents of a column, as two pairs of halves.
inline constexpr uint32_t kLowBytes = 0x00ff00ffU;
inline constexpr uint32_t kBothOnes = 0x00010001U;

// By a whole warp: finds the largest exponents of its lanes' words of each scale, NaN left out, and
// so large that 2^(largest - kHeadroom) is a normal number.
template <int scales, int words>
__device__ __forceinline__ void LargestExponents(const uint32_t (&own)[scales][words],
                                                 int (&largest)[scales]) {
  constexpr uint32_t kAll = 0xffffffffU;
  constexpr uint32_t kNan = 0xff;
  uint32_t found[scales];
  uint32_t of_all = 0;
#pragma unroll
  for (int i = 0; i < scales; ++i) {
    // Of the halves of words, and of the same moved up by a byte, upper bytes decide.
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < words; ++j) most = __vimax3_u16x2(most, own[i][j], own[i][j] << 8);
    found[i] = __reduce_max_sync(kAll, max(most, most << 16)) >> 24;
    of_all = max(of_all, found[i]);
  }
  if (of_all == kNan) {
#pragma unroll
    for (int i = 0; i < scales; ++i) {
      // 1 more than exponents, and 0 for NaN.
      const auto one_more = [](uint32_t bytes) {
        return ((bytes & kLowBytes) + kBothOnes) & kLowBytes;
      };
      uint32_t most = 0;
#pragma unroll
      for (int j = 0; j < words; ++j) {
        most = __vimax3_u16x2(most, one_more(own[i][j]), one_more(own[i][j] >> 8));
      }
      found[i] = max(__reduce_max_sync(kAll, max(most & 0xffffU, most >> 16)), 1U) - 1;
    }
  }
#pragma unroll
  for (int i = 0; i < scales; ++i) {
    largest[i] = max(static_cast<int>(found[i]), Fp8OfMxfp4::kHeadroom + 1);
  }
}

// Returns where the table has the entries of a word's exponents, a byte for each.
__device__ __forceinline__ uint32_t EntriesOf(uint32_t word, int largest) {
  // Entries are numbered by 1 + largest - exponent, from 0 to kLast + 1; 255 more until they are
  // known to be positive.
  const uint32_t first = (static_cast<uint32_t>(largest) + 256) * kBothOnes;
  uint32_t pairs[] = {first - (word & kLowBytes), first - (word >> 8 & kLowBytes)};
#pragma unroll
  for (uint32_t& pair : pairs) {
    pair = __vmaxu2(__vminu2(pair, (256 + Fp8OfMxfp4::kLast) * kBothOnes), 255 * kBothOnes) -
           255 * kBothOnes;
  }
  return (pairs[0] | pairs[1] << 8) * Fp8OfMxfp4::kEntryBytes;
}

// Puts the columns of a stage of FP8 rows in the order in which each thread converts a block of 32
// weights of its own.
//
// A row has eight chunks of 16 columns, which the copy unit swizzles. In the order that wgmma sees,
// chunk 4 * p + w has for each of four threads t word w of chunk 2 * t + p. A lane has a row and a
// p.
class Fp8RowOrder {
 public:
  static constexpr int kRows = 16;  // that a warp does at once

  __device__ __forceinline__ explicit Fp8RowOrder(uint32_t /*box_bytes*/) {
    const auto lane = static_cast<uint32_t>(Lane());
    const uint32_t row = lane % 8 + lane / 16 * 8;
    const uint32_t part = lane / 8 % 2;
    begin_ = row * kRowBytes;
    swizzle_ = row % 8;
    part_ = part;
  }

  // By a whole warp: the 16 rows at `rows`.
  __device__ __forceinline__ void Reorder(uint32_t rows) const {
    uint4 v[4];
#pragma unroll
    for (uint32_t t = 0; t < 4; ++t) v[t] = LoadShared16(rows + ChunkAt(2 * t + part_));
    __syncwarp();  // all have read what others overwrite
    StoreShared16(rows + ChunkAt(4 * part_), {v[0].x, v[1].x, v[2].x, v[3].x});
    StoreShared16(rows + ChunkAt(4 * part_ + 1), {v[0].y, v[1].y, v[2].y, v[3].y});
    StoreShared16(rows + ChunkAt(4 * part_ + 2), {v[0].z, v[1].z, v[2].z, v[3].z});
    StoreShared16(rows + ChunkAt(4 * part_ + 3), {v[0].w, v[1].w, v[2].w, v[3].w});
  }

 private:
  static constexpr uint32_t kRowBytes = 128;

  __device__ __forceinline__ uint32_t ChunkAt(uint32_t chunk) const {
    return begin_ + ((chunk ^ swizzle_) * 16);
  }

  uint32_t begin_;
  uint32_t swizzle_;
  uint32_t part_;
};

}  // namespace octet::device::internal

#endif  // OCTET_RUNTIME_PLATFORM_NVIDIA_GEMM_MXFP4_FP8_H_
