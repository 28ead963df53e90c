#include "trireme/watch/run/watched_run.h"

#include <algorithm>
#include <charconv>

#include <sys/stat.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"

namespace trireme::watch {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kReadBytes = uint64_t{1} << 20;
constexpr size_t kScanRows = 100;  // with many experts a row takes a third of a millisecond
constexpr size_t kMostCheckpoints = 1000;

// "step-000050" -> 50.
std::optional<int64_t> step_of_checkpoint(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || last != end || step < 0) return std::nullopt;
  return step;
}

// As long as a step that has stalled. In a run with long steps ranks wait for each other for
// seconds, and all is well.
milliseconds late_after(double step_seconds) {
  constexpr double kSteps = 20, kMostSeconds = 1e6;
  const double seconds = std::clamp(kSteps * step_seconds, 0.0, kMostSeconds);
  return std::max(comm::DiagnosisOptions().late_after,
                  milliseconds(static_cast<int64_t>(1000 * seconds)));
}

}  // namespace

WatchedRun::WatchedRun(std::filesystem::path folder)
    : folder_(std::move(folder)),
      tail_(folder_ / "metrics.jsonl"),
      series_(folder_),
      config_(milliseconds(2000)),
      events_(milliseconds(500)),
      observation_(milliseconds(1000)),
      verdict_(milliseconds(500)),
      goodput_(milliseconds(1000)),
      alerts_(milliseconds(500)),
      checkpoints_(milliseconds(2000)) {}

std::string WatchedRun::name() const {
  const std::filesystem::path path = std::filesystem::absolute(folder_).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

bool WatchedRun::update(milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  const auto on_line = [this](std::string_view line) {
    if (line.empty()) return;
    if (line_.read(line)) {
      metrics_.add(line_);
    } else {
      ++num_unreadable_;
    }
  };
  const auto on_reset = [this] {
    metrics_.clear();
    scan_.clear();
    num_unreadable_ = 0;
  };
  // Each part goes on a little in every call, however slow the folder is.
  bool has_more = false;
  do {
    has_more = tail_.update(kReadBytes, on_line, on_reset).has_more;
  } while (has_more && std::chrono::steady_clock::now() < end);
  const bool has_blocks = series_.update();
  bool has_rows = false;
  do {
    has_rows = scan_.update(metrics_, kScanRows);
  } while (has_rows && std::chrono::steady_clock::now() < end);
  return has_more || has_blocks || has_rows;
}

const RunConfig& WatchedRun::config() {
  return config_.get([this] { return read_run_config(folder_ / "config.toml"); });
}

const launch::EventLog& WatchedRun::events() {
  return events_.get([this] {
    try {
      if (launch::has_events(folder_)) return launch::read_events(folder_);
    } catch (const Error&) {
      // A folder that has gone, or a file that may not be read, has no events.
    }
    return launch::EventLog();
  });
}

Observation WatchedRun::observe() const {
  Observation observation;
  try {
    const std::filesystem::path folder = folder_ / "recorder";
    if (!std::filesystem::is_directory(folder)) return observation;
    observation.ranks = comm::observe_ranks(folder);
    observation.findings = comm::diagnose(
        observation.ranks, {.late_after = late_after(median_step_seconds(metrics_))});
  } catch (const std::exception&) {
    observation = {};  // a ring is damaged, or the folder has gone
  }
  return observation;
}

const Observation& WatchedRun::observation() {
  return observation_.get([this] { return observe(); });
}

int64_t WatchedRun::last_step() const {
  return metrics_.num_rows() == 0 ? 0 : metrics_.step_at(metrics_.num_rows() - 1);
}

StateVerdict WatchedRun::judge() {
  StateFacts facts{.ranks = observation().ranks,
                   .findings = observation().findings,
                   .last_step = last_step(),
                   .steps = config().whole("train.steps").value_or(0),
                   .changed_at = tail_.changed_at(),
                   .step_seconds = median_step_seconds(metrics_),
                   .now = unix_seconds()};
  if (!events().events.empty()) facts.story = launch::story_of(events());
  return judge_state(facts);
}

const StateVerdict& WatchedRun::verdict() {
  return verdict_.get([this] { return judge(); });
}

bool WatchedRun::is_alive() {
  return verdict().state == RunState::kRunning || verdict().state == RunState::kStalled;
}

const Goodput& WatchedRun::goodput() {
  if (is_alive())
    return goodput_.get([this] { return goodput_of(events(), metrics_, unix_seconds()); });
  // Of a long run it takes a while, and a dead run does not change.
  const uint64_t version = metrics_.num_rows() + (uint64_t{events().events.size()} << 32);
  return goodput_.get([this] { return goodput_of(events(), metrics_, std::nullopt); }, version);
}

std::vector<Alert> WatchedRun::find_alerts() {
  std::vector<Alert> alerts = scan_.alerts();
  if (verdict().state == RunState::kStalled) {
    alerts.push_back({.time = unix_seconds(),
                      .step = last_step(),
                      .kind = "stall",
                      .text = verdict().why,
                      .lasts = true});
  }
  if (!is_alive()) return alerts;  // what is full now may not have been then
  if (auto disk = disk_alert(folder_, {}, unix_seconds())) {
    disk->step = last_step();
    alerts.push_back(std::move(*disk));
  }
  if (auto memory = memory_alert(metrics_, machine_memory_bytes(), {}, unix_seconds()))
    alerts.push_back(std::move(*memory));
  return alerts;
}

const std::vector<Alert>& WatchedRun::alerts() {
  return alerts_.get([this] { return find_alerts(); });
}

std::vector<SavedCheckpoint> WatchedRun::find_checkpoints() const {
  std::vector<SavedCheckpoint> found;
  std::error_code problem;
  for (std::filesystem::directory_iterator each(folder_ / "checkpoints", problem), end;
       !problem && each != end && found.size() < kMostCheckpoints; each.increment(problem)) {
    const auto step = step_of_checkpoint(each->path().filename().string());
    struct stat status {};
    if (!step || ::stat(each->path().c_str(), &status) != 0) continue;
    found.push_back({*step, static_cast<double>(status.st_mtim.tv_sec) +
                                static_cast<double>(status.st_mtim.tv_nsec) / 1e9});
  }
  std::ranges::sort(found, {}, &SavedCheckpoint::step);
  return found;
}

const std::vector<SavedCheckpoint>& WatchedRun::checkpoints() {
  return checkpoints_.get([this] { return find_checkpoints(); });
}

int64_t WatchedRun::num_ranks() {
  // The series of a run with servers or learners has a part of the ranks.
  constexpr int64_t kMostRanks = 1 << 16;
  int64_t ranks = series_.ranks().num_ranks();
  if (!observation().ranks.empty())
    ranks =
        std::max(ranks, std::min<int64_t>(observation().ranks.front().ring.world_size, kMostRanks));
  if (ranks > 0) return ranks;
  int64_t on_mesh = 1;
  for (const AxisSize& axis : mesh_axes_of(config(), 1)) on_mesh *= axis.size;
  const int64_t data = config().whole("parallel.data").value_or(1);
  return std::clamp<int64_t>(std::max(on_mesh, data), 1, kMostRanks);
}

std::vector<AxisSize> WatchedRun::axes() { return mesh_axes_of(config(), num_ranks()); }

}  // namespace trireme::watch
