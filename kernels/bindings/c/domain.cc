// Domains, ranks, memory and graphs in C.
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
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
#include "octet/gpu.h"
#include "octet/graph.h"
#include "octet/node.h"
#include "octet/octet.h"
#include "octet/symmetric_heap.h"
#include "octet/topology.h"
#include "octet/world.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/gpu/on_device.h"
#include "runtime/memory/device_memory.h"
#include "runtime/node/rank_threads.h"

struct octet_memory {
  std::shared_ptr<octet::c::NodeObjects> objects;
  void* data = nullptr;

  // Leaves it unfreed if the node is stuck.
  ~octet_memory() {
    if (data != nullptr && objects->node().ReadyToFree()) octet::DeviceMemoryKind::Free(data);
  }
};

struct octet_graph {
  octet::Graph graph;
};

namespace octet::c {

void NodeObjects::BeginRun() {
  MutexLock lock(&mutex_);
  ++runs_;
}

void NodeObjects::EndRun() {
  MutexLock lock(&mutex_);
  --runs_;
  DestroyLater();
}

void NodeObjects::BeginCalls() {
  MutexLock lock(&mutex_);
  calls_ = true;
}

void NodeObjects::EndCalls() {
  MutexLock lock(&mutex_);
  calls_ = false;
  DestroyLater();
}

void NodeObjects::DestroyLater() {
  if (runs_ > 0 || calls_) return;
  for (std::shared_ptr<void>& each : later_) each.reset();
  later_.clear();
}

bool NodeObjects::in_run() const {
  MutexLock lock(&mutex_);
  return runs_ > 0;
}

bool NodeObjects::in_run_or_calls() const {
  MutexLock lock(&mutex_);
  return runs_ > 0 || calls_;
}

// Holds the mutex meanwhile: a run that begins on another thread waits.
void NodeObjects::Destroy(std::shared_ptr<void> object) {
  MutexLock lock(&mutex_);
  later_.push_back(std::move(object));
  DestroyLater();
}

namespace {

absl::StatusOr<int> DeviceOf(octet_domain& domain, int32_t rank) {
  const Node& node = domain.domain->node();
  if (rank < 0 || rank >= node.num_ranks()) {
    return Refused(
        absl::StrCat("rank is ", rank, ", and this node has ", node.num_ranks(), " of them"));
  }
  return node.topology().gpus[static_cast<size_t>(rank)].device;
}

absl::StatusOr<NodeOptions> NodeOptionsOf(absl::string_view name, const octet_node_options* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_node_options read, ReadOptional(name, given));
  NodeOptions options;
  options.num_ranks = read.num_ranks;
  options.pin_threads = read.no_pinned_threads == 0;
  options.timeout = absl::Nanoseconds(read.timeout_ns);
  if (read.on_failure != nullptr) {
    options.on_failure = [call = read.on_failure,
                          user = read.on_failure_user](const absl::Status& failure) {
      call(static_cast<int32_t>(failure.code()), std::string(failure.message()).c_str(), user);
    };
  } else if (read.quiet != 0) {
    options.on_failure = nullptr;
  }
  return options;
}

absl::StatusOr<WorldOptions> WorldOptionsOf(const octet_world_options* given) {
  OCTET_ASSIGN_OR_RETURN(const octet_world_options read, ReadOptional("options", given));
  WorldOptions options;
  OCTET_ASSIGN_OR_RETURN(options.node, NodeOptionsOf("options->node", read.node));
  options.arrival_timeout = absl::Nanoseconds(read.arrival_timeout_ns);
  OCTET_RETURN_IF_ERROR(ReadEnum("options->transport", read.transport, &options.transport));
  if (read.prepared_code != OCTET_OK) {
    options.prepared = absl::Status(static_cast<absl::StatusCode>(read.prepared_code),
                                    read.prepared_message == nullptr ? "" : read.prepared_message);
  }
  return options;
}

octet_domain* NewDomain(std::unique_ptr<Domain> domain, bool adopted = false) {
  auto objects = std::make_shared<NodeObjects>(domain->node());
  return new octet_domain{std::move(domain), std::move(objects), adopted};
}

absl::Status Settle(octet_domain& domain) {
  Node& node = domain.domain->node();
  const uint64_t before = node.completed_runs();
  const absl::Status status = node.Settle();
  const bool settled = status.ok() || node.completed_runs() != before;
  if (settled) domain.objects->EndCalls();
  return status;
}

absl::string_view TextOf(const char* text) { return text == nullptr ? "" : text; }

}  // namespace
}  // namespace octet::c

using octet::c::Call;
using octet::c::CallBack;
using octet::c::NotNull;

