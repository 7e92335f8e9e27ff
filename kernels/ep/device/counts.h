// Counts that ranks announce to one another, each in one word with its epoch.
#ifndef OCTET_KERNELS_EP_DEVICE_COUNTS_H_
#define OCTET_KERNELS_EP_DEVICE_COUNTS_H_

#include "device_ops.h"
#include "kernels/ep/device/credits.h"
#include "runtime/device/epoch.h"
#include "runtime/device/wait.h"

namespace octet::device {

// Sets one of the words that AwaitCounts waits for.
__device__ __forceinline__ void StoreCount(uint64_t* word, uint64_t epoch, int count) {
  StoreRelaxed<Scope::kSystem>(word, PackEpochCount(epoch, static_cast<uint32_t>(count)));
}

// What AwaitCounts waits for: words [num_sources][columns], until all of them hold `epoch`.
template <typename Enum>
struct CountWords {
  const uint64_t* words;
  int num_sources;
  int columns;
  uint64_t epoch;
  Enum site;
};
template <typename Enum>
CountWords(const uint64_t*, int, int, uint64_t, Enum) -> CountWords<Enum>;

// Waits until all counts have come. Called by all threads of a block: the block reads all words,
// and while one is missing, one thread waits for that one before the block reads again. `take(i,
// count)` is called for each word at every reading. A masked source is not waited for; its counts
// are 0. Returns false if a word did not arrive. `last`, if given, is set to the source that was
// missing last; it is unchanged if none was.
//
// The words are read relaxed: callers must acquire before reading the announced data.
template <bool kMeasured = false, typename Enum, typename Take>
__device__ bool AwaitCounts(const CallParams& c, const CountWords<Enum>& counts, Take take,
                            uint32_t* last = nullptr) {
  const uint64_t* words = counts.words;
  const int num_sources = counts.num_sources;
  const int columns = counts.columns;
  const uint64_t epoch = counts.epoch;
  __shared__ int32_t missing;
  __shared__ int32_t failed;
  __shared__ uint32_t masked;
  uint64_t start = 0;
  if (threadIdx.x == 0) failed = 0;
  // Read the masks once, before the words arrive, and again only after a failed wait. The end of
  // the call (call_end.h) finds ranks that another block masks meanwhile.
  if (Wave() == 0) {
    const uint32_t ranks = MaskedRanks(c.failure);
    if (Lane() == 0) masked = ranks;
  }
  for (;;) {
    if (threadIdx.x == 0) missing = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < num_sources * columns; i += blockDim.x) {
      if (masked != 0 && HasRank(masked, i / columns)) {
        take(i, 0);
        continue;
      }
      const uint64_t word = LoadRelaxed<Scope::kSystem>(words + i);
      // An exchange, since race checkers for shared memory report two plain stores as a race.
      if (EpochOf(word) < epoch) ExchangeRelaxed<Scope::kBlock>(&missing, i);
      take(i, CountOf(word));
    }
    __syncthreads();
    const int first_missing = missing;
    if (first_missing < 0) return true;
    const int source = first_missing / columns;
    if (last != nullptr) *last = static_cast<uint32_t>(source);
    if (threadIdx.x == 0) {
      const bool came = PollUntil<kMeasured>(
          c.failure, words + first_missing,
          MakeSite(counts.site, source, static_cast<uint32_t>(first_missing - source * columns)),
          PackEpochCount(epoch, 0), &start,
          [epoch](uint64_t word) { return EpochOf(word) >= epoch; });
      if (!came) {
        uint32_t ranks = 0;
        for (int r = 0; r < num_sources; ++r) ranks |= IsMasked(c.failure, r) ? 1U << r : 0U;
        masked = ranks;
        failed = HasRank(ranks, source) ? 0 : 1;
      }
    }
    __syncthreads();
    if (failed != 0) return false;
  }
}

}  // namespace octet::device

#endif  // OCTET_KERNELS_EP_DEVICE_COUNTS_H_
