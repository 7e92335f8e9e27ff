#include "tools/measure/step_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep_internals.h"
#include "kernels/pointwise_expert.h"
#include "octet/graph.h"
#include "runtime/gpu_status.h"
#include "tools/check/host_reader.h"
#include "tools/measure/statistics.h"

namespace octet {
namespace {

// Pinned memory of each rank that rows come to the host through.
constexpr int kStepsInQueue = 32;  // at most, while GPUs are kept busy
constexpr size_t kStagingBytes = size_t{8} << 20;

constexpr double kMicrosPerMilli = 1e3;

// Returns the index of a form that can be captured.
size_t IndexOf(StepForm form) { return form == StepForm::kFused ? 0 : 1; }

}  // namespace

double MedianUs(absl::Span<const StepResult> steps) {
  std::vector<double> us;
  for (const StepResult& step : steps) us.push_back(step.all_us);
  return Summarize(std::move(us)).median;
}

std::string FirstDifferenceOf(absl::Span<const StepResult> steps) {
  for (const StepResult& step : steps) {
    for (const RankStepResult& rank : step.ranks) {
      if (!rank.verification.bitwise) return rank.verification.first;
    }
  }
  return "";
}

// A form of a step as it has been captured.
struct Captured {
  int num_tokens;
  Graph poison;  // what the dispatch delivers
  // StepForm::kFused has one graph, StepForm::kCalls one for each call.
  std::vector<Graph> calls;
  Received received;
};

struct StepRunner::RankState {
  ~RankState() {
    for (hipEvent_t event : events) {
      if (event != nullptr) (void)hipEventDestroy(event);
    }
  }

  DeviceMemory x;             // [M][H]
  DeviceMemory x_scales;      // [M][scale words]
  DeviceMemory topk_idx;      // [M][K]
  DeviceMemory topk_weights;  // [M][K]
  DeviceMemory y;             // [M][H]
  DeviceMemory expert_scale;  // [L]
  DeviceMemory expert_out;    // [max rows][H], unless the experts are fused
  PinnedMemory staging;
  std::array<hipEvent_t, kNumPhases + 1> events = {};  // the start, and the end of each phase
  Received received;                                   // of the last step
  DispatchHandle cached;                               // with RunOptions::cached, once there is one
  std::array<std::unique_ptr<Captured>, 2> captured;   // by IndexOf(form)
  int64_t rows = 0;  // of the step, in expert order, padding or the room between them included
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point stop;
};

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(Node& node, ExpertParallel& ep,
                                                               const RunOptions& options,
                                                               TraceCollector* trace) {
  auto runner = absl::WrapUnique(new StepRunner(node, ep, options, trace));
  OCTET_RETURN_IF_ERROR(node.Run([&](Rank& rank) { return runner->InitRank(rank); }));
  return runner;
}

StepRunner::StepRunner(Node& node, ExpertParallel& ep, const RunOptions& options,
                       TraceCollector* trace)
    : node_(node),
      ep_(ep),
      trace_(trace),
      options_(options),
      config_(ep.config()),
      expert_scale_(ExpertScales(options.expert, config_.num_experts, node.num_ranks())),
      row_bytes_(config_.dtype_row_bytes()),
      fuse_expert_(options.fuse_expert && CanFuseExpert(config_)),
      wakes_(!node.topology().emulated()),
      check_(options.check) {
  for (int r = 0; r < node.num_ranks(); ++r) ranks_.push_back(std::make_unique<RankState>());
}

StepRunner::~StepRunner() = default;

absl::Status StepRunner::InitRank(Rank& rank) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const auto tokens = static_cast<size_t>(config_.max_tokens_per_rank);
  const auto choices = tokens * static_cast<size_t>(config_.topk);
  const int num_local = config_.num_local_experts(rank.num_ranks());
  OCTET_ASSIGN_OR_RETURN(mine.x, DeviceMemory::Allocate(tokens * config_.dispatch_row_bytes()));
  OCTET_ASSIGN_OR_RETURN(mine.y, DeviceMemory::Allocate(tokens * row_bytes_));
  OCTET_ASSIGN_OR_RETURN(mine.topk_idx, DeviceMemory::Allocate(choices * sizeof(int32_t)));
  OCTET_ASSIGN_OR_RETURN(mine.topk_weights, DeviceMemory::Allocate(choices * sizeof(float)));
  const size_t scale_bytes = static_cast<size_t>(num_local) * sizeof(float);
  OCTET_ASSIGN_OR_RETURN(mine.expert_scale, DeviceMemory::Allocate(scale_bytes));
  if (config_.dispatch_format == DispatchFormat::kFp8) {
    const size_t words = tokens * static_cast<size_t>(config_.scale_words());
    OCTET_ASSIGN_OR_RETURN(mine.x_scales, DeviceMemory::Allocate(words * sizeof(uint32_t)));
  }
  if (!fuse_expert_) {
    const auto rows = static_cast<size_t>(config_.expert_out_rows(rank.num_ranks()));
    OCTET_ASSIGN_OR_RETURN(mine.expert_out, DeviceMemory::Allocate(rows * row_bytes_));
  }
  OCTET_ASSIGN_OR_RETURN(mine.staging, PinnedMemory::Allocate(std::max(kStagingBytes, row_bytes_)));
  for (hipEvent_t& event : mine.events) OCTET_RETURN_IF_GPU_ERROR(hipEventCreate(&event));
  OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(
      mine.expert_scale.as<void>(), &expert_scale_[static_cast<size_t>(rank.rank() * num_local)],
      scale_bytes, hipMemcpyHostToDevice, rank.stream()));
  return rank.Synchronize();
}

