#include "tools/measure/step/step_runner.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/ep_calls.h"
#include "octet/graph.h"
#include "runtime/gpu/gpu_status.h"
#include "tools/check/host_reader.h"
#include "tools/measure/step/step_text.h"
#include "tools/step/l2_flush.h"
#include "tools/support/statistics.h"

namespace octet {
namespace {

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

  StepBuffers buffers;
  L2Flush flush;
  PinnedMemory staging;                                // that rows come to the host through
  std::array<hipEvent_t, kNumPhases + 1> events = {};  // the start, and the end of each phase
  Received received;                                   // of the last step
  std::array<std::unique_ptr<Captured>, 2> captured;   // by IndexOf(form)
  int rows = 0;                                        // of the step: RowsInExpertOrder
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point stop;
};

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(Domain& domain, ExpertParallel& ep,
                                                               const RunSpec& options,
                                                               TraceCollector* trace) {
  OCTET_ASSIGN_OR_RETURN(DomainBarrier barrier, DomainBarrier::Create(domain));
  auto runner = absl::WrapUnique(new StepRunner(domain, std::move(barrier), ep, options, trace));
  OCTET_RETURN_IF_ERROR(runner->Init());
  return runner;
}

StepRunner::StepRunner(Domain& domain, DomainBarrier barrier, ExpertParallel& ep,
                       const RunSpec& options, TraceCollector* trace)
    : domain_(domain),
      barrier_(std::move(barrier)),
      ep_(ep),
      trace_(trace),
      options_(options),
      config_(ep.config()),
      expert_scale_(ExpertScales(options.expert, config_.num_experts, domain.num_ranks())),
      batches_(config_, options.nodes,
               {.rows = options.rail_rows, .chunk_tokens = options.rail_chunk},
               domain.node_index()),
      joined_(
          ep,
          {.split = false, .fuse_experts = options.fuse_expert, .num_nodes = domain.num_nodes()}),
      split_(ep, {.split = true, .fuse_experts = options.fuse_expert}),
      wakes_(!domain.node().topology().emulated()),
      check_(options.check) {
  for (int r = 0; r < domain.ranks_per_node(); ++r) ranks_.push_back(std::make_unique<RankState>());
}

absl::Status StepRunner::Init() {
  return domain_.Run([&](Rank& rank) { return InitRank(rank); });
}

StepRunner::~StepRunner() = default;

absl::Status StepRunner::InitRank(Rank& rank) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const bool fused = options_.fuse_expert && CanFuseExpert(config_);
  OCTET_ASSIGN_OR_RETURN(mine.buffers,
                         StepBuffers::Create(rank, config_, !fused, domain_.num_nodes()));
  OCTET_ASSIGN_OR_RETURN(mine.staging,
                         PinnedMemory::Allocate(std::max(kStagingBytes, LargestRow(config_))));
  OCTET_ASSIGN_OR_RETURN(mine.flush, L2Flush::Create(domain_.node().topology().emulated()));
  for (hipEvent_t& event : mine.events) OCTET_RETURN_IF_GPU_ERROR(hipEventCreate(&event));
  const auto num_local = static_cast<size_t>(config_.num_local_experts(domain_.num_ranks()));
  const std::vector<float> scales =
      config_.placement.empty() ? expert_scale_ : PhysicalScales(config_.placement, expert_scale_);
  OCTET_RETURN_IF_ERROR(mine.buffers.UploadExpertScale(
      rank, absl::MakeConstSpan(scales).subspan(
                static_cast<size_t>(domain_.GlobalRank(rank.rank())) * num_local, num_local)));
  return rank.Synchronize();
}

// Overwrites the step's outputs, so that nothing of an earlier step is left there or in the caches.
absl::Status StepRunner::Poison(Rank& rank, StepForm form) {
  const RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const Captured* captured = mine.captured[IndexOf(form)].get();
  if (captured == nullptr) {
    OCTET_RETURN_IF_ERROR(joined_.Poison(rank, mine.buffers, mine.rows));
  } else {
    OCTET_RETURN_IF_ERROR(mine.buffers.Poison(rank, mine.rows));
    OCTET_RETURN_IF_ERROR(captured->poison.Launch(rank));
  }
  OCTET_RETURN_IF_ERROR(mine.flush.Enqueue(rank.stream()));
  return rank.Synchronize();
}

absl::Status StepRunner::RecordEvent(Rank& rank, size_t event) {
  const RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  return OCTET_GPU(hipEventRecord(mine.events[event], rank.stream()));
}

