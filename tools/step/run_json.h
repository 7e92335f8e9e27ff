// The parts of reports and dumps that say what was run and on what, as JSON.
#ifndef OCTET_TOOLS_STEP_RUN_JSON_H_
#define OCTET_TOOLS_STEP_RUN_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/types/span.h"
#include "octet/ep_config.h"
#include "octet/topology.h"
#include "tools/step/run_spec.h"

namespace octet {

using Json = nlohmann::ordered_json;

Json ToJson(const Topology& topology);

// Returns how a step was run: the strategy's options, its launches, what was sent and received.
// `config`: with every choice made.
Json ChoicesToJson(const RunSpec& run, const EpConfig& config);

// Returns what was run, by flags' names: ranks and shape, ChoicesToJson, and how inputs were drawn.
// `num_tokens`: of each rank.
Json ConfigToJson(const RunSpec& run, const EpConfig& config, absl::Span<const int> num_tokens);

// Returns indented text. Names may hold any bytes.
std::string JsonText(const Json& json);

}  // namespace octet

#endif  // OCTET_TOOLS_STEP_RUN_JSON_H_
