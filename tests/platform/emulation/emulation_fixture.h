// What the emulation's tests share: device memory that cleans up after itself, and a machine that
// has no errors left from the test before.
#ifndef OCTET_TESTS_PLATFORM_EMULATION_EMULATION_FIXTURE_H_
#define OCTET_TESTS_PLATFORM_EMULATION_EMULATION_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulation.h"
#include "tests/platform/emulation/emulation_kernels.h"

namespace octet {

#define EXPECT_HIP_OK(call) EXPECT_EQ(hipSuccess, (call)) << hipGetErrorName(hipPeekAtLastError())
#define ASSERT_HIP_OK(call) ASSERT_EQ(hipSuccess, (call)) << hipGetErrorName(hipPeekAtLastError())

class EmulationTest : public ::testing::Test {
 protected:
  EmulationTest() : initial_(emulation::CurrentConfig()) {}
  ~EmulationTest() override {
    if (changed_) {
      emulation::Reconfigure(initial_);
    } else {
      FreeAll();
      emulation::ClearErrors();
    }
    (void)hipSetDevice(0);
    (void)hipGetLastError();
  }

  const emulation::Config& initial_config() const { return initial_; }

  // Forgets all allocations.
  void Reconfigure(const emulation::Config& config) {
    allocations_.clear();
    emulation::Reconfigure(config);
    changed_ = true;
  }

  // `count` zeroed words on the device; the device becomes the current one.
  template <typename T = uint32_t>
  T* Allocate(size_t count, int device = 0) {
    void* memory = nullptr;
    EXPECT_HIP_OK(hipSetDevice(device));
    EXPECT_HIP_OK(hipMalloc(&memory, count * sizeof(T)));
    EXPECT_HIP_OK(hipMemset(memory, 0, count * sizeof(T)));
    allocations_.push_back(memory);
    return static_cast<T*>(memory);
  }
  template <typename T>
  std::vector<T> Read(const T* from, size_t count) {
    std::vector<T> values(count);
    EXPECT_HIP_OK(hipMemcpy(values.data(), from, count * sizeof(T), hipMemcpyDeviceToHost));
    return values;
  }
  void FreeAll() {
    for (void* memory : allocations_) (void)hipFree(memory);
    allocations_.clear();
  }
  static void EnablePeerAccess() {
    int devices = 0;
    ASSERT_HIP_OK(hipGetDeviceCount(&devices));
    for (int device = 0; device < devices; ++device) {
      ASSERT_HIP_OK(hipSetDevice(device));
      for (int peer = 0; peer < devices; ++peer) {
        if (peer != device) (void)hipDeviceEnablePeerAccess(peer, 0);
      }
    }
    (void)hipGetLastError();
  }

 private:
  emulation::Config initial_;
  bool changed_ = false;
  std::vector<void*> allocations_;
};

}  // namespace octet

#endif  // OCTET_TESTS_PLATFORM_EMULATION_EMULATION_FIXTURE_H_
