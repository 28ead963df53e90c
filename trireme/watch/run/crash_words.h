// What a reader asks first of a run that died or stands still, in sentences: which rank, in which
// call, and what was lost. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/launch/journal/event.h"
#include "trireme/watch/series/metric_columns.h"

namespace trireme::watch {

struct CrashFacts {
  const std::vector<comm::ObservedRank>& ranks;  // empty: no recorder
  const std::vector<comm::Finding>& findings;
  const launch::EventLog& events;
  const MetricColumns& metrics;
  std::optional<int64_t> saved_step{};  // of the newest checkpoint
  bool is_over = true;                  // false: its processes live
};

struct CrashWords {
  std::string rank{};
  std::string call{};
  std::string lost{};
};

// Each is a sentence or more, also where nothing is known.
CrashWords crash_words(const CrashFacts& facts);

}  // namespace trireme::watch