absl::Status StepRunner::RecordStart(Rank& rank, size_t event) {
  if (options_.align == Align::kDevice) OCTET_RETURN_IF_ERROR(barrier_.Enqueue(rank));
  return RecordEvent(rank, event);
}

absl::Status StepRunner::StartCombine(Rank& rank) {
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));
  return RecordStart(rank, 2);
}

absl::Status StepRunner::Launch(Rank& rank, StepForm form) {
  if (form == StepForm::kPhases) return LaunchPhases(rank);
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  if (mine.captured[IndexOf(form)] != nullptr) return LaunchGraphs(rank, form);
  OCTET_RETURN_IF_ERROR(RecordStart(rank, 0));
  OCTET_RETURN_IF_ERROR(joined_.Enqueue(
      rank, mine.buffers, mine.received,
      [&](StepCall call, absl::FunctionRef<absl::Status()> enqueue) -> absl::Status {
        const bool timed = form == StepForm::kCalls;
        if (timed && call == StepCall::kCombine) OCTET_RETURN_IF_ERROR(StartCombine(rank));
        OCTET_RETURN_IF_ERROR(enqueue());
        if (call != StepCall::kExperts && compute_ != nullptr) {
          OCTET_RETURN_IF_ERROR(compute_->Enqueue(rank));
        }
        return timed && call == StepCall::kDispatch ? RecordEvent(rank, 1) : absl::OkStatus();
      }));
  return RecordEvent(rank, kNumPhases);
}

absl::Status StepRunner::LaunchPhases(Rank& rank) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  size_t event = 0;
  OCTET_RETURN_IF_ERROR(RecordStart(rank, event));
  return split_.Enqueue(
      rank, mine.buffers, mine.received,
      [&](StepCall call, absl::FunctionRef<absl::Status()> enqueue) -> absl::Status {
        const bool sends = call == StepCall::kDispatchSend || call == StepCall::kCombineSend;
        OCTET_RETURN_IF_ERROR(sends && compute_ != nullptr ? compute_->EnqueueBeside(rank, enqueue)
                                                           : enqueue());
        return RecordEvent(rank, ++event);
      });
}

absl::Status StepRunner::CaptureRank(Rank& rank, StepForm form) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  // Poisons the rows of the dispatch that is captured next: the most that it can have.
  OCTET_ASSIGN_OR_RETURN(Graph poison, Graph::Capture(rank, [&] {
                           return PoisonReceived(ep_, rank, config_.max_rows(domain_.num_ranks()));
                         }));
  std::vector<Graph> calls;
  Received received;
  const auto capture = [&](absl::FunctionRef<absl::Status()> enqueue) -> absl::Status {
    OCTET_ASSIGN_OR_RETURN(Graph graph, Graph::Capture(rank, enqueue));
    calls.push_back(std::move(graph));
    return absl::OkStatus();
  };
  // Between the graphs of two calls the experts are launched as always.
  const auto capture_call = [&](StepCall call, absl::FunctionRef<absl::Status()> enqueue) {
    return call == StepCall::kExperts ? absl::OkStatus() : capture(enqueue);
  };
  const auto step = [&] { return joined_.Enqueue(rank, mine.buffers, received); };
  OCTET_RETURN_IF_ERROR(form == StepForm::kFused
                            ? capture(step)
                            : joined_.Enqueue(rank, mine.buffers, received, capture_call));
  mine.captured[IndexOf(form)] = std::make_unique<Captured>(
      Captured{mine.buffers.num_tokens(), std::move(poison), std::move(calls), received});
  return absl::OkStatus();
}

