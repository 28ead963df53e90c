#include "trireme/train/callbacks/watched_metric.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/nearest_name.h"
#include "trireme/base/shown.h"

namespace trireme::train::inline internal {

void check_watched(std::string_view key, const std::string& metric,
                   std::span<const std::string> metrics) {
  if (std::ranges::find(metrics, metric) != metrics.end()) return;
  TRIREME_CHECK(!metrics.empty(), key, " is \"", shown(metric),
                "\", but this run does not evaluate; set train.evaluate_interval");
  throw ConfigError(concat(key, " is \"", shown(metric), "\", which evaluations do not have; ",
                           "did you mean \"", nearest_name(metrics, metric), "\"?"));
}

}  // namespace trireme::train::inline internal
