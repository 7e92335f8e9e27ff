// Step 2, stores to peers: a rank writes into the others' heaps. Nothing on the GPUs says when the
// rows are there, so that they are sent and taken by different kernels, with a barrier of the
// host's threads between them. The end of a kernel makes its stores visible.
#include <hip/hip_runtime.h>

#include "docs/tutorial/rows.h"

namespace octet::tutorial {
namespace {

__global__ void Step2Send(Params p) { StoreRow(p, PeerOfBlock(), p.epoch); }
__global__ void Step2Take(Params p) { TakeRow(p, PeerOfBlock()); }

}  // namespace

const Kernel kStep2Send = {
    [] { return device::LoadKernel(Step2Send); },
    [](const Params& params, hipStream_t stream) { return Launch(Step2Send, params, stream); },
};
const Kernel kStep2Take = {
    [] { return device::LoadKernel(Step2Take); },
    [](const Params& params, hipStream_t stream) { return Launch(Step2Take, params, stream); },
};

}  // namespace octet::tutorial
