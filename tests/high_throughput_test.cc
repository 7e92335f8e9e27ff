// What only high_throughput can do: other formats and layouts of rows, layouts that are used again,
// places given by the caller, totals on the host. Each step is held against the reference to the
// bit; experts run on the host between dispatch and combine, each with a factor of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "kernels/expert_parallel.h"
#include "kernels/reference.h"
#include "runtime/device_memory.h"
#include "runtime/gpu_status.h"
#include "tests/ep_harness.h"

namespace octet {
namespace {

using ::testing::HasSubstr;

template <typename T>
absl::StatusOr<std::vector<T>> ToHost(const void* device, size_t count) {
  std::vector<T> host(count);
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemcpy(host.data(), device, count * sizeof(T), hipMemcpyDeviceToHost));
  return host;
}

template <typename T>
absl::Status ToDevice(const DeviceMemory& memory, const std::vector<T>& host) {
  if (host.empty()) return absl::OkStatus();
  return OCTET_GPU(
      hipMemcpy(memory.as<void>(), host.data(), host.size() * sizeof(T), hipMemcpyHostToDevice));
}

// One rank's choices as they must arrive somewhere.
struct Expected {
  std::vector<int32_t> counts;          // [L]
  std::vector<int32_t> offsets;         // [L + 1]
  std::vector<RowSource> rows;          // in expert order, rank -1: padding
  std::vector<int32_t> source_offsets;  // [R + 1]
  std::vector<RowSource> tokens;        // by (source, token), with the first choice
  // The place among `tokens` of a row's token.
  int32_t TokenOf(const RowSource& row) const {
    if (row.rank < 0) return -1;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].rank == row.rank && tokens[i].token == row.token) {
        return static_cast<int32_t>(i);
      }
    }
    return -2;
  }
};

// What travels beside the routing.
struct Payload {
  std::vector<uint8_t> rows;     // [T][row_bytes]
  std::vector<uint32_t> scales;  // [T][scale_words]
  std::vector<int32_t> scatter;  // [T][K], or empty
};

bool Same(const RowSource& a, const RowSource& b) {
  return a.rank == b.rank && a.token == b.token && a.k == b.k && a.local_expert == b.local_expert;
}

class HighThroughputTest : public ::testing::Test {
 protected:
  static EpConfig Config(int num_experts, int topk, int hidden, int max_tokens) {
    EpConfig config;
    config.num_experts = num_experts;
    config.topk = topk;
    config.hidden = hidden;
    config.max_tokens_per_rank = max_tokens;
    config.strategy = Strategy::kHighThroughput;
    return config;
  }

  void Make(int num_ranks, const EpConfig& config, NodeOptions options = {}) {
    const absl::StatusOr<Topology> topology = DiscoverTopology();
    const int gpus = topology.ok() ? static_cast<int>(topology->gpus.size()) : 0;
    if (gpus < num_ranks) GTEST_SKIP() << num_ranks << " ranks on " << gpus << " GPUs";
    ep_.reset();
    node_.reset();
    ranks_.clear();
    options.num_ranks = num_ranks;
    absl::StatusOr<std::unique_ptr<Node>> node = Node::Create(options);
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *std::move(node);
    absl::StatusOr<std::unique_ptr<ExpertParallel>> ep = ExpertParallel::Create(*node_, config);
    ASSERT_TRUE(ep.ok()) << ep.status();
    ep_ = *std::move(ep);
    config_ = ep_->config();
    ranks_.resize(static_cast<size_t>(num_ranks));
    const absl::Status status =
        node_->Run([this](Rank& rank) -> absl::Status { return Allocate(rank); });
    ASSERT_TRUE(status.ok()) << status;
  }

  struct Step {
    StepInput input;  // x: what experts work on; the rows that travel are the payload
    std::vector<Payload> payloads;
  };

  // `scatter`: with places given, in an order of their own.
  Step RandomStepOf(const std::vector<int>& tokens, double drop = 0, bool scatter = false) {
    Step step;
    step.input = RandomStep(rng_, config_, tokens, drop);
    for (StepInput::PerRank& rank : step.input.ranks) {
      Payload payload;
      const auto count = static_cast<size_t>(rank.num_tokens);
      if (config_.dispatch_format == DispatchFormat::kSame) {
        payload.rows.resize(rank.x.size() * sizeof(uint16_t));
        if (!rank.x.empty()) std::memcpy(payload.rows.data(), rank.x.data(), payload.rows.size());
      } else {
        payload.rows.resize(count * config_.dispatch_row_bytes());
        for (uint8_t& byte : payload.rows) byte = static_cast<uint8_t>(rng_());
      }
      payload.scales.resize(count * static_cast<size_t>(config_.scale_words()));
      for (uint32_t& word : payload.scales) word = static_cast<uint32_t>(rng_());
      if (scatter) payload.scatter = RandomScatter(rank.topk_idx);
      step.payloads.push_back(std::move(payload));
    }
    return step;
  }

