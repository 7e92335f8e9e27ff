// The kernels of `high_throughput` and their parameters. Shared by the host class and the .hip
// files.
#ifndef OCTET_KERNELS_HIGH_THROUGHPUT_KERNELS_H_
#define OCTET_KERNELS_HIGH_THROUGHPUT_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/ep/device/call_params.h"
#include "kernels/high_throughput/layout.h"
#include "kernels/high_throughput/sites.h"
#include "octet/row_source.h"
#include "runtime/device/launch_shape.h"

namespace octet::high_throughput {

// The most threads of a block; each compute unit has one block. Measured on H200s: with 1024
// threads dispatch does not have enough registers; with fewer threads, combine has more registers
// for each, and so more of its rows in flight.
inline constexpr int kDispatchMaxThreads = 768;
inline constexpr int kCombineMaxThreads = 512;

// Tags in traces; high_throughput.cc has their names.
enum class Tag : uint32_t {
  kBegin,        // from the kernel's first instruction until the call has begun
  kCount,        // count this block's share of the routing
  kExchange,     // until all ranks' counts have arrived and destination offsets are known
  kSend,         // send a token to all its ranks; detail: token
  kWait,         // wait for a packet; detail: source
  kFill,         // fill its rows; detail: their number
  kCombineSend,  // return a token's rows; detail: origin
  kCombineWait,  // wait for all of a token's rows; detail: the rank that was missing last
  kReduce,       // sum them; detail: token
  // Of kernels with a product (kernels/fused).
  kOrder,       // put this block's share of the choices in order
  kAwaitOrder,  // wait for the other blocks' shares
  kSendBatch,   // send some neighbouring choices; detail: rank
  kAwaitRows,   // wait for some neighbouring rows; detail: whose came last
  kFillRows,    // complete them; detail: the first
  kAwaitPass,   // wait for a pass of the product; detail: pass
  kTags,
};

// Parameters of every kernel of this strategy.
struct CommonParams : CallParams {
  char* row_bases[kMaxRanks];  // each rank's part of the heap's cached memory
  Layout layout;
  State* state;
  Kept kept;
  // Waves [0, send_waves) of each block begin by sending. All waves receive once they have nothing
  // left to send, if this kernel receives.
  int send_waves;
  bool receives;
};

// Totals for the host, in pinned memory; expert_counts has L elements.
struct HostTotals {
  uint64_t epoch;  // stored last
  int32_t rows;
  int32_t tokens;
  int32_t expert_counts[1];
};

// The dynamic shared memory of a block of the dispatch kernel.
struct DispatchShared {
  size_t bytes;
  int32_t mover_offset;  // device::MoverMemory after the rest, in 4-byte words
  uint32_t piece_bytes;
};

// DispatchParams::rows_needed.
inline constexpr uint64_t kRowsKnown = uint64_t{1} << 32;

struct DispatchParams : DispatchTensors {
  CommonParams common;
  bool new_layout;  // count and exchange first; else the layout is a kept one
  // The number of the layout since the last reset, the same on all ranks.
  uint32_t layout_number;
  // Read by the senders.
  const uint32_t* x_scales;    // [T][scale_words]
  const int32_t* scatter_idx;  // [T][K] or nullptr
  uint64_t* share_counts;      // [C][blocks] the count of each block, with its epoch
  int32_t* before;             // [C][blocks] their sums over the previous blocks
  HostTotals* totals;          // or nullptr
  // Not null: a call that a rank has too little room for is no failure. It moves nothing and
  // delivers nothing. This word, in pinned memory, becomes kRowsKnown and the rows that are needed
  // on the rank with the most.
  uint64_t* rows_needed;
  // Written by the receivers; some may be null.
  RowSource* sources;        // [max_rows], or of each token if each is received once
  float* row_weights;        // [max_rows]
  int32_t* row_index;        // [max_rows] the row in x
  int32_t* recv_topk_idx;    // [R·M][K]
  float* recv_topk_weights;  // [R·M][K]
  int32_t* expert_counts;    // [L]
  int32_t* expert_offsets;   // [L + 1]
  int32_t* source_offsets;   // [R + 1]
  DispatchShared shared;
};

// A choice in the order in which choices are sent: by the rank of the expert, within it by (expert,
// token); or as DispatchRoles says.
struct alignas(kVecBytes) SendEntry {
  int32_t flat;    // into topk_idx
  int32_t row;     // on the expert's rank; -1 if the choice is dropped
  int32_t holder;  // the row there that gets the token's elements
  uint32_t place;  // PackPlace, with the combine slot in place of the source
};

// How the blocks of a dispatch with a product divide the work. A block with several of these tasks
// does them in this order, and all blocks multiply in the end.
struct DispatchRoles {
  int send_blocks;  // blocks [0, send_blocks) send
  int fill_blocks;  // blocks [0, send_blocks + fill_blocks) complete rows
  // The order of DispatchGemmParams::order is that of topk_idx, with all choices.
  bool by_token = false;
  // Each row is sent, so that none is a copy.
  bool every_row = false;
  // Tiles wait for all rows of their expert.
  bool whole_experts = false;
};

// What such a dispatch gives to its kernel (DispatchProduct), beside the product.
struct DispatchGemmParams {
  DispatchParams dispatch;
  SendEntry* order;          // [M][K]
  uint64_t* ordered_blocks;  // StateWords
  uint64_t* ready_groups;
  uint64_t* ready_rows;
  DispatchRoles roles;
  const void* rows;    // the received rows, which are multiplied
  const void* scales;  // theirs, or nullptr
  int32_t* next_unit;  // device::GemmCall
};

// Which rows combine returns.
enum class CombineRows {
  kChoices,  // one for each choice: CombineOrder::kFlat
  kSums,     // one for each token and rank, summed by the sender: CombineOrder::kPerRank
  kReduced,  // the same, if expert_out already holds those sums
};

struct CombineParams : CombineTensors {
  CommonParams common;
  bool weighted;  // otherwise all weights are 1
};

// What a combine with a product gives to its kernel (CombineProduct), beside the product, whose
// output is combine.expert_out.
struct GemmCombineParams {
  CombineParams combine;
  int32_t* next_unit;  // device::GemmCall
};

// Each variant is a kernel.
struct DispatchVariant {
  bool traced;  // records into common.trace
  bool bulk;    // moves rows by device::BulkMover, else by device::VectorMover
};
DispatchShared SharedOfDispatch(const Layout& layout, bool bulk, int waves);
// Loads the kernel and allows it its shared memory. Must be called on each device before the first
// launch there.
hipError_t PrepareDispatch(const DispatchVariant& variant, const LaunchShape& shape);
// Cooperative: all blocks are resident.
hipError_t LaunchDispatch(const DispatchParams& params, const DispatchVariant& variant,
                          const LaunchShape& shape, hipStream_t stream);
// The device must be prepared.
hipError_t DispatchBlocksPerUnit(const DispatchVariant& variant, const LaunchShape& shape,
                                 int* blocks);

// Each variant is a kernel: one kernel for all of them would not fit into the registers.
struct CombineVariant {
  bool fp16;
  bool traced;
  CombineRows rows;
};
// Loads the kernel on the current device.
hipError_t LoadCombine(const CombineVariant& variant);
hipError_t LaunchCombine(const CombineParams& params, const CombineVariant& variant,
                         const LaunchShape& shape, hipStream_t stream);
hipError_t CombineBlocksPerUnit(const CombineVariant& variant, const LaunchShape& shape,
                                int* blocks);

}  // namespace octet::high_throughput

#endif  // OCTET_KERNELS_HIGH_THROUGHPUT_KERNELS_H_
