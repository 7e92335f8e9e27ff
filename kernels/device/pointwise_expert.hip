// A wave for each row, walked over the packed rows.
#include <hip/hip_runtime.h>

#include "device_ops.h"
#include "kernels/device/pointwise_expert.h"
#include "kernels/device/row_codec.h"
#include "kernels/device/row_copy.h"

namespace octet {
namespace {

using device::Vec16;

// Some platforms have no use for launch bounds.
[[maybe_unused]] constexpr int kMaxThreads = 512;

template <typename Codec>
__global__ void __launch_bounds__(kMaxThreads) ScaleRows(const PointwiseExpertParams p) {
  const int waves = blockDim.x / device::kWaveSize;
  const int rows = *p.total_rows;
  for (int row = blockIdx.x * waves + device::Wave(); row < rows; row += gridDim.x * waves) {
    const int local_expert = p.sources[row].local_expert;
    // After a dispatch that failed, rows that never came have no origin.
    if (local_expert < 0 || local_expert >= p.num_local_experts) continue;
    const float scale = p.expert_scale[local_expert];
    const size_t first = static_cast<size_t>(row) * p.row_vecs;
    device::WaveTransformRow(static_cast<Vec16*>(p.out) + first,
                             static_cast<const Vec16*>(p.x) + first, {0, p.row_vecs},
                             [scale](const Vec16& v) { return device::Scale<Codec>(v, scale); });
  }
}

}  // namespace

hipError_t LaunchPointwiseExpert(const PointwiseExpertParams& params, bool fp16,
                                 const LaunchShape& shape, hipStream_t stream) {
  PointwiseExpertParams p = params;
  void* args[] = {&p};
  return hipLaunchKernel(fp16 ? ScaleRows<device::Fp16Codec> : ScaleRows<device::Bf16Codec>,
                         dim3(static_cast<unsigned>(shape.blocks)),
                         dim3(static_cast<unsigned>(shape.threads)), args,
                         static_cast<unsigned>(shape.shared_bytes), stream);
}

}  // namespace octet
