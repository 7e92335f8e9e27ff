// Random inputs of steps for tests: what tools/workload draws, made harder.
#ifndef OCTET_TESTS_SUPPORT_RANDOM_STEP_H_
#define OCTET_TESTS_SUPPORT_RANDOM_STEP_H_

#include <random>
#include <vector>

#include "octet/ep_config.h"
#include "tools/workload/step_input.h"

namespace octet {

// Returns random x (with NaNs, infinities, zeros of both signs and subnormals strewn in; in
// quantised rows so few that most groups have none, and groups of zeros), weights and routing; each
// (token, k) is dropped with probability `drop`. No two experts have the same factor.
StepInput RandomStep(std::mt19937_64& rng, const EpConfig& config,
                     const std::vector<int>& num_tokens, double drop = 0.0);

// Returns numbers of tokens, of each rank from 0 to M.
std::vector<int> RandomTokens(std::mt19937_64& rng, const EpConfig& config, int num_ranks);

// Makes rows and scales of DispatchFormat::kFp8 or kBytes random bytes, which experts do not look
// at.
void SendRandomBytes(std::mt19937_64& rng, const EpConfig& config, StepInput& input);

// Gives each choice a random position among those of its rank that go to the same expert.
void ScatterRandomly(std::mt19937_64& rng, const EpConfig& config, StepInput& input);

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_RANDOM_STEP_H_
