// A run in one paragraph: is it well?
#pragma once

#include <string>

#include "trireme/watch/run/watched_run.h"

namespace trireme::watch {

std::string run_summary(WatchedRun& run);

}  // namespace trireme::watch
