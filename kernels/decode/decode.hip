// A whole layer for a few tokens in one cooperative launch on each GPU, one block on each compute
// unit:
//
//   exchange   x ──► tokens of all ranks, on every rank               (protocol.h; one rank: no)
//   logits     an expert of a block: logits[all tokens][E]
//   ═ barrier ═
//   choose     every block for itself: the experts of all tokens, with a placement their replicas,
//              and this rank's list (chosen.h)
//   first      h[pair] = silu(gate · x) ⊙ (up · x), 8 or 16 columns of an expert at a time
//   ═ barrier ═
//   second     16 or 32 columns of the output at a time: Σ weight · (down · h) over this rank's
//              experts, in the order of their slots ──► y, or partial rows to their tokens' ranks
//   reduce     y = Σ partial rows, by ascending rank                  (one rank: no)
//
// One token of FP8 or MXFP4 on one rank has a kernel with other products (one_token.h).
//
// The two products are bound by reading weights. Each wave has a ring of its own in shared memory,
// through which it loads ahead, over the second barrier, too (ring.h):
//
//   shared memory  ┌ ring of wave 0 ┬ ring of wave 1 ┬ ... ┬ sums of each wave ┬ entries, pairs ┐
//
// A token's output depends on nothing but its row, its experts and the weights: sums are added in
// an order that follows from the shapes and the expert, and a token is a column of RowMma, which
// does not depend on the others.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device_ops.h"
#include "kernels/decode/chain_walk.h"
#include "kernels/decode/chosen.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/layout.h"
#include "kernels/decode/logits.h"
#include "kernels/decode/one_token.h"
#include "kernels/decode/pieces.h"
#include "kernels/decode/products.h"
#include "kernels/decode/protocol.h"
#include "kernels/decode/ring.h"
#include "kernels/decode/strips.h"
#include "kernels/decode/tiling.h"
#include "kernels/decode/tokens.h"
#include "kernels/decode/weights.h"
#include "octet/fp4_format.h"
#include "runtime/device/call_epoch_device.h"
#include "runtime/device/launch_cooperative.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/tracer.h"

