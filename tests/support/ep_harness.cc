#include "tests/support/ep_harness.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/oracle/reference.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/node/node_client.h"
#include "runtime/node/schedule.h"
#include "tests/support/copy_delivered.h"
#include "tests/support/host_copy.h"
#include "tests/support/host_experts.h"
#include "tools/check/host_reader.h"
#include "tools/check/verify.h"
#include "tools/check/verify_step.h"

namespace octet {
namespace {

constexpr size_t kStagingBytes = size_t{1} << 16;

size_t Index(const Rank& rank) { return static_cast<size_t>(rank.rank()); }

// Rows of Received::x, of which there are `rows` in expert order, at most.
int RowsOfX(const EpConfig& config, int num_ranks, int rows) {
  return config.rows_once() ? std::min(rows, num_ranks * config.max_tokens_per_rank) : rows;
}

}  // namespace

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
  harness->staging_.resize(static_cast<size_t>(num_ranks));
  OCTET_RETURN_IF_ERROR(harness->node_->Run([&](Rank& rank) { return harness->InitRank(rank); }));
  return harness;
}

absl::Status EpHarness::InitRank(Rank& rank) {
  const size_t r = Index(rank);
  OCTET_ASSIGN_OR_RETURN(buffers_[r], StepBuffers::Create(rank, config_));
  const int rows = RowsOfX(config_, rank.num_ranks(), config_.max_rows(rank.num_ranks()));
  OCTET_ASSIGN_OR_RETURN(received_rows_[r], DeviceMemory::Allocate(static_cast<size_t>(rows) *
                                                                   config_.received_row_bytes()));
  OCTET_ASSIGN_OR_RETURN(staging_[r],
                         PinnedMemory::Allocate(std::max(kStagingBytes, LargestRow(config_))));
  return OCTET_GPU(LoadCopyDelivered());
}

absl::Status EpHarness::Compare(
    absl::FunctionRef<absl::Status(Rank&, Verification&)> compare) const {
  std::vector<Verification> found(buffers_.size());
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) { return compare(rank, found[Index(rank)]); }));
  for (const Verification& each : found) OCTET_RETURN_IF_ERROR(each.ToStatus());
  return absl::OkStatus();
}

absl::Status EpHarness::Trace(TraceCollector& trace) {
  const EpConfig config = config_;
  ep_.reset();
  OCTET_ASSIGN_OR_RETURN(ep_, ExpertParallel::Create(*node_, config, {.trace = &trace}));
  return absl::OkStatus();
}

// ---- Whole steps.

absl::Status EpHarness::Step(const StepInput& input, const std::vector<Form>& forms) {
  OCTET_RETURN_IF_ERROR(Upload(input));
  const std::vector<int> rows = RowsInExpertOrder(config_, input.sent());
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) {
    const size_t r = Index(rank);
    return RunRank(rank, forms[r % forms.size()], rows[r], buffers_[r]);
  }));
  return Compare([&](Rank& rank, Verification& found) -> absl::Status {
    OCTET_RETURN_IF_ERROR(CompareReceived(rank, input, found));
    return CompareY(rank, input, buffers_[Index(rank)].y.as<void>(), {}, found);
  });
}

absl::Status EpHarness::InOneRun(const std::vector<StepInput>& inputs,
                                 const std::function<absl::Status(Rank&, RankBuffers&)>& body) {
  std::vector<RankBuffers> buffers(buffers_.size());
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    RankBuffers& mine = buffers[Index(rank)];
    for (const StepInput& input : inputs) {
      OCTET_ASSIGN_OR_RETURN(mine.emplace_back(), StepBuffers::Create(rank, config_));
      OCTET_RETURN_IF_ERROR(Upload(rank, input, mine.back()));
    }
    return absl::OkStatus();
  }));
  OCTET_RETURN_IF_ERROR(
      WithSchedule(node_->Run([&](Rank& rank) { return body(rank, buffers[Index(rank)]); })));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const absl::Status status = Compare([&](Rank& rank, Verification& found) {
      return CompareY(rank, inputs[i], buffers[Index(rank)][i].y.as<void>(), {}, found);
    });
    if (absl::IsDataLoss(status)) {
      return WithSchedule(absl::DataLossError(absl::StrCat("step ", i, ", ", status.message())));
    }
    OCTET_RETURN_IF_ERROR(WithSchedule(status));
  }
  return absl::OkStatus();
}

