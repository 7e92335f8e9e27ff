// One wave each; a lane for some of the nodes.
#include "runtime/net/rails/numbered_exchange.h"

#include <hip/hip_runtime.h>

#include <cstdint>

#include "device_ops.h"
#include "runtime/device/load_kernel.h"
#include "runtime/device/wait.h"

namespace octet::device {

namespace {

__device__ int EndOf(const ExchangeParams& exchange) {
  const int end = exchange.first + kNodesOfLaunch;
  return end < exchange.num_nodes ? end : exchange.num_nodes;
}

// What an exchange has once, rather than for each node, belongs to its last launch.
__device__ bool IsLastLaunch(const ExchangeParams& exchange) {
  return EndOf(exchange) == exchange.num_nodes;
}

// Returns whether the node's header is that of this exchange, or records why the node fails.
__device__ bool CheckHeader(const EndExchangeParams& params, int node, uint64_t number) {
  const ExchangeHeader header = params.headers[node];
  const uint64_t bytes = params.exchange.bytes[node - params.exchange.first];
  const auto index = static_cast<uint32_t>(node);
  if (header.number < number) {
    const bool stopped = LoadRelaxed<Scope::kSystem>(params.port.abort_word) != 0;
    Fail(params.port, stopped ? FailureKind::kReleased : FailureKind::kDeadline,
         {kHeaderArrival, -1, index}, number, header.number,
         Clock() - params.exchange.state->begun_at);
  } else if (header.number > number) {
    Fail(params.port, FailureKind::kInput, {kNumberCheck, -1, index}, number, header.number, 0);
  } else if (header.bytes != bytes) {
    Fail(params.port, FailureKind::kInput, {kSizeCheck, -1, index}, bytes, header.bytes, 0);
  } else {
    return true;
  }
  return false;
}

}  // namespace

__global__ void BeginExchangeKernel(BeginExchangeParams params) {
  const ExchangeParams& exchange = params.exchange;
  const uint64_t number = exchange.state->number + 1;
  for (int node = exchange.first + static_cast<int>(threadIdx.x); node < EndOf(exchange);
       node += static_cast<int>(blockDim.x)) {
    params.headers[node] = {number, exchange.bytes[node - exchange.first]};
  }
  SyncWave();  // all lanes have read the number
  if (threadIdx.x != 0 || !IsLastLaunch(exchange)) return;
  exchange.state->number = number;
  exchange.state->begun_at = Clock();
  StoreRelease<Scope::kSystem>(&exchange.watch->begun, number);
}

__global__ void EndExchangeKernel(EndExchangeParams params) {
  const ExchangeParams& exchange = params.exchange;
  const uint64_t number = exchange.state->number;
  int failed = 0;
  for (int node = exchange.first + static_cast<int>(threadIdx.x); node < EndOf(exchange);
       node += static_cast<int>(blockDim.x)) {
    if (node != exchange.node && !CheckHeader(params, node, number)) failed = 1;
  }
  if (Ballot(failed) == 0 && LoadAcquire<Scope::kSystem>(&exchange.watch->aborted) != 0 &&
      threadIdx.x == 0) {
    const int node = exchange.node == 0 ? 1 : 0;  // any but this one: nobody knows which
    const bool stopped = LoadRelaxed<Scope::kSystem>(params.port.abort_word) != 0;
    Fail(params.port, stopped ? FailureKind::kReleased : FailureKind::kDeadline,
         {kPartArrival, -1, static_cast<uint32_t>(node)}, number, number,
         Clock() - exchange.state->begun_at);
  }
  if (threadIdx.x != 0 || !IsLastLaunch(exchange)) return;
  StoreRelaxed<Scope::kSystem>(&exchange.watch->ended, number);
}

namespace {

template <typename Params>
hipError_t LaunchWave(void (*kernel)(Params), Params params, hipStream_t stream) {
  void* args[] = {&params};
  return hipLaunchKernel(kernel, dim3(1), dim3(kWaveSize), args, 0, stream);
}

}  // namespace

hipError_t LaunchBeginExchange(const BeginExchangeParams& params, hipStream_t stream) {
  return LaunchWave(BeginExchangeKernel, params, stream);
}

hipError_t LaunchEndExchange(const EndExchangeParams& params, hipStream_t stream) {
  return LaunchWave(EndExchangeKernel, params, stream);
}

hipError_t LoadExchangeKernels() { return LoadKernels(BeginExchangeKernel, EndExchangeKernel); }

}  // namespace octet::device
