// A profile as a Chrome trace, which https://ui.perfetto.dev and chrome://tracing draw. The fields
// of its events: docs/profile.md.
#pragma once

#include <string>
#include <vector>

#include "trireme/train/profile/analysis.h"
#include "trireme/train/profile/report.h"
#include "trireme/train/profile/spans.h"

namespace trireme::train {

// The file's content: all ranks, each a process of the trace. Spans must be on one clock, the times
// written are from the first step's begin on. states: states_of(ranks).
std::string chrome_trace(const std::vector<RankProfile>& ranks,
                         const std::vector<RankStates>& states, const ProfileReport& report);

}  // namespace trireme::train
