// What the environment of a process says about its launch.
#include "tools/support/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "runtime/base/launched.h"

namespace octet {
namespace {

Launch Of(const std::map<std::string, std::string>& variables) {
  return LaunchOf([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchTest, Alone) {
  const Launch launch = Of({});
  EXPECT_FALSE(launch.several());
  EXPECT_TRUE(launch.first());
}

TEST(LaunchTest, EveryLauncher) {
  for (const auto& [size, rank] :
       std::map<std::string, std::string>{{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                          {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                                          {"PMI_SIZE", "PMI_RANK"},
                                          {"SLURM_STEP_NUM_TASKS", "PMIX_RANK"}}) {
    const Launch launch = Of({{size, "3"}, {rank, "2"}});
    EXPECT_EQ(launch.num_processes, 3) << size;
    EXPECT_EQ(launch.process, 2) << size;
    EXPECT_FALSE(launch.first());
    EXPECT_FALSE(Of({{size, "3"}}).several());  // of a program that has nothing to do with MPI
    EXPECT_FALSE(Of({{rank, "2"}}).several());
    EXPECT_FALSE(Of({{size, "1"}, {rank, "0"}}).several());
    EXPECT_FALSE(Of({{size, "3"}, {rank, "3"}}).several());
    EXPECT_FALSE(Of({{size, "many"}, {rank, "0"}}).several());
  }
}

TEST(LaunchTest, ProcessesOfTheComputer) {
  const auto on_host = [](const std::string& size, const std::string& name,
                          const std::string& value) {
    const std::map<std::string, std::string> variables = {
        {size, "8"},
        {size == "PMI_SIZE" ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK", "1"},
        {name, value}};
    return LaunchedAs([&](const char* wanted) -> const char* {
             const auto found = variables.find(wanted);
             return found == variables.end() ? nullptr : found->second.c_str();
           })
        .on_host;
  };
  const std::string open_mpi = "OMPI_COMM_WORLD_SIZE";
  EXPECT_EQ(on_host(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "4"), 4);
  EXPECT_EQ(on_host("PMI_SIZE", "MPI_LOCALNRANKS", "2"), 2);
  EXPECT_EQ(on_host(open_mpi, "MPI_LOCALNRANKS", "2"), 1);  // of another launcher
  for (const char* nonsense : {"0", "-1", "9", "some"}) {
    EXPECT_EQ(on_host(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE", nonsense), 1) << nonsense;
  }
}

}  // namespace
}  // namespace octet
