// The part of RCCL's interface that Octet uses, so that emulation compiles what real GPUs run. The
// functions are found in a library at run time (runtime/net/rails/nccl_library.h): a fake of the
// tests.
#ifndef OCTET_RUNTIME_PLATFORM_EMULATION_RCCL_RCCL_H_
#define OCTET_RUNTIME_PLATFORM_EMULATION_RCCL_RCCL_H_

#include <hip/hip_runtime.h>

#include <cstddef>

// The names are NCCL's, and so are the parameters.
// NOLINTBEGIN(readability-identifier-naming, readability-function-size)

struct ncclComm;
using ncclComm_t = ncclComm*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t {
  ncclInt8 = 0,
  ncclInt32 = 2,
};

struct ncclConfig_t {
  int blocking;
  int maxCTAs;
};
#define NCCL_CONFIG_INITIALIZER {1, 0}

extern "C" {

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* new_comm,
                           ncclConfig_t* config);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      hipStream_t stream);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

}  // extern "C"

// NOLINTEND(readability-identifier-naming, readability-function-size)

#endif  // OCTET_RUNTIME_PLATFORM_EMULATION_RCCL_RCCL_H_
