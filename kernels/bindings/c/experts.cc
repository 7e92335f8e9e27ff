// GroupedGemm and RoutedExperts in C.
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bindings/c/abi.h"
#include "kernels/bindings/c/handles.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/grouped_gemm.h"
#include "octet/node.h"
#include "octet/octet.h"
#include "octet/received.h"
#include "octet/routed_experts.h"
#include "runtime/base/status_macros.h"

struct octet_gemm {
  std::shared_ptr<octet::c::NodeObjects> objects;
  std::unique_ptr<octet::GroupedGemm> gemm;
};

struct octet_experts {
  std::shared_ptr<octet::c::NodeObjects> objects;
  std::unique_ptr<octet::RoutedExperts> experts;
  int num_ranks;
};

namespace octet::c {
namespace {

absl::StatusOr<GroupedGemmConfig> GemmConfigOf(const octet_gemm_config* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_gemm_config read, Read("config", given));
  GroupedGemmConfig config;
  config.experts = read.experts;
  config.max_rows = read.max_rows;
  config.n = read.n;
  config.k = read.k;
  OCTET_RETURN_IF_ERROR(ReadDType("dtype", read.dtype, &config.dtype));
  OCTET_RETURN_IF_ERROR(ReadEnum("output", read.output, &config.output));
  OCTET_RETURN_IF_ERROR(ReadEnum("format", read.format, &config.format));
  OCTET_RETURN_IF_ERROR(ReadEnum("scale_format", read.scale_format, &config.scale_format));
  OCTET_RETURN_IF_ERROR(ReadEnum("activation", read.activation, &config.activation));
  config.expected_rows = read.expected_rows;
  config.blocks = read.blocks;
  config.use_measured_tuning = read.no_measured_tuning == 0;
  config.fp8_rows = read.fp8_rows != 0;
  return config;
}

absl::StatusOr<RoutedExpertsConfig> ExpertsConfigOf(const octet_experts_config* given,
                                                    int num_ranks) {
  OCTET_ASSIGN_OR_RETURN(const octet_experts_config read, Read("config", given));
  RoutedExpertsConfig config;
  OCTET_ASSIGN_OR_RETURN(config.ep, EpConfigOf("config->ep", read.ep, num_ranks));
  config.intermediate = read.intermediate;
  if (read.no_activation != 0) config.activation = GemmActivation::kNone;
  OCTET_RETURN_IF_ERROR(ReadEnum("second_format", read.second_format, &config.second_format));
  OCTET_RETURN_IF_ERROR(ReadEnum("first_format", read.first_format, &config.first_format));
  config.second_fp8_rows = read.second_fp8_rows != 0;
  OCTET_RETURN_IF_ERROR(ReadEnum("weights_in", read.weights_in, &config.weights_in));
  OCTET_RETURN_IF_ERROR(ReadEnum("dispatch_gemm", read.dispatch_gemm, &config.dispatch_gemm));
  OCTET_RETURN_IF_ERROR(ReadEnum("gemm_combine", read.gemm_combine, &config.gemm_combine));
  return config;
}

absl::Status Run(GroupedGemm& gemm, const Rank& rank, const octet_gemm_args* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_gemm_args read, Read("args", given));
  return gemm.Run({.a = read.a,
                   .b = read.b,
                   .a_scales = read.a_scales,
                   .b_scales = read.b_scales,
                   .expert_offsets = read.expert_offsets,
                   .expert_counts = read.expert_counts,
                   .bias = read.bias,
                   .row_scale = read.row_scale,
                   .out = read.out,
                   .rows = read.rows},
                  rank.stream());
}

