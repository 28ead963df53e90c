#include "trireme/cli/watch/exported_run.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/cli/train/run_tracking.h"
#include "trireme/watch/run/run_list.h"
#include "trireme/watch/run/watched_run.h"

namespace trireme::cli {
namespace {

std::string status_of(watch::RunState state) {
  switch (state) {
    case watch::RunState::kRunning:
    case watch::RunState::kStalled: return "RUNNING";
    case watch::RunState::kFinished: return "FINISHED";
    case watch::RunState::kCrashed: return "FAILED";
    default: return "KILLED";
  }
}

}  // namespace

ExportedRun exported_run(const std::filesystem::path& folder, const std::string& experiment,
                         const std::string& name) {
  TRIREME_CHECK(watch::is_run(folder), shown(folder.string(), 500),
                " is no run; expected the output.folder of one, with config.toml or metrics.jsonl");
  watch::WatchedRun watched(folder);
  while (watched.update(std::chrono::seconds(1))) {
  }
  const auto& keys = watched.config().keys;
  const auto key_or = [&keys](const char* key, const std::string& given) {
    const auto found = keys.find(key);
    return !given.empty() || found == keys.end() ? given : found->second;
  };
  train::TrackingConfig tracking{.run_name = key_or("tracking.run_name", name)};
  const std::string asked = key_or("tracking.experiment", experiment);
  if (!asked.empty()) tracking.experiment = asked;
  ExportedRun exported{.folder = folder,
                       .start = mlflow_start(folder, tracking, watched.num_ranks()),
                       .status = status_of(watched.verdict().state)};
  if (exported.status != "RUNNING") {
    const auto last = watched.metrics().last("time");
    const double ended = last && std::isfinite(last->second) ? last->second : unix_seconds();
    exported.ended_ms = std::llround(ended * 1000);
  }
  return exported;
}

}  // namespace trireme::cli