absl::Status StepRunner::Upload(Rank& rank, const RankInput& input) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const auto upload = [&](const DeviceMemory& to, const void* from, size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    return OCTET_GPU(
        hipMemcpyAsync(to.as<void>(), from, bytes, hipMemcpyHostToDevice, rank.stream()));
  };
  if (config_.dispatch_format == DispatchFormat::kFp8) {
    OCTET_RETURN_IF_ERROR(upload(mine.x, input.fp8.data(), input.fp8.size()));
    OCTET_RETURN_IF_ERROR(
        upload(mine.x_scales, input.scales.data(), input.scales.size() * sizeof(uint32_t)));
  } else {
    OCTET_RETURN_IF_ERROR(upload(mine.x, input.x.data(), input.x.size() * sizeof(uint16_t)));
  }
  OCTET_RETURN_IF_ERROR(
      upload(mine.topk_idx, input.topk_idx.data(), input.topk_idx.size() * sizeof(int32_t)));
  OCTET_RETURN_IF_ERROR(upload(mine.topk_weights, input.topk_weights.data(),
                               input.topk_weights.size() * sizeof(float)));
  return rank.Synchronize();
}

// What the step is to write, so that nothing of an earlier one is left; more than the caches hold.
absl::Status StepRunner::Poison(Rank& rank, const RankInput& input, StepForm form) {
  const RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const auto poison = [&](const DeviceMemory& memory, size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    return OCTET_GPU(hipMemsetAsync(memory.as<void>(), 0xff, bytes, rank.stream()));
  };
  OCTET_RETURN_IF_ERROR(poison(mine.y, input.x.size() * sizeof(uint16_t)));
  const std::unique_ptr<Captured>& captured = mine.captured[IndexOf(form)];
  OCTET_RETURN_IF_ERROR(captured != nullptr
                            ? captured->poison.Launch(rank)
                            : EpInternals::Poison(ep_, rank, static_cast<int>(mine.rows)));
  const size_t outputs = static_cast<size_t>(mine.rows) * row_bytes_;
  OCTET_RETURN_IF_ERROR(poison(mine.expert_out, std::min(outputs, mine.expert_out.bytes())));
  return rank.Synchronize();
}

absl::Status StepRunner::LaunchExpert(Rank& rank, const Received& received) {
  if (fuse_expert_) return absl::OkStatus();
  const RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  return PointwiseExpert(rank, config_, received, mine.expert_scale.as<float>(),
                         mine.expert_out.as<void>());
}