absl::Status EpHarness::Steps(const std::vector<StepInput>& inputs,
                              const std::vector<Form>& forms) {
  std::vector<std::vector<int>> rows;
  for (const StepInput& input : inputs) rows.push_back(RowsInExpertOrder(config_, input.sent()));
  OCTET_RETURN_IF_ERROR(InOneRun(inputs, [&](Rank& rank, RankBuffers& buffers) -> absl::Status {
    const size_t r = Index(rank);
    for (size_t i = 0; i < inputs.size(); ++i) {
      OCTET_RETURN_IF_ERROR(RunRank(rank, forms[(r + i) % forms.size()], rows[i][r], buffers[i]));
    }
    return absl::OkStatus();
  }));
  return WithSchedule(CheckReceived(inputs.back()));
}

absl::Status EpHarness::StepsInPairs(const std::vector<StepInput>& inputs,
                                     const std::vector<Form>& forms) {
  return InOneRun(inputs, [&](Rank& rank, RankBuffers& buffers) -> absl::Status {
    for (size_t i = 0; i + 1 < inputs.size(); i += 2) {
      const size_t form = Index(rank) + i / 2;
      OCTET_RETURN_IF_ERROR(
          RunPair(rank, forms[form % forms.size()], {&buffers[i], &buffers[i + 1]}));
    }
    return absl::OkStatus();
  });
}

absl::Status EpHarness::RunPair(Rank& rank, Form form,
                                const std::array<const StepBuffers*, 2>& buffers) {
  const StepExecutor executor = ExecutorOf(form);
  std::array<DispatchHandle, 2> handles;
  std::array<Received, 2> received;
  std::array<ScaledCombineArgs, 2> combine;
  const bool split = form == Form::kSplit;
  for (size_t i : {0, 1}) {
    OCTET_RETURN_IF_ERROR(buffers[i]->Poison(rank, config_.max_rows(rank.num_ranks())));
  }
  for (size_t i : {0, 1}) {
    if (split) {
      OCTET_ASSIGN_OR_RETURN(handles[i], ep_->DispatchSend(rank, buffers[i]->dispatch_args()));
    } else {
      OCTET_ASSIGN_OR_RETURN(received[i], ep_->Dispatch(rank, buffers[i]->dispatch_args()));
    }
  }
  for (size_t i : {0, 1}) {
    if (!split) continue;
    OCTET_ASSIGN_OR_RETURN(received[i], ep_->DispatchReceive(rank, handles[i]));
  }
  for (size_t i : {0, 1}) {
    OCTET_RETURN_IF_ERROR(executor.EnqueueExperts(rank, *buffers[i], received[i]));
    combine[i] = executor.combine_args(*buffers[i], received[i]);
    OCTET_RETURN_IF_ERROR(split ? ScaledCombineSend(*ep_, rank, received[i].handle, combine[i])
                                : ScaledCombine(*ep_, rank, received[i].handle, combine[i]));
  }
  for (size_t i : {0, 1}) {
    if (!split) continue;
    OCTET_RETURN_IF_ERROR(ScaledCombineReceive(*ep_, rank, received[i].handle, combine[i]));
  }
  return absl::OkStatus();
}

absl::Status EpHarness::CombinesOfOneDispatch(const std::vector<StepInput>& inputs) {
  return InOneRun(inputs, [&](Rank& rank, RankBuffers& buffers) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(const Received received,
                           ep_->Dispatch(rank, buffers.front().dispatch_args()));
    for (const StepBuffers& each : buffers) {
      OCTET_RETURN_IF_ERROR(each.Poison(rank, 0));
      OCTET_RETURN_IF_ERROR(
          ScaledCombine(*ep_, rank, received.handle, each.fused_combine_args(received)));
    }
    return absl::OkStatus();
  });
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
        // Even a function that does nothing waits for a thread of the host to wake up.
        if (late_by > absl::ZeroDuration()) {
          OCTET_RETURN_IF_GPU_ERROR(hipLaunchHostFunc(
              rank.stream(), [](void* by) { absl::SleepFor(*static_cast<absl::Duration*>(by)); },
              &late_by));
        }
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
  const std::vector<RankInput> sent = input.sent();
  const std::vector<int32_t> want = ReferenceDispatch(config_, sent, late).expert_counts;
  const auto differs = std::mismatch(got.begin(), got.end(), want.begin());
  if (differs.first == got.end()) return absl::OkStatus();
  return WithSchedule(absl::DataLossError(absl::StrCat("rank ", late, ": expert_counts[",
                                                       differs.first - got.begin(), "] is ",
                                                       *differs.first, ", not ", *differs.second)));
}