  absl::Status Upload(const Step& step) {
    return node_->Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      const Memory& m = ranks_[r];
      OCTET_RETURN_IF_ERROR(ToDevice(m.x, step.payloads[r].rows));
      OCTET_RETURN_IF_ERROR(ToDevice(m.scales, step.payloads[r].scales));
      OCTET_RETURN_IF_ERROR(ToDevice(m.scatter, step.payloads[r].scatter));
      OCTET_RETURN_IF_ERROR(ToDevice(m.topk_idx, step.input.ranks[r].topk_idx));
      return ToDevice(m.topk_weights, step.input.ranks[r].topk_weights);
    });
  }

  DispatchArgs Args(const Step& step, int rank) const {
    const auto r = static_cast<size_t>(rank);
    const Memory& m = ranks_[r];
    return {.x = m.x.as<void>(),
            .topk_idx = m.topk_idx.as<int32_t>(),
            .topk_weights = m.topk_weights.as<float>(),
            .num_tokens = step.input.ranks[r].num_tokens,
            .x_scales = config_.scale_words() > 0 ? m.scales.as<void>() : nullptr,
            .scatter_idx = step.payloads[r].scatter.empty() ? nullptr : m.scatter.as<int32_t>()};
  }

  // `cached`: handles of each rank whose layouts are used again.
  absl::Status Dispatch(const Step& step, const std::vector<DispatchHandle>& cached = {},
                        bool weights = true) {
    OCTET_RETURN_IF_ERROR(Upload(step));
    return node_->Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      OCTET_RETURN_IF_ERROR(ep_->Poison(rank, Expect(step, rank.rank()).offsets.back()));
      DispatchArgs args = Args(step, rank.rank());
      if (!weights) args.topk_weights = nullptr;
      if (!cached.empty()) {
        args.cached = &cached[r];
        args.topk_idx = nullptr;
      }
      OCTET_ASSIGN_OR_RETURN(ranks_[r].received, ep_->Dispatch(rank, args));
      return absl::OkStatus();
    });
  }

  std::vector<DispatchHandle> Handles() const {
    std::vector<DispatchHandle> handles;
    for (const Memory& m : ranks_) handles.push_back(m.received.handle);
    return handles;
  }

  Expected Expect(const Step& step, int rank) const {
    const std::vector<RankInput> views = step.input.views();
    const ReferenceReceived reference = ReferenceDispatch(config_, views, rank);
    Expected expected;
    expected.counts = reference.expert_counts;
    expected.offsets = {0};
    for (size_t e = 0; e < expected.counts.size(); ++e) {
      const auto count = static_cast<size_t>(expected.counts[e]);
      const auto alignment = static_cast<size_t>(config_.expert_alignment);
      std::vector<RowSource> rows(reference.sources.begin() + reference.expert_offsets[e],
                                  reference.sources.begin() + reference.expert_offsets[e + 1]);
      Scatter(step, rows);
      rows.resize((count + alignment - 1) / alignment * alignment, RowSource{-1, -1, -1, -1});
      expected.rows.insert(expected.rows.end(), rows.begin(), rows.end());
      expected.offsets.push_back(static_cast<int32_t>(expected.rows.size()));
    }
    const int num_local = config_.num_local_experts(node_->num_ranks());
    expected.source_offsets = {0};
    for (size_t source = 0; source < views.size(); ++source) {
      for (int t = 0; t < views[source].num_tokens; ++t) {
        for (int k = 0; k < config_.topk; ++k) {
          const int flat = t * config_.topk + k;
          const int32_t id = views[source].topk_idx[static_cast<size_t>(flat)];
          if (id < 0 || id / num_local != rank) continue;
          expected.tokens.push_back(
              RowSource{static_cast<int32_t>(source), t, k, id - rank * num_local});
          break;
        }
      }
      expected.source_offsets.push_back(static_cast<int32_t>(expected.tokens.size()));
    }
    return expected;
  }

  // Everything that a dispatch of `step` has delivered on all ranks.
  void CheckDispatch(const Step& step, bool weights = true) {
    for (int r = 0; r < node_->num_ranks(); ++r) {
      const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
        return rank.rank() == r ? CheckRank(step, r, weights) : absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  // Experts on the host, and the combine of `handles` (those of the last dispatch), checked.
  // `weights`: those of the routing took part, else all are 1.
  absl::Status Combine(const Step& step, const std::vector<DispatchHandle>& handles,
                       const std::vector<uint16_t>& bias = {}, bool weights = true) {
    OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
      const Memory& m = ranks_[static_cast<size_t>(rank.rank())];
      OCTET_RETURN_IF_ERROR(ToDevice(m.expert_out, ExpertOutputs(step, rank.rank(), weights)));
      OCTET_RETURN_IF_GPU_ERROR(hipMemset(m.y.as<void>(), 0xff, m.y.bytes()));
      return ToDevice(m.bias, bias);
    }));
    OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      return ep_->Combine(rank, handles[r],
                          {.expert_out = ranks_[r].expert_out.as<void>(),
                           .y = ranks_[r].y.as<void>(),
                           .bias = bias.empty() ? nullptr : ranks_[r].bias.as<void>()});
    }));
    return node_->Run([&](Rank& rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank.rank());
      RankInput view = step.input.views()[r];
      if (!weights) view.topk_weights = {};
      const std::vector<uint16_t> want =
          ReferenceCombine(config_, node_->num_ranks(), view, step.input.expert_scale, bias);
      OCTET_ASSIGN_OR_RETURN(const auto y, ToHost<uint16_t>(ranks_[r].y.as<void>(), want.size()));
      if (SameBits(config_.dtype, y, want)) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat("rank ", r, ": y differs"));
    });
  }

  // Dispatch and combine, all of it checked.
  void RunStep(const Step& step) {
    absl::Status status = Dispatch(step);
    ASSERT_TRUE(status.ok()) << status;
    CheckDispatch(step);
    status = Combine(step, Handles());
    EXPECT_TRUE(status.ok()) << status;
  }

  std::mt19937_64 rng_{20261121};
  std::unique_ptr<Node> node_;
  std::unique_ptr<ExpertParallel> ep_;
  EpConfig config_;

  struct Memory {
    DeviceMemory x, scales, scatter, topk_idx, topk_weights, expert_out, y, bias;
    Received received;
  };
  std::vector<Memory> ranks_;

 private:
  absl::Status Allocate(Rank& rank) {
    Memory& m = ranks_[static_cast<size_t>(rank.rank())];
    const auto tokens = static_cast<size_t>(config_.max_tokens_per_rank);
    const auto choices = tokens * static_cast<size_t>(config_.topk);
    const auto hidden = static_cast<size_t>(config_.hidden);
    const auto num_local = static_cast<size_t>(config_.num_local_experts(rank.num_ranks()));
    const size_t rows = static_cast<size_t>(rank.num_ranks()) * choices +
                        num_local * static_cast<size_t>(config_.expert_alignment);
    OCTET_ASSIGN_OR_RETURN(m.x, DeviceMemory::Allocate(tokens * config_.dispatch_row_bytes()));
    OCTET_ASSIGN_OR_RETURN(
        m.scales, DeviceMemory::Allocate(tokens * static_cast<size_t>(config_.scale_words()) *
                                         sizeof(uint32_t)));
    OCTET_ASSIGN_OR_RETURN(m.scatter, DeviceMemory::Allocate(choices * sizeof(int32_t)));
    OCTET_ASSIGN_OR_RETURN(m.topk_idx, DeviceMemory::Allocate(choices * sizeof(int32_t)));
    OCTET_ASSIGN_OR_RETURN(m.topk_weights, DeviceMemory::Allocate(choices * sizeof(float)));
    OCTET_ASSIGN_OR_RETURN(m.expert_out, DeviceMemory::Allocate(rows * hidden * kElementBytes));
    OCTET_ASSIGN_OR_RETURN(m.y, DeviceMemory::Allocate(tokens * hidden * kElementBytes));
    OCTET_ASSIGN_OR_RETURN(m.bias, DeviceMemory::Allocate(hidden * kElementBytes));
    return absl::OkStatus();
  }

  // Each choice's position among those that go to its expert, a random permutation.
  std::vector<int32_t> RandomScatter(const std::vector<int32_t>& topk_idx) {
    std::vector<std::vector<size_t>> of_expert(static_cast<size_t>(config_.num_experts));
    for (size_t i = 0; i < topk_idx.size(); ++i) {
      if (topk_idx[i] >= 0) of_expert[static_cast<size_t>(topk_idx[i])].push_back(i);
    }
    std::vector<int32_t> scatter(topk_idx.size(), -7);
    for (std::vector<size_t>& choices : of_expert) {
      std::shuffle(choices.begin(), choices.end(), rng_);
      for (size_t i = 0; i < choices.size(); ++i) scatter[choices[i]] = static_cast<int32_t>(i);
    }
    return scatter;
  }

  // Rows of one expert, by (source, token), to where their sources have said.
  void Scatter(const Step& step, std::vector<RowSource>& rows) const {
    std::vector<RowSource> placed = rows;
    size_t first = 0;
    for (size_t source = 0; source < step.payloads.size(); ++source) {
      size_t end = first;
      while (end < rows.size() && rows[end].rank == static_cast<int32_t>(source)) ++end;
      const std::vector<int32_t>& scatter = step.payloads[source].scatter;
      for (size_t i = first; i < end && !scatter.empty(); ++i) {
        const int flat_token = rows[i].token * config_.topk + rows[i].k;
        const auto flat = static_cast<size_t>(flat_token);
        placed[first + static_cast<size_t>(scatter[flat])] = rows[i];
      }
      first = end;
    }
    rows = placed;
  }

  // One pass of float32 sums over a token's choices on this rank.
  std::vector<uint16_t> TokenOutput(const Step& step, int rank, const RowSource& token,
                                    bool weights) const {
    const StepInput::PerRank& source = step.input.ranks[static_cast<size_t>(token.rank)];
    const int num_local = config_.num_local_experts(node_->num_ranks());
    const auto hidden = static_cast<size_t>(config_.hidden);
    std::vector<float> sum(hidden);
    for (int k = 0; k < config_.topk; ++k) {
      const int flat_token = token.token * config_.topk + k;
      const auto flat = static_cast<size_t>(flat_token);
      const int32_t id = source.topk_idx[flat];
      if (id < 0 || id / num_local != rank) continue;
      const std::vector<uint16_t> row =
          RowOutput(step, rank, {token.rank, token.token, k, id - rank * num_local});
      const float weight = weights ? source.topk_weights[flat] : 1.0F;
      for (size_t h = 0; h < hidden; ++h) sum[h] += weight * FloatFromBits(config_.dtype, row[h]);
    }
    std::vector<uint16_t> out(hidden);
    for (size_t h = 0; h < hidden; ++h) out[h] = BitsFromFloat(config_.dtype, sum[h]);
    return out;
  }

  std::vector<uint16_t> RowOutput(const Step& step, int rank, const RowSource& row) const {
    const auto hidden = static_cast<size_t>(config_.hidden);
    const StepInput::PerRank& source = step.input.ranks[static_cast<size_t>(row.rank)];
    const int num_local = config_.num_local_experts(node_->num_ranks());
    std::vector<uint16_t> out(hidden);
    ReferenceExpert(
        config_.dtype,
        absl::MakeConstSpan(source.x).subspan(static_cast<size_t>(row.token) * hidden, hidden),
        step.input.expert_scale[static_cast<size_t>(rank) * static_cast<size_t>(num_local) +
                                static_cast<size_t>(row.local_expert)],
        absl::MakeSpan(out));
    return out;
  }

  std::vector<uint16_t> ExpertOutputs(const Step& step, int rank, bool weights) const {
    const Expected expected = Expect(step, rank);
    const bool deduplicated = config_.output == Output::kDeduplicated;
    std::vector<uint16_t> out;
    for (const RowSource& row : deduplicated ? expected.tokens : expected.rows) {
      std::vector<uint16_t> each;
      if (row.rank < 0) {
        each.assign(static_cast<size_t>(config_.hidden), 0x7fff);  // must not be looked at
      } else {
        each = deduplicated ? TokenOutput(step, rank, row, weights) : RowOutput(step, rank, row);
      }
      out.insert(out.end(), each.begin(), each.end());
    }
    return out;
  }

  template <typename T>
  static absl::Status CheckArray(const char* what, const T* got, const std::vector<T>& want) {
    OCTET_ASSIGN_OR_RETURN(const std::vector<T> host, ToHost<T>(got, want.size()));
    if (host == want) return absl::OkStatus();
    const auto differs = std::mismatch(host.begin(), host.end(), want.begin());
    return absl::DataLossError(absl::StrCat(what, " differs at ", differs.first - host.begin(),
                                            ": ", *differs.first, ", not ", *differs.second));
  }

  absl::Status CheckRank(const Step& step, int rank, bool weights) const {
    const Expected want = Expect(step, rank);
    const Received& got = ranks_[static_cast<size_t>(rank)].received;
    const bool deduplicated = config_.output == Output::kDeduplicated;
    const bool once = deduplicated || config_.duplicates == Duplicates::kIndex;
    OCTET_RETURN_IF_ERROR(CheckArray("expert_counts", got.expert_counts, want.counts));
    OCTET_RETURN_IF_ERROR(CheckArray("expert_offsets", got.expert_offsets, want.offsets));
    OCTET_RETURN_IF_ERROR(CheckArray("source_offsets", got.source_offsets, want.source_offsets));
    const std::vector<RowSource>& described = deduplicated ? want.tokens : want.rows;
    OCTET_ASSIGN_OR_RETURN(const auto sources, ToHost<RowSource>(got.sources, described.size()));
    for (size_t i = 0; i < described.size(); ++i) {
      if (!Same(sources[i], described[i])) {
        return absl::DataLossError(absl::StrCat("rank ", rank, ": sources[", i, "] differs"));
      }
    }
    if (once && !deduplicated) {
      std::vector<int32_t> index;
      for (const RowSource& row : want.rows) index.push_back(want.TokenOf(row));
      OCTET_RETURN_IF_ERROR(CheckArray("row_index", got.row_index, index));
    }
    if (deduplicated) OCTET_RETURN_IF_ERROR(CheckChoices(step, rank, want, got, weights));
    const std::vector<RowSource>& rows = once ? want.tokens : want.rows;
    const auto row_bytes = config_.dispatch_row_bytes();
    const auto scale_words = static_cast<size_t>(config_.scale_words());
    OCTET_ASSIGN_OR_RETURN(const auto x, ToHost<uint8_t>(got.x, rows.size() * row_bytes));
    std::vector<uint32_t> scales;
    if (scale_words > 0) {
      OCTET_ASSIGN_OR_RETURN(scales, ToHost<uint32_t>(got.scales, rows.size() * scale_words));
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<uint8_t> row(row_bytes);
      std::vector<uint32_t> scale(scale_words);
      if (rows[i].rank >= 0) {
        const Payload& payload = step.payloads[static_cast<size_t>(rows[i].rank)];
        const auto token = static_cast<size_t>(rows[i].token);
        std::memcpy(row.data(), payload.rows.data() + token * row_bytes, row_bytes);
        std::copy_n(payload.scales.begin() + static_cast<ptrdiff_t>(token * scale_words),
                    scale_words, scale.begin());
      }
      if (!std::equal(row.begin(), row.end(), x.begin() + static_cast<ptrdiff_t>(i * row_bytes))) {
        return absl::DataLossError(absl::StrCat("rank ", rank, ": row ", i, " differs"));
      }
      if (!std::equal(scale.begin(), scale.end(),
                      scales.begin() + static_cast<ptrdiff_t>(i * scale_words))) {
        return absl::DataLossError(absl::StrCat("rank ", rank, ": scales of row ", i, " differ"));
      }
    }
    return absl::OkStatus();
  }

  // recv_topk_idx and recv_topk_weights.
  absl::Status CheckChoices(const Step& step, int rank, const Expected& want, const Received& got,
                            bool weights) const {
    const int num_local = config_.num_local_experts(node_->num_ranks());
    std::vector<int32_t> idx;
    std::vector<float> weight;
    for (const RowSource& token : want.tokens) {
      const StepInput::PerRank& source = step.input.ranks[static_cast<size_t>(token.rank)];
      for (int k = 0; k < config_.topk; ++k) {
        const int flat_token = token.token * config_.topk + k;
        const auto flat = static_cast<size_t>(flat_token);
        const int32_t id = source.topk_idx[flat];
        const bool here = id >= 0 && id / num_local == rank;
        idx.push_back(here ? id - rank * num_local : -1);
        weight.push_back(here ? (weights ? source.topk_weights[flat] : 1.0F) : 0.0F);
      }
    }
    OCTET_RETURN_IF_ERROR(CheckArray("recv_topk_idx", got.recv_topk_idx, idx));
    return CheckArray("recv_topk_weights", got.recv_topk_weights, weight);
  }
};