absl::Status DispatchGemm(RoutedExperts& experts, Rank& rank, const octet_dispatch_gemm_args* given,
                          octet_received* received) {
  OCTET_RETURN_IF_ERROR(CheckOut("received", received));
  OCTET_ASSIGN_OR_RETURN(const octet_dispatch_gemm_args read, Read("args", given));
  DispatchHandle cached;
  DispatchGemmArgs args;
  args.b = read.b;
  args.b_scales = read.b_scales;
  args.bias = read.bias;
  args.out = read.out;
  OCTET_ASSIGN_OR_RETURN(args.dispatch, DispatchArgsOf("args->dispatch", read.dispatch, &cached));
  OCTET_ASSIGN_OR_RETURN(const FusedReceived result, experts.DispatchGemm(rank, args));
  Write(ReceivedOf(result.received), received);
  return absl::OkStatus();
}

absl::Status GemmCombine(RoutedExperts& experts, Rank& rank, const octet_received* received,
                         const octet_gemm_combine_args* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_gemm_combine_args read, Read("args", given));
  FusedReceived rows;
  rows.h = read.a;
  OCTET_ASSIGN_OR_RETURN(rows.received, ReceivedOf("received", received));
  return experts.GemmCombine(rank, rows,
                             {.a = read.a,
                              .b = read.b,
                              .b_scales = read.b_scales,
                              .bias = read.bias,
                              .y_bias = read.y_bias,
                              .y = read.y});
}

}  // namespace
}  // namespace octet::c

using octet::c::Call;
using octet::c::NotNull;

int32_t octet_gemm_create(octet_rank* rank, const octet_gemm_config* config, octet_gemm** gemm) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"rank", rank}, {"gemm", gemm}}));
    OCTET_ASSIGN_OR_RETURN(const octet::GroupedGemmConfig read, octet::c::GemmConfigOf(config));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::GroupedGemm> made,
                           octet::GroupedGemm::Create(read));
    *gemm = new octet_gemm{rank->objects, std::move(made)};
    return absl::OkStatus();
  });
}

void octet_gemm_destroy(octet_gemm* gemm) { octet::c::Destroy(gemm); }

int32_t octet_gemm_run(octet_gemm* gemm, octet_rank* rank, const octet_gemm_args* args) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"gemm", gemm}, {"rank", rank}}));
    return octet::c::Run(*gemm->gemm, rank->rank, args);
  });
}

int32_t octet_experts_create(octet_domain* domain, const octet_experts_config* config,
                             const octet_ep_options* options, octet_experts** experts) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}, {"experts", experts}}));
    OCTET_ASSIGN_OR_RETURN(const octet::RoutedExpertsConfig read,
                           octet::c::ExpertsConfigOf(config, domain->domain->num_ranks()));
    OCTET_ASSIGN_OR_RETURN(const octet::ExpertParallelOptions read_options,
                           octet::c::EpOptionsOf(options));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::RoutedExperts> made,
                           octet::RoutedExperts::Create(*domain->domain, read, read_options));
    *experts = new octet_experts{domain->objects, std::move(made), domain->domain->num_ranks()};
    return absl::OkStatus();
  });
}

void octet_experts_destroy(octet_experts* experts) { octet::c::Destroy(experts); }

int32_t octet_experts_get_info(octet_experts* experts, octet_ep_info* info) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"experts", experts}}));
    OCTET_RETURN_IF_ERROR(octet::c::CheckOut("info", info));
    octet::c::Write(octet::c::EpInfoOf(experts->experts->config().ep, experts->num_ranks), info);
    return absl::OkStatus();
  });
}

int32_t octet_experts_dispatch_gemm(octet_experts* experts, octet_rank* rank,
                                    const octet_dispatch_gemm_args* args,
                                    octet_received* received) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"experts", experts}, {"rank", rank}}));
    return octet::c::DispatchGemm(*experts->experts, rank->rank, args, received);
  });
}

int32_t octet_experts_gemm_combine(octet_experts* experts, octet_rank* rank,
                                   const octet_received* received,
                                   const octet_gemm_combine_args* args) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"experts", experts}, {"rank", rank}}));
    return octet::c::GemmCombine(*experts->experts, rank->rank, received, args);
  });
}
