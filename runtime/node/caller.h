// Names, for reports of failures, of the objects whose calls are made on a node.
#ifndef OCTET_RUNTIME_NODE_CALLER_H_
#define OCTET_RUNTIME_NODE_CALLER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "octet/node.h"

namespace octet {

// Such an object. Not during a constructor or destructor of the Node; any thread may use it.
class Caller {
 public:
  // `name` may be empty.
  Caller(Node& node, std::string name);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Not 0; unique on the node, NodeClient::Register's ids included.
  uint32_t id() const { return id_; }

 private:
  const std::shared_ptr<Node> node_;
  const uint32_t id_;
};

// While it lives, calls on the rank are those of `caller`, the id of a Caller or a NodeClient; not
// if they are another's already: a layer's calls of its ExpertParallel are the layer's.
class CallerScope {
 public:
  CallerScope(Rank& rank, uint32_t caller);
  ~CallerScope();
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  Rank& rank_;
  const bool set_;
};

}  // namespace octet

#endif  // OCTET_RUNTIME_NODE_CALLER_H_
