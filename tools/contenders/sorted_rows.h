// The kernels of the contenders that sort: sort rows by expert, scatter received rows, and
// return them.
#ifndef OCTET_TOOLS_CONTENDERS_SORTED_ROWS_H_
#define OCTET_TOOLS_CONTENDERS_SORTED_ROWS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet {

// As many as an EpConfig may have; kernels do not know EpConfig.
inline constexpr int kMaxSortedExperts = 2048;

struct SortedRowsShape {
  int num_ranks;
  int num_experts;  // E
  int num_local_experts;
  int topk;
  int row_vecs;  // 16-byte vectors of a row
  bool fp16;     // else bf16
};

// The rows that one rank sends, in the order of experts and therefore of destinations. flat = token
// · K + k.
struct SortedSide {
  uint32_t* keys;         // [M·K] expert of each flat token; E if it is dropped
  int32_t* flats;         // [M·K] 0, 1, 2, ...
  uint32_t* sorted_keys;  // [M·K]
  int32_t* sorted_flats;  // [M·K]
  int32_t* counts;        // [E] rows for each expert
  int32_t* position;      // [M·K] position of a flat token in the order; -1: dropped
  void* rows;             // [M·K][H]
  void* temp;             // of the sort: SortFlatsBytes
  size_t temp_bytes;
};

// The rows that one rank receives, by source and then by expert, and their destination offsets.
struct ArrivedSide {
  int32_t* counts;          // [R][L] rows of each (source, local expert)
  int32_t* first;           // [E + 1] exclusive sums of counts
  int32_t* offset;          // [R][L] row of x at which those rows begin
  int32_t* flats;           // [max rows] at their sources
  void* rows;               // [max rows][H]
  int32_t* expert_counts;   // [L]
  int32_t* expert_offsets;  // [L + 1]
  RowSource* sources;       // [max rows], by destination offset
  void* x;                  // [max rows][H], by destination offset
};

// Loads the kernels on the current device, except those of the sort, which the first
// LaunchSortFlats loads.
hipError_t LoadSortedRows(bool fp16);

// Returns the bytes of temporary memory that LaunchSortFlats needs for `n` flat tokens.
hipError_t SortFlatsBytes(int n, int num_experts, size_t* bytes);

// How kernels are launched, and where.
struct StreamLaunch {
  LaunchShape shape;
  hipStream_t stream;
};

// Computes keys, flats, sorted_keys, sorted_flats and counts of `n` flat tokens.
hipError_t LaunchSortFlats(const SortedRowsShape& rows, const SortedSide& side,
                           const int32_t* topk_idx, int n, const StreamLaunch& launch);

// Computes position, and gathers the rows of `x` ([T][H]).
hipError_t LaunchGather(const SortedRowsShape& rows, const SortedSide& side, const void* x, int n,
                        const StreamLaunch& launch);

// Computes first, offset, expert_counts and expert_offsets from counts.
hipError_t LaunchPlan(const SortedRowsShape& rows, const ArrivedSide& side, int wave_size,
                      hipStream_t stream);

// Computes x and sources from rows and flats.
hipError_t LaunchScatter(const SortedRowsShape& rows, const ArrivedSide& side,
                         const StreamLaunch& launch);

// Computes side.rows from `expert_out`, which has the layout of x. Each row is multiplied by its
// expert's factor if `expert_scale` ([L]) is not null.
hipError_t LaunchReturn(const SortedRowsShape& rows, const ArrivedSide& side,
                        const void* expert_out, const float* expert_scale,
                        const StreamLaunch& launch);

// The sums of a rank's tokens.
struct TokenSums {
  const float* topk_weights;  // [T][K]
  int num_tokens;             // T
  void* y;                    // [T][H]
};

// Computes sums.y: the weighted sums, in ascending k.
hipError_t LaunchSum(const SortedRowsShape& rows, const SortedSide& side, const TokenSums& sums,
                     const StreamLaunch& launch);

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_SORTED_ROWS_H_
