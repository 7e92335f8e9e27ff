#include "tools/contenders/contender.h"

#include <array>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/ep/strategy_registry.h"
#include "tools/contenders/memcpy_transport.h"
#include "tools/contenders/nccl_contender.h"
#include "tools/contenders/sorted_exchange.h"

namespace octet {
namespace {

// Libraries that only some builds have.
constexpr auto kLibraries = std::to_array<absl::string_view>({"nccl", "rccl"});

class StrategyContender final : public Contender {
 public:
  StrategyContender(Node& node, const StrategyInfo& info) : node_(node), info_(info) {}

  absl::string_view name() const override { return info_.name; }
  absl::string_view summary() const override { return info_.summary; }
  bool is_strategy() const override { return true; }
  absl::Status Available() const override { return absl::OkStatus(); }
  absl::Status Check(const EpConfig& config) const override {
    return Validate(Chosen(config), node_.num_ranks());
  }
  absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      const EpConfig& config, const ExpertParallelOptions& options) override {
    return ExpertParallel::Create(node_, Chosen(config), options);
  }

 private:
  EpConfig Chosen(EpConfig config) const {
    config.strategy = info_.strategy;
    return config;
  }

  Node& node_;
  const StrategyInfo& info_;
};

class MemcpyContender final : public Contender {
 public:
  explicit MemcpyContender(Node& node) : node_(node) {}

  absl::string_view name() const override { return "memcpy_peer"; }
  absl::string_view summary() const override {
    return "rows sorted by expert, carried by the copy engines (hipMemcpyPeerAsync)";
  }
  bool is_strategy() const override { return false; }
  absl::Status Available() const override { return absl::OkStatus(); }
  absl::Status Check(const EpConfig& config) const override {
    return SortedExchange::Check(config, node_.num_ranks());
  }
  absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      const EpConfig& config, const ExpertParallelOptions& /*options*/) override {
    return SortedExchange::Create(node_, config,
                                  std::make_unique<MemcpyTransport>(node_.num_ranks()));
  }

 private:
  Node& node_;
};

}  // namespace

std::vector<std::unique_ptr<Contender>> MakeContenders(Node& node) {
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const StrategyInfo* info : StrategyInfos()) {
    contenders.push_back(std::make_unique<StrategyContender>(node, *info));
  }
  contenders.push_back(std::make_unique<MemcpyContender>(node));
  if (std::unique_ptr<Contender> nccl = MakeNcclContender(node)) {
    contenders.push_back(std::move(nccl));
  }
  return contenders;
}

absl::StatusOr<Contender*> FindContender(const std::vector<std::unique_ptr<Contender>>& contenders,
                                         absl::string_view name) {
  std::string names;
  for (const std::unique_ptr<Contender>& contender : contenders) {
    if (contender->name() == name) return contender.get();
    absl::StrAppend(&names, names.empty() ? "" : ", ", contender->name());
  }
  if (absl::c_linear_search(kLibraries, name)) {
    return absl::UnavailableError(absl::StrCat(
        "this build of octet has no ", name,
        ": emulated GPUs have none, others need the library's header when Octet is configured"));
  }
  return absl::InvalidArgumentError(absl::StrCat("strategy '", name, "' is not one of ", names));
}

}  // namespace octet
