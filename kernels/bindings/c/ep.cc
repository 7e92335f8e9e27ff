// ExpertParallel in C.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/bindings/c/abi.h"
#include "kernels/bindings/c/handles.h"
#include "octet/domain.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/octet.h"
#include "octet/received.h"
#include "octet/row_source.h"
#include "octet/symmetric_heap.h"
#include "runtime/base/status_macros.h"

namespace octet::c {
namespace {

octet_ep_config ConfigOf(const EpConfig& config) {
  return {.size = sizeof(octet_ep_config),
          .num_experts = config.num_experts,
          .topk = config.topk,
          .hidden = config.hidden,
          .max_tokens_per_rank = config.max_tokens_per_rank,
          .dtype = CodeOf(config.dtype),
          .strategy = static_cast<int32_t>(config.strategy),
          .combine_order = static_cast<int32_t>(config.combine_order),
          .combine_method = static_cast<int32_t>(config.combine_method),
          .dispatch_format = static_cast<int32_t>(config.dispatch_format),
          .output = static_cast<int32_t>(config.output),
          .scale_format = static_cast<int32_t>(config.scale_format),
          .scale_group = config.scale_group,
          .max_blocks = config.max_blocks,
          .failure_policy = static_cast<int32_t>(config.low_latency.failure_policy),
          .mask_timeout_ns = absl::ToInt64Nanoseconds(config.low_latency.mask_timeout),
          .statistics = config.low_latency.statistics ? 1 : 0,
          .duplicates = static_cast<int32_t>(config.high_throughput.duplicates),
          .expert_alignment = config.high_throughput.expert_alignment,
          .row_bytes = config.high_throughput.row_bytes,
          .kept_layouts = config.high_throughput.kept_layouts,
          .host_totals = config.high_throughput.host_totals ? 1 : 0,
          .placement = config.placement.empty() ? nullptr : config.placement.slots().data(),
          .placement_slots = config.placement.slots_per_rank(),
          .capacity_rows = config.capacity_rows,
          .count_loads = config.loads.count ? 1 : 0,
          .load_window = config.loads.window};
}

absl::StatusOr<CombineArgs> CombineArgsOf(const octet_combine_args* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_combine_args read, Read("args", given));
  CombineArgs args = {.expert_out = read.expert_out, .y = read.y, .bias = read.bias};
  args.high_throughput.unweighted = read.unweighted != 0;
  return args;
}

// A call on a rank with an object and a handle of a dispatch.
absl::Status CheckCall(const octet_ep* ep, const octet_rank* rank) {
  return NotNull({{"ep", ep}, {"rank", rank}});
}

void CopyNanoseconds(const std::vector<absl::Duration>& from, int64_t* to) {
  if (to == nullptr) return;
  std::transform(from.begin(), from.end(), to,
                 [](absl::Duration each) { return absl::ToInt64Nanoseconds(each); });
}

static_assert(std::is_trivially_copyable_v<DispatchHandle>);
static_assert(sizeof(DispatchHandle) <= sizeof(octet_dispatch_handle));
static_assert(sizeof(RowSource) == 4 * sizeof(int32_t));
static_assert(sizeof(RowRange) == 2 * sizeof(int32_t));
static_assert(sizeof(LeftOut) == 2 * sizeof(uint32_t));

}  // namespace

octet_dispatch_handle HandleOf(const DispatchHandle& handle) {
  octet_dispatch_handle out = {};
  std::memcpy(&out, &handle, sizeof(handle));
  return out;
}

DispatchHandle HandleOf(const octet_dispatch_handle& handle) {
  DispatchHandle out;
  std::memcpy(static_cast<void*>(&out), &handle, sizeof(out));
  return out;
}

