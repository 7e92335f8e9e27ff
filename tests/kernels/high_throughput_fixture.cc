#include "tests/kernels/high_throughput_fixture.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ep_internals.h"
#include "octet/dtype.h"
#include "runtime/gpu_status.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

bool Same(const RowSource& a, const RowSource& b) {
  return a.rank == b.rank && a.token == b.token && a.k == b.k && a.local_expert == b.local_expert;
}

template <typename T>
absl::Status CheckArray(const char* what, const T* got, const std::vector<T>& want) {
  OCTET_ASSIGN_OR_RETURN(const std::vector<T> host, ToHost<T>(got, want.size()));
  if (host == want) return absl::OkStatus();
  const auto differs = std::mismatch(host.begin(), host.end(), want.begin());
  return absl::DataLossError(absl::StrCat(what, " differs at ", differs.first - host.begin(), ": ",
                                          *differs.first, ", not ", *differs.second));
}

// `values` of one expert, by (source, token), to where their sources have said: the i-th goes to
// place to[i].
template <typename T>
void Permute(const std::vector<size_t>& to, T* values) {
  const std::vector<T> before(values, values + to.size());
  for (size_t i = 0; i < to.size(); ++i) values[to[i]] = before[i];
}

}  // namespace

EpConfig HighThroughputTest::Config(int num_experts, int topk, int hidden, int max_tokens) {
  EpConfig config;
  config.num_experts = num_experts;
  config.topk = topk;
  config.hidden = hidden;
  config.max_tokens_per_rank = max_tokens;
  config.strategy = Strategy::kHighThroughput;
  // By default, small calls of emulated GPUs have too few blocks and waves to race.
  if (OCTET_TEST_EMULATED) config.tuning = {.blocks = 4, .waves_per_block = 2};
  return config;
}

void HighThroughputTest::Make(int num_ranks, const EpConfig& config, absl::Duration timeout) {
  ep_.reset();
  node_.reset();
  ranks_.clear();
  MakeNode(num_ranks, timeout);
  if (HasFatalFailure() || IsSkipped()) return;
  absl::StatusOr<std::unique_ptr<ExpertParallel>> ep = ExpertParallel::Create(*node_, config);
  ASSERT_OK(ep.status());
  ep_ = *std::move(ep);
  config_ = ep_->config();
  ranks_.resize(static_cast<size_t>(num_ranks));
  ASSERT_OK(node_->Run([this](Rank& rank) { return Allocate(rank); }));
}

HighThroughputTest::Step HighThroughputTest::RandomStepOf(const std::vector<int>& tokens,
                                                          double drop, bool scatter) {
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

absl::Status HighThroughputTest::Upload(const Step& step) {
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

DispatchArgs HighThroughputTest::Args(const Step& step, int rank) const {
  const auto r = static_cast<size_t>(rank);
  const Memory& m = ranks_[r];
  return {.x = m.x.as<void>(),
          .topk_idx = m.topk_idx.as<int32_t>(),
          .topk_weights = m.topk_weights.as<float>(),
          .num_tokens = step.input.ranks[r].num_tokens,
          .high_throughput = {
              .x_scales = config_.scale_words() > 0 ? m.scales.as<void>() : nullptr,
              .scatter_idx = step.payloads[r].scatter.empty() ? nullptr : m.scatter.as<int32_t>()}};
}

absl::Status HighThroughputTest::Dispatch(const Step& step,
                                          const std::vector<DispatchHandle>& cached, bool weights) {
  OCTET_RETURN_IF_ERROR(Upload(step));
  return node_->Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    OCTET_RETURN_IF_ERROR(
        EpInternals::Poison(*ep_, rank, Expect(step, rank.rank()).expert_offsets.back()));
    DispatchArgs args = Args(step, rank.rank());
    if (!weights) args.topk_weights = nullptr;
    if (!cached.empty()) {
      args.high_throughput.cached = &cached[r];
      args.topk_idx = nullptr;
    }
    OCTET_ASSIGN_OR_RETURN(ranks_[r].received, ep_->Dispatch(rank, args));
    return absl::OkStatus();
  });
}

std::vector<DispatchHandle> HighThroughputTest::Handles() const {
  std::vector<DispatchHandle> handles;
  for (const Memory& m : ranks_) handles.push_back(m.received.handle);
  return handles;
}