#define EXPECT_OK(expr)                   \
  do {                                    \
    const absl::Status& status_ = (expr); \
    EXPECT_TRUE(status_.ok()) << status_; \
  } while (false)
#define MAKE_OR_SKIP(...) \
  Make(__VA_ARGS__);      \
  if (HasFatalFailure() || IsSkipped()) return

// ---- layouts of rows

TEST_F(HighThroughputTest, RowsOnceWithAnIndex) {
  EpConfig config = Config(12, 5, 72, 9);
  config.duplicates = Duplicates::kIndex;
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({9, 4, 7}));
  RunStep(RandomStepOf({0, 9, 1}, 0.4));
}

TEST_F(HighThroughputTest, DeduplicatedRowsWithTheirChoices) {
  EpConfig config = Config(12, 5, 72, 9);
  config.output = Output::kDeduplicated;
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({9, 4, 7}));
  RunStep(RandomStepOf({0, 9, 1}, 0.4));
}

TEST_F(HighThroughputTest, ExpertsStartAlignedAndPaddingIsZero) {
  for (const Duplicates duplicates : {Duplicates::kFill, Duplicates::kIndex}) {
    EpConfig config = Config(12, 3, 72, 9);
    config.duplicates = duplicates;
    config.expert_alignment = 8;
    MAKE_OR_SKIP(3, config);
    RunStep(RandomStepOf({9, 4, 7}));
    RunStep(RandomStepOf({9, 9, 9}, 0.5));
    RunStep(RandomStepOf({0, 0, 1}));
  }
}

