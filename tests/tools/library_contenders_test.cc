// How the vendors' libraries are called, with fakes of them on emulated GPUs.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/tools/fake_blas/fake_gemm.h"
#include "tools/contenders/cublas_contenders.h"
#include "tools/contenders/gemm_contender.h"
#include "tools/contenders/hipblaslt_contender.h"
#include "tools/contenders/shared_library.h"
#include "tools/measure/gemm_run.h"

namespace octet {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Loads a fake by its path; the contenders find the loaded library by its name. It stays loaded.
void* LoadFake(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    ADD_FAILURE() << dlerror();
    return nullptr;
  }
  const auto set_enqueue =
      reinterpret_cast<void (*)(fake::Enqueue)>(dlsym(library, "octet_fake_set_enqueue"));
  set_enqueue([](void* stream, void (*work)(void*), void* data) {
    return static_cast<int>(hipLaunchHostFunc(static_cast<hipStream_t>(stream), work, data));
  });
  return library;
}

// Measures `contenders` and returns the names of those whose results are right.
std::vector<std::string> RightOnes(const std::vector<std::unique_ptr<GemmContender>>& contenders,
                                   std::vector<int32_t> rows) {
  GemmOptions options;
  options.rows = std::move(rows);
  options.n = 40;
  options.k = 72;
  options.iters = 1;
  options.warmup = 1;
  options.samples = 200;
  const absl::StatusOr<GemmReport> report = MeasureGemm(options, contenders);
  EXPECT_TRUE(report.ok()) << report.status();
  if (!report.ok()) return {};
  for (const LeftOutContender& contender : report->left_out) {
    ADD_FAILURE() << contender.name << ": " << contender.reason;
  }
  std::vector<std::string> names;
  for (const GemmMeasurement& measured : report->measurements) {
    EXPECT_EQ(measured.first_wrong, "");
    if (measured.wrong == 0) names.push_back(measured.name);
  }
  return names;
}

TEST(LibraryContendersTest, EachPlatformHasItsOwn) {
  const auto names = [](absl::string_view platform) {
    std::vector<std::string> found;
    for (const auto& contender : MakeGemmContenders(platform)) {
      found.emplace_back(contender->name());
    }
    return found;
  };
  EXPECT_THAT(names("nvidia"), ElementsAre("cublas", "cublas_streams", "cublas_grouped"));
  EXPECT_THAT(names("amd"), ElementsAre("hipblaslt"));
  EXPECT_THAT(names("emulation"), IsEmpty());
}

TEST(LibraryContendersTest, WhatIsMissingHasAName) {
  const absl::Status none =
      SharedLibrary::Open({"liboctet_none.so.1", "liboctet_none.so"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(none.message(), HasSubstr("liboctet_none.so: cannot open"));

  absl::StatusOr<SharedLibrary> library =
      SharedLibrary::Open({"liboctet_none.so", OCTET_FAKE_CUBLAS});
  ASSERT_TRUE(library.ok()) << library.status();
  int (*function)(void*) = nullptr;
  library->Require(function, "cublasDestroy_v2");
  EXPECT_NE(function, nullptr);
  EXPECT_TRUE(library->CheckComplete().ok());
  library->Find(function, "cublasFind");
  EXPECT_EQ(function, nullptr);
  EXPECT_TRUE(library->CheckComplete().ok()) << "it need not be there";
  library->Require(function, "cublasOne");
  library->Require(function, "cublasTwo");
  EXPECT_EQ(library->CheckComplete().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(library->CheckComplete().message(), EndsWith(" lacks cublasOne, cublasTwo"));
}

TEST(LibraryContendersTest, Cublas) {
  void* const fake = LoadFake(OCTET_FAKE_CUBLAS);
  ASSERT_NE(fake, nullptr);
  const auto streams_used = reinterpret_cast<size_t (*)()>(dlsym(fake, "octet_fake_streams_used"));
  const std::vector<int32_t> rows = {3, 0, 17, 1, 1, 2, 5, 0, 4, 1, 1, 30};
  EXPECT_THAT(RightOnes(MakeCublasContenders(), rows),
              ElementsAre("cublas", "cublas_streams", "cublas_grouped"));
  EXPECT_EQ(streams_used(), 1U + 8U) << "the default stream, and eight";
  EXPECT_THAT(RightOnes(MakeCublasContenders(), {0, 0}),
              ElementsAre("cublas", "cublas_streams", "cublas_grouped"));
}

TEST(LibraryContendersTest, Hipblaslt) {
  ASSERT_NE(LoadFake(OCTET_FAKE_HIPBLASLT), nullptr);
  std::vector<std::unique_ptr<GemmContender>> contenders;
  contenders.push_back(MakeHipblasltContender());
  EXPECT_THAT(RightOnes(contenders, {3, 0, 17, 3, 30}), ElementsAre("hipblaslt"));
}

}  // namespace
}  // namespace octet
