#include "trireme/cli/train/run_alerts.h"

#include <iterator>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::cli {
namespace {

constexpr std::chrono::seconds kDiskInterval{10};

}  // namespace

RunAlerts::RunAlerts(std::filesystem::path run_folder, int64_t epoch)
    : run_folder_(std::move(run_folder)),
      epoch_(epoch),
      identity_(identity_of(run_folder_)),
      machine_bytes_(machine_memory_bytes()),
      events_(run_folder_) {}

// Those of the steps, and once each time that the disk or the memory becomes nearly full.
std::vector<watch::Alert> RunAlerts::find_alerts(const train::StepMetrics& metrics) {
  const std::string text = train::to_json(metrics);
  if (line_.read(text)) scan_.add(watch::LineRow(line_));
  std::vector<watch::Alert> alerts = scan_.take_alerts();
  const auto look = [&](std::optional<watch::Alert> found, bool& is_full) {
    const bool was_full = std::exchange(is_full, found.has_value());
    if (!found || was_full) return;
    found->step = metrics.step;
    alerts.push_back(std::move(*found));
  };
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_look_) {
    next_look_ = now + kDiskInterval;
    look(watch::disk_alert(run_folder_, {}, unix_seconds()), is_disk_full_);
  }
  look(watch::memory_alert(static_cast<double>(metrics.peak_rss_bytes), machine_bytes_, {},
                           unix_seconds()),
       is_memory_full_);
  return alerts;
}

std::vector<std::string> RunAlerts::add(const train::StepMetrics& metrics) {
  std::vector<std::string> lines;
  for (const watch::Alert& alert : find_alerts(metrics)) {
    if (++num_events_ > kMostEvents) break;
    const std::string text = concat(alert.kind, ": ", alert.text);
    lines.push_back("alert   " + text);
    // A folder that was moved or removed must not be made again by its events.
    if (identity_of(run_folder_) != identity_) continue;
    events_.write({.kind = launch::EventKind::kNotice,
                   .epoch = epoch_,
                   .step = alert.step,
                   .cause = "alert",
                   .text = text});
  }
  return lines;
}

}  // namespace trireme::cli