absl::Status StepRunner::LaunchGraphs(Rank& rank, StepForm form) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  const Captured& captured = *mine.captured[IndexOf(form)];
  if (mine.buffers.num_tokens() != captured.num_tokens) {
    return absl::FailedPreconditionError(absl::StrCat("a step of ", captured.num_tokens,
                                                      " tokens was captured; this one has ",
                                                      mine.buffers.num_tokens()));
  }
  mine.received = captured.received;
  OCTET_RETURN_IF_ERROR(RecordStart(rank, 0));
  OCTET_RETURN_IF_ERROR(captured.calls[0].Launch(rank));
  if (form == StepForm::kCalls) {
    OCTET_RETURN_IF_ERROR(RecordEvent(rank, 1));
    OCTET_RETURN_IF_ERROR(joined_.EnqueueExperts(rank, mine.buffers, mine.received));
    OCTET_RETURN_IF_ERROR(StartCombine(rank));
    OCTET_RETURN_IF_ERROR(captured.calls[1].Launch(rank));
  }
  return RecordEvent(rank, kNumPhases);
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
  HostReader reader(rank, mine.staging);
  const RankInput& input = workload.inputs()[static_cast<size_t>(domain_.GlobalRank(rank.rank()))];
  OCTET_RETURN_IF_ERROR(StepVerifier(reader, config_, workload.inputs(), rank.rank())
                            .CheckY(mine.buffers.y.as<void>(), input,
                                    {.expert_scale = expert_scale_, .nodes = options_.nodes},
                                    verification));
  const bool pulled = config_.combine_method == CombineMethod::kPull;
  if (pulled && trace_ == nullptr) OCTET_RETURN_IF_ERROR(DispatchAgain(rank));
  if (!pulled || trace_ == nullptr) {
    OCTET_RETURN_IF_ERROR(StepVerifier(reader, batches_.config(), batches_.inputs(), rank.rank())
                              .CheckReceived(mine.received, verification));
  }
  if (!verification.first.empty()) {
    verification.first = absl::StrCat(PrefixOf(domain_), verification.first);
  }
  return absl::OkStatus();
}

// Rows that are pulled from the memory that they came to are gone: once more, as in the step.
absl::Status StepRunner::DispatchAgain(Rank& rank) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));  // nobody reads from them any more
  const ReferenceReceived reference =
      ReferenceDispatch(batches_.config(), batches_.inputs(), rank.rank());
  const size_t bytes = reference.rows(batches_.config()).size() * mine.received.row_bytes;
  if (bytes > 0) {
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemsetAsync(const_cast<void*>(mine.received.x), 0xff, bytes, rank.stream()));
  }
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));
  OCTET_ASSIGN_OR_RETURN(mine.received, ep_.Dispatch(rank, mine.buffers.dispatch_args()));
  return rank.Synchronize();
}

std::vector<RankStepResult> StepRunner::CountTraffic(absl::Span<const RankInput> sent) const {
  const PhysicalInputs physical(config_, sent);
  const absl::Span<const RankInput> inputs = physical.inputs();
  std::vector<RankStepResult> ranks(inputs.size());
  const int num_local = config_.num_local_experts(static_cast<int>(inputs.size()));
  const auto topk = static_cast<size_t>(config_.topk);
  const size_t row_bytes = config_.dtype_row_bytes();
  for (size_t source = 0; source < inputs.size(); ++source) {
    const RankInput& input = inputs[source];
    ranks[source].num_tokens = input.num_tokens;
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
      ranks[destination].logical_bytes += static_cast<int64_t>(there + row_bytes);
    }
  }
  const auto own = static_cast<size_t>(domain_.GlobalRank(0));
  ranks.assign(ranks.begin() + static_cast<ptrdiff_t>(own),
               ranks.begin() + static_cast<ptrdiff_t>(own + ranks_.size()));
  const EpCalls* const intranode = ep_.calls().intranode();
  const EpCalls& within = intranode != nullptr ? *intranode : ep_.calls();
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto rank = static_cast<int>(r);
    // The calls within one node take logical experts, those within each of several do not.
    const absl::Span<const int32_t> batch = batches_.inputs()[r].topk_idx;
    const Traffic dispatch = within.DispatchTraffic(rank, batch);
    ranks[r].rows_sent = dispatch.rows;
    ranks[r].dispatch_wire_bytes = dispatch.wire_bytes;
    ranks[r].wire_bytes = dispatch.wire_bytes + within.CombineTraffic(rank, batch).wire_bytes;
    if (intranode == nullptr) continue;
    const Traffic rail = ep_.DispatchTraffic(rank, sent[own + r].topk_idx);
    ranks[r].rail_rows = rail.rows;
    ranks[r].dispatch_rail_bytes = rail.wire_bytes;
    ranks[r].rail_bytes =
        rail.wire_bytes + ep_.CombineTraffic(rank, sent[own + r].topk_idx).wire_bytes;
  }
  return ranks;
}