std::vector<RankInput> HighThroughputTest::Views(const Step& step, bool weights) const {
  std::vector<RankInput> views = step.input.views();
  for (RankInput& view : views) {
    if (!weights) view.topk_weights = {};
  }
  return views;
}

ReferenceReceived HighThroughputTest::Expect(const Step& step, int rank, bool weights) const {
  ReferenceReceived expected = ReferenceDispatch(config_, Views(step, weights), rank);
  for (size_t e = 0; e < expected.expert_counts.size(); ++e) {
    const auto first = static_cast<size_t>(expected.expert_offsets[e]);
    const auto count = static_cast<size_t>(expected.expert_counts[e]);
    std::vector<size_t> to(count);
    size_t of_source = 0;  // the first row of the same source
    for (size_t i = 0; i < count; ++i) {
      const RowSource& row = expected.sources[first + i];
      if (row.rank != expected.sources[first + of_source].rank) of_source = i;
      const std::vector<int32_t>& scatter = step.payloads[static_cast<size_t>(row.rank)].scatter;
      const int flat = row.token * config_.topk + row.k;
      to[i] =
          scatter.empty() ? i : of_source + static_cast<size_t>(scatter[static_cast<size_t>(flat)]);
    }
    if (count == 0) continue;
    Permute(to, &expected.sources[first]);
    Permute(to, &expected.row_weights[first]);
    Permute(to, &expected.row_index[first]);
  }
  return expected;
}

void HighThroughputTest::CheckDispatch(const Step& step, bool weights) {
  for (int r = 0; r < node_->num_ranks(); ++r) {
    const absl::Status status = node_->Run([&](Rank& rank) -> absl::Status {
      return rank.rank() == r ? CheckRank(step, r, weights) : absl::OkStatus();
    });
    EXPECT_OK(status) << "rank " << r;
  }
}

absl::Status HighThroughputTest::Combine(const Step& step,
                                         const std::vector<DispatchHandle>& handles,
                                         const std::vector<uint16_t>& bias, bool weights) {
  OCTET_RETURN_IF_ERROR(RunExperts(step, weights));
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    const Memory& m = ranks_[static_cast<size_t>(rank.rank())];
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
    const int r = rank.rank();
    return CheckY(step, r, ranks_[static_cast<size_t>(r)].y.as<void>(), bias, weights);
  });
}

absl::Status HighThroughputTest::RunExperts(const Step& step, bool weights) {
  return node_->Run([&](Rank& rank) {
    return ToDevice(ranks_[static_cast<size_t>(rank.rank())].expert_out,
                    ExpertOutputs(step, rank.rank(), weights));
  });
}

absl::Status HighThroughputTest::CheckY(const Step& step, int rank, const void* y,
                                        const std::vector<uint16_t>& bias, bool weights) const {
  const RankInput view = Views(step, weights)[static_cast<size_t>(rank)];
  const std::vector<uint16_t> want =
      ReferenceCombine(config_, node_->num_ranks(), view, step.input.expert_scale, bias);
  OCTET_ASSIGN_OR_RETURN(const auto got, ToHost<uint16_t>(y, want.size()));
  if (SameBits(config_.dtype, got, want)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("rank ", rank, ": y differs"));
}

void HighThroughputTest::RunStep(const Step& step) {
  ASSERT_OK(Dispatch(step));
  CheckDispatch(step);
  EXPECT_OK(Combine(step, Handles()));
}

