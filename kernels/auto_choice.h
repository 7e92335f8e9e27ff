// What the kAutos of a configuration stand for: the strategy above all, and what is left open
// within it.
//
// Strategy::kAuto is a function of the configuration, the number of ranks and a table that users
// can replace. In this order:
//   1. what has been measured on such GPUs: an entry for "auto" in the tuning table
//      (kernels/tuning.h; OCTET_TUNING, written by `octet tune --strategy=auto`), unless the
//      strategy that it names cannot do what the configuration asks for;
//   2. the rules in auto_choice.cc, by the most tokens of a rank, of the strategies that can.
// Options that only one strategy has (a format, a layout) so decide as well. A Tuning fits the
// strategy that it was made for: with another one, which auto may choose, it may be refused.
//
// What comes out of Combine depends on the strategy in one point: direct adds in the order kFlat,
// the others, left to themselves, in the order kPerRank. EpConfig::combine_order is respected by
// whatever is chosen, and makes results the same to the bit under each of them. Which calls are
// legal does not depend on it: CapableStrategies.
#ifndef OCTET_KERNELS_AUTO_CHOICE_H_
#define OCTET_KERNELS_AUTO_CHOICE_H_

#include <vector>

#include "kernels/tuning.h"
#include "octet/ep_config.h"
#include "octet/topology.h"

namespace octet {

// `config` with every choice made but Tuning, which the strategy knows; by the rules alone, and
// with the table. The configuration must be valid, and what comes out is.
EpConfig WithAutoChosen(const EpConfig& config, int num_ranks);
EpConfig WithAutoChosen(const EpConfig& config, int num_ranks, const Topology& topology,
                        const TuningTable& table);

// The strategies that can do what `config` asks for, whatever its own: what Strategy::kAuto may
// come to with some table. With more than one, calls are held to what all of them allow.
std::vector<Strategy> CapableStrategies(const EpConfig& config, int num_ranks);

// All that the strategy of `config` may come out as on whatever GPU.
std::vector<Strategy> PossibleStrategies(const EpConfig& config, int num_ranks,
                                         const TuningTable& table);

}  // namespace octet

#endif  // OCTET_KERNELS_AUTO_CHOICE_H_
