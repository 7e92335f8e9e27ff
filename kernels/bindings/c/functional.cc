// Dispatch and combine of arrays: octet/c/functional.h.
#include <hip/hip_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/bindings/c/abi.h"
#include "kernels/bindings/c/deliver.h"
#include "kernels/bindings/c/handles.h"
#include "octet/ep_config.h"
#include "octet/expert_parallel.h"
#include "octet/node.h"
#include "octet/octet.h"
#include "octet/received.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/launch_shape.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/node_memory.h"

namespace octet::c {
namespace {

constexpr int kLines = 2;
// Forward and backward dispatches of a program come in turn, and those that are repeated for the
// backward pass come between them.
constexpr int kKeptLayouts = 4;
constexpr int kThreads = 256;
constexpr int kBlocksPerUnit = 4;
constexpr int kVecBytes = 16;

struct Line {
  DispatchHandle handle;
  bool used = false;
  uint32_t* counter = nullptr;  // in GPU memory
};

struct OfRank {
  Line lines[kLines];
  const void* rows = nullptr;  // where all dispatches receive; nullptr: not the same place
  uint32_t* wrong = nullptr;   // in host memory: a combine had another ticket than the last
  int num_local_experts = 0;
  int most_blocks = 1;
};

size_t Index(int value) { return static_cast<size_t>(value); }

absl::Status WrongTicket(int rank) {
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank,
      ": a combine was not of the last dispatch before it, so that its result is wrong; let the "
      "later dispatch depend on the result of the combine"));
}

}  // namespace
}  // namespace octet::c

struct octet_functional {
  std::shared_ptr<octet::c::NodeObjects> objects;
  std::unique_ptr<octet_ep> ep;
  std::unique_ptr<octet::NodeMemory> memory;
  std::vector<octet::c::OfRank> ranks;
};

