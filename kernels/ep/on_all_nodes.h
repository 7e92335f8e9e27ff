// Making objects on the nodes of a domain together.
#ifndef OCTET_KERNELS_EP_ON_ALL_NODES_H_
#define OCTET_KERNELS_EP_ON_ALL_NODES_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "octet/domain.h"
#include "runtime/base/status_macros.h"
#include "runtime/node/rank_threads.h"

namespace octet {

// Whether calls on the domain cross between nodes. A World of one node has rails, too.
inline bool HasRails(const Domain& domain) { return domain.rail(0) != nullptr; }

// Collective. Returns what `make` returns for this node, after the nodes have compared their
// `arguments` of `call`, in words. All nodes fail if one does, and if they differ in the `choices`
// that were made.
template <typename T>
absl::StatusOr<std::unique_ptr<T>> MakeOnAllNodes(
    Domain& domain, absl::string_view call, absl::FunctionRef<std::string()> arguments,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<T>>()> make,
    absl::FunctionRef<std::string(const T&)> choices) {
  OCTET_RETURN_IF_ERROR(CheckOutsideRun(call));
  if (domain.num_nodes() == 1) return make();
  OCTET_RETURN_IF_ERROR(domain.Agree(absl::StrCat("the arguments of ", call), arguments()));
  absl::StatusOr<std::unique_ptr<T>> made = make();
  // A failure of one node is one of all: the others could not make a call without it.
  OCTET_RETURN_IF_ERROR(domain.Together(made.status()));
  // They follow from the arguments and from what was measured on each node (docs/using.md).
  OCTET_RETURN_IF_ERROR(domain.Agree(absl::StrCat("the choices of ", call), choices(**made)));
  return made;
}

}  // namespace octet

#endif  // OCTET_KERNELS_EP_ON_ALL_NODES_H_
