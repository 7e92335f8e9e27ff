#ifndef OCTET_TOOLS_CONTENDERS_LEFT_OUT_CONTENDER_H_
#define OCTET_TOOLS_CONTENDERS_LEFT_OUT_CONTENDER_H_

#include <string>

namespace octet {

// A contender that was not measured.
struct LeftOutContender {
  std::string name;
  std::string reason;
};

}  // namespace octet

#endif  // OCTET_TOOLS_CONTENDERS_LEFT_OUT_CONTENDER_H_
