// One step with experts of its own: y = Σ 0.5 · -x = -x, for two choices of weight 0.5.
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/expert_parallel.h"
#include "kernels/reference.h"
#include "negate.h"
#include "runtime/device_memory.h"
#include "runtime/gpu_status.h"
#include "runtime/node.h"
#include "runtime/status_macros.h"

namespace {

constexpr int kRanks = 2;
constexpr int kTokens = 12;

struct Buffers {
  octet::DeviceMemory x, ids, weights, out, y;
};

template <typename T>
absl::StatusOr<octet::DeviceMemory> OnDevice(const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  OCTET_ASSIGN_OR_RETURN(octet::DeviceMemory memory, octet::DeviceMemory::Allocate(bytes));
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(memory.as<void>(), values.data(), bytes, hipMemcpyHostToDevice));
  return memory;
}

absl::Status Step() {
  octet::EpConfig config;
  config.num_experts = 8;
  config.topk = 2;
  config.hidden = 64;
  config.max_tokens_per_rank = kTokens;
  config.dtype = octet::DType::kFloat16;
  std::vector<uint16_t> x;
  std::vector<int32_t> ids;
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < config.hidden; ++i) {
      x.push_back(octet::BitsFromFloat(config.dtype, static_cast<float>(1 + 64 * t + i)));
    }
    ids.push_back(t % config.num_experts);
    ids.push_back((t + 3) % config.num_experts);
  }
  const std::vector<float> weights(ids.size(), 0.5F);

  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::Node> node,
                         octet::Node::Create({.num_ranks = kRanks}));
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::ExpertParallel> ep,
                         octet::ExpertParallel::Create(*node, config));
  std::vector<Buffers> buffers(kRanks);
  OCTET_RETURN_IF_ERROR(node->Run([&](octet::Rank& rank) -> absl::Status {
    Buffers& mine = buffers[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(mine.x, OnDevice(x));
    OCTET_ASSIGN_OR_RETURN(mine.ids, OnDevice(ids));
    OCTET_ASSIGN_OR_RETURN(mine.weights, OnDevice(weights));
    const size_t most_rows = size_t{kRanks} * kTokens * static_cast<size_t>(config.topk);
    OCTET_ASSIGN_OR_RETURN(mine.out,
                           OnDevice(std::vector<uint16_t>(most_rows * x.size() / kTokens)));
    OCTET_ASSIGN_OR_RETURN(mine.y, OnDevice(std::vector<uint16_t>(x.size())));
    return absl::OkStatus();
  }));

  OCTET_RETURN_IF_ERROR(node->Run([&](octet::Rank& rank) -> absl::Status {
    const Buffers& mine = buffers[static_cast<size_t>(rank.rank())];
    OCTET_ASSIGN_OR_RETURN(octet::Received received,
                           ep->Dispatch(rank, {.x = mine.x.as<void>(),
                                               .topk_idx = mine.ids.as<int32_t>(),
                                               .topk_weights = mine.weights.as<float>(),
                                               .num_tokens = kTokens}));
    const int32_t* num_rows = received.expert_offsets + config.num_local_experts(kRanks);
    OCTET_RETURN_IF_GPU_ERROR(
        LaunchNegate(received.x, num_rows, config.hidden, mine.out.as<void>(), rank.stream()));
    return ep->Combine(rank, received.handle,
                       {.expert_out = mine.out.as<void>(), .y = mine.y.as<void>()});
  }));

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

}  // namespace

int main() {
  const absl::Status status = Step();
  std::printf("%s\n", status.ok() ? "ok" : std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