// ---- Steps in parts.

absl::Status EpHarness::Dispatch(const StepInput& input,
                                 const std::vector<DispatchHandle>& cached) {
  return DispatchBy(input, [&](Rank& rank, const DispatchArgs& uploaded) {
    DispatchArgs args = uploaded;
    if (!cached.empty()) {
      args.high_throughput.cached = &cached[Index(rank)];
      args.topk_idx = nullptr;
    }
    return ep_->Dispatch(rank, args);
  });
}

absl::Status EpHarness::DispatchBy(
    const StepInput& input,
    absl::FunctionRef<absl::StatusOr<Received>(Rank&, const DispatchArgs&)> dispatch) {
  OCTET_RETURN_IF_ERROR(Upload(input));
  const std::vector<int> rows = RowsInExpertOrder(config_, input.sent());
  return node_->Run([&](Rank& rank) -> absl::Status {
    const size_t r = Index(rank);
    OCTET_RETURN_IF_ERROR(ExecutorOf(Form::kFused).Poison(rank, buffers_[r], rows[r]));
    OCTET_ASSIGN_OR_RETURN(received_[r], dispatch(rank, buffers_[r].dispatch_args()));
    return KeepReceived(rank, rows[r]);
  });
}

std::vector<DispatchHandle> EpHarness::Handles() const {
  std::vector<DispatchHandle> handles;
  for (const Received& received : received_) handles.push_back(received.handle);
  return handles;
}

absl::Status EpHarness::CheckReceived(const StepInput& input) {
  return Compare(
      [&](Rank& rank, Verification& found) { return CompareReceived(rank, input, found); });
}

absl::Status EpHarness::RunExperts(const StepInput& input) {
  return node_->Run([&](Rank& rank) {
    return ToDevice(buffers_[Index(rank)].expert_out,
                    HostExpertOutputs(config_, input, rank.rank()));
  });
}

absl::Status EpHarness::Combine(const StepInput& input, const std::vector<DispatchHandle>& handles,
                                absl::Span<const uint16_t> bias) {
  OCTET_RETURN_IF_ERROR(RunExperts(input));
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) -> absl::Status {
    StepBuffers& buffers = buffers_[Index(rank)];
    OCTET_RETURN_IF_ERROR(buffers.UploadBias(rank, bias));
    OCTET_RETURN_IF_ERROR(buffers.Poison(rank, 0));
    return rank.Synchronize();
  }));
  OCTET_RETURN_IF_ERROR(node_->Run([&](Rank& rank) {
    const size_t r = Index(rank);
    return ep_->Combine(rank, handles[r], buffers_[r].combine_args());
  }));
  return CheckY(input, bias);
}

absl::Status EpHarness::StepInParts(const StepInput& input) {
  OCTET_RETURN_IF_ERROR(Dispatch(input));
  OCTET_RETURN_IF_ERROR(CheckReceived(input));
  return Combine(input, Handles());
}

// ---- What else a test needs.

absl::Status EpHarness::Upload(Rank& rank, const StepInput& input, StepBuffers& buffers) const {
  const auto num_local = static_cast<size_t>(config_.num_local_experts(rank.num_ranks()));
  const std::vector<RankInput> sent = input.sent();
  OCTET_RETURN_IF_ERROR(buffers.Upload(rank, sent[Index(rank)]));
  std::vector<float> physical;
  absl::Span<const float> scales = input.expert_scale;  // which outlives a copy that is not awaited
  if (!config_.placement.empty()) {
    physical = PhysicalScales(config_.placement, input.expert_scale);
    scales = physical;
  }
  OCTET_RETURN_IF_ERROR(
      buffers.UploadExpertScale(rank, scales.subspan(num_local * Index(rank), num_local)));
  return rank.Synchronize();
}

