// A step's results as text, in which nodes tell them to each other.
#ifndef OCTET_TOOLS_MEASURE_STEP_STEP_TEXT_H_
#define OCTET_TOOLS_MEASURE_STEP_STEP_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/measure/step/step_runner.h"

namespace octet {

std::string StepResultText(const StepResult& step);

// Returns the step that the text was made of, to the bit; kInternal if it is not such a text.
absl::StatusOr<StepResult> ParseStepResult(absl::string_view text);

}  // namespace octet

#endif  // OCTET_TOOLS_MEASURE_STEP_STEP_TEXT_H_
