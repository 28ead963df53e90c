// What the page asks of single ranks.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trireme/watch/run/run_list.h"
#include "trireme/watch/serve/parameters.h"

namespace trireme::watch {

// A column of all ranks at a step, with the medians of their stages.
nlohmann::ordered_json ranks_answer(RunList& runs, const Parameters& parameters);
// Who waited for whom in a range of steps.
nlohmann::ordered_json waits_answer(RunList& runs, const Parameters& parameters);
// The step time without a rank; `without` is null when nothing is known.
nlohmann::ordered_json straggler_answer(RunList& runs, const Parameters& parameters);
// The last calls of every rank, from its flight recorder.
nlohmann::ordered_json calls_answer(RunList& runs, const Parameters& parameters);

}  // namespace trireme::watch
