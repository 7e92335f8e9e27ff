// JSON parts that several commands share. Times are in µs, bandwidths in GB/s.
#ifndef OCTET_TOOLS_REPORT_JSON_PARTS_H_
#define OCTET_TOOLS_REPORT_JSON_PARTS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "tools/commands/run_options.h"
#include "tools/measure/probe/ceilings.h"
#include "tools/support/statistics.h"

namespace octet {

using Json = nlohmann::ordered_json;

Json ToJson(const Topology& topology);
Json ToJson(const Statistics& statistics);
Json ToJson(const Ceilings& ceilings);

// Returns how a step was run: the strategy's options, its launches, what was sent and received.
// `config`: with every choice made.
Json ChoicesToJson(const RunOptions& options, const EpConfig& config);

// Returns what was run, by flags' names: ranks and shape, ChoicesToJson, and how inputs were drawn.
// `num_tokens`: of each rank.
Json ConfigToJson(const RunOptions& options, const EpConfig& config,
                  absl::Span<const int> num_tokens);

// Returns indented text. Names may hold any bytes.
std::string JsonText(const Json& json);

}  // namespace octet

#endif  // OCTET_TOOLS_REPORT_JSON_PARTS_H_