namespace octet::c {
namespace {

absl::Status CheckConfig(const EpConfig& config) {
  if (config.output != Output::kPackedExperts || config.dispatch_format != DispatchFormat::kSame ||
      config.high_throughput.duplicates != Duplicates::kFill ||
      config.low_latency.failure_policy != FailurePolicy::kAbort) {
    return Refused(
        "functional calls have rows of the dtype, packed by expert: output, dispatch_format, "
        "duplicates and failure_policy must be 0");
  }
  return absl::OkStatus();
}

// On the rank's thread, before any call.
absl::Status Prepare(octet_functional& functional, Rank& rank) {
  OfRank& mine = functional.ranks[Index(rank.rank())];
  OCTET_RETURN_IF_GPU_ERROR(LoadDeliver());
  OCTET_ASSIGN_OR_RETURN(const absl::Span<uint32_t> counters,
                         functional.memory->Device<uint32_t>(kLines));
  OCTET_RETURN_IF_GPU_ERROR(
      hipMemsetAsync(counters.data(), 0, counters.size() * sizeof(uint32_t), rank.stream()));
  OCTET_ASSIGN_OR_RETURN(const absl::Span<uint32_t> wrong, functional.memory->Pinned<uint32_t>(1));
  wrong[0] = 0;
  mine.wrong = wrong.data();
  for (int line = 0; line < kLines; ++line) mine.lines[line].counter = &counters[Index(line)];
  mine.most_blocks =
      kBlocksPerUnit * rank.node().topology().gpus[Index(rank.rank())].num_compute_units;
  OCTET_RETURN_IF_ERROR(rank.Synchronize());
  ExpertParallel& ep = *functional.ep->ep;
  mine.num_local_experts = ep.config().num_local_experts(functional.ep->num_ranks);
  // Two dispatches of no tokens say where rows arrive.
  OCTET_ASSIGN_OR_RETURN(const Received first, ep.Dispatch(rank, {}));
  OCTET_ASSIGN_OR_RETURN(const Received second, ep.Dispatch(rank, {}));
  if (first.x == second.x) mine.rows = first.x;
  return absl::OkStatus();
}

absl::StatusOr<OfRank*> Begin(octet_functional* functional, octet_rank* rank) {
  OCTET_RETURN_IF_ERROR(NotNull({{"functional", functional}, {"rank", rank}}));
  OfRank& mine = functional->ranks[Index(rank->rank.rank())];
  if (std::atomic_ref(*mine.wrong).exchange(0) != 0) return WrongTicket(rank->rank.rank());
  return &mine;
}

absl::StatusOr<Line*> LineOf(OfRank& mine, int32_t line) {
  if (line < 0 || line >= kLines) {
    return Refused(absl::StrCat("line is ", line, ", and must be 0 or 1"));
  }
  return &mine.lines[line];
}

LaunchShape ShapeOf(const OfRank& mine, const DeliverParams& params) {
  const int64_t vecs =
      std::max<int64_t>(int64_t{params.max_rows} * params.row_vecs, params.num_local_experts + 1);
  const int64_t blocks = (vecs + kThreads - 1) / kThreads;
  return {.blocks = static_cast<int>(std::min<int64_t>(blocks, mine.most_blocks)),
          .threads = kThreads};
}

absl::Status Deliver(const Rank& rank, const OfRank& mine, const Line& line,
                     const Received& received, const octet_delivery& to) {
  if (to.row_weights != nullptr && received.high_throughput.row_weights == nullptr) {
    return Refused("to->row_weights is given, and only high_throughput delivers them");
  }
  const DeliverParams params = {.x = received.x,
                                .expert_counts = received.expert_counts,
                                .expert_offsets = received.expert_offsets,
                                .sources = received.sources,
                                .row_weights = received.high_throughput.row_weights,
                                .to_x = to.x,
                                .to_expert_counts = to.expert_counts,
                                .to_expert_offsets = to.expert_offsets,
                                .to_sources = to.sources,
                                .to_row_weights = to.row_weights,
                                .to_ticket = to.ticket,
                                .counter = line.counter,
                                .num_local_experts = mine.num_local_experts,
                                .max_rows = received.max_rows,
                                .row_vecs = static_cast<int>(received.row_bytes / kVecBytes),
                                .zero_rest = to.zero_rest != 0};
  return OCTET_GPU(LaunchDeliver(params, ShapeOf(mine, params), rank.stream()));
}

absl::Status DispatchTo(octet_functional* functional, octet_rank* rank,
                        const octet_dispatch_args* args, const octet_delivery* to) {
  OCTET_ASSIGN_OR_RETURN(OfRank * mine, Begin(functional, rank));
  OCTET_ASSIGN_OR_RETURN(const octet_delivery read, Read("to", to));
  OCTET_RETURN_IF_ERROR(NotNull({{"to->ticket", read.ticket}}));
  OCTET_ASSIGN_OR_RETURN(Line * line, LineOf(*mine, read.line));
  DispatchHandle cached;
  OCTET_ASSIGN_OR_RETURN(const DispatchArgs dispatch, DispatchArgsOf("args", args, &cached));
  ExpertParallel& ep = *functional->ep->ep;
  OCTET_ASSIGN_OR_RETURN(const Received received, ep.Dispatch(rank->rank, dispatch));
  line->handle = received.handle;
  line->used = true;
  return Deliver(rank->rank, *mine, *line, received, read);
}

absl::Status CombineOf(octet_functional* functional, octet_rank* rank,
                       const octet_delivered_args* given) {
  OCTET_ASSIGN_OR_RETURN(OfRank * mine, Begin(functional, rank));
  OCTET_ASSIGN_OR_RETURN(const octet_delivered_args args, Read("args", given));
  OCTET_RETURN_IF_ERROR(
      NotNull({{"args->ticket", args.ticket}, {"args->topk_idx", args.topk_idx}}));
  OCTET_ASSIGN_OR_RETURN(const Line* line, LineOf(*mine, args.line));
  if (!line->used || line->handle.num_tokens != args.num_tokens) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a combine of ", args.num_tokens, " tokens, and the last dispatch ",
        line->used ? absl::StrCat("had ", line->handle.num_tokens) : "has not been made",
        "; let later dispatches depend on the result of the combine"));
  }
  DispatchHandle handle = line->handle;
  handle.topk_idx = args.topk_idx;
  handle.topk_weights = args.topk_weights;
  OCTET_RETURN_IF_GPU_ERROR(
      LaunchCheckTicket(args.ticket, line->counter, mine->wrong, rank->rank.stream()));
  CombineArgs combine = {.expert_out = args.expert_out, .y = args.y};
  combine.high_throughput.unweighted = args.unweighted != 0;
  return functional->ep->ep->Combine(rank->rank, handle, combine);
}