int32_t octet_node_create(const octet_node_options* options, octet_domain** node) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"node", node}}));
    OCTET_ASSIGN_OR_RETURN(const octet::NodeOptions read,
                           octet::c::NodeOptionsOf("options", options));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::Node> made, octet::Node::Create(read));
    *node = octet::c::NewDomain(std::move(made));
    return absl::OkStatus();
  });
}

int32_t octet_world_create(const octet_world_options* options, octet_domain** world) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"world", world}}));
    OCTET_ASSIGN_OR_RETURN(const octet::WorldOptions read, octet::c::WorldOptionsOf(options));
    OCTET_ASSIGN_OR_RETURN(std::unique_ptr<octet::Domain> made, octet::c::JoinWorld(read));
    *world = octet::c::NewDomain(std::move(made));
    return absl::OkStatus();
  });
}

int32_t octet_domain_destroy(octet_domain* domain) {
  return Call(__func__, [&]() -> absl::Status {
    if (domain == nullptr) return absl::OkStatus();
    OCTET_RETURN_IF_ERROR(octet::CheckOutsideRun("octet_domain_destroy"));
    if (domain->objects->in_run()) {
      return absl::FailedPreconditionError(
          "octet_domain_destroy called while another thread runs the domain; wait for that run");
    }
    delete domain;
    return absl::OkStatus();
  });
}

int32_t octet_domain_get_info(const octet_domain* domain, octet_domain_info* info) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}}));
    OCTET_RETURN_IF_ERROR(octet::c::CheckOut("info", info));
    octet::Domain& of = *domain->domain;
    octet::c::Write({.size = sizeof(octet_domain_info),
                     .num_ranks = of.num_ranks(),
                     .num_nodes = of.num_nodes(),
                     .node_index = of.node_index(),
                     .local_ranks = of.node().num_ranks(),
                     .timeout_ns = absl::ToInt64Nanoseconds(of.node().timeout()),
                     .transport = static_cast<int32_t>(of.transport())},
                    info);
    return absl::OkStatus();
  });
}

int32_t octet_domain_run(octet_domain* domain, octet_rank_function body, void* user) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        NotNull({{"domain", domain}, {"body", reinterpret_cast<const void*>(body)}}));
    if (domain->adopted) OCTET_RETURN_IF_ERROR(octet::c::Settle(*domain));
    domain->objects->BeginRun();
    const absl::Status status = domain->domain->Run([&](octet::Rank& rank) {
      octet::c::ForgetErrors();
      octet_rank handle = {rank, domain->objects};
      return CallBack(body, &handle, user);
    });
    domain->objects->EndRun();
    return status;
  });
}

int32_t octet_node_adopt(const int32_t* devices, int32_t num_devices,
                         const octet_node_options* options, octet_domain** node) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"devices", devices}, {"node", node}}));
    if (num_devices < 0) {
      return octet::c::Refused(absl::StrCat("num_devices is ", num_devices));
    }
    OCTET_ASSIGN_OR_RETURN(const octet::NodeOptions read,
                           octet::c::NodeOptionsOf("options", options));
    OCTET_ASSIGN_OR_RETURN(
        std::unique_ptr<octet::Node> made,
        octet::Node::Adopt(absl::MakeConstSpan(devices, static_cast<size_t>(num_devices)), read));
    *node = octet::c::NewDomain(std::move(made), /*adopted=*/true);
    return absl::OkStatus();
  });
}

int32_t octet_domain_call(octet_domain* domain, int32_t rank, void* stream,
                          octet_rank_function body, void* user) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        NotNull({{"domain", domain}, {"body", reinterpret_cast<const void*>(body)}}));
    if (domain->adopted) domain->objects->BeginCalls();
    return domain->domain->node().Call(rank, static_cast<octet::GpuStream>(stream),
                                       [&](octet::Rank& of) {
                                         octet::c::ForgetErrors();
                                         octet_rank handle = {of, domain->objects};
                                         return CallBack(body, &handle, user);
                                       });
  });
}

int32_t octet_domain_settle(octet_domain* domain) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}}));
    return octet::c::Settle(*domain);
  });
}

int32_t octet_rank_get_info(const octet_rank* rank, octet_rank_info* info) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"rank", rank}}));
    OCTET_RETURN_IF_ERROR(octet::c::CheckOut("info", info));
    const octet::Rank& of = rank->rank;
    octet::c::Write({.size = sizeof(octet_rank_info),
                     .rank = of.rank(),
                     .local_ranks = of.num_ranks(),
                     .device = of.device(),
                     .reserved = 0,
                     .stream = static_cast<void*>(of.stream())},
                    info);
    return absl::OkStatus();
  });
}

