#include "tools/contenders/hipblaslt_contender.h"

#include <hip/hip_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/shared_library.h"
#include "runtime/base/status_macros.h"
#include "runtime/memory/device_memory.h"

namespace octet {
namespace {

// The part of hipblaslt.h that is needed, by the values that its interface has had since ROCm 6.1.
// Descriptors are pointers to structs that the library owns.
using Handle = void*;
using Operation = void*;
using Layout = void*;
using Preference = void*;
constexpr int kNoTranspose = 111;
constexpr int kTranspose = 112;
constexpr int kFloat32Type = 0;
constexpr int kFloat16Type = 2;
constexpr int kBFloat16Type = 14;
constexpr int kComputeFloat32 = 2;
constexpr int kTransposeA = 0;  // attributes of an operation
constexpr int kTransposeB = 1;
constexpr int kMostWorkspace = 1;  // attribute of a preference
constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;

// hipblasLtMatmulHeuristicResult_t. It begins with the algorithm, which is all that is used; the
// struct itself has about 60 bytes.
struct alignas(16) Heuristic {
  std::array<char, 1024> bytes;
};

struct HipblasltLibrary {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*create_operation)(Operation*, int compute, int scale_type);
  int (*destroy_operation)(Operation);
  int (*set_operation)(Operation, int attribute, const void* value, size_t bytes);
  int (*create_layout)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t ld);
  int (*destroy_layout)(Layout);
  int (*create_preference)(Preference*);
  int (*destroy_preference)(Preference);
  int (*set_preference)(Preference, int attribute, const void* value, size_t bytes);
  int (*find_algorithms)(Handle, Operation, Layout a, Layout b, Layout c, Layout d, Preference,
                         int requested, Heuristic* found, int* num_found);
  int (*multiply)(Handle, Operation, const void* alpha, const void* a, Layout a_layout,
                  const void* b, Layout b_layout, const void* beta, const void* c, Layout c_layout,
                  void* d, Layout d_layout, const void* algorithm, void* workspace,
                  size_t workspace_bytes, GpuStream stream);

  // Loads the library on the first call; later calls give the same answer.
  static absl::StatusOr<const HipblasltLibrary*> Load();
};

absl::StatusOr<const HipblasltLibrary*> LoadOnce() {
  OCTET_ASSIGN_OR_RETURN(
      SharedLibrary file,
      SharedLibrary::Open({"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"}));
  auto* const library = new HipblasltLibrary();
  file.Require(library->create, "hipblasLtCreate");
  file.Require(library->destroy, "hipblasLtDestroy");
  file.Require(library->create_operation, "hipblasLtMatmulDescCreate");
  file.Require(library->destroy_operation, "hipblasLtMatmulDescDestroy");
  file.Require(library->set_operation, "hipblasLtMatmulDescSetAttribute");
  file.Require(library->create_layout, "hipblasLtMatrixLayoutCreate");
  file.Require(library->destroy_layout, "hipblasLtMatrixLayoutDestroy");
  file.Require(library->create_preference, "hipblasLtMatmulPreferenceCreate");
  file.Require(library->destroy_preference, "hipblasLtMatmulPreferenceDestroy");
  file.Require(library->set_preference, "hipblasLtMatmulPreferenceSetAttribute");
  file.Require(library->find_algorithms, "hipblasLtMatmulAlgoGetHeuristic");
  file.Require(library->multiply, "hipblasLtMatmul");
  OCTET_RETURN_IF_ERROR(file.CheckComplete());
  return library;
}

absl::StatusOr<const HipblasltLibrary*> HipblasltLibrary::Load() {
  static const auto* const kLibrary = new absl::StatusOr<const HipblasltLibrary*>(LoadOnce());
  return *kLibrary;
}

absl::Status ToStatus(int result, absl::string_view call) {
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, " returned ", result));
}

// Something that the library creates and destroys.
using Owned = std::unique_ptr<void, int (*)(void*)>;

class Hipblaslt final : public GemmContender {
 public:
  absl::string_view name() const override { return "hipblaslt"; }

