// Writes a profile as a Chrome trace, which https://ui.perfetto.dev and chrome://tracing display.
// The fields of its events: docs/profile.md.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/profile/analysis.h"
#include "trireme/train/profile/report.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train::inline internal {

// The content of the file. Each rank is a process of the trace. Spans must be on one clock; times
// are written from the first step's begin on.
// states: states_of(ranks).
std::string chrome_trace(const std::vector<RankProfile>& ranks,
                         const std::vector<RankStates>& states, const ProfileReport& report);

}  // namespace trireme::train::inline internal