absl::Status StepRunner::Prepare(Rank& rank, const RankInput& input) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(mine.buffers.Upload(rank, input));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  if (options_.cached) {
    mine.buffers.cached = {};
    OCTET_ASSIGN_OR_RETURN(const Received received,
                           ep_.Dispatch(rank, mine.buffers.dispatch_args()));
    if (received.handle.layout == 0) {
      return absl::InvalidArgumentError("--cached: only high_throughput keeps layouts");
    }
    mine.buffers.cached = received.handle;
  }
  if (wakes_) {
    OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));
    OCTET_RETURN_IF_ERROR(Launch(rank, StepForm::kFused));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::RunRank(Rank& rank, const Workload& workload, StepForm form,
                                 RankStepResult& result) {
  RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
  OCTET_RETURN_IF_ERROR(Poison(rank, form));
  OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));
  mine.start = std::chrono::steady_clock::now();
  OCTET_RETURN_IF_ERROR(Launch(rank, form));
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  mine.stop = std::chrono::steady_clock::now();
  OCTET_RETURN_IF_ERROR(ReadTimes(rank, form, result));
  // Reading back and comparing takes cores and links from ranks that are still being timed.
  OCTET_RETURN_IF_ERROR(barrier_.Arrive(rank));
  return check_ ? Verify(rank, workload, result.verification) : absl::OkStatus();
}

absl::StatusOr<StepResult> StepRunner::Run(const Workload& workload, StepForm form) {
  const absl::Span<const RankInput> inputs = workload.inputs();
  const auto own = static_cast<size_t>(domain_.GlobalRank(0));
  const std::vector<int> rows = RowsInExpertOrder(config_, inputs);
  for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->rows = rows[own + r];
  batches_.Make(inputs, check_);
  StepResult step;
  step.ranks = CountTraffic(inputs);
  OCTET_RETURN_IF_ERROR(domain_.Run(
      [&](Rank& rank) { return Prepare(rank, inputs[own + static_cast<size_t>(rank.rank())]); }));
  if (trace_ != nullptr) OCTET_RETURN_IF_ERROR(trace_->Clear());
  OCTET_RETURN_IF_ERROR(domain_.Run([&](Rank& rank) {
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
  if (domain_.several_nodes()) OCTET_RETURN_IF_ERROR(Gather(step));
  return step;
}

absl::Status StepRunner::Gather(StepResult& step) {
  OCTET_ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                         domain_.AllGather(StepResultText(step)));
  StepResult all;
  for (const std::string& part : parts) {
    OCTET_ASSIGN_OR_RETURN(StepResult theirs, ParseStepResult(part));
    all.all_us = std::max(all.all_us, theirs.all_us);
    all.wall_us = std::max(all.wall_us, theirs.wall_us);
    std::move(theirs.ranks.begin(), theirs.ranks.end(), std::back_inserter(all.ranks));
  }
  step = std::move(all);
  return absl::OkStatus();
}

absl::Status StepRunner::Capture(const Workload& workload) {
  return domain_.Run([&](Rank& rank) -> absl::Status {
    StepBuffers& buffers = ranks_[static_cast<size_t>(rank.rank())]->buffers;
    OCTET_RETURN_IF_ERROR(buffers.Upload(
        rank, workload.inputs()[static_cast<size_t>(domain_.GlobalRank(rank.rank()))]));
    OCTET_RETURN_IF_ERROR(rank.Synchronize());
    for (const StepForm form : {StepForm::kFused, StepForm::kCalls}) {
      OCTET_RETURN_IF_ERROR(CaptureRank(rank, form));
    }
    return absl::OkStatus();
  });
}

absl::Status StepRunner::Heat(int steps) {
  return domain_.Run([&](Rank& rank) -> absl::Status {
    for (int i = 0; i < steps; ++i) {
      OCTET_RETURN_IF_ERROR(Launch(rank, StepForm::kFused));
      if (i % kStepsInQueue == 0) OCTET_RETURN_IF_ERROR(rank.Synchronize());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<RankOutput>> StepRunner::Download(const Workload& workload) {
  std::vector<RankOutput> outputs(ranks_.size());
  OCTET_RETURN_IF_ERROR(domain_.Run([&](Rank& rank) -> absl::Status {
    RankState& mine = *ranks_[static_cast<size_t>(rank.rank())];
    RankOutput& output = outputs[static_cast<size_t>(rank.rank())];
    if (config_.combine_method == CombineMethod::kPull) {
      OCTET_RETURN_IF_ERROR(DispatchAgain(rank));
    }
    HostReader reader(rank, mine.staging);
    const auto tokens = static_cast<size_t>(workload.num_tokens(domain_.GlobalRank(rank.rank())));
    OCTET_RETURN_IF_ERROR(reader.Read(mine.buffers.y.as<void>(),
                                      tokens * static_cast<size_t>(config_.hidden), output.y));
    return StepVerifier(reader, batches_.config(), batches_.inputs(), rank.rank())
        .Read(mine.received, output.received);
  }));
  return outputs;
}

}  // namespace octet
