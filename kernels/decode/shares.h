// How the waves of a block share the strips of down for one token, where a strip has fewer pieces
// than a block has waves.
//
// To whose sums a piece is added follows from the expert (strips.h), so that a token's output does
// not depend on what else was chosen. With the few entries of one token some waves then have more to
// do than others. Such a wave leaves its last parts to waves with room, which put the products into
// slots; they are added to the wave's sums behind the barrier, in the order in which the wave would
// have added them, so that all sums have the same bits.
#ifndef OCTET_KERNELS_DECODE_SHARES_H_
#define OCTET_KERNELS_DECODE_SHARES_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"
#include "kernels/ep/device/wave_scan.h"

namespace octet::decode {

// A wave's pieces of the strip of an entry.
struct Part {
  static constexpr uint16_t kNoSlot = 0xffff;

  uint16_t entry;
  uint16_t slot;  // in which another's products are left, or kNoSlot
  uint8_t wave;   // to whose sums they are added
};

// The slots with the parts that a wave has left to others.
struct LeftParts {
  uint16_t first;
  uint16_t count;
};

// The memory of a wave's list.
template <int waves>
struct PartList {
  int32_t count;
  LeftParts left[waves];
  Part parts[1];  // as many as there may be entries

  static constexpr size_t Bytes(int most_entries) {
    return sizeof(PartList) + static_cast<size_t>(most_entries) * sizeof(Part);
  }
};

// A slot has the rows of the token's sums of a part. So many are there for a unit: if they do not
// suffice, nothing is left to others.
inline constexpr int kSlots = 2 * kWaves;

// Makes the caller's list, of the entries of one token: no more than kMaxTopk, and no shared experts.
// All lanes of the wave call it.
template <int waves, typename StripsType>
__device__ __forceinline__ void ShareParts(const StripsType& strips, PartList<waves>& list) {
  constexpr int kMostEntries = 32;
  const int lane = device::Lane();
  const int wave = device::Wave();
  const int entries = strips.num_entries();
  const int pieces = entries > 0 ? strips.PiecesOf(Phase::kSecond, 0) : 0;
  // Lane i looks at wave i: a bit for each entry of which it has pieces.
  const int first_piece =
      lane < entries ? strips.template FirstPiece<waves>(Phase::kSecond, lane, pieces, 0) : 0;
  uint32_t own = 0;
#pragma unroll 1
  for (int entry = 0; entry < entries; ++entry) {
    const int piece = (device::Shuffle(first_piece, entry) + lane) % waves;
    if (lane < waves && piece < pieces) own |= 1U << entry;
  }
  const int total = entries * Smaller(pieces, waves);
  const int most = (total + waves - 1) / waves;
  const int of_lane = __popc(own);
  const int spare = most - of_lane;
  // Parts to leave, and above these the parts that there is room for.
  const int32_t moves = lane >= waves ? 0 : spare < 0 ? -spare : spare << 16;
  const int32_t upto = device::WaveInclusiveSum(moves);
  const int all_moved = device::Shuffle(upto, device::kWaveSize - 1) & 0xffff;
  const bool moved = all_moved <= kSlots;
  const int before = (upto - moves) & 0xffff;  // what lower waves leave
  const int left = moved && spare < 0 ? -spare : 0;
  if (lane < waves) {
    list.left[lane] = {static_cast<uint16_t>(before), static_cast<uint16_t>(left)};
  }
  const uint32_t mine = device::Shuffle(own, wave);
  const int of_mine = __popc(mine);
  const int kept = moved ? Smaller(of_mine, most) : of_mine;
  const auto has = [lane](uint32_t bits) { return lane < kMostEntries && (bits >> lane & 1) != 0; };
  const auto below = [lane](uint32_t bits) -> int {
    return __popc(bits & static_cast<uint32_t>((uint64_t{1} << lane) - 1));
  };
  if (has(mine) && below(mine) < kept) {
    list.parts[below(mine)] = {static_cast<uint16_t>(lane), Part::kNoSlot,
                               static_cast<uint8_t>(wave)};
  }
  const int room = device::Shuffle(spare, wave);
  const int first = device::Shuffle((upto - moves) >> 16, wave);
  const int taken = moved && room > 0 ? Smaller(room, all_moved - first) : 0;
#pragma unroll 1
  for (int i = 0; i < taken; ++i) {
    const int slot = first + i;
    const uint64_t owners = device::Ballot(lane < waves && before <= slot && slot < before + left);
    const int owner = __ffsll(static_cast<long long>(owners)) - 1;
    const uint32_t of_owner = device::Shuffle(own, owner);
    const int skipped = most + slot - device::Shuffle(before, owner);
    if (has(of_owner) && below(of_owner) == skipped) {
      list.parts[kept + i] = {static_cast<uint16_t>(lane), static_cast<uint16_t>(slot),
                              static_cast<uint8_t>(owner)};
    }
  }
  if (lane == 0) list.count = kept + (taken > 0 ? taken : 0);
  device::SyncWave();
}

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_SHARES_H_
