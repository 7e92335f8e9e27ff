// MPI for all tests of a program, so that each can have a World of its own.
#include <gtest/gtest.h>
#include <mpi.h>

namespace octet {
namespace {

class MpiEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    ASSERT_EQ(provided, MPI_THREAD_MULTIPLE);
  }
  void TearDown() override { MPI_Finalize(); }
};

[[maybe_unused]] const ::testing::Environment* const kMpi =
    ::testing::AddGlobalTestEnvironment(new MpiEnvironment);

}  // namespace
}  // namespace octet