absl::Status StepRunner::RecordStart(Rank& rank, size_t event) {
  if (options_.align == Align::kDevice) OCTET_RETURN_IF_ERROR(rank.EnqueueNodeBarrier());
  const RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  return OCTET_GPU(hipEventRecord(mine.events[event], rank.stream()));
}

DispatchArgs StepRunner::DispatchArgsOf(const RankState& mine, const RankInput& input) const {
  return {.x = mine.x.as<void>(),
          .topk_idx = mine.topk_idx.as<int32_t>(),
          .topk_weights = mine.topk_weights.as<float>(),
          .num_tokens = input.num_tokens,
          .high_throughput = {.x_scales = config_.dispatch_format == DispatchFormat::kFp8
                                              ? mine.x_scales.as<void>()
                                              : nullptr,
                              .cached = mine.cached.layout > 0 ? &mine.cached : nullptr}};
}

CombineArgs StepRunner::CombineArgsOf(const RankState& mine, const Received& received) const {
  CombineArgs combine = {.expert_out = mine.expert_out.as<void>(), .y = mine.y.as<void>()};
  if (fuse_expert_) {
    combine.expert_out = received.x;
    combine.expert_scale = mine.expert_scale.as<float>();
  }
  return combine;
}

absl::Status StepRunner::Launch(Rank& rank, const RankInput& input, StepForm form) {
  if (form == StepForm::kPhases) return LaunchPhases(rank, input);
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  if (mine.captured[IndexOf(form)] != nullptr) return LaunchGraphs(rank, input, form);
  const auto record = [&](size_t event) {
    return OCTET_GPU(hipEventRecord(mine.events[event], rank.stream()));
  };
  const auto compute = [&] {
    return compute_ != nullptr ? compute_->Enqueue(rank) : absl::OkStatus();
  };
  OCTET_RETURN_IF_ERROR(RecordStart(rank, 0));
  OCTET_ASSIGN_OR_RETURN(mine.received, ep_.Dispatch(rank, DispatchArgsOf(mine, input)));
  OCTET_RETURN_IF_ERROR(compute());
  if (form == StepForm::kCalls) OCTET_RETURN_IF_ERROR(record(1));
  OCTET_RETURN_IF_ERROR(LaunchExpert(rank, mine.received));
  if (form == StepForm::kCalls) {
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    OCTET_RETURN_IF_ERROR(RecordStart(rank, 2));
  }
  OCTET_RETURN_IF_ERROR(
      ep_.Combine(rank, mine.received.handle, CombineArgsOf(mine, mine.received)));
  OCTET_RETURN_IF_ERROR(compute());
  return record(kNumPhases);
}

absl::Status StepRunner::CaptureRank(Rank& rank, const RankInput& input) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  for (const StepForm form : {StepForm::kFused, StepForm::kCalls}) {
    Received received;
    const auto dispatch = [&]() -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(received, ep_.Dispatch(rank, DispatchArgsOf(mine, input)));
      return absl::OkStatus();
    };
    const auto combine = [&] {
      return ep_.Combine(rank, received.handle, CombineArgsOf(mine, received));
    };
    // Poisons the rows of the dispatch that is captured next: the most that it can have.
    OCTET_ASSIGN_OR_RETURN(Graph poison, Graph::Capture(rank, [&] {
                             return EpInternals::Poison(ep_, rank,
                                                        config_.max_rows(rank.num_ranks()));
                           }));
    std::vector<Graph> calls;
    const auto capture = [&](absl::FunctionRef<absl::Status()> enqueue) -> absl::Status {
      OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, enqueue));
      calls.push_back(std::move(graph));
      return absl::OkStatus();
    };
    if (form == StepForm::kFused) {
      OCTET_RETURN_IF_ERROR(capture([&]() -> absl::Status {
        OCTET_RETURN_IF_ERROR(dispatch());
        OCTET_RETURN_IF_ERROR(LaunchExpert(rank, received));
        return combine();
      }));
    } else {
      OCTET_RETURN_IF_ERROR(capture(dispatch));
      OCTET_RETURN_IF_ERROR(capture(combine));
    }
    mine.captured[IndexOf(form)] = std::make_unique<Captured>(
        Captured{input.num_tokens, std::move(poison), std::move(calls), received});
  }
  return absl::OkStatus();
}

