// Two layers' steps with experts of this program's own, which turn a token around. Each token has
// two choices of weight 0.5, so that y = Σ 0.5 · -x = -x.
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "kernels/expert_parallel.h"
#include "negate.h"
#include "runtime/device_memory.h"
#include "runtime/gpu_status.h"
#include "runtime/node.h"
#include "runtime/status_macros.h"

namespace {

constexpr int kRanks = 2;
constexpr int kTokens = 12;

// One rank's, on its GPU.
struct Buffers {
  octet::DeviceMemory x, ids, weights, out, y;

  octet::DispatchArgs dispatch() const {
    return {.x = x.as<void>(),
            .topk_idx = ids.as<int32_t>(),
            .topk_weights = weights.as<float>(),
            .num_tokens = kTokens};
  }
  octet::CombineArgs combine() const { return {.expert_out = out.as<void>(), .y = y.as<void>()}; }
};

octet::EpConfig Config() {
  octet::EpConfig config;
  config.num_experts = 8;
  config.topk = 2;
  config.hidden = 192;
  config.max_tokens_per_rank = kTokens;
  return config;
}

// Small whole numbers, which 8-bit floats have exactly.
std::vector<uint16_t> Tokens(const octet::EpConfig& config) {
  std::vector<uint16_t> x;
  for (int i = 0; i < kTokens * config.hidden; ++i) {
    x.push_back(octet::BitsFromFloat(config.dtype, static_cast<float>(1 + i % 13)));
  }
  return x;
}

template <typename T>
absl::StatusOr<octet::DeviceMemory> OnDevice(const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  OCTET_ASSIGN_OR_RETURN(octet::DeviceMemory memory, octet::DeviceMemory::Allocate(bytes));
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(memory.as<void>(), values.data(), bytes, hipMemcpyHostToDevice));
  return memory;
}

// Run is where each rank's GPU is the current one. Memory is allocated and copied in a Run of its
// own: later on, kernels of the ranks wait for each other, and so no rank may wait for its GPU.
absl::Status Allocate(octet::Node& node, const octet::EpConfig& config,
                      std::vector<Buffers>& buffers) {
  return node.Run([&](octet::Rank& rank) -> absl::Status {
    Buffers& mine = buffers[static_cast<size_t>(rank.rank())];
    std::vector<int32_t> ids;
    for (int t = 0; t < kTokens; ++t) {
      ids.push_back(t % config.num_experts);
      ids.push_back((t + 3) % config.num_experts);
    }
    const std::vector<uint16_t> x = Tokens(config);
    OCTET_ASSIGN_OR_RETURN(mine.x, OnDevice(x));
    OCTET_ASSIGN_OR_RETURN(mine.ids, OnDevice(ids));
    OCTET_ASSIGN_OR_RETURN(mine.weights, OnDevice(std::vector<float>(ids.size(), 0.5F)));
    const auto rows = static_cast<size_t>(config.expert_out_rows(rank.num_ranks()));
    const auto row_elements = static_cast<size_t>(config.hidden);
    OCTET_ASSIGN_OR_RETURN(mine.out, OnDevice(std::vector<uint16_t>(rows * row_elements)));
    OCTET_ASSIGN_OR_RETURN(mine.y, OnDevice(std::vector<uint16_t>(x.size())));
    return absl::OkStatus();
  });
}

// What each rank does in a layer: enqueues it all on rank.stream() and waits for none of it.
using Layer = absl::FunctionRef<absl::Status(octet::ExpertParallel&, octet::Rank&, const Buffers&)>;

absl::Status PlainLayer(octet::ExpertParallel& ep, octet::Rank& rank, const Buffers& mine) {
  const octet::EpConfig& config = ep.config();
  OCTET_ASSIGN_OR_RETURN(const octet::Received received, ep.Dispatch(rank, mine.dispatch()));
  const int32_t* num_rows = received.expert_offsets + config.num_local_experts(kRanks);
  OCTET_RETURN_IF_GPU_ERROR(
      LaunchNegate(received.x, num_rows, config.hidden, mine.out.as<void>(), rank.stream()));
  return ep.Combine(rank, received.handle, mine.combine());
}

// Rows travel as 8-bit floats. Between the halves of a call other kernels may be enqueued, which
// run while rows are under way.
absl::Status Fp8Layer(octet::ExpertParallel& ep, octet::Rank& rank, const Buffers& mine) {
  const octet::EpConfig& config = ep.config();
  OCTET_ASSIGN_OR_RETURN(const octet::DispatchHandle handle,
                         ep.DispatchSend(rank, mine.dispatch()));
  OCTET_ASSIGN_OR_RETURN(const octet::Received received, ep.DispatchReceive(rank, handle));
  const int32_t* num_rows = received.expert_offsets + config.num_local_experts(kRanks);
  OCTET_RETURN_IF_GPU_ERROR(LaunchNegateFp8(received.x, received.scales, num_rows, config.hidden,
                                            config.scale_group, mine.out.as<void>(),
                                            rank.stream()));
  OCTET_RETURN_IF_ERROR(ep.CombineSend(rank, handle, mine.combine()));
  return ep.CombineReceive(rank, handle, mine.combine());
}

absl::Status Check(const octet::EpConfig& config, const std::vector<Buffers>& buffers) {
  const std::vector<uint16_t> x = Tokens(config);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<uint16_t> y(x.size());
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpy(y.data(), buffers[static_cast<size_t>(rank)].y.as<void>(),
                                        y.size() * sizeof(uint16_t), hipMemcpyDeviceToHost));
    for (size_t i = 0; i < y.size(); ++i) {
      if (y[i] == (x[i] ^ 0x8000)) continue;
      return absl::DataLossError(absl::StrCat(
          "rank ", rank, ", element ", i, ": ", octet::FloatFromBits(config.dtype, y[i]),
          " is not minus ", octet::FloatFromBits(config.dtype, x[i])));
    }
  }
  return absl::OkStatus();
}

absl::Status Step(octet::Node& node, const octet::EpConfig& config, Layer layer) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<octet::ExpertParallel> ep,
                         octet::ExpertParallel::Create(node, config));
  std::vector<Buffers> buffers(kRanks);
  OCTET_RETURN_IF_ERROR(Allocate(node, config, buffers));
  // Run also waits for what the ranks have enqueued, and says what went wrong with it.
  OCTET_RETURN_IF_ERROR(node.Run([&](octet::Rank& rank) {
    return layer(*ep, rank, buffers[static_cast<size_t>(rank.rank())]);
  }));
  return Check(config, buffers);
}

absl::Status Steps() {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<octet::Node> node,
                         octet::Node::Create({.num_ranks = kRanks}));
  octet::EpConfig config = Config();
  OCTET_RETURN_IF_ERROR(Step(*node, config, PlainLayer));
  config.strategy = octet::Strategy::kLowLatency;
  config.dispatch_format = octet::DispatchFormat::kQuantizedFp8;
  config.scale_format = octet::ScaleFormat::kPowerOfTwo;
  return Step(*node, config, Fp8Layer);
}

}  // namespace

int main() {
  const absl::Status status = Steps();
  std::printf("%s\n", status.ok() ? "ok" : std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
