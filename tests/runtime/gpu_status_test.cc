#include "runtime/gpu/gpu_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/support/node/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(GpuStatus, SuccessIsOk) { EXPECT_OK(GpuStatus(hipSuccess, "anything")); }

TEST(GpuStatus, Codes) {
  const auto code = [](hipError_t error) { return GpuStatus(error, "call").code(); };
  EXPECT_EQ(code(hipErrorNoDevice), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(hipErrorInsufficientDriver), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(hipErrorOutOfMemory), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(hipErrorInvalidValue), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(hipErrorInvalidDevice), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(hipErrorCooperativeLaunchTooLarge), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(hipErrorNotReady), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(hipErrorNotSupported), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(hipErrorPeerAccessAlreadyEnabled), absl::StatusCode::kInternal);
}

TEST(GpuStatus, SaysCallNameAndText) {
  EXPECT_THAT(GpuStatus(hipErrorOutOfMemory, "hipMalloc(&p, 17)"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(StartsWith("hipMalloc(&p, 17): "),
                             HasSubstr(hipGetErrorName(hipErrorOutOfMemory)),
                             HasSubstr(hipGetErrorString(hipErrorOutOfMemory)))));
}

// Users know HIP's arguments, not those of launchers of Octet's own.
TEST(GpuStatus, LeavesOutWhatOnlyTheSourceHas) {
  EXPECT_THAT(
      GpuStatus(hipErrorInvalidValue, "LaunchCombine(params, shape(), rank.stream())"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               StartsWith(absl::StrCat("LaunchCombine: ", hipGetErrorName(hipErrorInvalidValue)))));
}

class GpuStatusWithGpu : public NodeTest {};

TEST_F(GpuStatusWithGpu, NamesTheDeviceAndClearsTheError) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  const absl::Status status = OCTET_GPU(hipSetDevice(9999));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(StartsWith("hipSetDevice(9999): "), EndsWith("(device 0)"))));
  EXPECT_EQ(hipGetLastError(), hipSuccess);
}

TEST_F(GpuStatusWithGpu, SaysHowMuchMemoryIsLeft) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  size_t free = 0;
  size_t all = 0;
  ASSERT_EQ(hipMemGetInfo(&free, &all), hipSuccess);
  void* memory = nullptr;
  EXPECT_THAT(
      OCTET_GPU(hipMalloc(&memory, all + 1)),
      StatusIs(absl::StatusCode::kResourceExhausted,
               ContainsRegex(absl::StrCat("\\(device 0: [0-9]+ of ", all, " bytes are free\\)$"))));
  EXPECT_EQ(hipGetLastError(), hipSuccess);
}

}  // namespace
}  // namespace octet
