// What the blocks of a product do with their tiles, recorded or not: the Trace of a GemmCall.
#ifndef OCTET_KERNELS_GEMM_GEMM_TRACE_H_
#define OCTET_KERNELS_GEMM_GEMM_TRACE_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/gemm/kernels.h"
#include "runtime/device/tracer.h"
#include "runtime/platform/gemm_call.h"

namespace octet {

// Compiles to nothing.
struct NoGemmTrace {
  struct Track {
    static constexpr bool kRecords = false;
    __device__ __forceinline__ void End(device::GemmWork, const device::GemmTile&) const {}
  };
  __device__ __forceinline__ Track TrackOf(device::GemmTrack, bool) const { return {}; }
};

// Records events with the tags of GemmTraceTags() (gemm_trace_tags.h), of tiles of `tile_rows`
// rows, where GemmTraceTarget says.
template <int tile_rows>
struct GemmTrace {
  // A track has one slice after the other, without gaps.
  class Track {
   public:
    static constexpr bool kRecords = true;
    __device__ __forceinline__ Track(const GemmTraceTarget& target, device::GemmTrack track,
                                     bool on)
        : tracer_(target.buffer, target.first_track + static_cast<uint32_t>(track), on),
          first_tag_(target.first_tag),
          start_(tracer_.Start()) {}

    // Ends the slice that has begun with the end of the previous one.
    __device__ __forceinline__ void End(device::GemmWork work, const device::GemmTile& tile) {
      const uint64_t now = tracer_.Start();
      tracer_.Record(start_, now, first_tag_ + static_cast<uint32_t>(work),
                     static_cast<uint32_t>(tile.expert), tile.row,
                     tile.rows < tile_rows ? tile.rows : tile_rows, tile.column);
      start_ = now;
    }

   private:
    device::Tracer tracer_;
    uint32_t first_tag_;
    uint64_t start_;
  };

  // `on`: this thread records the track.
  __device__ __forceinline__ Track TrackOf(device::GemmTrack track, bool on) const {
    return Track(target, track, on);
  }

  GemmTraceTarget target;
};

// The Trace of a product in a kernel whose other work `Tracer` records, or does not.
template <typename Gemm, typename Tracer>
using GemmTraceBeside = std::conditional_t<Tracer::kRecords, GemmTrace<Gemm::kRows>, NoGemmTrace>;

}  // namespace octet

#endif  // OCTET_KERNELS_GEMM_GEMM_TRACE_H_
