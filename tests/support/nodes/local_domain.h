// A node of several whose others are made by the same thread, one after the other: nobody is asked
// for agreement.
#ifndef OCTET_TESTS_SUPPORT_NODES_LOCAL_DOMAIN_H_
#define OCTET_TESTS_SUPPORT_NODES_LOCAL_DOMAIN_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "octet/domain.h"
#include "octet/node.h"
#include "runtime/net/rails/rail.h"

namespace octet {

class LocalDomain final : public Domain {
 public:
  // `node` and `rails`, one for each of its ranks, must outlive it.
  LocalDomain(Node& node, std::vector<Rail*> rails) : node_(node), rails_(std::move(rails)) {}

  Node& node() override { return node_; }
  int num_nodes() const override { return rails_.front()->num_nodes(); }
  int node_index() const override { return rails_.front()->node(); }
  int num_ranks() const override { return num_nodes() * node_.num_ranks(); }
  Rail* rail(int local_rank) const override { return rails_[static_cast<size_t>(local_rank)]; }
  RailTransport transport() const override { return RailTransport::kAuto; }
  absl::Status Run(absl::FunctionRef<absl::Status(Rank&)> body) override { return node_.Run(body); }
  absl::Status Agree(absl::string_view /*what*/, absl::string_view /*value*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes) override {
    return std::vector<std::string>(static_cast<size_t>(num_nodes()), std::string(bytes));
  }
  absl::Status Together(const absl::Status& mine) override { return mine; }

 private:
  Node& node_;
  const std::vector<Rail*> rails_;
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NODES_LOCAL_DOMAIN_H_
