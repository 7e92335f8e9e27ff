#include "tools/report/json_parts.h"

namespace octet {

Json ToJson(const Statistics& statistics) {
  return {{"median", statistics.median}, {"min", statistics.min},   {"max", statistics.max},
          {"p99", statistics.p99},       {"mean", statistics.mean}, {"cv", statistics.cv}};
}

Json ToJson(const Ceilings& ceilings) {
  // Ceilings between ranks are null if there is only one rank.
  const auto between = [&](double value) {
    return ceilings.all_to_all_gbps > 0 ? Json(value) : Json();
  };
  return {{"all_to_all_gbps", between(ceilings.all_to_all_gbps)},
          {"loads_gbps", between(ceilings.loads_gbps)},
          {"bulk_gbps", between(ceilings.bulk_gbps)},
          {"copy_engine_gbps", between(ceilings.copy_engine_gbps)},
          {"pair_gbps", between(ceilings.pair_gbps)},
          {"empty_launch_us", ceilings.empty_launch_us},
          {"host_barrier_us", ceilings.host_barrier_us},
          {"node_barrier_us", ceilings.node_barrier_us},
          {"flag_round_trip_us", between(ceilings.flag_round_trip_us)},
          {"launch_skew_us", between(ceilings.launch_skew_us)},
          {"clock_round_trip_us", between(ceilings.clock_round_trip_us)}};
}

}  // namespace octet
