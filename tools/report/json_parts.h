// JSON parts that several commands share. Times are in µs, bandwidths in GB/s.
#ifndef OCTET_TOOLS_REPORT_JSON_PARTS_H_
#define OCTET_TOOLS_REPORT_JSON_PARTS_H_

#include "tools/measure/probe/ceilings.h"
#include "tools/step/run_json.h"
#include "tools/support/statistics.h"

namespace octet {

Json ToJson(const Statistics& statistics);
Json ToJson(const Ceilings& ceilings);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_JSON_PARTS_H_
