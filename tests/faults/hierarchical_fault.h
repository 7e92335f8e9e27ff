// The faults of the kernels of calls over several nodes in a test program, chosen at run time.
// tests/faults/hierarchical_seam.h says how they get into them.
#ifndef OCTET_TESTS_FAULTS_HIERARCHICAL_FAULT_H_
#define OCTET_TESTS_FAULTS_HIERARCHICAL_FAULT_H_

namespace octet::faults {

enum class HierarchicalFault {
  kNone,
  kIdsNotRenumbered,   // records have ids of all nodes' experts
  kRowOfFirstNode,     // the row of a token's first node is added for each of its nodes
  kNodesDescending,    // the last node's row is added first
  kChunksTooEarly,     // all chunks of rows are said to have come when the dispatch begins
  kChunkTooLong,       // a chunk is said to have one row more
  kRowsLeaveTooEarly,  // chunks of a combine do not wait for their rows
};

// Set by the host while no kernel runs; read by the kernels.
inline HierarchicalFault planted_hierarchical = HierarchicalFault::kNone;

}  // namespace octet::faults

#endif  // OCTET_TESTS_FAULTS_HIERARCHICAL_FAULT_H_
