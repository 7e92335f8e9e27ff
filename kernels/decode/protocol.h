// The protocol of a decode layer: what ranks write into one another's memory, in which order, and
// the functions that do it.
//
//   rank s                                  rank d, whose heap it is (layout.h)
//   ------                                  -----------------------------------
//   SendTokens ───────────────────────────► tokens[s][t]
//                                           token_flags[s][part]   epoch, number of tokens
//   PartialOf ────────────────────────────► partials[s][t]         a row for each token of d
//   PublishPartials ──────────────────────► partial_flags[s]       epoch
//
// Flags. Each holds the epoch of a call; a wait for epoch n ends at n or more. Nothing is reset.
//
// Reuse. Everything exists once, without credits: a rank ends call n only after the partial flags
// of all ranks, whatever the numbers of tokens. A peer that has published its partial rows of call
// n no longer reads the tokens of call n, so tokens of call n + 1 may follow. Partial rows of call
// n + 1 come from a peer that has this rank's tokens of call n + 1, and thus after this rank has
// added those of call n.
//
// Callers. All threads of a block call each function together.
//
// Memory order. SendTokens and PublishPartials release at system scope what all waves of the block,
// or of all blocks, have stored. AwaitTokens and AwaitPartials acquire at system scope for the
// block, GridBarrier does both for all blocks of the GPU. A failed wait has already been reported;
// what it guards must not be accessed.
#ifndef OCTET_KERNELS_DECODE_PROTOCOL_H_
#define OCTET_KERNELS_DECODE_PROTOCOL_H_

#include <cstddef>
#include <cstdint>

#include "device_ops.h"
#include "kernels/decode/kernels.h"
#include "kernels/decode/sites.h"
#include "kernels/types/row_codec.h"
#include "runtime/device/block_counter.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::decode {

__device__ __forceinline__ device::Site MakeSite(Site site, int peer, uint32_t index) {
  return {static_cast<uint32_t>(site), peer, index};
}

class Protocol {
 public:
  __device__ __forceinline__ Protocol(const DecodeParams& p, uint64_t epoch)
      : p_(p), epoch_(epoch) {}

  // Sends this rank's tokens to all ranks, this one included.
  __device__ __forceinline__ void SendTokens(int num_tokens) const {
    const Layout& layout = p_.layout;
    for (int job = static_cast<int>(blockIdx.x); job < layout.num_ranks * layout.parts;
         job += static_cast<int>(gridDim.x)) {
      const int peer = (p_.peers.rank + job) % layout.num_ranks;
      SendPart(peer, job / layout.num_ranks, num_tokens);
    }
  }

  // Waits for the tokens of all ranks; counts[r] becomes the number of rank r's.
  __device__ __forceinline__ bool AwaitTokens(int32_t* counts) const {
    const Layout& layout = p_.layout;
    return AllArrived(layout.num_ranks * layout.parts, [&](int i) {
      const int source = i / layout.parts;
      const int part = i % layout.parts;
      const uint64_t* const flag = layout.TokenFlag(Mine(), source, part);
      uint64_t start = 0;
      const uint64_t epoch = epoch_;
      if (!device::WaitUntil(
              p_.failure, flag, MakeSite(Site::kTokens, source, static_cast<uint32_t>(part)), epoch,
              &start, [epoch](uint64_t seen) { return device::EpochOf(seen) >= epoch; })) {
        return false;
      }
      if (part == 0) {
        counts[source] = static_cast<int32_t>(
            device::CountOf(device::LoadRelaxed<device::Scope::kSystem>(flag)));
      }
      return true;
    });
  }

