// The contract of box_copy.h, the same on every platform.
#include <gtest/gtest.h>
#include <hip/hip_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "octet/topology.h"
#include "runtime/base/size.h"
#include "runtime/base/status_macros.h"
#include "runtime/gpu/gpu_status.h"
#include "runtime/memory/device_memory.h"
#include "runtime/platform/box_shape.h"
#include "tests/platform/box_copy_kernels.h"
#include "tests/support/host_copy.h"

namespace octet {
namespace {

using device::BoxShape;
using device::kBoxChunkBytes;

// A matrix on the host, and on the GPU.
struct Matrix {
  std::vector<char> bytes;
  DeviceMemory memory;
};

class BoxCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto topology = DiscoverTopology();
    if (!topology.ok()) GTEST_SKIP() << topology.status();
    wave_size_ = topology->gpus[0].wave_size;
    emulated_ = topology->emulated();
  }

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  absl::StatusOr<Matrix> MakeMatrix(BoxShape& shape) {
    Matrix matrix;
    matrix.bytes.resize(Size(shape.rows) * Size(shape.row_bytes));
    for (char& byte : matrix.bytes) byte = static_cast<char>(random_());
    OCTET_ASSIGN_OR_RETURN(matrix.memory, DeviceMemory::Allocate(matrix.bytes.size()));
    OCTET_RETURN_IF_ERROR(ToDevice(matrix.memory, matrix.bytes));
    shape.data = matrix.memory.as<void>();
    return matrix;
  }

  // A place that is inside of the matrix, of which the box may reach over both ends.
  int ByteOf(const BoxShape& shape) {
    return shape.box_row_bytes *
           Below((shape.row_bytes + shape.box_row_bytes - 1) / shape.box_row_bytes);
  }

  // Returns what the box from this byte of this row on must hold.
  static std::vector<char> Expected(const BoxShape& shape, const Matrix& matrix, int byte,
                                    int row) {
    std::vector<char> box(BoxBytes(shape), 0);
    const int chunks = shape.box_row_bytes / kBoxChunkBytes;
    for (int r = 0; r < shape.box_rows && row + r < shape.rows; ++r) {
      for (int c = 0; c < chunks; ++c) {
        const int from = byte + c * kBoxChunkBytes;
        if (from >= shape.row_bytes) continue;
        const int to = chunks == 1 ? r * kBoxChunkBytes : device::BoxOffset(r, c);
        std::memcpy(&box[Size(to)],
                    &matrix.bytes[Size(row + r) * Size(shape.row_bytes) + Size(from)],
                    kBoxChunkBytes);
      }
    }
    return box;
  }

  absl::Status Check(BoxCopy copy) {
    OCTET_ASSIGN_OR_RETURN(const Matrix wide, MakeMatrix(copy.wide));
    OCTET_ASSIGN_OR_RETURN(const Matrix narrow, MakeMatrix(copy.narrow));
    std::vector<BoxPlace> places(Size(copy.waves) * Size(copy.rounds));
    for (BoxPlace& place : places) {
      place = {.wide_byte = ByteOf(copy.wide),
               .wide_row = Below(static_cast<int>(copy.wide.rows)),
               .narrow_byte = ByteOf(copy.narrow),
               .narrow_row = Below(static_cast<int>(copy.narrow.rows))};
    }
    const size_t both = BoxBytes(copy.wide) + BoxBytes(copy.narrow);
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory on_gpu,
                           DeviceMemory::Allocate(places.size() * sizeof(BoxPlace)));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory out, DeviceMemory::Allocate(places.size() * both));
    OCTET_ASSIGN_OR_RETURN(const DeviceMemory early, DeviceMemory::Allocate(places.size() * 4));
    OCTET_RETURN_IF_ERROR(ToDevice(on_gpu, places));
    copy.places = on_gpu.as<BoxPlace>();
    copy.out = out.as<char>();
    copy.early = early.as<uint32_t>();
    OCTET_RETURN_IF_GPU_ERROR(LaunchBoxCopy(copy, wave_size_, nullptr));
    OCTET_RETURN_IF_GPU_ERROR(hipDeviceSynchronize());
    OCTET_ASSIGN_OR_RETURN(const auto got, ToHost<char>(out.as<void>(), places.size() * both));
    OCTET_ASSIGN_OR_RETURN(const auto seen, ToHost<uint32_t>(early.as<void>(), places.size()));
    for (size_t i = 0; i < places.size(); ++i) {
      const BoxPlace& at = places[i];
      std::vector<char> want = Expected(copy.wide, wide, at.wide_byte, at.wide_row);
      const auto second = Expected(copy.narrow, narrow, at.narrow_byte, at.narrow_row);
      want.insert(want.end(), second.begin(), second.end());
      if (std::memcmp(want.data(), got.data() + i * both, both) != 0) {
        return absl::DataLossError(absl::StrCat("round ", i, ": byte ", at.wide_byte, " of row ",
                                                at.wide_row, ", byte ", at.narrow_byte, " of row ",
                                                at.narrow_row));
      }
      // Nothing comes before it is waited for.
      if (emulated_) EXPECT_EQ(seen[i], kPoisonWord);
    }
    return absl::OkStatus();
  }

  static constexpr uint32_t kPoisonWord = 0x7fff7fff;

  std::mt19937 random_{21};
  int wave_size_ = 0;
  bool emulated_ = false;
};

TEST_F(BoxCopyTest, BoxesOfAnyPlace) {
  for (int i = 0; i < 24; ++i) {
    BoxCopy copy = {.wide = {.data = nullptr,
                             .rows = 1 + Below(100),
                             .row_bytes = 16 * (1 + Below(40)),
                             .box_rows = 8 * (1 + Below(4)),
                             .box_row_bytes = 128},
                    .narrow = {.data = nullptr,
                               .rows = 1 + Below(100),
                               .row_bytes = 16 * (1 + Below(6)),
                               .box_rows = 8 * (1 + Below(4)),
                               .box_row_bytes = 16},
                    .waves = 1 + Below(3),
                    .rounds = 1 + Below(9),
                    .places = nullptr,
                    .out = nullptr,
                    .early = nullptr};
    SCOPED_TRACE(absl::StrCat("seed 21, case ", i, ": ", copy.wide.rows, " rows of ",
                              copy.wide.row_bytes, " bytes, boxes of ", copy.wide.box_rows,
                              " rows; ", copy.narrow.rows, " of ", copy.narrow.row_bytes, ", ",
                              copy.narrow.box_rows));
    const absl::Status status = Check(copy);
    ASSERT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace octet