namespace octet::decode {
namespace {

using device::Vec16;

constexpr int kBarriers = 2;
[[maybe_unused]] constexpr int kThreads = kWaves * device::kMinWaveSize;

// y = Σ partial rows of this rank's tokens, by ascending rank.
template <typename Codec>
__device__ __forceinline__ void AddPartials(const DecodeParams& p, int num_tokens) {
  char* const mine = p.peers.base[p.peers.rank];
  const int quads = p.layout.hidden / kQuad;
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < num_tokens * quads;
       i += threads) {
    const int token = i / quads;
    const int column = i % quads * kQuad;
    float4 sum = {0, 0, 0, 0};
    for (int rank = 0; rank < p.layout.num_ranks; ++rank) {
      const float* const partial = p.layout.Partial(mine, rank, token) + column;
      const auto v =
          std::bit_cast<float4>(device::LoadStream(reinterpret_cast<const Vec16*>(partial)));
      AddQuad(v, sum);
    }
    StoreRounded<Codec>(p, token, column, sum);
  }
}

// Asks for what the blocks read first, so that it comes while the call begins.
__device__ __forceinline__ void PrefetchInputs(const DecodeParams& p) {
  constexpr int kLine = 128;
  const int row_bytes = p.layout.hidden * 2;
  const auto line = static_cast<int>(threadIdx.x * gridDim.x + blockIdx.x);
  if (line < p.num_tokens * row_bytes / kLine) device::Prefetch(p.x + line * int64_t{kLine});
  const int offset = static_cast<int>(threadIdx.x) * kLine;
  const auto row = static_cast<int64_t>(blockIdx.x);
  if (offset < row_bytes && row < p.logit_rows) {
    device::Prefetch(p.router + row * row_bytes + offset);
  }
  if (offset < p.route.num_experts * static_cast<int>(sizeof(float))) {
    device::Prefetch(reinterpret_cast<const char*>(p.route.bias) + offset);
  }
}

// The products that are prepared before the choice, if there are any.
struct NothingAhead {
  template <typename... Args>
  __device__ __forceinline__ explicit NothingAhead(const Args&... /*unused*/) {}
  __device__ __forceinline__ void Prepare() {}
};
template <typename Weights>
using ProductsAhead = std::conditional_t<Weights::kOneToken, OneToken<Weights>, NothingAhead>;

// kMost: the most tokens of all ranks together.
template <typename Weights, int kMost, typename Params>
__device__ __forceinline__ void Run(const Params& p, char* shared) {
  using Codec = CodecOf<Weights::kElement>::Type;
  using Products = Products<Weights, kMost>;
  PrefetchInputs(p);
  const device::CallStart call(p.failure, &p.state->call);
  // A few events a call: they are recorded if there is memory for them, in the same kernel.
  const device::Tracer trace(p.trace);
  uint64_t start = trace.Start();
  const auto end = [&](Tag tag) {
    trace.Stop(start, static_cast<uint32_t>(tag));
    start = trace.Start();
  };
  auto* const sums = reinterpret_cast<float*>(shared + p.shared.sums);
  const bool exchanges = p.layout.num_ranks > 1;
  uint64_t epoch = exchanges ? call.Epoch() : 0;
  if (exchanges && epoch == 0) return;
  Tokens tokens(p);
  if (!tokens.Exchange(Protocol(p, epoch))) return;
  end(Tag::kExchange);
  const Chosen chosen(p.shared, shared);
  const Choice<IsDense(kMost)> choice(p, chosen, tokens.num_all());
  choice.Prepare();
  ComputeLogits<Codec>(p, tokens, sums);
  if (!exchanges) {  // which no logit needs
    epoch = call.Epoch();
    if (epoch == 0) return;
  }
  const Protocol protocol(p, epoch);
  ProductsAhead<Weights> ahead(p, chosen, shared);
  end(Tag::kLogits);
  if (!protocol.GridBarrier(0, kBarriers, Site::kLogits, [&] { ahead.Prepare(); })) return;
  if (blockIdx.x == 0) call.Advance();
  end(Tag::kLogitsBarrier);
  choice.Route();
  end(Tag::kTopk);
  if (blockIdx.x == 0) choice.StoreOwn(tokens.first_own(), tokens.num_own());
  choice.Place();
  const int entries = choice.List();  // its barrier: the rings' memory is that of the choice
  if (blockIdx.x == 0) choice.template CountRows<IsDense(kMost)>(epoch);
  end(Tag::kList);
  if constexpr (Weights::kOneToken) {
    ahead.Run([&] {
      end(Tag::kFirstProducts);
      if (!protocol.GridBarrier(1, kBarriers, Site::kProducts)) return false;
      end(Tag::kFirstBarrier);
      return true;
    });
    end(Tag::kSecondProducts);
    return;
  }
  const typename Products::StripsType strips(p, chosen.entries, entries);
  const PieceWalk<typename Products::StripsType, kWaves> walk(strips);
  typename Products::Ring ring(shared + p.shared.ring + device::Wave() * Products::Ring::kBytes,
                               walk);
  Products products({p, tokens, chosen, strips, sums}, ring);
  products.template Run<Phase::kFirst>(protocol);
  end(Tag::kFirstProducts);
  if (!protocol.GridBarrier(1, kBarriers, Site::kProducts)) return;
  end(Tag::kFirstBarrier);
  products.template Run<Phase::kSecond>(protocol);
  end(Tag::kSecondProducts);
  if (p.layout.num_ranks == 1) return;
  protocol.PublishPartials();
  if (!protocol.AwaitPartials()) return;
  end(Tag::kPartialWait);
  AddPartials<Codec>(p, tokens.num_own());
  end(Tag::kReduce);
}

template <typename Weights, int kMost>
__global__ void __launch_bounds__(kThreads, 1) Decode(const DecodeParams p) {
  HIP_DYNAMIC_SHARED(Vec16, memory);
  Run<Weights, kMost>(p, reinterpret_cast<char*>(memory));
}

template <typename Weights>
__global__ void __launch_bounds__(kThreads, 1) DecodeOne(const __grid_constant__ OneTokenParams p) {
  HIP_DYNAMIC_SHARED(Vec16, memory);
  char* const shared = reinterpret_cast<char*>(memory);
  const size_t padding = -reinterpret_cast<uintptr_t>(shared) % device::kBoxAlignment;
  Run<Weights, kFewTokens>(p, shared + padding);
}

using Kernel = void (*)(DecodeParams);
using OneTokenKernel = void (*)(OneTokenParams);

template <typename Weights>
Kernel PickCapacity(int tokens) {
  switch (CapacityFor(tokens)) {
    case kFewTokens:
      return Decode<Weights, kFewTokens>;
    case kSomeTokens:
      return Decode<Weights, kSomeTokens>;
    default:
      return Decode<Weights, kMostTokens>;
  }
}

// Whether there is a kernel of its own for one token, and whether a call has no more: the host must
// know the number, and there must be no other ranks' tokens.
bool HasOneTokenKernel(const DecodeVariant& variant) {
  return (variant.fp8 || variant.mxfp4) && !variant.shared_experts &&
         CapacityFor(variant.max_tokens) == kFewTokens;
}
bool HasOneToken(const DecodeParams& params) {
  return params.layout.num_ranks == 1 && params.tokens_of == nullptr && params.num_tokens <= 1;
}
OneTokenKernel PickOneTokenKernel(const DecodeVariant& variant) {
  using Mxfp4 = ForOneToken<WithoutSharedExperts<Mxfp4Weights>>;
  if (variant.fp8) return DecodeOne<ForOneToken<WithoutSharedExperts<Fp8Weights>>>;
  if constexpr (FewerRows(kFewTokens, Mxfp4::kBits) < SecondRows(kFewTokens, Mxfp4::kBits)) {
    if (variant.fewer_rows) return DecodeOne<WithFewerRows<Mxfp4>>;
  }
  return DecodeOne<Mxfp4>;
}

hipError_t SetProducts(const DecodeVariant& variant, OneTokenParams& params) {
  const Matrices& m = params.routed;
  const int bits = variant.fp8 ? Fp8Weights::kBits : Mxfp4Weights::kBits;
  const int hidden = params.layout.hidden;
  const int second_rows =
      variant.fewer_rows ? FewerRows(kFewTokens, bits) : SecondRows(kFewTokens, bits);
  params.products[0] = {m.first_scales, m.first_bias, 2 * m.columns, hidden, 0, 0, 0};
  params.products[1] = {m.second_scales, m.second_bias, hidden, m.columns, 0, 0, 0};
  constexpr int kGroup = 128;  // FP8 has a scale for 128 × 128 weights.
  for (Product& product : params.products) {
    constexpr int kUnit = 16;  // bytes of which a row of exponents is a multiple
    product.pitch = product.columns * bits / 8;
    product.scale_rows = (product.rows + kGroup - 1) / kGroup;
    product.scale_pitch = variant.fp8 ? (product.columns + kGroup - 1) / kGroup
                                      : (product.columns / kMxBlock + kUnit - 1) / kUnit * kUnit;
  }
  // Gate and up have rows of their own.
  params.products[0].scale_rows = 2 * ((m.columns + kGroup - 1) / kGroup);
  const int rows_of[] = {PieceRows(kFewTokens, bits), kMmaRows, second_rows};
  for (int i = 0; i < 3; ++i) {
    const bool second = i == OneTokenParams::kSecond;
    const Product& product = params.products[second ? 1 : 0];
    PieceBoxes& boxes = params.boxes[i];
    boxes.rows = rows_of[i];
    device::BoxShape shape = {.data = second ? m.second : m.first,
                              .rows = int64_t{params.num_local_experts} * product.rows,
                              .row_bytes = product.pitch,
                              .box_rows = boxes.rows,
                              .box_row_bytes = PieceRowBytes(kFewTokens, bits)};
    hipError_t error = device::MakeRowBoxes(shape, &boxes.weights);
    if (error == hipSuccess && variant.mxfp4) {
      shape.data = product.scales;
      shape.row_bytes = product.scale_pitch;
      shape.box_row_bytes = kChunkBytes;
      error = device::MakeRowBoxes(shape, &boxes.exponents);
    }
    if (error != hipSuccess) return error;
  }
  return hipSuccess;
}

Kernel PickKernel(const DecodeVariant& variant) {
  if (!variant.shared_experts && CapacityFor(variant.max_tokens) == kFewTokens) {
    using Mxfp4 = WithoutSharedExperts<Mxfp4Weights>;
    constexpr int kBits = Mxfp4::kBits;
    if (variant.fp8) return Decode<WithoutSharedExperts<Fp8Weights>, kFewTokens>;
    if constexpr (FewerRows(kFewTokens, kBits) < SecondRows(kFewTokens, kBits)) {
      if (variant.fewer_rows) return Decode<WithFewerRows<Mxfp4>, kFewTokens>;
    }
    if (variant.mxfp4) return Decode<Mxfp4, kFewTokens>;
  }
  if (variant.fp8) return PickCapacity<Fp8Weights>(variant.max_tokens);
  if (variant.mxfp4) return PickCapacity<Mxfp4Weights>(variant.max_tokens);
  return variant.fp16 ? PickCapacity<PlainWeights<device::GemmElement::kFp16>>(variant.max_tokens)
                      : PickCapacity<PlainWeights<device::GemmElement::kBf16>>(variant.max_tokens);
}

size_t Aligned(size_t bytes) {
  constexpr size_t kAlignment = 16;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int MostPairs(const DecodeVariant& variant, int num_local_experts, int topk) {
  const int tokens = CapacityFor(variant.max_tokens);
  return tokens * std::min(IsDense(tokens) ? tokens * topk : topk, num_local_experts);
}

SharedLayout SharedLayoutOf(const DecodeVariant& variant, int num_local_experts, int topk) {
  const auto size = [](int n) { return static_cast<size_t>(n); };
  const int tokens = CapacityFor(variant.max_tokens);
  const int pairs =
      MostPairs(variant, num_local_experts, topk) + (variant.shared_experts ? tokens : 0);
  SharedLayout layout = {};
  layout.topk_idx = 0;
  layout.topk_weights = size(tokens * topk) * sizeof(int32_t);
  layout.chosen = layout.topk_weights + size(tokens * topk) * sizeof(float);
  const size_t choice = layout.chosen + size(num_local_experts) * sizeof(ExpertTokens);
  constexpr int kPlainBits = 16;
  const int small_bits = variant.mxfp4 ? Mxfp4Weights::kBits : Fp8Weights::kBits;
  const int bits = variant.fp8 || variant.mxfp4 ? small_bits : kPlainBits;
  const size_t ring = size(kWaves * SlotsFor(tokens, bits)) * size(SlotBytesFor(tokens, bits));
  layout.sums = Aligned(std::max(choice, ring));
  const auto rows = [&](int n) {
    return size(n * kWaves * PieceRows(tokens, bits)) * sizeof(float);
  };
  size_t end_of_sums = layout.sums + rows(BuffersFor(tokens) * tokens);
  if (HasOneTokenKernel(variant)) {
    layout.waves = layout.sums + rows(std::max(kRoundStrips, std::min(topk, num_local_experts)));
    layout.tokens = layout.waves + rows(1);
    layout.chains =
        layout.tokens + size(2 * kWaves * PieceRowBytes(tokens, bits) * kPlainBits / bits);
    layout.barriers = layout.chains + size(kWaves * kListedChains) * sizeof(ChainPlace);
    end_of_sums =
        std::max(end_of_sums, layout.barriers + size(2 * kWaves) * sizeof(device::BoxBarrier));
  }
  layout.entries = end_of_sums;
  layout.pair_weights = layout.entries + size(num_local_experts + 1) * sizeof(Entry);
  layout.pair_tokens = layout.pair_weights + size(pairs) * sizeof(float);
  layout.bytes = Aligned(layout.pair_tokens + size(pairs));
  if (HasOneTokenKernel(variant)) layout.bytes += device::kBoxAlignment;
  return layout;
}

bool HasFewerRows(const DecodeVariant& variant, int hidden, int blocks) {
  const int tokens = CapacityFor(variant.max_tokens);
  if (!variant.mxfp4 || variant.shared_experts || tokens != kFewTokens) return false;
  const auto most = [&](int rows) {
    const int units = (hidden + rows - 1) / rows;
    return (units + blocks - 1) / blocks * rows;
  };
  return most(FewerRows(tokens, Mxfp4Weights::kBits)) <
         most(SecondRows(tokens, Mxfp4Weights::kBits));
}

int BlockThreads(int wave_size) { return kWaves * wave_size; }

hipError_t LoadDecode(const DecodeVariant& variant, size_t shared_bytes) {
  if (HasOneTokenKernel(variant)) {
    const hipError_t error =
        device::LoadKernelWithShared(PickOneTokenKernel(variant), shared_bytes);
    if (error != hipSuccess) return error;
  }
  return device::LoadKernelWithShared(PickKernel(variant), shared_bytes);
}

hipError_t LaunchDecode(const DecodeParams& params, const DecodeVariant& variant,
                        const LaunchShape& shape, hipStream_t stream) {
  if (!HasOneTokenKernel(variant) || !HasOneToken(params)) {
    return device::LaunchCooperative(PickKernel(variant), params, shape, stream);
  }
  OneTokenParams with_products = {params, {}, {}};
  const hipError_t error = SetProducts(variant, with_products);
  if (error != hipSuccess) return error;
  return device::LaunchCooperative(PickOneTokenKernel(variant), with_products, shape, stream);
}

}  // namespace octet::decode
