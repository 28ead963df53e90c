// What the page asks of a run as a whole.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trireme/watch/run/run_list.h"
#include "trireme/watch/serve/parameters.h"

namespace trireme::watch {

// The list of runs, with the state of each.
nlohmann::ordered_json runs_answer(RunList& runs, const Parameters& parameters);
// All of one run that is not drawn over steps.
nlohmann::ordered_json run_answer(RunList& runs, const Parameters& parameters);
// The keys in which the configs of `runs` differ.
// Throws: ConfigError when `runs` is no list of indexes
nlohmann::ordered_json compare_answer(RunList& runs, const Parameters& parameters);
// Events between two times, the latest `most`.
nlohmann::ordered_json events_answer(RunList& runs, const Parameters& parameters);
// A rank's output around a time.
nlohmann::ordered_json log_answer(RunList& runs, const Parameters& parameters);

}  // namespace trireme::watch
