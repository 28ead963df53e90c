// The report of `trireme doctor` on a run's event log: what happened, and what it cost.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/launch/journal/story.h"

namespace trireme::cli {

// Lines to print: the latest events, goodput, time lost by cause, recoveries, hosts. They contain
// nothing that a terminal obeys.
std::vector<std::string> story_lines(const launch::EventLog& log, const launch::Story& story);

// The same for programs, with the latest events, at most kMostListedEvents.
inline constexpr size_t kMostListedEvents = 1000;
nlohmann::json story_json(const launch::EventLog& log, const launch::Story& story);

}  // namespace trireme::cli