absl::Status StepRunner::LaunchGraphs(Rank& rank, const RankInput& input, StepForm form) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const Captured& captured = *mine.captured[IndexOf(form)];
  if (input.num_tokens != captured.num_tokens) {
    return absl::FailedPreconditionError(absl::StrCat("a step of ", captured.num_tokens,
                                                      " tokens was captured; this one has ",
                                                      input.num_tokens));
  }
  const auto record = [&](size_t event) {
    return OCTET_GPU(hipEventRecord(mine.events[event], rank.stream()));
  };
  mine.received = captured.received;
  OCTET_RETURN_IF_ERROR(RecordStart(rank, 0));
  OCTET_RETURN_IF_ERROR(captured.calls[0].Launch(rank));
  if (form == StepForm::kCalls) {
    OCTET_RETURN_IF_ERROR(record(1));
    OCTET_RETURN_IF_ERROR(LaunchExpert(rank, mine.received));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    OCTET_RETURN_IF_ERROR(RecordStart(rank, 2));
    OCTET_RETURN_IF_ERROR(captured.calls[1].Launch(rank));
  }
  return record(kNumPhases);
}

absl::Status StepRunner::LaunchPhases(Rank& rank, const RankInput& input) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const auto record = [&](size_t event) {
    return OCTET_GPU(hipEventRecord(mine.events[event], rank.stream()));
  };
  const auto send = [&](absl::FunctionRef<absl::Status()> enqueue) {
    return compute_ != nullptr ? compute_->EnqueueBeside(rank, enqueue) : enqueue();
  };
  OCTET_RETURN_IF_ERROR(RecordStart(rank, 0));
  DispatchHandle handle;
  OCTET_RETURN_IF_ERROR(send([&]() -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(handle, ep_.DispatchSend(rank, DispatchArgsOf(mine, input)));
    return absl::OkStatus();
  }));
  OCTET_RETURN_IF_ERROR(record(1));
  OCTET_ASSIGN_OR_RETURN(mine.received, ep_.DispatchReceive(rank, handle));
  OCTET_RETURN_IF_ERROR(record(2));
  OCTET_RETURN_IF_ERROR(LaunchExpert(rank, mine.received));
  OCTET_RETURN_IF_ERROR(record(3));
  const CombineArgs combine = CombineArgsOf(mine, mine.received);
  OCTET_RETURN_IF_ERROR(send([&] { return ep_.CombineSend(rank, handle, combine); }));
  OCTET_RETURN_IF_ERROR(record(4));
  OCTET_RETURN_IF_ERROR(ep_.CombineReceive(rank, handle, combine));
  return record(kNumPhases);
}

