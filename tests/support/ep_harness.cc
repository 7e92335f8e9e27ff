#include "tests/support/ep_harness.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/ep_internals.h"
#include "kernels/fp8_rows.h"
#include "kernels/pointwise_expert.h"
#include "runtime/gpu_status.h"
#include "runtime/schedule.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

auto Key(const RowSource& s) { return std::make_tuple(s.local_expert, s.rank, s.token, s.k); }

std::string Text(const RowSource& s) {
  return absl::StrCat("(rank ", s.rank, ", token ", s.token, ", k ", s.k, ", local expert ",
                      s.local_expert, ")");
}

// The received rows in reference order, where racing slots may have permuted those of one (expert,
// source).
std::vector<int> SortedRows(const std::vector<RowSource>& sources) {
  std::vector<int> order(sources.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return Key(sources[static_cast<size_t>(a)]) < Key(sources[static_cast<size_t>(b)]);
  });
  return order;
}

// One group of columns in eight: a scale that would divide by zero.
void ZeroSomeGroups(std::mt19937_64& rng, const EpConfig& config, std::vector<uint16_t>& x) {
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto group = static_cast<size_t>(config.scale_group);
  for (size_t row = 0; row < x.size(); row += hidden) {
    for (size_t first = 0; first < hidden; first += group) {
      if (rng() % 8 != 0) continue;
      const size_t end = std::min(first + group, hidden);
      for (size_t i = first; i < end; ++i) x[row + i] = i % 2 == 0 ? 0x0000 : 0x8000;
    }
  }
}

void Quantize(const EpConfig& config, StepInput::PerRank& rank) {
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto words = static_cast<size_t>(config.scale_words());
  rank.fp8.resize(rank.x.size());
  rank.scales.resize(rank.x.size() / hidden * words);
  for (size_t t = 0; t * hidden < rank.x.size(); ++t) {
    ReferenceQuantize(config, absl::MakeConstSpan(rank.x).subspan(t * hidden, hidden),
                      absl::MakeSpan(rank.fp8).subspan(t * hidden, hidden),
                      absl::MakeSpan(rank.scales).subspan(t * words, words));
  }
}

template <typename... Args>
absl::Status Different(int rank, const Args&... what) {
  return absl::DataLossError(absl::StrCat("rank ", rank, ": ", what...));
}

}  // namespace

std::vector<RankInput> StepInput::views() const {
  std::vector<RankInput> views;
  for (const PerRank& rank : ranks) {
    views.push_back(RankInput{rank.num_tokens, rank.x, rank.topk_idx, rank.topk_weights, rank.fp8,
                              rank.scales});
  }
  return views;
}