absl::Status HighThroughputTest::Allocate(Rank& rank) {
  Memory& m = ranks_[static_cast<size_t>(rank.rank())];
  const auto tokens = static_cast<size_t>(config_.max_tokens_per_rank);
  const auto choices = tokens * static_cast<size_t>(config_.topk);
  const auto num_local = static_cast<size_t>(config_.num_local_experts(rank.num_ranks()));
  const size_t rows = static_cast<size_t>(rank.num_ranks()) * choices +
                      num_local * static_cast<size_t>(config_.high_throughput.expert_alignment);
  OCTET_ASSIGN_OR_RETURN(m.x, DeviceMemory::Allocate(tokens * config_.dispatch_row_bytes()));
  OCTET_ASSIGN_OR_RETURN(
      m.scales, DeviceMemory::Allocate(tokens * static_cast<size_t>(config_.scale_words()) *
                                       sizeof(uint32_t)));
  OCTET_ASSIGN_OR_RETURN(m.scatter, DeviceMemory::Allocate(choices * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(m.topk_idx, DeviceMemory::Allocate(choices * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(m.topk_weights, DeviceMemory::Allocate(choices * sizeof(float)));
  OCTET_ASSIGN_OR_RETURN(m.expert_out, DeviceMemory::Allocate(rows * config_.dtype_row_bytes()));
  OCTET_ASSIGN_OR_RETURN(m.y, DeviceMemory::Allocate(tokens * config_.dtype_row_bytes()));
  OCTET_ASSIGN_OR_RETURN(m.bias, DeviceMemory::Allocate(config_.dtype_row_bytes()));
  return absl::OkStatus();
}

// Each choice's position among those that go to its expert, a random permutation.
std::vector<int32_t> HighThroughputTest::RandomScatter(const std::vector<int32_t>& topk_idx) {
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

// One pass of float32 sums over a token's choices on this rank.
std::vector<uint16_t> HighThroughputTest::TokenOutput(const Step& step, int rank,
                                                      const RowSource& token, bool weights) const {
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

std::vector<uint16_t> HighThroughputTest::RowOutput(const Step& step, int rank,
                                                    const RowSource& row) const {
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

std::vector<uint16_t> HighThroughputTest::ExpertOutputs(const Step& step, int rank,
                                                        bool weights) const {
  const ReferenceReceived expected = Expect(step, rank);
  const bool deduplicated = config_.output == Output::kDeduplicated;
  std::vector<uint16_t> out;
  for (const RowSource& row : deduplicated ? expected.tokens : expected.sources) {
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

absl::Status HighThroughputTest::CheckRank(const Step& step, int rank, bool weights) const {
  const ReferenceReceived want = Expect(step, rank, weights);
  const Received& got = ranks_[static_cast<size_t>(rank)].received;
  const bool deduplicated = config_.output == Output::kDeduplicated;
  OCTET_RETURN_IF_ERROR(CheckArray("expert_counts", got.expert_counts, want.expert_counts));
  OCTET_RETURN_IF_ERROR(CheckArray("expert_offsets", got.expert_offsets, want.expert_offsets));
  OCTET_RETURN_IF_ERROR(
      CheckArray("source_offsets", got.high_throughput.source_offsets, want.source_offsets));
  const std::vector<RowSource>& described = deduplicated ? want.tokens : want.sources;
  OCTET_ASSIGN_OR_RETURN(const auto sources, ToHost<RowSource>(got.sources, described.size()));
  for (size_t i = 0; i < described.size(); ++i) {
    if (!Same(sources[i], described[i])) {
      return absl::DataLossError(absl::StrCat("rank ", rank, ": sources[", i, "] differs"));
    }
  }
  if (deduplicated) {
    OCTET_RETURN_IF_ERROR(
        CheckArray("recv_topk_idx", got.high_throughput.recv_topk_idx, want.recv_topk_idx));
    OCTET_RETURN_IF_ERROR(CheckArray("recv_topk_weights", got.high_throughput.recv_topk_weights,
                                     want.recv_topk_weights));
  } else {
    OCTET_RETURN_IF_ERROR(
        CheckArray("row_weights", got.high_throughput.row_weights, want.row_weights));
  }
  if (config_.high_throughput.duplicates == Duplicates::kIndex) {
    OCTET_RETURN_IF_ERROR(CheckArray("row_index", got.high_throughput.row_index, want.row_index));
  }
  return CheckRows(step, want.rows(config_), got);
}

// The rows themselves and their scales.
absl::Status HighThroughputTest::CheckRows(const Step& step, const std::vector<RowSource>& rows,
                                           const Received& got) const {
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
      std::copy_n(payload.scales.begin() + static_cast<ptrdiff_t>(token * scale_words), scale_words,
                  scale.begin());
    }
    if (!std::equal(row.begin(), row.end(), x.begin() + static_cast<ptrdiff_t>(i * row_bytes))) {
      return absl::DataLossError(absl::StrCat("row ", i, " differs"));
    }
    if (!std::equal(scale.begin(), scale.end(),
                    scales.begin() + static_cast<ptrdiff_t>(i * scale_words))) {
      return absl::DataLossError(absl::StrCat("scales of row ", i, " differ"));
    }
  }
  return absl::OkStatus();
}

}  // namespace octet
