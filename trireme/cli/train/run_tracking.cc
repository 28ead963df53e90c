#include "trireme/cli/train/run_tracking.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/state/places.h"
#include "trireme/watch/run/run_config.h"
#include "trireme/watch/run/run_facts.h"

namespace trireme::cli {
namespace {

// A server that is well has what waits within a moment.
constexpr std::chrono::seconds kEndPatience{10};
// The process that has started the ranks kills those that stay for three seconds after a failure,
// and others wait for this rank before the next epoch.
constexpr std::chrono::seconds kShortPatience{2};
constexpr size_t kMostIdBytes = 256;

// The run's own mark; a run of an older version has none, and is known by its place.
std::string identity_of_run(const std::filesystem::path& run_folder) {
  try {
    std::string text = read_file(run_folder / train::kIdFile, kMostIdBytes);
    text = text.substr(0, text.find('\n'));
    if (!text.empty()) return text;
  } catch (const Error&) {
    // below
  }
  return std::filesystem::absolute(run_folder).string();
}

}  // namespace

const char* own_variable(const char* name) { return std::getenv(name); }

std::string mlflow_status(train::Outcome outcome) {
  return outcome == train::Outcome::kStopped ? "KILLED" : "FINISHED";
}

train::MlflowStart mlflow_start(const std::filesystem::path& run_folder,
                                const train::TrackingConfig& config, int64_t num_ranks) {
  const std::filesystem::path folder = std::filesystem::absolute(run_folder).lexically_normal();
  const watch::RunFacts facts = watch::read_run_facts(folder / watch::kRunFactsFile);
  const std::string own_name =
      (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  train::MlflowStart start{.experiment = config.experiment,
                           .run_name = config.run_name.empty() ? own_name : config.run_name,
                           .identity = identity_of_run(folder),
                           .parameters = watch::read_run_config(folder / "config.toml").keys,
                           .tags = {{"trireme.folder", folder.string()}}};
  if (num_ranks > 0) start.tags["trireme.ranks"] = std::to_string(num_ranks);
  if (!facts.version.empty()) start.tags["trireme.version"] = facts.version;
  if (!facts.revision.empty()) start.tags["trireme.revision"] = facts.revision;
  if (!facts.host.empty()) start.tags["trireme.host"] = facts.host;
  const double began = facts.started > 0 ? facts.started : unix_seconds();
  start.time_ms = std::llround(began * 1000);
  return start;
}

RunTracking::~RunTracking() {
  if (feed_) end("FAILED", kShortPatience);
}

void RunTracking::start(const train::RunConfig& config, const train::RunSummary& summary) {
  if (config.tracking.mlflow.empty()) return;
  feed_ = std::make_unique<train::MlflowFeed>(
      train::mlflow_server(config.tracking.mlflow, own_variable),
      mlflow_start(config.output.folder, config.tracking, summary.num_ranks));
}

void RunTracking::add(const train::StepMetrics& metrics) {
  if (!feed_) return;
  feed_->add(train::to_json(metrics));
  for (const std::string& problem : feed_->take_problems()) tell_(problem);
}

void RunTracking::finish(const std::string& status) {
  if (feed_) end(status, status == kGoesOn ? kShortPatience : kEndPatience);
}

void RunTracking::end(const std::string& status, std::chrono::milliseconds patience) {
  feed_->finish(status, patience);
  for (const std::string& problem : feed_->take_problems()) tell_(problem);
  feed_.reset();
}

}  // namespace trireme::cli
