// RUN/run.json: which Trireme made the run, where, and when. Each start writes it anew; the events
// of the run tell the earlier ones.
#pragma once

#include <string>

namespace trireme::train {

inline constexpr const char* kRunFactsName = "run.json";

// Of this program and host, now; one JSON object with "version", "revision" ("" unknown),
// "libtorch", "host" and "started" (seconds since 1970).
std::string run_facts();

}  // namespace trireme::train