int32_t octet_rank_barrier(octet_rank* rank, const char* before) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"rank", rank}}));
    return rank->rank.Barrier(octet::c::TextOf(before));
  });
}

int32_t octet_rank_synchronize(octet_rank* rank) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"rank", rank}}));
    return rank->rank.Synchronize();
  });
}

int32_t octet_rank_launch(octet_rank* rank, octet_function launch, void* user, const char* call) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(
        NotNull({{"rank", rank}, {"launch", reinterpret_cast<const void*>(launch)}}));
    return rank->rank.CoordinatedLaunch([&] { return CallBack(launch, user); },
                                        octet::c::TextOf(call));
  });
}

int32_t octet_rank_copy(octet_rank* rank, void* to, const void* from, uint64_t bytes) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"rank", rank}}));
    if (bytes == 0) return absl::OkStatus();
    OCTET_RETURN_IF_ERROR(NotNull({{"to", to}, {"from", from}}));
    octet::Rank& of = rank->rank;
    // A copy of memory that is not pinned may wait on the host: nothing that waits for other ranks
    // may be on the stream then.
    OCTET_RETURN_IF_ERROR(of.Synchronize());
    OCTET_RETURN_IF_GPU_ERROR(hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, of.stream()));
    return of.Synchronize();
  });
}

int32_t octet_memory_create(octet_domain* domain, int32_t rank, uint64_t bytes,
                            octet_memory** memory) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}, {"memory", memory}}));
    OCTET_ASSIGN_OR_RETURN(const int device, octet::c::DeviceOf(*domain, rank));
    OCTET_ASSIGN_OR_RETURN(const auto on_device, octet::OnDevice::Of(device));
    OCTET_ASSIGN_OR_RETURN(void* data, octet::DeviceMemoryKind::Allocate(bytes > 0 ? bytes : 1));
    *memory = new octet_memory{domain->objects, data};
    return absl::OkStatus();
  });
}

void octet_memory_destroy(octet_memory* memory) { octet::c::Destroy(memory); }

void* octet_memory_data(const octet_memory* memory) {
  return memory == nullptr ? nullptr : memory->data;
}

int32_t octet_copy(octet_domain* domain, int32_t rank, void* to, const void* from, uint64_t bytes) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}}));
    if (domain->objects->in_run_or_calls()) {
      return absl::FailedPreconditionError(
          "octet_copy called during a run, or after calls and before octet_domain_settle; "
          "octet_rank_copy copies in the order of a rank's stream");
    }
    if (bytes == 0) return absl::OkStatus();
    OCTET_RETURN_IF_ERROR(NotNull({{"to", to}, {"from", from}}));
    OCTET_ASSIGN_OR_RETURN(const int device, octet::c::DeviceOf(*domain, rank));
    OCTET_ASSIGN_OR_RETURN(const auto on_device, octet::OnDevice::Of(device));
    return OCTET_GPU(hipMemcpy(to, from, bytes, hipMemcpyDefault));
  });
}

int32_t octet_heap_create(octet_domain* domain, uint64_t uncached_bytes, uint64_t cached_bytes,
                          octet_heap** heap) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"domain", domain}, {"heap", heap}}));
    OCTET_ASSIGN_OR_RETURN(
        std::unique_ptr<octet::SymmetricHeap> made,
        octet::SymmetricHeap::Create(domain->domain->node(),
                                     {.uncached = uncached_bytes, .cached = cached_bytes}));
    *heap = new octet_heap{domain->objects, std::move(made)};
    return absl::OkStatus();
  });
}

void octet_heap_destroy(octet_heap* heap) { octet::c::Destroy(heap); }

int32_t octet_graph_capture(octet_rank* rank, octet_function enqueue, void* user,
                            octet_graph** graph) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull(
        {{"rank", rank}, {"enqueue", reinterpret_cast<const void*>(enqueue)}, {"graph", graph}}));
    OCTET_ASSIGN_OR_RETURN(octet::Graph made, octet::Graph::Capture(rank->rank, [&] {
                             return CallBack(enqueue, user);
                           }));
    *graph = new octet_graph{std::move(made)};
    return absl::OkStatus();
  });
}

int32_t octet_graph_launch(const octet_graph* graph, octet_rank* rank) {
  return Call(__func__, [&]() -> absl::Status {
    OCTET_RETURN_IF_ERROR(NotNull({{"graph", graph}, {"rank", rank}}));
    return graph->graph.Launch(rank->rank);
  });
}

void octet_graph_destroy(octet_graph* graph) { delete graph; }
