#include "tools/contenders/nccl_contender.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "octet/topology.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/rails/nccl_library.h"
#include "tools/contenders/nccl_transport.h"
#include "tools/contenders/sorted_exchange.h"

namespace octet {
namespace {

class NcclContender final : public Contender {
 public:
  explicit NcclContender(Node& node) : node_(node) {}

  absl::string_view name() const override { return NcclName(); }
  absl::string_view summary() const override {
    return "rows sorted by expert, carried by grouped sends and receives of a communicator per GPU";
  }
  bool is_strategy() const override { return false; }
  absl::Status Available() const override {
    const Topology& topology = node_.topology();
    for (int rank = 1; rank < node_.num_ranks(); ++rank) {
      if (topology.gpus[rank].device == topology.gpus[0].device) {
        return absl::UnavailableError(
            absl::StrCat(NcclName(), " needs a GPU for each rank; here ranks share them"));
      }
    }
    return NcclLibrary::Load().status();
  }
  absl::Status Check(const EpConfig& config) const override {
    return SortedExchange::Check(config, node_.num_ranks());
  }
  absl::StatusOr<std::unique_ptr<ExpertParallel>> Create(
      const EpConfig& config, const ExpertParallelOptions& /*options*/) override {
    if (communicators_ == nullptr) {
      OCTET_ASSIGN_OR_RETURN(communicators_, NcclCommunicators::Create(node_));
    }
    return SortedExchange::Create(
        node_, config, std::make_unique<NcclTransport>(communicators_, node_.num_ranks()));
  }

 private:
  Node& node_;
  std::shared_ptr<NcclCommunicators> communicators_;
};

}  // namespace

std::unique_ptr<Contender> MakeNcclContender(Node& node) {
  return std::make_unique<NcclContender>(node);
}

}  // namespace octet