// ---- formats

TEST_F(HighThroughputTest, Fp8RowsWithScales) {
  for (const ScaleFormat scales : {ScaleFormat::kFloat32, ScaleFormat::kUe8m0}) {
    for (const Output output : {Output::kPackedExperts, Output::kDeduplicated}) {
      EpConfig config = Config(8, 4, 1232, 6);  // ten groups, the last one short
      config.dispatch_format = DispatchFormat::kFp8;
      config.scale_format = scales;
      config.output = output;
      MAKE_OR_SKIP(2, config);
      EXPECT_EQ(config_.scale_words(), scales == ScaleFormat::kFloat32 ? 10 : 3);
      RunStep(RandomStepOf({6, 5}, 0.1));
    }
  }
}

TEST_F(HighThroughputTest, RawBytes) {
  EpConfig config = Config(8, 4, 64, 6);
  config.dispatch_format = DispatchFormat::kBytes;
  config.row_bytes = 1040;
  config.expert_alignment = 4;
  MAKE_OR_SKIP(4, config);
  RunStep(RandomStepOf({6, 5, 0, 3}, 0.1));
}

// ---- places by the caller

TEST_F(HighThroughputTest, ScatterIndicesSayWhereRowsGo) {
  EpConfig config = Config(6, 3, 72, 20);
  MAKE_OR_SKIP(3, config);
  RunStep(RandomStepOf({20, 3, 11}, 0.2, true));
  RunStep(RandomStepOf({20, 3, 11}, 0.2));
}

