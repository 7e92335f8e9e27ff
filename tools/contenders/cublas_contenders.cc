#include "tools/contenders/cublas_contenders.h"

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/shared_library.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/gpu/scoped_event.h"
#include "runtime/memory/device_memory.h"

namespace octet {
namespace {

// The part of cublas_v2.h that is needed, by the values that the library's interface fixes.
using Handle = void*;
constexpr int kNoTranspose = 0;
constexpr int kTranspose = 1;
constexpr int kFloat16Type = 2;
constexpr int kBFloat16Type = 14;
constexpr int kComputeFloat32 = 68;
constexpr int kDefaultAlgorithm = -1;
constexpr float kOne = 1;
constexpr float kZero = 0;

struct CublasLibrary {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*set_stream)(Handle, GpuStream);
  int (*gemm)(Handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
              const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
              const void* beta, void* c, int c_type, int ldc, int compute, int algorithm);
  // Since 12.5; else null. Arrays of groups are in host memory, those of matrices in the GPU's.
  int (*grouped)(Handle, const int* trans_a, const int* trans_b, const int* m, const int* n,
                 const int* k, const void* alpha, const void* const* a, int a_type, const int* lda,
                 const void* const* b, int b_type, const int* ldb, const void* beta, void* const* c,
                 int c_type, const int* ldc, int groups, const int* group_size, int compute);

  // Loads the library on the first call; later calls give the same answer.
  static absl::StatusOr<const CublasLibrary*> Load();
};

absl::StatusOr<const CublasLibrary*> LoadOnce() {
  OCTET_ASSIGN_OR_RETURN(SharedLibrary file,
                         SharedLibrary::Open({"libcublas.so.13", "libcublas.so.12"}));
  auto* const library = new CublasLibrary();
  file.Require(library->create, "cublasCreate_v2");
  file.Require(library->destroy, "cublasDestroy_v2");
  file.Require(library->set_stream, "cublasSetStream_v2");
  file.Require(library->gemm, "cublasGemmEx");
  file.Find(library->grouped, "cublasGemmGroupedBatchedEx");
  OCTET_RETURN_IF_ERROR(file.CheckComplete());
  return library;
}

absl::StatusOr<const CublasLibrary*> CublasLibrary::Load() {
  static const auto* const kLibrary = new absl::StatusOr<const CublasLibrary*>(LoadOnce());
  return *kLibrary;
}

absl::Status ToStatus(int result, absl::string_view call) {
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, " returned ", result));
}

int TypeOf(DType dtype) { return dtype == DType::kFloat16 ? kFloat16Type : kBFloat16Type; }

// An owned handle. Each stream has its own, since a handle has one workspace.
class Cublas {
 public:
  static absl::StatusOr<Cublas> Create() {
    OCTET_ASSIGN_OR_RETURN(const CublasLibrary* const library, CublasLibrary::Load());
    Cublas cublas(*library);
    OCTET_RETURN_IF_ERROR(ToStatus(library->create(&cublas.handle_), "cublasCreate"));
    return cublas;
  }
  Cublas(Cublas&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  Cublas& operator=(Cublas&&) = delete;
  ~Cublas() {
    if (handle_ != nullptr) library_.destroy(handle_);
  }

  const CublasLibrary& library() const { return library_; }
  Handle handle() const { return handle_; }

  absl::Status SetStream(GpuStream stream) const {
    return ToStatus(library_.set_stream(handle_, stream), "cublasSetStream");
  }
  absl::Status Multiply(const ContenderGemm& gemm, const ExpertGemm& expert) const {
    const int type = TypeOf(gemm.dtype);
    return ToStatus(library_.gemm(handle_, kTranspose, kNoTranspose, gemm.n, expert.rows, gemm.k,
                                  &kOne, expert.b, type, gemm.k, expert.a, type, gemm.k, &kZero,
                                  expert.out, type, gemm.n, kComputeFloat32, kDefaultAlgorithm),
                    "cublasGemmEx");
  }

 private:
  explicit Cublas(const CublasLibrary& library) : library_(library) {}

  const CublasLibrary& library_;
  Handle handle_ = nullptr;
};

class OneStream final : public GemmContender {
 public:
  absl::string_view name() const override { return "cublas"; }
  bool prepares_in_calls() const override { return true; }

  absl::Status Prepare(const ContenderGemm& gemm) override {
    gemm_ = gemm;
    experts_ = gemm.Experts();
    if (cublas_ != nullptr) return absl::OkStatus();
    OCTET_ASSIGN_OR_RETURN(Cublas cublas, Cublas::Create());
    cublas_ = std::make_unique<Cublas>(std::move(cublas));
    return absl::OkStatus();
  }

  absl::Status Run(GpuStream stream) override {
    OCTET_RETURN_IF_ERROR(cublas_->SetStream(stream));
    for (const ExpertGemm& expert : experts_) {
      OCTET_RETURN_IF_ERROR(cublas_->Multiply(gemm_, expert));
    }
    return absl::OkStatus();
  }

 private:
  ContenderGemm gemm_ = {};
  std::vector<ExpertGemm> experts_;
  std::unique_ptr<Cublas> cublas_;
};

class SeveralStreams final : public GemmContender {
 public:
  SeveralStreams() = default;
  SeveralStreams(const SeveralStreams&) = delete;
  SeveralStreams& operator=(const SeveralStreams&) = delete;
  ~SeveralStreams() override {
    for (const Branch& branch : branches_) {
      if (branch.stream != nullptr) static_cast<void>(hipStreamDestroy(branch.stream));
    }
  }

  absl::string_view name() const override { return "cublas_streams"; }
  bool prepares_in_calls() const override { return true; }

