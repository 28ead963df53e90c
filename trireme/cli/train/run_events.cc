#include "trireme/cli/train/run_events.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/build_info.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::cli {
namespace {

using launch::Event;
using launch::EventKind;

std::string name_of_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

// The newest finished step; 0 when nothing says.
int64_t last_step_of(const std::filesystem::path& run_folder) {
  try {
    return train::last_step_in(run_folder / train::kMetricsName);
  } catch (const Error&) {
    return 0;
  }
}

// What can be read; nothing when there is no file.
std::vector<Event> events_in(const std::filesystem::path& run_folder) {
  try {
    return launch::read_events(run_folder).events;
  } catch (const Error&) {
    return {};
  }
}

int64_t num_starts(const std::vector<Event>& events) {
  return std::ranges::count(events, EventKind::kStart, &Event::kind);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

// A folder that was moved or removed must not be made again by its events.
void RunEvents::write(Event event) {
  if (!has_started_ || identity_of(run_folder_) != identity_) return;
  event.epoch = epoch_;
  event.host = name_of_host();
  event.uptime = seconds_since(began_);
  writer_.write(std::move(event));
}

void RunEvents::start(const train::RunConfig& config, const train::RunSummary& summary) {
  has_started_ = true;
  identity_ = identity_of(run_folder_);
  began_ = std::chrono::steady_clock::now();
  epoch_ = config.run_epoch;
  step_ = summary.resumed_step;
  log_.start(epoch_, step_);
  write({.kind = EventKind::kStart,
         .step = step_,
         .text = concat("epoch ", epoch_, ": ", summary.num_ranks,
                        summary.num_ranks == 1 ? " rank" : " ranks",
                        step_ == 0 ? "" : concat("; goes on from step ", step_), "; trireme ",
                        build_version(), build_revision().empty() ? "" : " ", build_revision())});
}

void RunEvents::finish_step(int64_t step) {
  step_ = step;
  log_.set_step(step);
  if (std::exchange(has_step_, true)) return;
  write({.kind = EventKind::kRecovery,
         .step = step,
         .seconds = seconds_since(began_),
         .text = concat("step ", step, " is finished")});
}

void RunEvents::save(const std::filesystem::path& checkpoint, double seconds) {
  const std::string name = checkpoint.filename().string();
  write({.kind = EventKind::kNotice,
         .step = std::max<int64_t>(checkpoint::step_of(name), -1),
         .seconds = seconds,
         .cause = "checkpoint",
         .text = concat("checkpoint ", name, " is saved")});
}

void RunEvents::end(train::Outcome outcome) {
  const char* const text = outcome == train::Outcome::kFinished ? "finished"
                           : outcome == train::Outcome::kEnded
                               ? "ended by a callback"
                               : "stopped as asked; the same command goes on";
  write({.kind = EventKind::kEnd, .step = step_, .text = text});
  has_started_ = false;
}

void RunEvents::fail(const std::string& reason) {
  if (has_started_) log_.add("trireme: " + reason, launch::LogStream::kErr);
  write({.kind = EventKind::kEnd, .step = step_, .cause = "error", .text = first_line(reason)});
  has_started_ = false;
}

FailureEvent::FailureEvent(std::filesystem::path run_folder)
    : run_folder_(std::move(run_folder)),
      folder_(::open(run_folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
      starts_before_(num_starts(events_in(run_folder_))) {}

void FailureEvent::write(const launch::RankExit& exit) const {
  if (!folder_.is_open() || identity_of(run_folder_) != identity_of(folder_.get())) return;
  const std::vector<Event> events = events_in(run_folder_);
  if (num_starts(events) <= starts_before_) return;
  Event event{.kind = EventKind::kFailure,
              .epoch = events.back().epoch,
              .step = std::max(events.back().step, last_step_of(run_folder_)),
              .host = name_of_host(),
              .rank = exit.rank,
              .cause = exit.signal != 0 ? "killed" : "failed",
              .text = first_line(launch::describe(exit))};
  launch::LogWriter log(run_folder_ / launch::kLogFolderName / launch::rank_log_name(exit.rank));
  log.write({.time = std::chrono::system_clock::now(),
             .epoch = event.epoch,
             .step = event.step,
             .stream = launch::LogStream::kErr,
             .text = "trireme: " + launch::describe(exit)});
  launch::EventWriter writer(run_folder_);
  writer.write(event);
  event.kind = EventKind::kEnd;
  writer.write(std::move(event));
}

}  // namespace trireme::cli