  absl::Status Prepare(const ContenderGemm& gemm) override {
    OCTET_ASSIGN_OR_RETURN(library_, HipblasltLibrary::Load());
    type_ = gemm.dtype == DType::kFloat16 ? kFloat16Type : kBFloat16Type;
    experts_ = gemm.Experts();
    Handle handle = nullptr;
    OCTET_RETURN_IF_ERROR(ToStatus(library_->create(&handle), "hipblasLtCreate"));
    handle_ = Owned(handle, library_->destroy);
    OCTET_RETURN_IF_ERROR(CreateOperation());
    OCTET_ASSIGN_OR_RETURN(weights_, CreateLayout(gemm.k, gemm.n));
    OCTET_ASSIGN_OR_RETURN(workspace_, DeviceMemory::Allocate(kWorkspaceBytes));
    for (const ExpertGemm& expert : experts_) {
      if (plans_.count(expert.rows) > 0) continue;
      OCTET_ASSIGN_OR_RETURN(Plan plan, MakePlan(gemm, expert.rows));
      plans_.emplace(expert.rows, std::move(plan));
    }
    return absl::OkStatus();
  }

  absl::Status Run(GpuStream stream) override {
    constexpr float kOne = 1;
    constexpr float kZero = 0;
    for (const ExpertGemm& expert : experts_) {
      const Plan& plan = plans_.at(expert.rows);
      OCTET_RETURN_IF_ERROR(ToStatus(
          library_->multiply(handle_.get(), operation_.get(), &kOne, expert.b, weights_.get(),
                             expert.a, plan.rows.get(), &kZero, expert.out, plan.out.get(),
                             expert.out, plan.out.get(), plan.heuristic.bytes.data(),
                             workspace_.as<void>(), kWorkspaceBytes, stream),
          "hipblasLtMatmul"));
    }
    return absl::OkStatus();
  }

 private:
  // Products with the same number of rows share this.
  struct Plan {
    Owned rows;
    Owned out;
    Heuristic heuristic;
  };

  static Owned None() { return Owned(nullptr, nullptr); }

  absl::Status CreateOperation() {
    Operation operation = nullptr;
    OCTET_RETURN_IF_ERROR(
        ToStatus(library_->create_operation(&operation, kComputeFloat32, kFloat32Type),
                 "hipblasLtMatmulDescCreate"));
    operation_ = Owned(operation, library_->destroy_operation);
    for (const auto& [attribute, value] : {std::pair{kTransposeA, int32_t{kTranspose}},
                                           std::pair{kTransposeB, int32_t{kNoTranspose}}}) {
      OCTET_RETURN_IF_ERROR(
          ToStatus(library_->set_operation(operation, attribute, &value, sizeof(value)),
                   "hipblasLtMatmulDescSetAttribute"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Owned> CreateLayout(int rows, int columns) const {
    Layout layout = nullptr;
    OCTET_RETURN_IF_ERROR(
        ToStatus(library_->create_layout(&layout, type_, static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), rows),
                 "hipblasLtMatrixLayoutCreate"));
    return Owned(layout, library_->destroy_layout);
  }

  absl::StatusOr<Plan> MakePlan(const ContenderGemm& gemm, int rows) const {
    Plan plan = {None(), None(), {}};
    OCTET_ASSIGN_OR_RETURN(plan.rows, CreateLayout(gemm.k, rows));
    OCTET_ASSIGN_OR_RETURN(plan.out, CreateLayout(gemm.n, rows));
    Preference created = nullptr;
    OCTET_RETURN_IF_ERROR(
        ToStatus(library_->create_preference(&created), "hipblasLtMatmulPreferenceCreate"));
    const Owned preference(created, library_->destroy_preference);
    OCTET_RETURN_IF_ERROR(
        ToStatus(library_->set_preference(created, kMostWorkspace, &kWorkspaceBytes,
                                          sizeof(kWorkspaceBytes)),
                 "hipblasLtMatmulPreferenceSetAttribute"));
    int found = 0;
    OCTET_RETURN_IF_ERROR(
        ToStatus(library_->find_algorithms(handle_.get(), operation_.get(), weights_.get(),
                                           plan.rows.get(), plan.out.get(), plan.out.get(), created,
                                           1, &plan.heuristic, &found),
                 "hipblasLtMatmulAlgoGetHeuristic"));
    if (found > 0) return plan;
    return absl::UnavailableError(absl::StrCat("hipBLASLt has no algorithm for N ", gemm.n, ", K ",
                                               gemm.k, ", ", rows, " rows"));
  }

  const HipblasltLibrary* library_ = nullptr;
  int type_ = 0;
  std::vector<ExpertGemm> experts_;
  DeviceMemory workspace_;
  Owned handle_ = None();
  Owned operation_ = None();
  Owned weights_ = None();
  std::map<int, Plan> plans_;
};

}  // namespace

std::unique_ptr<GemmContender> MakeHipblasltContender() { return std::make_unique<Hipblaslt>(); }

}  // namespace octet