TEST_F(HighThroughputTest, ScatterIndexOutOfRangeIsRefused) {
  MAKE_OR_SKIP(2, Config(2, 1, 64, 4));
  Step step = RandomStepOf({4, 4}, 0, true);
  for (StepInput::PerRank& rank : step.input.ranks) rank.topk_idx = {0, 0, 1, 1};
  step.payloads[0].scatter = {0, 1, 0, 1};
  step.payloads[1].scatter = {0, 2, 0, 1};
  EXPECT_OK(Upload(step));
  const absl::Status status =
      node_->Run([&](Rank& rank) { return ep_->Dispatch(rank, Args(step, rank.rank())).status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 1: scatter_idx of token 1, k 0 is 2; it must be from 0 to 1"));
  step.payloads[1].scatter = {1, 0, 0, 1};
  RunStep(step);
}

// ---- layouts that are used again

TEST_F(HighThroughputTest, CachedLayoutAfterADifferentRouting) {
  for (const Duplicates duplicates : {Duplicates::kFill, Duplicates::kIndex}) {
    EpConfig config = Config(12, 4, 72, 9);
    config.kept_layouts = 2;
    config.expert_alignment = 4;
    config.duplicates = duplicates;
    MAKE_OR_SKIP(3, config);
    const Step first = RandomStepOf({9, 4, 7}, 0.2);
    RunStep(first);
    const std::vector<DispatchHandle> handles = Handles();
    RunStep(RandomStepOf({1, 9, 8}));
    // The same routing with other rows, as in a next layer or a backward pass.
    Step again = RandomStepOf({9, 4, 7});
    for (size_t r = 0; r < again.input.ranks.size(); ++r) {
      again.input.ranks[r].topk_idx = first.input.ranks[r].topk_idx;
    }
    EXPECT_OK(Dispatch(again, handles));
    CheckDispatch(again);
    EXPECT_OK(Combine(again, Handles()));
  }
}

// The backward pass of combine is a dispatch without weights, that of dispatch a combine.
TEST_F(HighThroughputTest, BothBackwardPassesSkipTheLayout) {
  MAKE_OR_SKIP(3, Config(12, 4, 72, 9));
  const Step forward = RandomStepOf({9, 4, 7}, 0.2);
  RunStep(forward);
  Step gradients = RandomStepOf({9, 4, 7});
  for (size_t r = 0; r < gradients.input.ranks.size(); ++r) {
    gradients.input.ranks[r].topk_idx = forward.input.ranks[r].topk_idx;
  }
  EXPECT_OK(Dispatch(gradients, Handles(), /*weights=*/false));
  CheckDispatch(gradients, /*weights=*/false);
  EXPECT_OK(Combine(gradients, Handles(), {}, /*weights=*/false));
  EXPECT_OK(Combine(gradients, Handles(), {}, /*weights=*/false));
}

TEST_F(HighThroughputTest, HandleOfALayoutThatIsGoneIsRefused) {
  EpConfig config = Config(4, 2, 64, 4);
  config.kept_layouts = 2;
  MAKE_OR_SKIP(2, config);
  const Step step = RandomStepOf({4, 4});
  RunStep(step);
  const std::vector<DispatchHandle> handles = Handles();
  RunStep(step);
  EXPECT_OK(Combine(step, handles));
  RunStep(step);
  const absl::Status status = Combine(step, handles);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("kept_layouts is 2"));
  EXPECT_EQ(Dispatch(step, handles).code(), absl::StatusCode::kFailedPrecondition);
  RunStep(step);
}

// ---- the rest

// Outputs that differ from expert to expert: a map that names a token's first row for each of its
// choices would add that one again and again.
TEST_F(HighThroughputTest, EveryExpertOfARankAddsItsOwnOutput) {
  MAKE_OR_SKIP(2, Config(8, 8, 64, 5));
  Step step = RandomStepOf({5, 5});
  for (size_t e = 0; e < step.input.expert_scale.size(); ++e) {
    step.input.expert_scale[e] = static_cast<float>(1U << e);
  }
  RunStep(step);
}

TEST_F(HighThroughputTest, BiasIsAddedLast) {
  for (const CombineOrder order : {CombineOrder::kFlat, CombineOrder::kPerRank}) {
    EpConfig config = Config(6, 3, 72, 9);
    config.combine_order = order;
    config.dtype = DType::kFloat16;
    MAKE_OR_SKIP(3, config);
    const Step step = RandomStepOf({9, 0, 4}, 0.3);
    EXPECT_OK(Dispatch(step));
    std::vector<uint16_t> bias;
    for (int h = 0; h < config.hidden; ++h) {
      bias.push_back(BitsFromFloat(config.dtype, static_cast<float>(h) / 7.0F - 4.0F));
    }
    EXPECT_OK(Combine(step, Handles(), bias));
  }
}

TEST_F(HighThroughputTest, TotalsOnTheHost) {
  EpConfig config = Config(12, 4, 72, 9);
  config.host_totals = true;
  config.expert_alignment = 4;
  MAKE_OR_SKIP(3, config);
  for (const std::vector<int>& tokens : {std::vector{9, 4, 7}, {0, 0, 0}, {1, 9, 0}}) {
    const Step step = RandomStepOf(tokens, 0.2);
    EXPECT_OK(Dispatch(step));
    for (int r = 0; r < node_->num_ranks(); ++r) {
      const Expected want = Expect(step, r);
      const Received& received = ranks_[static_cast<size_t>(r)].received;
      EXPECT_EQ(received.num_rows, want.offsets.back());
      EXPECT_EQ(received.num_tokens, want.source_offsets.back());
      EXPECT_EQ(std::vector<int32_t>(received.host_expert_counts.begin(),
                                     received.host_expert_counts.end()),
                want.counts);
    }
    EXPECT_OK(Combine(step, Handles()));
  }
}

TEST_F(HighThroughputTest, TotalsOfASilentPeerEndInItsDeadline) {
  EpConfig config = Config(4, 2, 64, 4);
  config.host_totals = true;
  MAKE_OR_SKIP(2, config, {.timeout = absl::Milliseconds(300)});
  const Step step = RandomStepOf({4, 4});
  EXPECT_OK(Upload(step));
  const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() == 1) return rank.Barrier();
    return ep_->Dispatch(rank, Args(step, rank.rank())).status();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  RunStep(step);
}

