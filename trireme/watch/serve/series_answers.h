// What the page draws over steps.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trireme/watch/run/run_list.h"
#include "trireme/watch/serve/parameters.h"

namespace trireme::watch {

// Each `name`: a metric, "expert_tokens/0/3", "ranks/<column>" or "rank/<r>/<column>".
nlohmann::ordered_json series_answer(RunList& runs, const Parameters& parameters);
// The lists of one step, such as the tokens of each expert.
nlohmann::ordered_json experts_answer(RunList& runs, const Parameters& parameters);

}  // namespace trireme::watch