absl::Status StepRunner::ReadTimes(Rank& rank, StepForm form, RankStepResult& result) {
  const RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const auto read = [&](size_t from, size_t to, double& us) {
    float millis = 0;
    const absl::Status status =
        OCTET_GPU(hipEventElapsedTime(&millis, mine.events[from], mine.events[to]));
    us = millis * kMicrosPerMilli;
    return status;
  };
  if (form == StepForm::kCalls) {
    OCTET_RETURN_IF_ERROR(read(0, 1, result.call_us[static_cast<size_t>(Call::kDispatch)]));
    OCTET_RETURN_IF_ERROR(read(2, kNumPhases, result.call_us[static_cast<size_t>(Call::kCombine)]));
    result.all_us = result.call_us[0] + result.call_us[1];
    return absl::OkStatus();
  }
  OCTET_RETURN_IF_ERROR(read(0, kNumPhases, result.all_us));
  if (form == StepForm::kFused) return absl::OkStatus();
  for (size_t phase = 0; phase < kNumPhases; ++phase) {
    OCTET_RETURN_IF_ERROR(read(phase, phase + 1, result.phase_us[phase]));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::Verify(Rank& rank, const Workload& workload, Verification& verification) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const absl::Span<const RankInput> inputs = workload.inputs();
  HostReader reader(rank, mine.staging);
  OCTET_RETURN_IF_ERROR(VerifyY(reader, config_, inputs, rank.rank(), mine.y.as<void>(),
                                expert_scale_, verification));
  if (config_.combine_method == CombineMethod::kPull) {
    if (trace_ != nullptr) return absl::OkStatus();
    OCTET_RETURN_IF_ERROR(DispatchAgain(rank, inputs));
  }
  return VerifyReceived(reader, config_, inputs, rank.rank(), mine.received, verification);
}

// Rows that are pulled from the memory that they came to are gone: once more, as in the step.
absl::Status StepRunner::DispatchAgain(Rank& rank, absl::Span<const RankInput> inputs) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(rank.Barrier());  // nobody reads from them any more
  const ReferenceReceived reference = ReferenceDispatch(config_, inputs, rank.rank());
  const size_t bytes = reference.rows(config_).size() * mine.received.row_bytes;
  if (bytes > 0) {
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemsetAsync(const_cast<void*>(mine.received.x), 0xff, bytes, rank.stream()));
  }
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(rank.Barrier());
  const RankInput& input = inputs[static_cast<size_t>(rank.rank())];
  OCTET_ASSIGN_OR_RETURN(mine.received, ep_.Dispatch(rank, DispatchArgsOf(mine, input)));
  return rank.Synchronize();
}

void StepRunner::CountRows(absl::Span<const RankInput> inputs) {
  std::vector<int64_t> rows(static_cast<size_t>(config_.num_experts));
  for (const RankInput& input : inputs) {
    for (const int32_t id : input.topk_idx) {
      if (id >= 0) ++rows[static_cast<size_t>(id)];
    }
  }
  for (const std::unique_ptr<RankState>& rank : ranks_) rank->rows = 0;
  if (config_.rows_apart()) {
    const int room = config_.max_rows(static_cast<int>(ranks_.size()));
    for (const std::unique_ptr<RankState>& rank : ranks_) rank->rows = room;
    return;
  }
  for (size_t e = 0; e < rows.size(); ++e) {
    const int64_t padded = rows[e] + config_.high_throughput.expert_alignment - 1;
    ranks_[e * ranks_.size() / rows.size()]->rows +=
        padded - padded % config_.high_throughput.expert_alignment;
  }
}

void StepRunner::CountTraffic(absl::Span<const RankInput> inputs,
                              std::vector<RankStepResult>& ranks) const {
  const int num_local = config_.num_local_experts(static_cast<int>(inputs.size()));
  const auto topk = static_cast<size_t>(config_.topk);
  for (size_t source = 0; source < inputs.size(); ++source) {
    const RankInput& input = inputs[source];
    const auto rank = static_cast<int>(source);
    const Traffic dispatch = ep_.DispatchTraffic(rank, input.topk_idx);
    ranks[source].num_tokens = input.num_tokens;
    ranks[source].rows_sent = dispatch.rows;
    ranks[source].dispatch_wire_bytes = dispatch.wire_bytes;
    ranks[source].wire_bytes =
        dispatch.wire_bytes + ep_.CombineTraffic(rank, input.topk_idx).wire_bytes;
    std::vector<size_t> last_token(inputs.size());  // of each destination, from 1
    for (size_t i = 0; i < input.topk_idx.size(); ++i) {
      if (input.topk_idx[i] < 0) continue;
      const auto destination = static_cast<size_t>(input.topk_idx[i] / num_local);
      ++ranks[destination].rows_received;
      const size_t token = i / topk + 1;
      if (std::exchange(last_token[destination], token) == token) continue;
      const size_t there = config_.received_row_bytes() +
                           static_cast<size_t>(config_.scale_words()) * sizeof(uint32_t);
      ranks[destination].dispatch_logical_bytes += static_cast<int64_t>(there);
      ranks[destination].logical_bytes += static_cast<int64_t>(there + row_bytes_);
    }
  }
}