absl::StatusOr<std::unique_ptr<octet_functional>> Make(octet_domain& domain, const EpConfig& config,
                                                       const ExpertParallelOptions& options) {
  auto functional = std::make_unique<octet_functional>();
  functional->objects = domain.objects;
  OCTET_ASSIGN_OR_RETURN(std::unique_ptr<ExpertParallel> ep,
                         ExpertParallel::Create(*domain.domain, config, options));
  OCTET_RETURN_IF_ERROR(CheckConfig(ep->config()));
  Node& node = domain.domain->node();
  functional->ep = std::make_unique<octet_ep>(
      octet_ep{domain.objects, std::move(ep), domain.domain->num_ranks()});
  functional->memory = std::make_unique<NodeMemory>(node);
  functional->ranks.resize(Index(node.num_ranks()));
  OCTET_RETURN_IF_ERROR(domain.domain->Run([&](Rank& rank) { return Prepare(*functional, rank); }));
  return functional;
}

}  // namespace
}  // namespace octet::c

using octet::c::Call;
using octet::c::NotNull;

int32_t octet_functional_create(octet_domain* domain, const octet_ep_config* config,
                                const octet_ep_options* options, octet_functional** functional) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}, {"functional", functional}}));
    OCTET_ASSIGN_OR_RETURN(const octet_ep_config given, octet::c::Read("config", config));
    OCTET_ASSIGN_OR_RETURN(octet::EpConfig read,
                           octet::c::EpConfigOf("config", config, domain->domain->num_ranks()));
    if (given.kept_layouts == 0 && read.strategy == octet::Strategy::kHighThroughput) {
      read.high_throughput.kept_layouts = octet::c::kKeptLayouts;
    }
    OCTET_ASSIGN_OR_RETURN(const octet::ExpertParallelOptions read_options,
                           octet::c::EpOptionsOf(options));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet_functional> made,
                           octet::c::Make(*domain, read, read_options));
    *functional = made.release();
    return absl::OkStatus();
  });
}

void octet_functional_destroy(octet_functional* functional) { octet::c::Destroy(functional); }

const octet_ep* octet_functional_ep(const octet_functional* functional) {
  return functional == nullptr ? nullptr : functional->ep.get();
}

int32_t octet_functional_rows(const octet_functional* functional, int32_t rank, void** rows) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"functional", functional}, {"rows", rows}}));
    if (rank < 0 || static_cast<size_t>(rank) >= functional->ranks.size()) {
      return octet::c::Refused(absl::StrCat("rank is ", rank, ", and this node has ",
                                            functional->ranks.size(), " of them"));
    }
    *rows = const_cast<void*>(functional->ranks[static_cast<size_t>(rank)].rows);
    return absl::OkStatus();
  });
}

int32_t octet_functional_dispatch(octet_functional* functional, octet_rank* rank,
                                  const octet_dispatch_args* args, const octet_delivery* to) {
  return Call(__func__, [&] { return octet::c::DispatchTo(functional, rank, args, to); });
}

int32_t octet_functional_combine(octet_functional* functional, octet_rank* rank,
                                 const octet_delivered_args* args) {
  return Call(__func__, [&] { return octet::c::CombineOf(functional, rank, args); });
}

int32_t octet_functional_check(octet_functional* functional) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"functional", functional}}));
    absl::Status status;
    for (size_t rank = 0; rank < functional->ranks.size(); ++rank) {
      if (std::atomic_ref(*functional->ranks[rank].wrong).exchange(0) != 0) {
        status.Update(octet::c::WrongTicket(static_cast<int>(rank)));
      }
    }
    return status;
  });
}
