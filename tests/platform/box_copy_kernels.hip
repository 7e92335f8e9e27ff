#include "tests/platform/box_copy_kernels.h"

#include "box_copy.h"
#include "device_ops.h"
#include "runtime/device/load_kernel.h"

namespace octet {
namespace {

using device::BoxBarrier;
using device::Vec16;

constexpr int kSlots = 2;  // of a wave

struct Params {
  device::RowBoxes wide;
  device::RowBoxes narrow;
  int wide_bytes;
  int narrow_bytes;
  int slot_bytes;
  int rounds;
  const BoxPlace* places;
  char* out;
  uint32_t* early;
};

__global__ void CopyBoxes(const __grid_constant__ Params p) {
  HIP_DYNAMIC_SHARED(Vec16, memory)
  char* shared = reinterpret_cast<char*>(memory);
  shared += -reinterpret_cast<uintptr_t>(shared) % device::kBoxAlignment;
  const int wave = device::Wave();
  const int waves = static_cast<int>(blockDim.x) / device::kWaveSize;
  char* const slots = shared + wave * kSlots * p.slot_bytes;
  auto* const barriers =
      reinterpret_cast<BoxBarrier*>(shared + waves * kSlots * p.slot_bytes) + wave * kSlots;
  for (int i = 0; i < kSlots; ++i) device::BoxInit(barriers + i);
  if (device::Lane() == 0) {
    device::PrefetchBoxes(p.wide);
    device::PrefetchBoxes(p.narrow);
  }
  const auto load = [&](int round) {
    const BoxPlace place = p.places[wave * p.rounds + round];
    char* const slot = slots + round % kSlots * p.slot_bytes;
    device::BoxLoad(barriers + round % kSlots, p.wide_bytes + p.narrow_bytes,
                    [&](const auto& start) {
                      start(slot, p.wide, place.wide_byte, place.wide_row);
                      start(slot + p.wide_bytes, p.narrow, place.narrow_byte, place.narrow_row);
                    });
  };
  if (p.rounds > 0) load(0);
  for (int round = 0; round < p.rounds; ++round) {
    if (round + 1 < p.rounds) load(round + 1);
    const char* const slot = slots + round % kSlots * p.slot_bytes;
    const int at = wave * p.rounds + round;
    if (device::Lane() == 0) p.early[at] = *reinterpret_cast<const volatile uint32_t*>(slot);
    device::BoxWait(barriers + round % kSlots, static_cast<uint32_t>(round / kSlots));
    const int vecs = (p.wide_bytes + p.narrow_bytes) / static_cast<int>(sizeof(Vec16));
    for (int i = device::Lane(); i < vecs; i += device::kWaveSize) {
      reinterpret_cast<Vec16*>(p.out)[at * vecs + i] = reinterpret_cast<const Vec16*>(slot)[i];
    }
    device::SyncWave();
  }
}

}  // namespace

hipError_t LaunchBoxCopy(const BoxCopy& copy, int wave_size, hipStream_t stream) {
  Params p = {};
  hipError_t error = device::MakeRowBoxes(copy.wide, &p.wide);
  if (error == hipSuccess) error = device::MakeRowBoxes(copy.narrow, &p.narrow);
  if (error != hipSuccess) return error;
  const size_t wide = BoxBytes(copy.wide);
  const size_t both = wide + BoxBytes(copy.narrow);
  constexpr size_t kAlign = device::kBoxAlignment;
  const size_t slot = (both + kAlign - 1) / kAlign * kAlign;
  const size_t slots = static_cast<size_t>(copy.waves) * kSlots;
  const size_t shared_bytes = kAlign + slots * (slot + sizeof(BoxBarrier));
  p.wide_bytes = static_cast<int>(wide);
  p.narrow_bytes = static_cast<int>(both - wide);
  p.slot_bytes = static_cast<int>(slot);
  p.rounds = copy.rounds;
  p.places = copy.places;
  p.out = copy.out;
  p.early = copy.early;
  error = device::LoadKernelWithShared(CopyBoxes, shared_bytes);
  if (error != hipSuccess) return error;
  void* args[] = {&p};
  return hipLaunchKernel(CopyBoxes, dim3(1), dim3(static_cast<unsigned>(copy.waves * wave_size)),
                         args, static_cast<unsigned>(shared_bytes), stream);
}

}  // namespace octet