absl::Status StepRunner::Prepare(Rank& rank, const RankInput& input) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(Upload(rank, input));
  if (options_.cached) {
    mine.cached = {};
    OCTET_ASSIGN_OR_RETURN(const Received received,
                           ep_.Dispatch(rank, DispatchArgsOf(mine, input)));
    if (received.handle.layout == 0) {
      return absl::InvalidArgumentError("--cached: only high_throughput keeps layouts");
    }
    mine.cached = received.handle;
  }
  if (wakes_) {
    OCTET_RETURN_IF_ERROR(rank.Barrier());
    OCTET_RETURN_IF_ERROR(Launch(rank, input, StepForm::kFused));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::RunRank(Rank& rank, const Workload& workload, StepForm form,
                                 RankStepResult& result) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const RankInput& input = workload.inputs()[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(Poison(rank, input, form));
  OCTET_RETURN_IF_ERROR(rank.Barrier());
  mine.start = std::chrono::steady_clock::now();
  OCTET_RETURN_IF_ERROR(Launch(rank, input, form));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  mine.stop = std::chrono::steady_clock::now();
  OCTET_RETURN_IF_ERROR(ReadTimes(rank, form, result));
  // Reading back and comparing takes cores and links from ranks that are still being timed.
  OCTET_RETURN_IF_ERROR(rank.Barrier());
  return check_ ? Verify(rank, workload, result.verification) : absl::OkStatus();
}

absl::StatusOr<StepResult> StepRunner::Run(const Workload& workload, StepForm form) {
  StepResult step;
  step.ranks.resize(ranks_.size());
  CountRows(workload.inputs());
  CountTraffic(workload.inputs(), step.ranks);
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) {
    return Prepare(rank, workload.inputs()[static_cast<size_t>(rank.rank())]);
  }));
  if (trace_ != nullptr) OCTET_RETURN_IF_ERROR(trace_->Clear());
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) {
    return RunRank(rank, workload, form, step.ranks[static_cast<size_t>(rank.rank())]);
  }));
  auto start = std::chrono::steady_clock::time_point::max();
  auto stop = std::chrono::steady_clock::time_point::min();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    start = std::min(start, ranks_[r]->start);
    stop = std::max(stop, ranks_[r]->stop);
    step.all_us = std::max(step.all_us, step.ranks[r].all_us);
  }
  step.wall_us = std::chrono::duration<double, std::micro>(stop - start).count();
  return step;
}

absl::Status StepRunner::Capture(const Workload& workload) {
  return node_.Run([&](Rank& rank) {
    return CaptureRank(rank, workload.inputs()[static_cast<size_t>(rank.rank())]);
  });
}

absl::Status StepRunner::Heat(const Workload& workload, int steps) {
  return node_.Run([&](Rank& rank) -> absl::Status {
    const RankInput& input = workload.inputs()[static_cast<size_t>(rank.rank())];
    for (int i = 0; i < steps; ++i) {
      OCTET_RETURN_IF_ERROR(Launch(rank, input, StepForm::kFused));
      if (i % kStepsInQueue == 0) OCTET_RETURN_IF_ERROR(rank.Synchronize());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<RankOutput>> StepRunner::Download(const Workload& workload) {
  std::vector<RankOutput> outputs(ranks_.size());
  OCTET_RETURN_IF_ERROR(node_.Run([&](Rank& rank) -> absl::Status {
    RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
    RankOutput& output = outputs[static_cast<size_t>(rank.rank())];
    if (config_.combine_method == CombineMethod::kPull) {
      OCTET_RETURN_IF_ERROR(DispatchAgain(rank, workload.inputs()));
    }
    HostReader reader(rank, mine.staging);
    const auto tokens = static_cast<size_t>(workload.num_tokens(rank.rank()));
    OCTET_RETURN_IF_ERROR(
        reader.Read(mine.y.as<void>(), tokens * static_cast<size_t>(config_.hidden), output.y));
    return ReadReceived(reader, config_, workload.inputs(), rank.rank(), mine.received,
                        output.received);
  }));
  return outputs;
}

}  // namespace octet
