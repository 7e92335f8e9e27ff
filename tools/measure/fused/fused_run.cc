#include "tools/measure/fused/fused_run.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/fused_trace.h"
#include "kernels/fused/products.h"
#include "kernels/oracle/reference.h"
#include "octet/topology.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/memory/pinned_memory.h"
#include "tools/check/host_reader.h"
#include "tools/check/verify.h"
#include "tools/check/verify_step.h"
#include "tools/measure/gemm/gemm_operands.h"
#include "tools/measure/step/device_timer.h"
#include "tools/step/l2_flush.h"
#include "tools/step/step_buffers.h"
#include "tools/support/statistics.h"
#include "tools/workload/workload.h"

namespace octet {
namespace {

constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr int kSamples = 64;  // parts of a product that are checked on each rank

size_t Index(const Rank& rank) { return static_cast<size_t>(rank.rank()); }

// A rank's memory.
struct RankMemory {
  StepBuffers buffers;  // the inputs
  L2Flush flush;
  DeviceMemory b;  // weights of the product
  DeviceMemory b_scales;
  DeviceMemory a;           // of gemm_combine: rows of the product
  DeviceMemory second_out;  // of gemm_combine, if the product is not in place
  DeviceMemory expected;    // what the separate calls write: h or y
  DeviceMemory out;         // what the whole calls write
  PinnedMemory staging;
  std::unique_ptr<GroupedGemm> gemm;
  Received received;  // of the separate calls
};

// The figures of one row of the report that are known in each step.
struct Series {
  FusedRow row = {};
  bool has_product = false;
  bool has_links = false;
  std::vector<double> tflops = {};
  std::vector<double> wire_gbps = {};
};

// A way to make the whole call.
struct Contender {
  std::unique_ptr<RoutedExperts> experts;
  size_t series = 0;
  bool traced = false;
};

// What was wrong in a step. Ranks add to it at the same time.
class Findings {
 public:
  void Add(size_t series, int64_t wrong, const std::string& first) {
    MutexLock lock(&mutex_);
    wrong_[series] += wrong;
    if (wrong > 0 && first_.empty()) first_ = first;
  }
  explicit Findings(size_t series) : wrong_(series) {}
  int64_t wrong(size_t series) const {
    MutexLock lock(&mutex_);
    return wrong_[series];
  }
  std::string first() const {
    MutexLock lock(&mutex_);
    return first_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<int64_t> wrong_ ABSL_GUARDED_BY(mutex_);
  std::string first_ ABSL_GUARDED_BY(mutex_);
};

class FusedRun {
 public:
  FusedRun(Node& node, const FusedRunOptions& options, DeviceTimer timer)
      : node_(node),
        options_(options),
        dispatches_(options.operation == FusedCall::kDispatchGemm),
        timer_(std::move(timer)),
        memory_(static_cast<size_t>(node.num_ranks())) {}

  absl::Status Init();
  absl::StatusOr<FusedReport> Run(const Progress& progress);
  absl::StatusOr<FusedTrace> Trace(const Progress& progress);

 private:
  RoutedExpertsConfig ConfigOf(const FusedChoice& choice) const;
  // `trace`: where the call records, or null.
  absl::Status AddWhole(const FusedWay& way, TraceCollector* trace = nullptr);
  absl::StatusOr<std::unique_ptr<TraceCollector>> MakeCollector();
  absl::Status InitRank(const Rank& rank);
  RankMemory& MemoryOf(const Rank& rank) { return memory_[Index(rank)]; }
  RoutedExperts& none() { return *calls_.front().experts; }

  // Uploads the step's inputs and times everything. Verifies it if `findings` is not null.
  absl::Status Step(const Workload& workload, bool timed, Findings* findings);
  absl::Status TimeParts(const Workload& workload, Findings* findings);
  absl::StatusOr<double> TimeCall(const Contender& contender);
  absl::Status Upload(const Workload& workload);
  absl::Status Verify(const Workload& workload, const Contender& contender, Findings& findings);
  // `experts`: who made the call.
  void Record(const Workload& workload, size_t series, double us, RoutedExperts& experts);

