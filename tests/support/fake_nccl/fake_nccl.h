// A fake of NCCL for emulated GPUs: communicators between processes of one machine.
#ifndef OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_H_
#define OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_H_

#include "tests/support/fake_nccl/fake_nccl_faults.h"

namespace octet {

// Makes NcclLibrary find the fake, before its first use. Returns false on GPUs, where there is
// none.
bool LoadFakeNccl();

// What the fake does wrong in this process from now on. Only after LoadFakeNccl has returned true.
void SetNcclFaults(const fake::NcclFaults& faults);

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_FAKE_NCCL_FAKE_NCCL_H_
