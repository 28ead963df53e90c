// Files of a run that the page shows. A request never names a path: it names one of the files that
// the run's own folder lists.
#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "trireme/comm/net/http_message.h"
#include "trireme/watch/run/run_list.h"
#include "trireme/watch/serve/parameters.h"

namespace trireme::watch {

// The traces of profiles.
nlohmann::ordered_json profile_answer(RunList& runs, const Parameters& parameters);
// One of them, in pieces.
// Throws: ConfigError when there is no such trace
comm::HttpResponse trace_answer(RunList& runs, const Parameters& parameters);
// The largest tensors at the peak of memory; empty when the run has kept none.
nlohmann::ordered_json memory_answer(RunList& runs, const Parameters& parameters);

}  // namespace trireme::watch