absl::StatusOr<EpConfig> EpConfigOf(absl::string_view name, const octet_ep_config* given,
                                    int num_ranks) {
  OCTET_ASSIGN_OR_RETURN(const octet_ep_config read, Read(name, given));
  EpConfig config;
  config.num_experts = read.num_experts;
  config.topk = read.topk;
  config.hidden = read.hidden;
  config.max_tokens_per_rank = read.max_tokens_per_rank;
  OCTET_RETURN_IF_ERROR(ReadDType("dtype", read.dtype, &config.dtype));
  OCTET_RETURN_IF_ERROR(ReadEnum("strategy", read.strategy, &config.strategy));
  OCTET_RETURN_IF_ERROR(ReadEnum("combine_order", read.combine_order, &config.combine_order));
  OCTET_RETURN_IF_ERROR(ReadEnum("combine_method", read.combine_method, &config.combine_method));
  OCTET_RETURN_IF_ERROR(ReadEnum("dispatch_format", read.dispatch_format, &config.dispatch_format));
  OCTET_RETURN_IF_ERROR(ReadEnum("output", read.output, &config.output));
  OCTET_RETURN_IF_ERROR(ReadEnum("scale_format", read.scale_format, &config.scale_format));
  if (read.scale_group != 0) config.scale_group = read.scale_group;
  config.max_blocks = read.max_blocks;
  LowLatencyOptions& low_latency = config.low_latency;
  OCTET_RETURN_IF_ERROR(
      ReadEnum("failure_policy", read.failure_policy, &low_latency.failure_policy));
  low_latency.mask_timeout = absl::Nanoseconds(read.mask_timeout_ns);
  low_latency.statistics = read.statistics != 0;
  HighThroughputOptions& high_throughput = config.high_throughput;
  OCTET_RETURN_IF_ERROR(ReadEnum("duplicates", read.duplicates, &high_throughput.duplicates));
  high_throughput.expert_alignment = OrOne(read.expert_alignment);
  high_throughput.row_bytes = read.row_bytes;
  high_throughput.kept_layouts = OrOne(read.kept_layouts);
  high_throughput.host_totals = read.host_totals != 0;
  OCTET_ASSIGN_OR_RETURN(config.placement, PlacementOf({read.placement, read.num_experts, num_ranks,
                                                        read.placement_slots}));
  config.capacity_rows = read.capacity_rows;
  config.loads = {.count = read.count_loads != 0, .window = read.load_window};
  return config;
}

absl::StatusOr<ExpertParallelOptions> EpOptionsOf(const octet_ep_options* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_ep_options read, ReadOptional("options", given));
  ExpertParallelOptions options;
  if (read.name != nullptr) options.name = read.name;
  if (read.heap != nullptr) options.heap = read.heap->heap.get();
  options.use_measured_tuning = read.no_measured_tuning == 0;
  options.rails.chunk_tokens = read.rail_chunk_tokens;
  return options;
}

absl::StatusOr<DispatchArgs> DispatchArgsOf(absl::string_view name,
                                            const octet_dispatch_args* given,
                                            DispatchHandle* cached) {
  OCTET_ASSIGN_OR_RETURN(const octet_dispatch_args read, Read(name, given));
  DispatchArgs args = {.x = read.x, .topk_idx = read.topk_idx, .topk_weights = read.topk_weights};
  OCTET_ASSIGN_OR_RETURN(args.num_tokens,
                         ReadInt(absl::StrCat(name, "->num_tokens"), read.num_tokens));
  args.high_throughput.x_scales = read.x_scales;
  args.high_throughput.scatter_idx = read.scatter_idx;
  if (read.cached != nullptr) {
    *cached = HandleOf(*read.cached);
    args.high_throughput.cached = cached;
  }
  return args;
}

octet_received ReceivedOf(const Received& received) {
  const HighThroughputReceived& high_throughput = received.high_throughput;
  const LowLatencyReceived& low_latency = received.low_latency;
  return {.size = sizeof(octet_received),
          .x = received.x,
          .scales = received.scales,
          .expert_counts = received.expert_counts,
          .expert_offsets = received.expert_offsets,
          .sources = reinterpret_cast<const int32_t*>(received.sources),
          .row_bytes = received.row_bytes,
          .max_rows = received.max_rows,
          .handle = HandleOf(received.handle),
          .source_offsets = high_throughput.source_offsets,
          .row_weights = high_throughput.row_weights,
          .row_index = high_throughput.row_index,
          .recv_topk_idx = high_throughput.recv_topk_idx,
          .recv_topk_weights = high_throughput.recv_topk_weights,
          .num_rows = high_throughput.num_rows,
          .num_tokens = high_throughput.num_tokens,
          .host_expert_counts = high_throughput.host_expert_counts.data(),
          .ranges = reinterpret_cast<const int32_t*>(low_latency.ranges),
          .split_counts = low_latency.split_counts,
          .left_out = reinterpret_cast<const uint32_t*>(low_latency.left_out)};
}