TEST_F(HighThroughputTest, BlocksAreABudget) {
  for (const int max_blocks : {1, 2, 3}) {
    EpConfig config = Config(12, 4, 72, 20);
    config.max_blocks = max_blocks;
    MAKE_OR_SKIP(3, config);
    EXPECT_LE(config_.tuning.blocks, max_blocks);
    RunStep(RandomStepOf({20, 11, 7}));
  }
}

TEST_F(HighThroughputTest, AlternatingSizesAndSeveralCallsInFlight) {
  MAKE_OR_SKIP(5, Config(15, 6, 72, 33));
  for (const int tokens : {33, 0, 1, 33, 7}) RunStep(RandomStepOf(std::vector<int>(5, tokens)));
  const Step step = RandomStepOf({33, 2, 17, 0, 5});
  EXPECT_OK(Upload(step));
  EXPECT_OK(node_->Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    for (int call = 0; call < 12; ++call) {
      DispatchArgs args = Args(step, rank.rank());
      const DispatchHandle last = ranks_[r].received.handle;
      if (call % 3 == 1) args.cached = &last;
      OCTET_ASSIGN_OR_RETURN(ranks_[r].received, ep_->Dispatch(rank, args));
      for (int combine = 0; combine < call % 3; ++combine) {
        OCTET_RETURN_IF_ERROR(
            ep_->Combine(rank, ranks_[r].received.handle,
                         {.expert_out = ranks_[r].received.x, .y = ranks_[r].y.as<void>()}));
      }
    }
    return absl::OkStatus();
  }));
  RunStep(step);
}