absl::Status EpHarness::Upload(const StepInput& input) {
  return node_->Run([&](Rank& rank) { return Upload(rank, input, buffers_[Index(rank)]); });
}

DispatchArgs EpHarness::dispatch_args(int rank) const {
  return buffers_[static_cast<size_t>(rank)].dispatch_args();
}

ScaledCombineArgs EpHarness::combine_args(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return buffers_[r].fused_combine_args(received_[r]);
}

StepExecutor EpHarness::ExecutorOf(Form form) const {
  return StepExecutor(
      *ep_, {.split = form == Form::kSplit, .fuse_experts = form != Form::kSeparateExpert});
}

absl::Status EpHarness::RunRank(Rank& rank, Form form, int num_rows, StepBuffers& buffers) {
  Received& received = received_[Index(rank)];
  const StepExecutor executor = ExecutorOf(form);
  OCTET_RETURN_IF_ERROR(executor.Poison(rank, buffers, num_rows));
  buffers.cached = form == Form::kCached ? received.handle : DispatchHandle();
  return executor.Enqueue(
      rank, buffers, received,
      [&](StepCall call, absl::FunctionRef<absl::Status()> enqueue) -> absl::Status {
        OCTET_RETURN_IF_ERROR(enqueue());
        const bool dispatched = call == StepCall::kDispatch || call == StepCall::kDispatchReceive;
        return dispatched ? KeepReceived(rank, num_rows) : absl::OkStatus();
      });
}

absl::Status EpHarness::RunStep(Rank& rank, Form form) {
  return RunRank(rank, form, config_.max_rows(rank.num_ranks()), buffers_[Index(rank)]);
}

absl::Status EpHarness::KeepReceived(Rank& rank, int num_rows) {
  const Received& received = received_[Index(rank)];
  const auto rows = static_cast<size_t>(RowsOfX(config_, rank.num_ranks(), num_rows));
  if (rows == 0) return absl::OkStatus();
  constexpr uint32_t kNoClient = 0;  // the copy waits for nothing and reports nothing
  return OCTET_GPU(LaunchCopyDelivered({.port = NodeClient::PortOf(rank, kNoClient),
                                        .from = received.x,
                                        .to = received_rows_[Index(rank)].as<void>(),
                                        .bytes = rows * received.row_bytes},
                                       rank.stream()));
}

absl::Status EpHarness::CompareReceived(Rank& rank, const StepInput& input,
                                        Verification& found) const {
  const size_t r = Index(rank);
  Received received = received_[r];
  received.x = received_rows_[r].as<void>();
  HostReader reader(rank, staging_[r]);
  const std::vector<RankInput> sent = input.sent();
  return StepVerifier(reader, config_, sent, rank.rank()).CheckReceived(received, found);
}

absl::Status EpHarness::CheckReceived(const StepInput& input, int rank) {
  return Compare([&](Rank& each, Verification& found) {
    return each.rank() == rank ? CompareReceived(each, input, found) : absl::OkStatus();
  });
}

absl::Status EpHarness::CompareY(Rank& rank, const StepInput& input, const void* y,
                                 absl::Span<const uint16_t> bias, Verification& found) const {
  HostReader reader(rank, staging_[Index(rank)]);
  const std::vector<RankInput> inputs = input.expert_inputs();
  return StepVerifier(reader, config_, inputs, rank.rank())
      .CheckY(y, inputs[Index(rank)], {.expert_scale = input.expert_scale, .bias = bias}, found);
}

absl::Status EpHarness::CheckY(const StepInput& input, absl::Span<const uint16_t> bias) {
  return Compare([&](Rank& rank, Verification& found) {
    return CompareY(rank, input, buffers_[Index(rank)].y.as<void>(), bias, found);
  });
}

absl::Status EpHarness::CheckY(Rank& rank, const StepInput& input, const void* y) const {
  Verification found;
  OCTET_RETURN_IF_ERROR(CompareY(rank, input, y, {}, found));
  return found.ToStatus();
}

absl::StatusOr<std::vector<uint16_t>> EpHarness::Y(int rank) {
  const StepBuffers& buffers = buffers_[static_cast<size_t>(rank)];
  return ToHost<uint16_t>(buffers.y.as<void>(), static_cast<size_t>(buffers.num_tokens()) *
                                                    static_cast<size_t>(config_.hidden));
}

}  // namespace octet