absl::StatusOr<Received> ReceivedOf(absl::string_view name, const octet_received* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_received read, Read(name, given));
  Received received;
  received.x = read.x;
  received.scales = read.scales;
  received.expert_counts = read.expert_counts;
  received.expert_offsets = read.expert_offsets;
  received.sources = reinterpret_cast<const RowSource*>(read.sources);
  received.row_bytes = read.row_bytes;
  OCTET_ASSIGN_OR_RETURN(received.max_rows, ReadInt("max_rows", read.max_rows));
  received.handle = HandleOf(read.handle);
  received.high_throughput.row_weights = read.row_weights;
  return received;
}

octet_ep_info EpInfoOf(const EpConfig& config, int num_ranks) {
  return {.size = sizeof(octet_ep_info),
          .local_experts = config.num_local_experts(num_ranks),
          .max_rows = config.max_rows(num_ranks),
          .expert_out_rows = config.expert_out_rows(num_ranks),
          .scale_words = config.scale_words(),
          .dispatch_row_bytes = config.dispatch_row_bytes(),
          .received_row_bytes = config.received_row_bytes()};
}

namespace {

absl::Status Dispatch(octet_ep* ep, octet_rank* rank, const octet_dispatch_args* given,
                      octet_received* received) {
  OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
  OCTET_RETURN_IF_ERROR(CheckOut("received", received));
  DispatchHandle cached;
  OCTET_ASSIGN_OR_RETURN(const DispatchArgs args, DispatchArgsOf("args", given, &cached));
  OCTET_ASSIGN_OR_RETURN(const Received result, ep->ep->Dispatch(rank->rank, args));
  Write(ReceivedOf(result), received);
  return absl::OkStatus();
}

}  // namespace
}  // namespace octet::c

using octet::c::Call;
using octet::c::CheckCall;
using octet::c::HandleOf;
using octet::c::NotNull;

int32_t octet_ep_create(octet_domain* domain, const octet_ep_config* config,
                        const octet_ep_options* options, octet_ep** ep) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}, {"ep", ep}}));
    OCTET_ASSIGN_OR_RETURN(const octet::EpConfig read,
                           octet::c::EpConfigOf("config", config, domain->domain->num_ranks()));
    OCTET_ASSIGN_OR_RETURN(const octet::ExpertParallelOptions read_options,
                           octet::c::EpOptionsOf(options));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::ExpertParallel> made,
                           octet::ExpertParallel::Create(*domain->domain, read, read_options));
    *ep = new octet_ep{domain->objects, std::move(made), domain->domain->num_ranks()};
    return absl::OkStatus();
  });
}

void octet_ep_destroy(octet_ep* ep) { octet::c::Destroy(ep); }

int32_t octet_ep_heap_bytes(const octet_ep_config* config, int32_t num_ranks,
                            uint64_t* uncached_bytes, uint64_t* cached_bytes) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        NotNull({{"uncached_bytes", uncached_bytes}, {"cached_bytes", cached_bytes}}));
    OCTET_ASSIGN_OR_RETURN(const octet::EpConfig read,
                           octet::c::EpConfigOf("config", config, num_ranks));
    OCTET_ASSIGN_OR_RETURN(const octet::HeapSize bytes,
                           octet::ExpertParallel::HeapBytes(read, num_ranks));
    *uncached_bytes = bytes.uncached;
    *cached_bytes = bytes.cached;
    return absl::OkStatus();
  });
}

int32_t octet_ep_get_config(const octet_ep* ep, octet_ep_config* config) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"ep", ep}}));
    OCTET_RETURN_IF_ERROR(octet::c::CheckOut("config", config));
    octet::c::Write(octet::c::ConfigOf(ep->ep->config()), config);
    return absl::OkStatus();
  });
}

int32_t octet_ep_get_info(const octet_ep* ep, octet_ep_info* info) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"ep", ep}}));
    OCTET_RETURN_IF_ERROR(octet::c::CheckOut("info", info));
    octet::c::Write(octet::c::EpInfoOf(ep->ep->config(), ep->num_ranks), info);
    return absl::OkStatus();
  });
}

int32_t octet_ep_dispatch(octet_ep* ep, octet_rank* rank, const octet_dispatch_args* args,
                          octet_received* received) {
  return Call(__func__, [&] { return octet::c::Dispatch(ep, rank, args, received); });
}

int32_t octet_ep_combine(octet_ep* ep, octet_rank* rank, const octet_dispatch_handle* handle,
                         const octet_combine_args* args) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    OCTET_RETURN_IF_ERROR(NotNull({{"handle", handle}}));
    OCTET_ASSIGN_OR_RETURN(const octet::CombineArgs read, octet::c::CombineArgsOf(args));
    return ep->ep->Combine(rank->rank, HandleOf(*handle), read);
  });
}

