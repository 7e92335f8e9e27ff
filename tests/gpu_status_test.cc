#include "runtime/gpu_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include "absl/status/status.h"
#include "tests/node_fixture.h"

namespace octet {
namespace {

using ::testing::AllOf;
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

class GpuStatusWithGpu : public NodeTest {};

TEST_F(GpuStatusWithGpu, NamesTheDeviceAndClearsTheError) {
  if (NumGpus() == 0) GTEST_SKIP() << "no GPU";
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  const absl::Status status = OCTET_GPU(hipSetDevice(9999));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(StartsWith("hipSetDevice(9999): "), EndsWith("(device 0)"))));
  EXPECT_EQ(hipGetLastError(), hipSuccess);
}

}  // namespace
}  // namespace octet