  absl::Status Prepare(const ContenderGemm& gemm) override {
    constexpr size_t kMostStreams = 8;
    gemm_ = gemm;
    experts_ = gemm.Experts();
    if (branches_.empty()) {
      OCTET_ASSIGN_OR_RETURN(fork_, ScopedEvent::Create());
    }
    while (branches_.size() < std::min(kMostStreams, experts_.size())) {
      OCTET_ASSIGN_OR_RETURN(Cublas cublas, Cublas::Create());
      OCTET_ASSIGN_OR_RETURN(ScopedEvent done, ScopedEvent::Create());
      Branch& branch = branches_.emplace_back(std::move(cublas), std::move(done));
      OCTET_RETURN_IF_GPU_ERROR(hipStreamCreateWithFlags(&branch.stream, hipStreamNonBlocking));
      OCTET_RETURN_IF_ERROR(branch.cublas.SetStream(branch.stream));
    }
    return absl::OkStatus();
  }

  absl::Status Run(GpuStream stream) override {
    OCTET_RETURN_IF_ERROR(fork_.Record(stream));
    for (const Branch& branch : branches_) OCTET_RETURN_IF_ERROR(fork_.Hold(branch.stream));
    for (size_t i = 0; i < experts_.size(); ++i) {
      const Cublas& cublas = branches_[i % branches_.size()].cublas;
      OCTET_RETURN_IF_ERROR(cublas.Multiply(gemm_, experts_[i]));
    }
    for (Branch& branch : branches_) {
      OCTET_RETURN_IF_ERROR(branch.done.Record(branch.stream));
      OCTET_RETURN_IF_ERROR(branch.done.Hold(stream));
    }
    return absl::OkStatus();
  }

 private:
  struct Branch {
    Branch(Cublas own_cublas, ScopedEvent own_done)
        : cublas(std::move(own_cublas)), done(std::move(own_done)) {}
    Cublas cublas;
    ScopedEvent done;
    hipStream_t stream = nullptr;
  };

  ContenderGemm gemm_ = {};
  std::vector<ExpertGemm> experts_;
  ScopedEvent fork_;
  std::vector<Branch> branches_;
};

// One group for each expert, of one product.
class Grouped final : public GemmContender {
 public:
  absl::string_view name() const override { return "cublas_grouped"; }

  absl::Status Prepare(const ContenderGemm& gemm) override {
    OCTET_ASSIGN_OR_RETURN(Cublas cublas, Cublas::Create());
    if (cublas.library().grouped == nullptr) {
      return absl::UnavailableError(
          "this cuBLAS has no cublasGemmGroupedBatchedEx, which came with version 12.5");
    }
    cublas_ = std::make_unique<Cublas>(std::move(cublas));
    type_ = TypeOf(gemm.dtype);
    const std::vector<ExpertGemm> experts = gemm.Experts();
    std::vector<const void*> a;
    std::vector<const void*> b;
    std::vector<const void*> out;
    for (const ExpertGemm& expert : experts) {
      rows_.push_back(expert.rows);
      a.push_back(expert.a);
      b.push_back(expert.b);
      out.push_back(expert.out);
    }
    if (experts.empty()) return absl::OkStatus();
    transpose_.assign(experts.size(), kTranspose);
    no_transpose_.assign(experts.size(), kNoTranspose);
    n_.assign(experts.size(), gemm.n);
    k_.assign(experts.size(), gemm.k);
    one_.assign(experts.size(), kOne);
    zero_.assign(experts.size(), kZero);
    group_size_.assign(experts.size(), 1);
    OCTET_ASSIGN_OR_RETURN(a_, Upload(a));
    OCTET_ASSIGN_OR_RETURN(b_, Upload(b));
    OCTET_ASSIGN_OR_RETURN(out_, Upload(out));
    return absl::OkStatus();
  }

  absl::Status Run(GpuStream stream) override {
    if (rows_.empty()) return absl::OkStatus();
    OCTET_RETURN_IF_ERROR(cublas_->SetStream(stream));
    return ToStatus(
        cublas_->library().grouped(
            cublas_->handle(), transpose_.data(), no_transpose_.data(), n_.data(), rows_.data(),
            k_.data(), one_.data(), b_.as<const void*>(), type_, k_.data(), a_.as<const void*>(),
            type_, k_.data(), zero_.data(), out_.as<void*>(), type_, n_.data(),
            static_cast<int>(rows_.size()), group_size_.data(), kComputeFloat32),
        "cublasGemmGroupedBatchedEx");
  }

 private:
  static absl::StatusOr<DeviceMemory> Upload(const std::vector<const void*>& pointers) {
    const size_t bytes = pointers.size() * sizeof(pointers[0]);
    OCTET_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes));
    OCTET_RETURN_IF_GPU_ERROR(
        hipMemcpy(memory.as<void>(), pointers.data(), bytes, hipMemcpyHostToDevice));
    return memory;
  }

  std::unique_ptr<Cublas> cublas_;
  int type_ = 0;
  // Each group has one of these, in host memory.
  std::vector<int> rows_, n_, k_, transpose_, no_transpose_, group_size_;
  std::vector<float> one_, zero_;
  // Each matrix has one of these, in the GPU's memory.
  DeviceMemory a_, b_, out_;
};

}  // namespace

std::vector<std::unique_ptr<GemmContender>> MakeCublasContenders() {
  std::vector<std::unique_ptr<GemmContender>> contenders;
  contenders.push_back(std::make_unique<OneStream>());
  contenders.push_back(std::make_unique<SeveralStreams>());
  contenders.push_back(std::make_unique<Grouped>());
  return contenders;
}

}  // namespace octet
