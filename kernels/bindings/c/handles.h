// The handles that more than one file knows.
#ifndef OCTET_KERNELS_BINDINGS_C_HANDLES_H_
#define OCTET_KERNELS_BINDINGS_C_HANDLES_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/bindings/c/abi.h"
#include "octet/domain.h"
#include "octet/expert_parallel.h"
#include "octet/model_folder.h"
#include "octet/node.h"
#include "octet/octet.h"
#include "octet/placement.h"
#include "octet/symmetric_heap.h"
#include "octet/world.h"
#include "runtime/base/mutex.h"

namespace octet::c {

// Destroys the objects of a node at once, or after the run in progress or the calls that have not
// been settled: a garbage collector does not know of these. May outlive the node.
class NodeObjects {
 public:
  explicit NodeObjects(const Node& node) : node_(node.Share()) {}

  void BeginRun();
  void EndRun();
  // An adopted node has these.
  void BeginCalls();
  void EndCalls();
  bool in_run() const;
  bool in_run_or_calls() const;
  void Destroy(std::shared_ptr<void> object);

  Node& node() { return *node_; }

 private:
  void DestroyLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Node> node_;
  mutable Mutex mutex_;
  int runs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool calls_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<void>> later_ ABSL_GUARDED_BY(mutex_);  // in the order of Destroy
};

// Ends a handle that has a member `objects`.
template <typename Handle>
void Destroy(Handle* handle) {
  if (handle == nullptr) return;
  (void)Call(__func__, [&] {
    const std::shared_ptr<NodeObjects> objects = handle->objects;
    objects->Destroy(std::shared_ptr<void>(std::shared_ptr<Handle>(handle)));
    return absl::OkStatus();
  });
}

// The way of this library to a World.
absl::StatusOr<std::unique_ptr<Domain>> JoinWorld(const WorldOptions& options);

// octet_ep_create and octet_experts_create read their configuration and options by these.
absl::StatusOr<EpConfig> EpConfigOf(absl::string_view name, const octet_ep_config* given,
                                    int num_ranks);
absl::StatusOr<ExpertParallelOptions> EpOptionsOf(const octet_ep_options* given);
// The result may point to `cached`.
absl::StatusOr<DispatchArgs> DispatchArgsOf(absl::string_view name,
                                            const octet_dispatch_args* given,
                                            DispatchHandle* cached);
octet_received ReceivedOf(const Received& received);
// Reads as much of a caller's struct as the experts need.
absl::StatusOr<Received> ReceivedOf(absl::string_view name, const octet_received* given);
octet_ep_info EpInfoOf(const EpConfig& config, int num_ranks);
// A placement of the caller's: [num_ranks][slots_per_rank].
struct PlacementTable {
  const int32_t* slots;  // nullptr: no placement
  int num_experts;
  int num_ranks;
  int slots_per_rank;
};
absl::StatusOr<Placement> PlacementOf(const PlacementTable& table);
// Each array may be null.
void CopyLoads(const ExpertLoads& loads, int64_t* rows, int64_t* window);
octet_dispatch_handle HandleOf(const DispatchHandle& handle);
DispatchHandle HandleOf(const octet_dispatch_handle& handle);

}  // namespace octet::c

struct octet_domain {
  std::unique_ptr<octet::Domain> domain;
  std::shared_ptr<octet::c::NodeObjects> objects;
  bool adopted = false;
};

// Lives as long as the function that has been given it.
struct octet_rank {
  octet::Rank& rank;
  const std::shared_ptr<octet::c::NodeObjects>& objects;
};

struct octet_heap {
  std::shared_ptr<octet::c::NodeObjects> objects;
  std::unique_ptr<octet::SymmetricHeap> heap;
};

struct octet_ep {
  std::shared_ptr<octet::c::NodeObjects> objects;
  std::unique_ptr<octet::ExpertParallel> ep;
  int num_ranks;
};

struct octet_model {
  std::unique_ptr<octet::ModelFolder> folder;
};

#endif  // OCTET_KERNELS_BINDINGS_C_HANDLES_H_