int32_t octet_ep_dispatch_send(octet_ep* ep, octet_rank* rank, const octet_dispatch_args* args,
                               octet_dispatch_handle* handle) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    OCTET_RETURN_IF_ERROR(NotNull({{"handle", handle}}));
    octet::DispatchHandle cached;
    OCTET_ASSIGN_OR_RETURN(const octet::DispatchArgs read,
                           octet::c::DispatchArgsOf("args", args, &cached));
    OCTET_ASSIGN_OR_RETURN(const octet::DispatchHandle sent,
                           ep->ep->DispatchSend(rank->rank, read));
    *handle = HandleOf(sent);
    return absl::OkStatus();
  });
}

int32_t octet_ep_dispatch_receive(octet_ep* ep, octet_rank* rank,
                                  const octet_dispatch_handle* handle, octet_received* received) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    OCTET_RETURN_IF_ERROR(NotNull({{"handle", handle}}));
    OCTET_RETURN_IF_ERROR(octet::c::CheckOut("received", received));
    OCTET_ASSIGN_OR_RETURN(const octet::Received result,
                           ep->ep->DispatchReceive(rank->rank, HandleOf(*handle)));
    octet::c::Write(octet::c::ReceivedOf(result), received);
    return absl::OkStatus();
  });
}

int32_t octet_ep_combine_send(octet_ep* ep, octet_rank* rank, const octet_dispatch_handle* handle,
                              const octet_combine_args* args) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    OCTET_RETURN_IF_ERROR(NotNull({{"handle", handle}}));
    OCTET_ASSIGN_OR_RETURN(const octet::CombineArgs read, octet::c::CombineArgsOf(args));
    return ep->ep->CombineSend(rank->rank, HandleOf(*handle), read);
  });
}

int32_t octet_ep_combine_receive(octet_ep* ep, octet_rank* rank,
                                 const octet_dispatch_handle* handle,
                                 const octet_combine_args* args) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    OCTET_RETURN_IF_ERROR(NotNull({{"handle", handle}}));
    OCTET_ASSIGN_OR_RETURN(const octet::CombineArgs read, octet::c::CombineArgsOf(args));
    return ep->ep->CombineReceive(rank->rank, HandleOf(*handle), read);
  });
}

int32_t octet_ep_masked_ranks(octet_ep* ep, octet_rank* rank, uint32_t* ranks) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    OCTET_RETURN_IF_ERROR(NotNull({{"ranks", ranks}}));
    OCTET_ASSIGN_OR_RETURN(*ranks, ep->ep->MaskedRanks(rank->rank));
    return absl::OkStatus();
  });
}

int32_t octet_ep_mask(octet_ep* ep, octet_rank* rank, uint32_t ranks) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    return ep->ep->Mask(rank->rank, ranks);
  });
}

int32_t octet_ep_unmask(octet_ep* ep, octet_rank* rank, uint32_t still_masked) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    return ep->ep->Unmask(rank->rank, still_masked);
  });
}

int32_t octet_ep_statistics(octet_ep* ep, octet_rank* rank, int64_t* expert_rows,
                            int64_t* dispatch_waits_ns, int64_t* combine_waits_ns) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    OCTET_ASSIGN_OR_RETURN(const octet::EpStatistics statistics, ep->ep->Statistics(rank->rank));
    if (expert_rows != nullptr) {
      std::copy(statistics.expert_rows.begin(), statistics.expert_rows.end(), expert_rows);
    }
    octet::c::CopyNanoseconds(statistics.dispatch_waits, dispatch_waits_ns);
    octet::c::CopyNanoseconds(statistics.combine_waits, combine_waits_ns);
    return absl::OkStatus();
  });
}

int32_t octet_ep_reset_statistics(octet_ep* ep, octet_rank* rank) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(CheckCall(ep, rank));
    return ep->ep->ResetStatistics(rank->rank);
  });
}

int32_t octet_ep_loads(const octet_ep* ep, int64_t* rows, int64_t* window) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"ep", ep}}));
    OCTET_ASSIGN_OR_RETURN(const octet::ExpertLoads loads, ep->ep->Loads());
    octet::c::CopyLoads(loads, rows, window);
    return absl::OkStatus();
  });
}
