// The shape of a launch. Shared by the host classes and the .hip files.
#ifndef OCTET_RUNTIME_DEVICE_LAUNCH_SHAPE_H_
#define OCTET_RUNTIME_DEVICE_LAUNCH_SHAPE_H_

#include <cstddef>

namespace octet {

struct LaunchShape {
  int blocks = 0;
  int threads = 0;          // per block
  size_t shared_bytes = 0;  // dynamic shared memory per block
};

}  // namespace octet

#endif  // OCTET_RUNTIME_DEVICE_LAUNCH_SHAPE_H_