  // On a rank's thread.
  absl::Status DispatchSeparately(Rank& rank);
  absl::Status Multiply(Rank& rank);
  GroupedGemmArgs ProductArgs(const Rank& rank);
  void* ProductOut(const Rank& rank);
  DispatchGemmArgs DispatchGemmArgsOf(const Rank& rank);
  GemmCombineArgs GemmCombineArgsOf(const Rank& rank);
  // Fills what a call is to write with NaNs, and empties the caches.
  absl::Status Poison(Rank& rank, const DeviceMemory& memory);
  absl::Status VerifyParts(Rank& rank, const Workload& workload, Findings& findings);
  absl::Status VerifyCall(Rank& rank, const Workload& workload, size_t series, Findings& findings);

  Node& node_;
  const FusedRunOptions& options_;
  const bool dispatches_;
  DeviceTimer timer_;
  RoutedExpertsConfig config_;  // resolved
  GroupedGemmConfig product_;
  std::vector<RankMemory> memory_;
  std::vector<Contender> calls_;  // kNone first
  std::vector<Series> series_;    // the links' part, the product, the whole calls
  std::vector<double> part_us_ = std::vector<double>(2);
  std::vector<FusedLeftOut> left_out_;
};

constexpr size_t kLinks = 0;
constexpr size_t kProduct = 1;

RoutedExpertsConfig FusedRun::ConfigOf(const FusedChoice& choice) const {
  RoutedExpertsConfig config = {.ep = options_.run.workload.config,
                                .intermediate = options_.intermediate,
                                .activation = options_.activation,
                                .weights_in = options_.weights_in,
                                .dispatch_gemm = Fusion::kNone,
                                .gemm_combine = Fusion::kNone};
  (dispatches_ ? config.dispatch_gemm : config.gemm_combine) = choice.fusion;
  (dispatches_ ? config.dispatch_gemm_tuning : config.gemm_combine_tuning) = choice.tuning;
  // All ways have the results of the first one.
  if (!calls_.empty()) {
    config.ep.combine_order = calls_.front().experts->config().ep.combine_order;
  }
  return config;
}

absl::Status FusedRun::AddWhole(const FusedWay& way, TraceCollector* trace) {
  OCTET_ASSIGN_OR_RETURN(
      std::unique_ptr<RoutedExperts> experts,
      RoutedExperts::Create(node_, ConfigOf(way.choice),
                            {.trace = trace, .use_measured_tuning = options_.use_measured_tuning}));
  const RoutedExpertsConfig& config = experts->config();
  Series whole = {.has_product = true, .has_links = true};
  whole.row.choice = dispatches_ ? FusedChoice{config.dispatch_gemm, config.dispatch_gemm_tuning}
                                 : FusedChoice{config.gemm_combine, config.gemm_combine_tuning};
  whole.row.what = way.name.empty() ? std::string(EnumName(whole.row.choice.fusion)) : way.name;
  whole.row.chosen = way.choice.fusion == Fusion::kAuto;
  calls_.push_back({std::move(experts), series_.size(), trace != nullptr});
  series_.push_back(std::move(whole));
  return absl::OkStatus();
}

absl::Status FusedRun::Init() {
  series_.push_back({.row = {.what = dispatches_ ? "dispatch" : "combine"}, .has_links = true});
  series_.push_back({.row = {.what = "gemm"}, .has_product = true});
  OCTET_RETURN_IF_ERROR(AddWhole({.choice = {.fusion = Fusion::kNone}}));
  for (const FusedWay& way : options_.ways) {
    if (way.choice.fusion == Fusion::kNone) continue;
    const absl::Status status = AddWhole(way);
    if (status.ok()) continue;
    const bool refused = absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
    if (!refused) return status;
    left_out_.push_back({way.name.empty() ? std::string(EnumName(way.choice.fusion)) : way.name,
                         std::string(status.message())});
  }
  config_ = none().config();
  product_ = dispatches_ ? FirstProduct(config_, node_.num_ranks())
                         : SecondProduct(config_, node_.num_ranks());
  return node_.Run([this](const Rank& rank) { return InitRank(rank); });
}

absl::Status FusedRun::InitRank(const Rank& rank) {
  RankMemory& mine = MemoryOf(rank);
  OCTET_ASSIGN_OR_RETURN(mine.buffers, StepBuffers::Create(rank, config_.ep, false));
  OCTET_ASSIGN_OR_RETURN(mine.staging,
                         PinnedMemory::Allocate(std::max(kStagingBytes, LargestRow(config_.ep))));
  OCTET_ASSIGN_OR_RETURN(mine.flush, L2Flush::Create(node_.topology().emulated()));
  OCTET_ASSIGN_OR_RETURN(mine.gemm, GroupedGemm::Create(product_));
  const auto seed = static_cast<uint32_t>(options_.run.workload.seed) * 100 +
                    2 * static_cast<uint32_t>(rank.rank());
  OCTET_ASSIGN_OR_RETURN(
      mine.b, RandomGemmElements(product_.weight_format(),
                                 int64_t{product_.experts} * product_.n * product_.k, seed));
  if (product_.weight_format().has_scales()) {
    OCTET_ASSIGN_OR_RETURN(
        mine.b_scales, RandomGemmScales(product_.weight_format(),
                                        int64_t{product_.experts} * product_.weight_scale_rows() *
                                            product_.scale_words(),
                                        seed));
  }
  const auto rows = static_cast<size_t>(product_.max_rows);
  const auto element_bytes = InfoOf(config_.ep.dtype).bytes;
  size_t out_bytes = rows * static_cast<size_t>(config_.intermediate) * element_bytes;
  if (!dispatches_) {
    OCTET_ASSIGN_OR_RETURN(mine.a, RandomGemmElements(product_.row_format(),
                                                      product_.max_rows * product_.k, seed + 1));
    out_bytes = static_cast<size_t>(config_.ep.max_tokens_per_rank) * config_.ep.dtype_row_bytes();
    if (!SecondProductInPlace(config_.ep)) {
      OCTET_ASSIGN_OR_RETURN(mine.second_out,
                             DeviceMemory::Allocate(rows * config_.ep.dtype_row_bytes()));
    }
  }
  OCTET_ASSIGN_OR_RETURN(mine.expected, DeviceMemory::Allocate(out_bytes));
  OCTET_ASSIGN_OR_RETURN(mine.out, DeviceMemory::Allocate(out_bytes));
  return OCTET_GPU(hipDeviceSynchronize());
}

absl::Status FusedRun::Poison(Rank& rank, const DeviceMemory& memory) {
  OCTET_RETURN_IF_GPU_ERROR(hipMemsetAsync(memory.as<void>(), 0xff, memory.bytes(), rank.stream()));
  return MemoryOf(rank).flush.Enqueue(rank.stream());
}

// ---- The calls.

DispatchGemmArgs FusedRun::DispatchGemmArgsOf(const Rank& rank) {
  RankMemory& mine = MemoryOf(rank);
  return {.dispatch = mine.buffers.dispatch_args(),
          .b = mine.b.as<void>(),
          .b_scales = mine.b_scales.as<void>(),
          .out = mine.out.as<void>()};
}

GemmCombineArgs FusedRun::GemmCombineArgsOf(const Rank& rank) {
  RankMemory& mine = MemoryOf(rank);
  return {.a = mine.a.as<void>(), .b = mine.b.as<void>(), .y = mine.out.as<void>()};
}

void* FusedRun::ProductOut(const Rank& rank) {
  RankMemory& mine = MemoryOf(rank);
  if (dispatches_) return mine.expected.as<void>();
  return SecondProductInPlace(config_.ep) ? const_cast<void*>(mine.received.x)
                                          : mine.second_out.as<void>();
}

GroupedGemmArgs FusedRun::ProductArgs(const Rank& rank) {
  const Received& received = MemoryOf(rank).received;
  if (!dispatches_) return SecondProductArgs(GemmCombineArgsOf(rank), received, ProductOut(rank));
  DispatchGemmArgs args = DispatchGemmArgsOf(rank);
  args.out = ProductOut(rank);
  return FirstProductArgs(config_, args, received);
}

absl::Status FusedRun::DispatchSeparately(Rank& rank) {
  RankMemory& mine = MemoryOf(rank);
  OCTET_ASSIGN_OR_RETURN(mine.received, none().ep().Dispatch(rank, mine.buffers.dispatch_args()));
  return absl::OkStatus();
}

absl::Status FusedRun::Multiply(Rank& rank) {
  return MemoryOf(rank).gemm->Run(ProductArgs(rank), rank.stream());
}

// Times both parts, and verifies them before the combine overwrites the product. Each timed call
// follows a dispatch that is not timed: links that have been idle are slow for some 100 us.
absl::Status FusedRun::TimeParts(const Workload& workload, Findings* findings) {
  const auto dispatch = [this](Rank& rank) { return DispatchSeparately(rank); };
  const auto multiply = [this](Rank& rank) { return Multiply(rank); };
  const auto nothing = [](const Rank& /*rank*/) { return absl::OkStatus(); };
  if (dispatches_) {
    OCTET_ASSIGN_OR_RETURN(part_us_[kLinks], timer_.TimeFromHost(dispatch, dispatch));
  }
  const auto before_product = [&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(Poison(rank, MemoryOf(rank).expected));
    return dispatches_ ? absl::OkStatus() : dispatch(rank);
  };
  OCTET_ASSIGN_OR_RETURN(part_us_[kProduct], timer_.TimeFromHost(before_product, multiply));
  if (findings != nullptr) {
    OCTET_RETURN_IF_ERROR(
        node_.Run([&](Rank& rank) { return VerifyParts(rank, workload, *findings); }));
  }
  if (dispatches_) return absl::OkStatus();
  const bool unweighted = options_.weights_in == WeightsIn::kFirstProduct;
  OCTET_ASSIGN_OR_RETURN(part_us_[kLinks], timer_.TimeFromHost(nothing, [&](Rank& rank) {
    const RankMemory& mine = MemoryOf(rank);
    return none().ep().Combine(rank, mine.received.handle,
                               {.expert_out = ProductOut(rank),
                                .y = mine.expected.as<void>(),
                                .high_throughput = {.unweighted = unweighted}});
  }));
  return absl::OkStatus();
}

absl::StatusOr<double> FusedRun::TimeCall(const Contender& contender) {
  RoutedExperts& experts = *contender.experts;
  // The dispatch before a DispatchGemm only keeps the links awake: it is none of the trace's.
  ExpertParallel& before = dispatches_ && contender.traced ? none().ep() : experts.ep();
  std::vector<FusedReceived> received(memory_.size());
  const auto prepare = [&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(Poison(rank, MemoryOf(rank).out));
    OCTET_ASSIGN_OR_RETURN(received[Index(rank)].received,
                           before.Dispatch(rank, MemoryOf(rank).buffers.dispatch_args()));
    return absl::OkStatus();
  };
  return timer_.TimeFromHost(prepare, [&](Rank& rank) {
    return dispatches_ ? experts.DispatchGemm(rank, DispatchGemmArgsOf(rank)).status()
                       : experts.GemmCombine(rank, received[Index(rank)], GemmCombineArgsOf(rank));
  });
}

// ---- Steps.

void FusedRun::Record(const Workload& workload, size_t series, double us, RoutedExperts& experts) {
  Series& each = series_[series];
  each.row.us.push_back(us);
  int64_t choices = 0;
  int64_t wire_bytes = 0;
  for (int rank = 0; rank < node_.num_ranks(); ++rank) {
    const absl::Span<const int32_t> topk_idx =
        workload.inputs()[static_cast<size_t>(rank)].topk_idx;
    choices += std::count_if(topk_idx.begin(), topk_idx.end(), [](int32_t id) { return id >= 0; });
    const Traffic traffic = dispatches_ ? experts.DispatchGemmTraffic(rank, topk_idx)
                                        : experts.ep().CombineTraffic(rank, topk_idx);
    wire_bytes = std::max(wire_bytes, traffic.wire_bytes);
  }
  constexpr double kTera = 1e-6;  // of 1 / us
  const double flops = 2.0 * static_cast<double>(choices) * product_.n * product_.k;
  each.tflops.push_back(us > 0 ? flops / node_.num_ranks() / us * kTera : 0);
  each.wire_gbps.push_back(Gbps(wire_bytes, us));
}

absl::Status FusedRun::Upload(const Workload& workload) {
  return node_.Run([&](Rank& rank) -> absl::Status {
    OCTET_RETURN_IF_ERROR(MemoryOf(rank).buffers.Upload(rank, workload.inputs()[Index(rank)]));
    return rank.Synchronize();
  });
}

absl::Status FusedRun::Verify(const Workload& workload, const Contender& contender,
                              Findings& findings) {
  return node_.Run(
      [&](Rank& rank) { return VerifyCall(rank, workload, contender.series, findings); });
}

absl::Status FusedRun::Step(const Workload& workload, bool timed, Findings* findings) {
  OCTET_RETURN_IF_ERROR(Upload(workload));
  OCTET_RETURN_IF_ERROR(TimeParts(workload, findings));
  for (const size_t part : {kLinks, kProduct}) {
    if (timed) Record(workload, part, part_us_[part], none());
  }
  for (const Contender& contender : calls_) {
    OCTET_ASSIGN_OR_RETURN(const double us, TimeCall(contender));
    if (timed) Record(workload, contender.series, us, *contender.experts);
    if (findings == nullptr) continue;
    OCTET_RETURN_IF_ERROR(Verify(workload, contender, *findings));
  }
  return absl::OkStatus();
}

// Plain combines are verified by octet perf without an operation.
absl::Status FusedRun::VerifyParts(Rank& rank, const Workload& workload, Findings& findings) {
  RankMemory& mine = MemoryOf(rank);
  HostReader reader(rank, mine.staging);
  if (dispatches_) {
    Verification found;
    OCTET_RETURN_IF_ERROR(StepVerifier(reader, config_.ep, workload.inputs(), rank.rank())
                              .CheckReceived(mine.received, found));
    findings.Add(kLinks, found.wrong_rows, found.first);
  }
  const ReferenceReceived reference = ReferenceDispatch(config_.ep, workload.inputs(), rank.rank());
  const bool weighted = dispatches_ && options_.weights_in == WeightsIn::kFirstProduct;
  OCTET_ASSIGN_OR_RETURN(
      const GemmCheck check,
      CheckGemmSamples({.config = product_,
                        .args = ProductArgs(rank),
                        .offsets = reference.expert_offsets,
                        .counts = reference.expert_counts,
                        .row_scale = weighted ? absl::MakeConstSpan(reference.row_weights)
                                              : absl::Span<const float>()},
                       kSamples, static_cast<uint32_t>(rank.rank())));
  findings.Add(kProduct, check.wrong,
               absl::StrCat("rank ", rank.rank(), ", gemm: ", check.first_wrong));
  return absl::OkStatus();
}

absl::Status FusedRun::VerifyCall(Rank& rank, const Workload& workload, size_t series,
                                  Findings& findings) {
  RankMemory& mine = MemoryOf(rank);
  const EpConfig& ep = config_.ep;
  const size_t columns =
      static_cast<size_t>(dispatches_ ? config_.intermediate : config_.ep.hidden);
  const size_t rows = dispatches_
                          ? ReferenceDispatch(ep, workload.inputs(), rank.rank()).sources.size()
                          : static_cast<size_t>(mine.buffers.num_tokens());
  HostReader reader(rank, mine.staging);
  std::vector<uint16_t> want;
  std::vector<uint16_t> got;
  OCTET_RETURN_IF_ERROR(reader.Read(mine.expected.as<void>(), rows * columns, want));
  OCTET_RETURN_IF_ERROR(reader.Read(mine.out.as<void>(), rows * columns, got));
  int64_t wrong = 0;
  size_t first = 0;
  for (size_t row = 0; row < rows; ++row) {
    const auto row_of = [&](const std::vector<uint16_t>& all) {
      return absl::MakeConstSpan(all).subspan(row * columns, columns);
    };
    if (SameBits(ep.dtype, row_of(got), row_of(want))) continue;
    if (wrong++ == 0) first = row;
  }
  findings.Add(series, wrong,
               absl::StrCat("rank ", rank.rank(), ", ", series_[series].row.what, ": row ", first,
                            " of ", dispatches_ ? "h" : "y", " is not that of separate calls"));
  return absl::OkStatus();
}

absl::StatusOr<FusedReport> FusedRun::Run(const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options_.run.workload));
  const int iters = options_.run.iters;
  const int checked = std::min(options_.check_steps, iters);
  Findings findings(series_.size());
  uint32_t step = 0;
  for (int i = 0; i < options_.run.warmup; ++i) {
    progress.Show("warm-up step", i + 1, options_.run.warmup);
    workload->Generate(step++);
    OCTET_RETURN_IF_ERROR(Step(*workload, false, nullptr));
  }
  for (int i = 0; i < iters; ++i) {
    progress.Show("step", i + 1, iters);
    workload->Generate(step++);
    OCTET_RETURN_IF_ERROR(Step(*workload, true, i >= iters - checked ? &findings : nullptr));
  }
  FusedReport report = {.options = options_,
                        .config = config_.ep,
                        .tokens = workload->num_tokens(0),
                        .left_out = left_out_,
                        .verified_steps = checked,
                        .first_difference = findings.first()};
  const double links = Summarize(series_[kLinks].row.us).median;
  const double product = Summarize(series_[kProduct].row.us).median;
  for (size_t i = 0; i < series_.size(); ++i) {
    Series& each = series_[i];
    if (each.has_product) each.row.tflops = Summarize(each.tflops).median;
    if (each.has_links) each.row.wire_gbps = Summarize(each.wire_gbps).median;
    const bool whole = each.has_product && each.has_links;
    if (whole && std::min(links, product) > 0) {
      const double alone = std::max(links, product);
      each.row.overlap = 1 - (Summarize(each.row.us).median - alone) / std::min(links, product);
    }
    const bool verified = whole || i == kProduct || dispatches_;
    if (checked > 0 && verified) each.row.wrong = findings.wrong(i);
    report.rows.push_back(std::move(each.row));
  }
  return report;
}

// ---- Traces.

absl::StatusOr<std::unique_ptr<TraceCollector>> FusedRun::MakeCollector() {
  constexpr int kEventsPerTrack = 4096;
  constexpr int kMostBlocksPerUnit = 4;  // of any kernel that records
  int units = 0;
  for (const GpuInfo& gpu : node_.topology().gpus) units = std::max(units, gpu.num_compute_units);
  return TraceCollector::Create(node_,
                                std::max(config_.ep.tuning.blocks, units * kMostBlocksPerUnit),
                                kEventsPerTrack, RoutedExperts::kTraceTracks);
}

absl::StatusOr<FusedTrace> FusedRun::Trace(const Progress& progress) {
  if (!left_out_.empty()) return absl::InvalidArgumentError(left_out_.front().reason);
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<TraceCollector> collector, MakeCollector());
  OCTET_RETURN_IF_ERROR(AddWhole(options_.ways.front(), collector.get()));
  const Contender& plain = *(calls_.end() - 2);
  const Contender& traced = calls_.back();
  OCTET_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload,
                         Workload::Create(options_.run.workload));
  FusedTrace trace = {.options = options_,
                      .config = config_.ep,
                      .what = series_[traced.series].row.what,
                      .tags = fused::FusedTraceTags(traced.experts->ep()),
                      .first_product_tag = fused::FirstProductTag(traced.experts->ep())};
  Findings findings(series_.size());
  const int steps = options_.run.warmup + options_.run.iters;
  for (int i = 0; i < steps; ++i) {
    progress.Show("call with and without a trace", i + 1, steps);
    workload->Generate(static_cast<uint32_t>(i));
    OCTET_RETURN_IF_ERROR(Upload(*workload));
    const bool checked = i >= steps - options_.check_steps;
    OCTET_RETURN_IF_ERROR(TimeParts(*workload, checked ? &findings : nullptr));
    OCTET_ASSIGN_OR_RETURN(const double plain_us, TimeCall(plain));
    OCTET_RETURN_IF_ERROR(collector->Clear());
    OCTET_ASSIGN_OR_RETURN(const double traced_us, TimeCall(traced));
    if (checked) OCTET_RETURN_IF_ERROR(Verify(*workload, traced, findings));
    if (i < options_.run.warmup) continue;
    trace.plain_us.push_back(plain_us);
    trace.traced_us.push_back(traced_us);
  }
  OCTET_ASSIGN_OR_RETURN(trace.slices, collector->Collect());
  trace.events_dropped = collector->num_dropped();
  trace.first_difference = findings.first();
  calls_.pop_back();  // before the collector
  return trace;
}

}  // namespace

std::vector<FusedWay> FusedAblation() {
  const auto way = [](const char* name, const FusedTuning& tuning) {
    return FusedWay{.choice = {.fusion = Fusion::kTiles, .tuning = tuning}, .name = name};
  };
  return {way("tiles", {}), way("1-stage", {.stages = 1}),
          way("by-token", {.send_order = SendOrder::kToken}),
          way("by-expert", {.tile_waits = TileWaits::kExpert}),
          way("plain",
              {.send_order = SendOrder::kToken, .tile_waits = TileWaits::kExpert, .stages = 1})};
}

absl::StatusOr<FusedTrace> TraceFused(Node& node, const FusedRunOptions& options,
                                      const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::Create(node));
  FusedRun run(node, options, std::move(timer));
  OCTET_RETURN_IF_ERROR(run.Init());
  return run.Trace(progress);
}

absl::StatusOr<FusedReport> MeasureFused(Node& node, const FusedRunOptions& options,
                                         const Progress& progress) {
  OCTET_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::Create(node));
  FusedRun run(node, options, std::move(timer));
  OCTET_RETURN_IF_ERROR(run.Init());
  return run.Run(progress);
}

}  // namespace octet
