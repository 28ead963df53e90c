// The answers of the page's interface: a path and its query become JSON. What the paths answer is
// documented in docs/guide/watch.md#the-interface.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/watch/run/run_list.h"
#include "trireme/watch/serve/parameters.h"

namespace trireme::watch {

// "/api/runs", "/api/run", ...
std::vector<std::string> answer_paths();

// Numbers that are not finite are null.
// Throws: ConfigError for a path or a query that has no answer
nlohmann::ordered_json answer(RunList& runs, std::string_view path, const Parameters& parameters);

// In UTF-8, on one line; bytes that are not UTF-8 become U+FFFD.
std::string to_line(const nlohmann::ordered_json& value);

// The run that `run` names by its index; the first without it.
// Throws: ConfigError when there is none
WatchedRun& asked_run(RunList& runs, const Parameters& parameters);

}  // namespace trireme::watch
