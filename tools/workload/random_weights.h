// Random weights of a layer.
#ifndef OCTET_TOOLS_WORKLOAD_RANDOM_WEIGHTS_H_
#define OCTET_TOOLS_WORKLOAD_RANDOM_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octet/moe_layer.h"
#include "octet/moe_weights.h"

namespace octet {

// Owns what its weights view. All matrices lie in one pool of normal numbers, each beginning
// elsewhere: experts differ, and those of the largest models fit into a host's memory. Products of
// normal rows then have about the size of the rows.
class RandomWeights {
 public:
  RandomWeights(const MoeLayerConfig& config, bool router_bias, uint64_t seed);

  const MoeLayerWeights& weights() const { return weights_; }

 private:
  // Numbers of one standard deviation, from which tensors are taken.
  struct Pool {
    std::vector<uint16_t> elements;
    uint64_t next = 0;

    HostTensor Take(int rows, int columns);
  };
  static Pool MakePool(DType dtype, size_t elements, double deviation, uint64_t seed);
  HostTensor TakeBias(int columns);
  MlpWeights TakeMlp(const MoeLayerConfig& config, int between);

  TensorType type_;
  Pool in_;   // of matrices that are multiplied by rows of H
  Pool mid_;  // by rows of I
  std::vector<float> bias_;
  MoeLayerWeights weights_;
};

}  // namespace octet

#endif  // OCTET_TOOLS_WORKLOAD_RANDOM_WEIGHTS_H_
