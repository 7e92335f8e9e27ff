// Two layers' steps with experts of this program's own, which turn a token around. Each token has
// two choices of weight 0.5, so that y = Σ 0.5 · -x = -x.
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <octet/dtype.h>
#include <octet/expert_parallel.h>
#include <octet/node.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "negate.h"

namespace {

constexpr int kRanks = 2;
constexpr int kTokens = 12;

absl::Status ToStatus(Error error) {
  return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
}

// Memory of a GPU.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) FreeOnGpu(data_);
  }

  // On the current GPU.
  template <typename T>
  absl::Status Fill(const std::vector<T>& values) {
    return ToStatus(NewOnGpu(values.data(), values.size() * sizeof(T), &data_));
  }
  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

// One rank's, on its GPU.
struct Buffers {
  Buffer x, ids, weights, out, y;

  octet::DispatchArgs dispatch() const {
    return {.x = x.as(),
            .topk_idx = ids.as<int32_t>(),
            .topk_weights = weights.as<float>(),
            .num_tokens = kTokens};
  }
  octet::CombineArgs combine() const { return {.expert_out = out.as(), .y = y.as()}; }
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
    const auto rows = static_cast<size_t>(config.expert_out_rows(rank.num_ranks()));
    const auto row_elements = static_cast<size_t>(config.hidden);
    for (const absl::Status& status : {mine.x.Fill(x), mine.ids.Fill(ids),
                                       mine.weights.Fill(std::vector<float>(ids.size(), 0.5F)),
                                       mine.out.Fill(std::vector<uint16_t>(rows * row_elements)),
                                       mine.y.Fill(std::vector<uint16_t>(x.size()))}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

// What each rank does in a layer: enqueues it all on rank.stream() and waits for none of it.
using Layer = absl::FunctionRef<absl::Status(octet::ExpertParallel&, octet::Rank&, const Buffers&)>;

absl::Status PlainLayer(octet::ExpertParallel& ep, octet::Rank& rank, const Buffers& mine) {
  const octet::EpConfig& config = ep.config();
  const absl::StatusOr<octet::Received> received = ep.Dispatch(rank, mine.dispatch());
  if (!received.ok()) return received.status();
  const int32_t* num_rows = received->expert_offsets + config.num_local_experts(kRanks);
  const Error error =
      LaunchNegate(received->x, num_rows, config.hidden, mine.out.as(), rank.stream());
  if (error != nullptr) return ToStatus(error);
  return ep.Combine(rank, received->handle, mine.combine());
}

// Rows travel as 8-bit floats. Between the halves of a call other kernels may be enqueued, which
// run while rows are under way.
absl::Status Fp8Layer(octet::ExpertParallel& ep, octet::Rank& rank, const Buffers& mine) {
  const octet::EpConfig& config = ep.config();
  const absl::StatusOr<octet::DispatchHandle> handle = ep.DispatchSend(rank, mine.dispatch());
  if (!handle.ok()) return handle.status();
  const absl::StatusOr<octet::Received> received = ep.DispatchReceive(rank, *handle);
  if (!received.ok()) return received.status();
  const int32_t* num_rows = received->expert_offsets + config.num_local_experts(kRanks);
  const Error error = LaunchNegateFp8(received->x, received->scales, num_rows, config.hidden,
                                      config.scale_group, mine.out.as(), rank.stream());
  if (error != nullptr) return ToStatus(error);
  const absl::Status sent = ep.CombineSend(rank, *handle, mine.combine());
  return sent.ok() ? ep.CombineReceive(rank, *handle, mine.combine()) : sent;
}

absl::Status Check(const octet::EpConfig& config, const std::vector<Buffers>& buffers) {
  const std::vector<uint16_t> x = Tokens(config);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<uint16_t> y(x.size());
    const Error error = CopyFromGpu(y.data(), buffers[static_cast<size_t>(rank)].y.as(),
                                    y.size() * sizeof(uint16_t));
    if (error != nullptr) return ToStatus(error);
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
  const auto ep = octet::ExpertParallel::Create(node, config);
  if (!ep.ok()) return ep.status();
  std::vector<Buffers> buffers(kRanks);
  if (absl::Status status = Allocate(node, config, buffers); !status.ok()) return status;
  // Run also waits for what the ranks have enqueued, and says what went wrong with it.
  const absl::Status status = node.Run([&](octet::Rank& rank) {
    return layer(**ep, rank, buffers[static_cast<size_t>(rank.rank())]);
  });
  return status.ok() ? Check(config, buffers) : status;
}

absl::Status Steps() {
  const auto node = octet::Node::Create({.num_ranks = kRanks});
  if (!node.ok()) return node.status();
  octet::EpConfig config = Config();
  if (absl::Status status = Step(**node, config, PlainLayer); !status.ok()) return status;
  config.strategy = octet::Strategy::kLowLatency;
  config.dispatch_format = octet::DispatchFormat::kQuantizedFp8;
  config.scale_format = octet::ScaleFormat::kPowerOfTwo;
  return Step(**node, config, Fp8Layer);
}

}  // namespace

int main() {
  const absl::Status status = Steps();
  std::printf("%s\n", status.ok() ? "ok" : std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