StepInput RandomStep(std::mt19937_64& rng, const EpConfig& config,
                     const std::vector<int>& num_tokens, double drop) {
  constexpr std::array<uint16_t, 8> kSpecial = {0x0000, 0x8000, 0x0001, 0x8001,
                                                0x7c00, 0x7f80, 0xff80, 0x7fff};
  std::uniform_real_distribution<float> uniform(0.0F, 1.0F);
  StepInput input;
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto topk = static_cast<size_t>(config.topk);
  std::vector<int32_t> experts(static_cast<size_t>(config.num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (const int tokens : num_tokens) {
    StepInput::PerRank rank;
    rank.num_tokens = tokens;
    const auto count = static_cast<size_t>(tokens);
    rank.x.resize(count * hidden);
    for (uint16_t& bits : rank.x) {
      const uint64_t draw = rng();
      bits = draw % (config.scale_words() > 0 ? 2048 : 64) == 0
                 ? kSpecial[(draw >> 8) % kSpecial.size()]
                 : BitsFromFloat(config.dtype, uniform(rng) * 4.0F - 2.0F);
    }
    if (config.scale_words() > 0) ZeroSomeGroups(rng, config, rank.x);
    for (size_t t = 0; t < count; ++t) {
      for (size_t k = 0; k < topk; ++k) {
        std::swap(experts[k], experts[k + rng() % (experts.size() - k)]);
        rank.topk_idx.push_back(uniform(rng) < drop ? -1 : experts[k]);
        rank.topk_weights.push_back(uniform(rng));
      }
    }
    if (config.dispatch_format == DispatchFormat::kQuantizedFp8) Quantize(config, rank);
    input.ranks.push_back(std::move(rank));
  }
  for (int e = 0; e < config.num_experts; ++e) {
    input.expert_scale.push_back(1.0F +
                                 static_cast<float>(e) / static_cast<float>(config.num_experts));
  }
  return input;
}

std::vector<int> RandomTokens(std::mt19937_64& rng, const EpConfig& config, int num_ranks) {
  std::vector<int> tokens(static_cast<size_t>(num_ranks));
  for (int& t : tokens) {
    t = static_cast<int>(rng() % (static_cast<uint64_t>(config.max_tokens_per_rank) + 1));
  }
  return tokens;
}

absl::StatusOr<std::unique_ptr<EpHarness>> EpHarness::Create(int num_ranks, const EpConfig& config,
                                                             NodeOptions options) {
  auto harness = absl::WrapUnique(new EpHarness());
  options.num_ranks = num_ranks;
  options.on_failure = nullptr;  // most failures in tests are expected
  OCTET_ASSIGN_OR_RETURN(harness->node_, Node::Create(options));
  OCTET_ASSIGN_OR_RETURN(const HeapSize size, ExpertParallel::HeapBytes(config, num_ranks));
  OCTET_ASSIGN_OR_RETURN(harness->heap_, SymmetricHeap::Create(*harness->node_, size));
  OCTET_ASSIGN_OR_RETURN(harness->ep_, ExpertParallel::Create(*harness->node_, config,
                                                              {.heap = harness->heap_.get()}));
  harness->config_ = harness->ep_->config();
  harness->buffers_.resize(static_cast<size_t>(num_ranks));
  harness->received_.resize(static_cast<size_t>(num_ranks));
  harness->received_rows_.resize(static_cast<size_t>(num_ranks));
  OCTET_RETURN_IF_ERROR(harness->node_->Run([&](Rank& rank) -> absl::Status {
    const auto r = static_cast<size_t>(rank.rank());
    OCTET_RETURN_IF_ERROR(harness->Allocate(rank, harness->buffers_[r]));
    OCTET_ASSIGN_OR_RETURN(harness->received_rows_[r],
                           DeviceMemory::Allocate(harness->buffers_[r].expert_out.bytes()));
    return absl::OkStatus();
  }));
  return harness;
}

absl::Status EpHarness::Allocate(Rank& rank, Buffers& b) const {
  const auto tokens = static_cast<size_t>(config_.max_tokens_per_rank);
  const auto flat = tokens * static_cast<size_t>(config_.topk);
  const size_t row_bytes = config_.dtype_row_bytes();
  const auto num_local = static_cast<size_t>(config_.num_local_experts(rank.num_ranks()));
  const auto rows = static_cast<size_t>(config_.expert_out_rows(rank.num_ranks()));
  OCTET_ASSIGN_OR_RETURN(b.x, DeviceMemory::Allocate(tokens * row_bytes));
  OCTET_ASSIGN_OR_RETURN(b.y, DeviceMemory::Allocate(tokens * row_bytes));
  OCTET_ASSIGN_OR_RETURN(b.topk_idx, DeviceMemory::Allocate(flat * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(b.topk_weights, DeviceMemory::Allocate(flat * sizeof(float)));
  OCTET_ASSIGN_OR_RETURN(b.expert_scale, DeviceMemory::Allocate(num_local * sizeof(float)));
  OCTET_ASSIGN_OR_RETURN(b.expert_out, DeviceMemory::Allocate(rows * row_bytes));
  return absl::OkStatus();
}

absl::Status EpHarness::Upload(const StepInput& input, int rank, Buffers& b) const {
  const StepInput::PerRank& mine = input.ranks[static_cast<size_t>(rank)];
  const auto num_local = static_cast<ptrdiff_t>(config_.num_local_experts(node_->num_ranks()));
  const auto first = input.expert_scale.begin() + num_local * rank;
  b.num_tokens = mine.num_tokens;
  OCTET_RETURN_IF_ERROR(ToDevice(b.x, mine.x));
  OCTET_RETURN_IF_ERROR(ToDevice(b.topk_idx, mine.topk_idx));
  OCTET_RETURN_IF_ERROR(ToDevice(b.topk_weights, mine.topk_weights));
  return ToDevice(b.expert_scale, std::vector<float>(first, first + num_local));
}

absl::Status EpHarness::Upload(const StepInput& input) {
  return node_->Run([&](Rank& rank) {
    return Upload(input, rank.rank(), buffers_[static_cast<size_t>(rank.rank())]);
  });
}

DispatchArgs EpHarness::dispatch_args(int rank) const {
  return DispatchArgsOf(buffers_[static_cast<size_t>(rank)]);
}

CombineArgs EpHarness::combine_args(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return CombineArgsOf(buffers_[r], received_[r]);
}

DispatchArgs EpHarness::DispatchArgsOf(const Buffers& b) const {
  return {.x = b.x.as<void>(),
          .topk_idx = b.topk_idx.as<int32_t>(),
          .topk_weights = b.topk_weights.as<float>(),
          .num_tokens = b.num_tokens};
}

CombineArgs EpHarness::CombineArgsOf(const Buffers& b, const Received& received) const {
  return {
      .expert_out = received.x, .y = b.y.as<void>(), .expert_scale = b.expert_scale.as<float>()};
}

absl::StatusOr<CombineArgs> EpHarness::ApplyExperts(Rank& rank, Form form, const Received& received,
                                                    const Buffers& b) const {
  CombineArgs combine = CombineArgsOf(b, received);
  // The kernel works on rows in expert order; combine does not take rows of fp8.
  if (form != Form::kSeparateExpert && config_.scale_words() == 0) return combine;
  OCTET_RETURN_IF_ERROR(
      PointwiseExpert(rank, config_, received, combine.expert_scale, b.expert_out.as<void>()));
  combine.expert_out = b.expert_out.as<void>();
  combine.expert_scale = nullptr;
  return combine;
}

absl::Status EpHarness::RunRank(Rank& rank, Form form, int num_rows, const Buffers& b) {
  const auto r = static_cast<size_t>(rank.rank());
  OCTET_RETURN_IF_ERROR(EpInternals::Poison(*ep_, rank, num_rows));
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(b.y.as<void>(), 0xff, b.y.bytes(), rank.stream()));
  DispatchArgs args = DispatchArgsOf(b);
  const DispatchHandle before = received_[r].handle;
  if (form == Form::kCached && before.layout != 0) args.high_throughput.cached = &before;
  if (form == Form::kSplit) {
    OCTET_ASSIGN_OR_RETURN(const DispatchHandle handle, ep_->DispatchSend(rank, args));
    OCTET_ASSIGN_OR_RETURN(received_[r], ep_->DispatchReceive(rank, handle));
  } else {
    OCTET_ASSIGN_OR_RETURN(received_[r], ep_->Dispatch(rank, args));
  }
  OCTET_RETURN_IF_ERROR(KeepReceived(rank, num_rows));
  OCTET_ASSIGN_OR_RETURN(const CombineArgs combine, ApplyExperts(rank, form, received_[r], b));
  if (form != Form::kSplit) return ep_->Combine(rank, received_[r].handle, combine);
  OCTET_RETURN_IF_ERROR(ep_->CombineSend(rank, received_[r].handle, combine));
  return ep_->CombineReceive(rank, received_[r].handle, combine);
}

absl::Status EpHarness::RunStep(Rank& rank, Form form) {
  return RunRank(rank, form, MostRows(), buffers_[static_cast<size_t>(rank.rank())]);
}

// Combine may overwrite what was received: a copy, in stream order, for CheckReceived.
absl::Status EpHarness::KeepReceived(Rank& rank, int num_rows) {
  const auto r = static_cast<size_t>(rank.rank());
  if (num_rows == 0) return absl::OkStatus();
  return OCTET_GPU(hipMemcpyAsync(received_rows_[r].as<void>(), received_[r].x,
                                  static_cast<size_t>(num_rows) * received_[r].row_bytes,
                                  hipMemcpyDeviceToDevice, rank.stream()));
}

absl::Status EpHarness::CheckReceived(const StepInput& input, int rank) const {
  const auto r = static_cast<size_t>(rank);
  const std::vector<RankInput> views = input.views();
  const ReferenceReceived want = ReferenceDispatch(config_, views, rank);
  const Received& got = received_[r];
  const auto num_local = want.expert_counts.size();
  OCTET_ASSIGN_OR_RETURN(const auto counts, ToHost<int32_t>(got.expert_counts, num_local));
  if (counts != want.expert_counts) return Different(rank, "expert_counts differ");
  if (config_.output != Output::kRankMajor) {
    OCTET_ASSIGN_OR_RETURN(const auto offsets, ToHost<int32_t>(got.expert_offsets, num_local + 1));
    if (offsets != want.expert_offsets) return Different(rank, "expert_offsets differ");
  }
  const auto num_rows = static_cast<size_t>(RowsToCompare(want));
  OCTET_ASSIGN_OR_RETURN(const auto sources, ToHost<RowSource>(got.sources, num_rows));
  OCTET_ASSIGN_OR_RETURN(const auto rows,
                         ToHost<uint8_t>(received_rows_[r].as<void>(), num_rows * got.row_bytes));
  const auto scale_words = static_cast<size_t>(config_.scale_words());
  OCTET_ASSIGN_OR_RETURN(const auto scales, ToHost<uint32_t>(got.scales, num_rows * scale_words));
  OCTET_RETURN_IF_ERROR(CheckRanges(want, got, rank));
  const std::vector<int> order =
      config_.direct.slots == Slots::kAtomic ? SortedRows(sources) : want.places;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto row = static_cast<size_t>(order[i]);
    const RowSource& source = want.sources[i];
    if (Key(sources[row]) != Key(source)) {
      return Different(rank, "row ", row, " comes from ", Text(sources[row]), ", not from ",
                       Text(source));
    }
    const RankInput token = views[static_cast<size_t>(source.rank)].Tokens(
        config_, static_cast<size_t>(source.token), 1);
    const bool quantised = scale_words > 0;
    const void* x = quantised ? static_cast<const void*>(token.fp8.data()) : token.x.data();
    const size_t bytes = quantised ? token.fp8.size() : got.row_bytes;
    if (std::memcmp(&rows[row * got.row_bytes], x, bytes) != 0) {
      return Different(rank, "row ", row, " is not the x of ", Text(source));
    }
    if (!absl::c_equal(token.scales,
                       absl::MakeConstSpan(scales).subspan(row * scale_words, scale_words))) {
      return Different(rank, "row ", row, " has not the scales of ", Text(source));
    }
  }
  return absl::OkStatus();
}

// What only some strategies say about the rows.
absl::Status EpHarness::CheckRanges(const ReferenceReceived& want, const Received& got,
                                    int rank) const {
  if (got.low_latency.ranges != nullptr) {
    OCTET_ASSIGN_OR_RETURN(const auto ranges,
                           ToHost<RowRange>(got.low_latency.ranges, want.ranges.size()));
    const auto same = [](const RowRange& a, const RowRange& b) {
      return a.count == b.count && a.first == b.first;
    };
    if (!absl::c_equal(ranges, want.ranges, same)) return Different(rank, "ranges differ");
  }
  if (config_.output == Output::kRankMajor) {
    OCTET_ASSIGN_OR_RETURN(const auto counts,
                           ToHost<int32_t>(got.low_latency.split_counts, want.split_counts.size()));
    if (counts != want.split_counts) return Different(rank, "split_counts differ");
  }
  return absl::OkStatus();
}

absl::Status EpHarness::CheckY(const StepInput& input, absl::Span<const uint16_t> bias) {
  for (int r = 0; r < node_->num_ranks(); ++r) {
    OCTET_RETURN_IF_ERROR(CheckY(input, r, buffers_[static_cast<size_t>(r)], bias));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint16_t>> EpHarness::Y(int rank) const {
  const Buffers& b = buffers_[static_cast<size_t>(rank)];
  return ToHost<uint16_t>(b.y.as<void>(),
                          static_cast<size_t>(b.num_tokens) * static_cast<size_t>(config_.hidden));
}

absl::Status EpHarness::CheckY(const StepInput& input, int rank, const Buffers& b,
                               absl::Span<const uint16_t> bias) const {
  const auto r = static_cast<size_t>(rank);
  const std::vector<RankInput> views = input.views();
  const auto hidden = static_cast<size_t>(config_.hidden);
  const std::vector<uint16_t> want_y =
      ReferenceCombine(config_, node_->num_ranks(), views[r], input.expert_scale, bias);
  OCTET_ASSIGN_OR_RETURN(const auto y, ToHost<uint16_t>(b.y.as<void>(), want_y.size()));
  for (size_t t = 0; t * hidden < want_y.size(); ++t) {
    const absl::Span<const uint16_t> want_row(want_y.data() + t * hidden, hidden);
    const absl::Span<const uint16_t> row(y.data() + t * hidden, hidden);
    if (!SameBits(config_.dtype, row, want_row)) {
      return Different(rank, "y of token ", t, " differs");
    }
  }
  return absl::OkStatus();
}

absl::Status EpHarness::LateReceiver(const StepInput& input, int late, absl::Duration late_by) {
  OCTET_RETURN_IF_ERROR(Upload(input));
  const auto num_local = static_cast<size_t>(config_.num_local_experts(node_->num_ranks()));
  const int in_flight = config_.strategy == Strategy::kLowLatency ? 2 : 1;
  DeviceMemory counts;
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    if (rank.rank() != late) return absl::OkStatus();
    OCTET_ASSIGN_OR_RETURN(counts, DeviceMemory::Allocate(num_local * sizeof(int32_t)));
    return absl::OkStatus();
  }));
  OCTET_RETURN_IF_ERROR(WithSchedule(node_->Run([&](Rank& rank) -> absl::Status {
    DispatchArgs args = dispatch_args(rank.rank());
    std::vector<DispatchHandle> sent;
    for (int call = 0; call <= in_flight; ++call) {
      if (call > 0) args.num_tokens = std::min(args.num_tokens, 1);
      if (rank.rank() != late) {
        OCTET_RETURN_IF_ERROR(ep_->Dispatch(rank, args).status());
        continue;
      }
      if (call == in_flight) {
        OCTET_RETURN_IF_GPU_ERROR(hipLaunchHostFunc(
            rank.stream(), [](void* by) { absl::SleepFor(*static_cast<absl::Duration*>(by)); },
            &late_by));
        OCTET_ASSIGN_OR_RETURN(const Received received, ep_->DispatchReceive(rank, sent[0]));
        OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(counts.as<void>(), received.expert_counts,
                                                 counts.bytes(), hipMemcpyDeviceToDevice,
                                                 rank.stream()));
      }
      OCTET_ASSIGN_OR_RETURN(sent.emplace_back(), ep_->DispatchSend(rank, args));
    }
    for (size_t call = 1; call < sent.size(); ++call) {
      OCTET_RETURN_IF_ERROR(ep_->DispatchReceive(rank, sent[call]).status());
    }
    return absl::OkStatus();
  })));
  OCTET_ASSIGN_OR_RETURN(const auto got, ToHost<int32_t>(counts.as<void>(), num_local));
  if (got == ReferenceDispatch(config_, input.views(), late).expert_counts) return absl::OkStatus();
  return WithSchedule(Different(late, "expert_counts differ"));
}