TEST_F(HighThroughputTest, RandomShapes) {
  const auto one_of = [this](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<ptrdiff_t>(rng_() % values.size()));
  };
  for (int round = 0; round < 12; ++round) {
    rng_.seed(1000 + static_cast<uint64_t>(round));
    const int ranks = one_of({1, 2, 3, 4, 5});
    const int num_experts = ranks * one_of({1, 2, 3, 8});
    EpConfig config =
        Config(num_experts,
               1 + static_cast<int>(rng_() % static_cast<uint64_t>(std::min(32, num_experts))),
               one_of({16, 48, 256, 1040}), one_of({1, 5, 17, 70}));
    config.dispatch_format = static_cast<DispatchFormat>(one_of({0, 1, 2}));
    config.row_bytes = 48;
    config.scale_format = static_cast<ScaleFormat>(one_of({0, 1}));
    config.output = static_cast<Output>(one_of({0, 0, 1}));
    if (config.output == Output::kPackedExperts) {
      config.duplicates = static_cast<Duplicates>(one_of({0, 1}));
      config.expert_alignment = one_of({1, 4, 16});
      config.combine_order = static_cast<CombineOrder>(one_of({0, 1}));
      config.combine_method = static_cast<CombineMethod>(one_of({0, 1, 2}));
    }
    config.max_blocks = one_of({0, 2, 3});
    config.tuning.waves_per_block = one_of({0, 1, 2, 3});
    config.tuning.send_waves = one_of({0, 1});
    MAKE_OR_SKIP(ranks, config);
    SCOPED_TRACE(absl::StrCat("round ", round));
    const bool scatter = one_of({0, 0, 1}) == 1;
    RunStep(RandomStepOf(RandomTokens(rng_, config_, ranks), one_of({0, 3}) / 10.0, scatter));
  }
}

// ---- memory

TEST(HighThroughputMemoryTest, HeapStaysWithinItsLimits) {
  EpConfig config;
  config.num_experts = 256;
  config.topk = 8;
  config.hidden = 7168;
  config.max_tokens_per_rank = 4096;
  config.strategy = Strategy::kHighThroughput;
  const double row_bytes = 2.0 * config.hidden;
  for (const int ranks : {2, 4, 8}) {
    const double tokens = static_cast<double>(ranks) * config.max_tokens_per_rank;
    config.output = Output::kPackedExperts;
    EXPECT_LE(static_cast<double>(*ExpertParallel::HeapBytes(config, ranks)),
              1.5 * tokens * 8 * row_bytes);
    config.output = Output::kDeduplicated;
    EXPECT_LE(static_cast<double>(*ExpertParallel::HeapBytes(config, ranks)),
              1.5 * tokens * row_bytes)
        << ranks << " ranks";
  }
}

}  // namespace
}  // namespace octet