  // Barrier `number` of the `barriers` of a call, between all blocks of this GPU.
  // All threads call meanwhile() before they wait.
  template <typename Meanwhile>
  __device__ __forceinline__ bool GridBarrier(int number, int barriers, Site site,
                                              Meanwhile meanwhile) const {
    const uint64_t before = (epoch_ - 1) * static_cast<uint64_t>(barriers);
    const uint64_t target = (before + static_cast<uint64_t>(number) + 1) * gridDim.x;
    uint64_t* const arrived = &p_.state->arrived;
    __shared__ uint32_t failed;
    device::SyncBlockStores();
    if (threadIdx.x == 0) {
      device::AddRelease<device::Scope::kDevice>(arrived, uint64_t{1});
    }
    meanwhile();
    if (threadIdx.x == 0) {
      failed =
          device::WaitEpoch(p_.failure, arrived, target, MakeSite(site, -1, blockIdx.x)) ? 0 : 1;
    }
    __syncthreads();
    return failed == 0;
  }

  __device__ __forceinline__ bool GridBarrier(int number, int barriers, Site site) const {
    return GridBarrier(number, barriers, site, [] {});
  }

  // Returns where the partial row for token `token` of `origin` goes.
  __device__ __forceinline__ float* PartialOf(int origin, int token) const {
    return p_.layout.Partial(p_.peers.base[origin], p_.peers.rank, token);
  }

  // Called once by all blocks, when they have stored their part of the partial rows.
  __device__ __forceinline__ void PublishPartials() const {
    if (!device::LastBlock(&p_.state->blocks_done, gridDim.x)) return;
    const int peer = static_cast<int>(threadIdx.x);
    if (peer >= p_.layout.num_ranks) return;
    device::StoreRelease<device::Scope::kSystem>(
        p_.layout.PartialFlag(p_.peers.base[peer], p_.peers.rank), epoch_);
  }

  __device__ __forceinline__ bool AwaitPartials() const {
    return AllArrived(p_.layout.num_ranks, [&](int source) {
      return device::WaitEpoch(p_.failure, p_.layout.PartialFlag(Mine(), source), epoch_,
                               MakeSite(Site::kPartials, source, 0));
    });
  }

 private:
  __device__ __forceinline__ char* Mine() const { return p_.peers.base[p_.peers.rank]; }

  __device__ __forceinline__ void SendPart(int peer, int part, int num_tokens) const {
    const Layout& layout = p_.layout;
    const int vecs = num_tokens * layout.hidden / device::kElementsPerVec;
    const int of_part = (vecs + layout.parts - 1) / layout.parts;
    const int end = Smaller((part + 1) * of_part, vecs);
    const auto* const from = reinterpret_cast<const device::Vec16*>(p_.x);
    auto* const to = reinterpret_cast<device::Vec16*>(
        layout.Token(p_.cached_peers.base[peer], p_.peers.rank, 0));
    for (int i = part * of_part + static_cast<int>(threadIdx.x); i < end;
         i += static_cast<int>(blockDim.x)) {
      device::StoreStream(to + i, device::LoadStream(from + i));
    }
    device::SyncBlockStores();
    if (threadIdx.x == 0) {
      device::StoreRelease<device::Scope::kSystem>(
          layout.TokenFlag(p_.peers.base[peer], p_.peers.rank, part),
          device::PackEpochCount(epoch_, static_cast<uint32_t>(num_tokens)));
    }
  }

  // Calls `arrived(i)` for i of [0, n) and returns, to all threads, whether all of them returned
  // true. A barrier of the block.
  template <typename Arrived>
  __device__ __forceinline__ bool AllArrived(int n, Arrived arrived) const {
    __shared__ uint32_t failed;
    if (threadIdx.x == 0) failed = 0;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < n && !arrived(static_cast<int>(threadIdx.x))) {
      device::StoreRelaxed<device::Scope::kBlock>(&failed, 1U);
    }
    __syncthreads();
    const bool all = failed == 0;
    __syncthreads();  // `failed` may be written again
    return all;
  }

  const DecodeParams& p_;
  const uint64_t epoch_;
};

}  // namespace octet::decode

#endif  // OCTET_KERNELS_DECODE_PROTOCOL_H_