absl::Status EpHarness::Step(const StepInput& input, const std::vector<Form>& forms) {
  OCTET_RETURN_IF_ERROR(Upload(input));
  const std::vector<int> rows = NumRows(input);
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) {
    const auto r = static_cast<size_t>(rank.rank());
    return RunRank(rank, forms[r % forms.size()], rows[r], buffers_[r]);
  }));
  return node_->Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckReceived(input, rank.rank()));
    return CheckY(input, rank.rank(), buffers_[static_cast<size_t>(rank.rank())]);
  });
}

absl::Status EpHarness::InOneRun(
    const std::vector<StepInput>& inputs,
    const std::function<absl::Status(Rank&, const std::vector<const Buffers*>&)>& body) {
  std::vector<std::vector<Buffers>> buffers(buffers_.size());  // of each rank, by step
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    std::vector<Buffers>& mine = buffers[static_cast<size_t>(rank.rank())];
    for (const StepInput& input : inputs) {
      OCTET_RETURN_IF_ERROR(Allocate(rank, mine.emplace_back()));
      OCTET_RETURN_IF_ERROR(Upload(input, rank.rank(), mine.back()));
    }
    return absl::OkStatus();
  }));
  OCTET_RETURN_IF_ERROR(WithSchedule(node_->Run([&](Rank& rank) -> absl::Status {
    std::vector<const Buffers*> mine;
    for (const Buffers& b : buffers[static_cast<size_t>(rank.rank())]) mine.push_back(&b);
    return body(rank, mine);
  })));
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int r = 0; r < node_->num_ranks(); ++r) {
      const absl::Status status = CheckY(inputs[i], r, buffers[static_cast<size_t>(r)][i]);
      if (!status.ok()) {
        return WithSchedule(absl::DataLossError(absl::StrCat("step ", i, ", ", status.message())));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status EpHarness::Steps(const std::vector<StepInput>& inputs,
                              const std::vector<Form>& forms) {
  std::vector<std::vector<int>> rows;
  for (const StepInput& input : inputs) rows.push_back(NumRows(input));
  OCTET_RETURN_IF_ERROR(
      InOneRun(inputs, [&](Rank& rank, const std::vector<const Buffers*>& b) -> absl::Status {
        const auto r = static_cast<size_t>(rank.rank());
        for (size_t i = 0; i < inputs.size(); ++i) {
          OCTET_RETURN_IF_ERROR(RunRank(rank, forms[(r + i) % forms.size()], rows[i][r], *b[i]));
        }
        return absl::OkStatus();
      }));
  for (int r = 0; r < node_->num_ranks(); ++r) {
    OCTET_RETURN_IF_ERROR(WithSchedule(CheckReceived(inputs.back(), r)));
  }
  return absl::OkStatus();
}

absl::Status EpHarness::StepsInPairs(const std::vector<StepInput>& inputs,
                                     const std::vector<Form>& forms) {
  return InOneRun(inputs, [&](Rank& rank, const std::vector<const Buffers*>& b) -> absl::Status {
    for (size_t i = 0; i + 1 < inputs.size(); i += 2) {
      const size_t form = static_cast<size_t>(rank.rank()) + i / 2;
      OCTET_RETURN_IF_ERROR(RunPair(rank, forms[form % forms.size()], {b[i], b[i + 1]}));
    }
    return absl::OkStatus();
  });
}

absl::Status EpHarness::RunPair(Rank& rank, Form form, std::array<const Buffers*, 2> b) {
  std::array<Received, 2> received;
  std::array<CombineArgs, 2> combine;
  for (const Buffers* step : b) {
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemsetAsync(step->y.as<void>(), 0xff, step->y.bytes(), rank.stream()));
  }
  if (form != Form::kSplit) {
    for (size_t i : {0, 1}) {
      OCTET_ASSIGN_OR_RETURN(received[i], ep_->Dispatch(rank, DispatchArgsOf(*b[i])));
    }
    for (size_t i : {0, 1}) {
      OCTET_ASSIGN_OR_RETURN(combine[i], ApplyExperts(rank, form, received[i], *b[i]));
      OCTET_RETURN_IF_ERROR(ep_->Combine(rank, received[i].handle, combine[i]));
    }
    return absl::OkStatus();
  }
  std::array<DispatchHandle, 2> handles;
  for (size_t i : {0, 1}) {
    OCTET_ASSIGN_OR_RETURN(handles[i], ep_->DispatchSend(rank, DispatchArgsOf(*b[i])));
  }
  for (size_t i : {0, 1}) {
    OCTET_ASSIGN_OR_RETURN(received[i], ep_->DispatchReceive(rank, handles[i]));
  }
  for (size_t i : {0, 1}) {
    OCTET_ASSIGN_OR_RETURN(combine[i], ApplyExperts(rank, form, received[i], *b[i]));
    OCTET_RETURN_IF_ERROR(ep_->CombineSend(rank, handles[i], combine[i]));
  }
  for (size_t i : {0, 1}) {
    OCTET_RETURN_IF_ERROR(ep_->CombineReceive(rank, handles[i], combine[i]));
  }
  return absl::OkStatus();
}

absl::Status EpHarness::CombinesOfOneDispatch(const std::vector<StepInput>& inputs) {
  return InOneRun(inputs, [&](Rank& rank, const std::vector<const Buffers*>& b) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received, ep_->Dispatch(rank, DispatchArgsOf(*b[0])));
    for (const Buffers* each : b) {
      OCTET_RETURN_IF_GPU_ERROR(
          hipMemsetAsync(each->y.as<void>(), 0xff, each->y.bytes(), rank.stream()));
      OCTET_RETURN_IF_ERROR(ep_->Combine(rank, received.handle, CombineArgsOf(*each, received)));
    }
    return absl::OkStatus();
  });
}

int EpHarness::RowsToCompare(const ReferenceReceived& want) const {
  return config_.output == Output::kPackedExperts ? want.expert_offsets.back() : MostRows();
}

std::vector<int> EpHarness::NumRows(const StepInput& input) const {
  const std::vector<RankInput> views = input.views();
  std::vector<int> rows;
  for (int r = 0; r < node_->num_ranks(); ++r) {
    rows.push_back(RowsToCompare(ReferenceDispatch(config_, views, r)));
  }
  return rows;
}

}  // namespace octet
