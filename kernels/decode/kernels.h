// The kernel of a decode layer and its parameters. Shared by the host class and the .hip file.
#ifndef OCTET_KERNELS_DECODE_KERNELS_H_
#define OCTET_KERNELS_DECODE_KERNELS_H_

#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/decode/layout.h"
#include "kernels/ep/device/load_counters.h"
#include "kernels/placement/kernels.h"
#include "kernels/router/route.h"
#include "octet/peers.h"
#include "octet/swiglu.h"
#include "runtime/device/call_epoch.h"
#include "runtime/device/failure_record.h"
#include "runtime/device/launch_shape.h"
#include "runtime/device/trace_event.h"

namespace octet::decode {

// Tags in traces; decode_trace.cc has their names.
enum class Tag : uint32_t {
  kExchange,        // send tokens, and wait for those of all ranks
  kLogits,          // compute the logits of all tokens
  kLogitsBarrier,   // wait for all blocks
  kTopk,            // the experts of all tokens
  kList,            // the list of this rank's experts that have tokens
  kFirstProducts,   // gate and up of this block's units
  kFirstBarrier,    // wait for all blocks
  kSecondProducts,  // down of this block's units
  kPartialWait,     // wait for the partial rows of all ranks
  kReduce,          // add them
};

// The weights of experts of one width.
struct Matrices {
  const char* first = nullptr;   // [experts][2 · columns][H]: gate and up alternate by eight rows
  const char* second = nullptr;  // [experts][H][columns]
  // FP8, float: [experts][2 · ceil(columns / 128)][ceil(H / 128)], and
  // [experts][ceil(H / 128)][ceil(columns / 128)]. MXFP4: 8-bit exponents, [experts][2 · columns]
  // or [experts][H] rows of one for each 32 elements, padded to 16 bytes.
  const void* first_scales = nullptr;
  const void* second_scales = nullptr;
  const float* first_bias = nullptr;   // [experts][2 · columns], as the rows of first; or nullptr
  const float* second_bias = nullptr;  // [experts][H]
  int columns = 0;                     // between the two products; 0: there are no such experts
  int64_t first_bytes = 0;             // of an expert's part of `first`
  int64_t second_bytes = 0;
};

// Counters of a rank, in its own memory: zero before the first call, but for the epoch.
struct State {
  device::CallEpoch call;
  alignas(128) uint64_t arrived;      // blocks, at all barriers of all calls
  alignas(128) uint32_t blocks_done;  // with the second products
};

struct DecodeParams {
  device::FailurePort failure;
  device::PeerBases peers;         // of the heap's uncached memory
  device::PeerBases cached_peers;  // and of its cached memory
  Layout layout;
  SharedLayout shared;
  State* state;
  LoadCounters loads;
  device::TraceBuffer trace;  // without blocks: nothing is recorded

  const char* x;             // [T][H]
  void* y;                   // [T][H]
  int num_tokens;            // T
  const int32_t* tokens_of;  // where T lies instead, in this GPU's memory; or nullptr

  const char* router;       // [rows of logits][H] of the dtype
  int logit_rows;           // E, and one more with a shared gate
  const float* logit_bias;  // [rows of logits], or nullptr
  float* logits;            // [all tokens][stride]
  RouteParams route;        // the same logits; topk_idx, topk_weights: this rank's results
  float* own_logits;        // [T][stride]
  int num_local_experts;
  placement::PlacementTable placement;  // for the tokens of all ranks
  bool shared_gate;
  Matrices routed;
  SwiGlu swiglu;  // of the routed experts
  Matrices shared_experts;
  char* h;         // [pairs][routed.columns] of the dtype
  char* shared_h;  // [all tokens][shared_experts.columns]
};

// Selects the kernel.
struct DecodeVariant {
  bool fp16 = false;
  bool fp8 = false;             // the routed experts' weights
  bool mxfp4 = false;           // likewise
  int max_tokens = 0;           // of all ranks together
  bool shared_experts = false;  // whether there are any
  bool fewer_rows = false;      // HasFewerRows
};

// Returns how a block of this variant lays out its shared memory.
SharedLayout SharedLayoutOf(const DecodeVariant& variant, int num_local_experts, int topk);
// Whether so many blocks are done with down sooner if its strips have fewer rows (tiling.h).
bool HasFewerRows(const DecodeVariant& variant, int hidden, int blocks);
// Returns how many rows DecodeParams::h needs.
int MostPairs(const DecodeVariant& variant, int num_local_experts, int topk);
// Threads of a block, for waves of this size.
int BlockThreads(int wave_size);

// Loads the kernel on the current device; hipErrorInvalidValue if a block cannot have so much
// there.
hipError_t LoadDecode(const DecodeVariant& variant, size_t shared_bytes);
hipError_t LaunchDecode(const DecodeParams& params, const DecodeVariant& variant,
                        const LaunchShape& shape, hipStream_t stream);

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_KERNELS_H_
