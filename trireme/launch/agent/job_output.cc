#include "trireme/launch/agent/job_output.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme::launch::inline internal {
namespace {

constexpr int kAgent = -1;

}  // namespace

LogWriter& JobOutput::log_of(int rank) {
  const auto found = logs_.find(rank);
  if (found != logs_.end()) return found->second;
  const std::string name = rank == kAgent ? agent_log_name(host_) : rank_log_name(rank);
  return logs_.emplace(rank, LogWriter(folder_ / kLogFolderName / name)).first->second;
}

void JobOutput::set_folder(const std::filesystem::path& folder) {
  if (has_folder() || folder.empty()) return;
  folder_ = folder;
  for (const Held& output : std::exchange(held_, {})) log(output);
  for (const Event& event : std::exchange(held_events_, {})) write(event);
  num_held_bytes_ = 0;
}

void JobOutput::log(const Held& output) {
  const auto lines =
      log_of(output.rank).write(output.stream, output.epoch, output.step, output.text, output.time);
  if (output.rank == kAgent) return;  // was shown
  for (const std::string& line : lines) {
    show(errors_.add_line(output.rank, output.stream, line, Clock::now()));
  }
}

void JobOutput::add_output(int rank, LogStream stream, int64_t epoch, int64_t step,
                           std::string_view text) {
  Held output{rank, stream, epoch, step, std::chrono::system_clock::now(), std::string(text)};
  if (has_folder()) return log(output);
  num_held_bytes_ += text.size();
  held_.push_back(std::move(output));
}

void JobOutput::add_exit(int rank, int64_t epoch, int64_t step, const std::string& message,
                         bool lost_peer) {
  if (has_folder()) {
    const auto now = Clock::now();
    for (const std::string& line : log_of(rank).finish(epoch, step)) {
      show(errors_.add_line(rank, LogStream::kErr, line, now));
    }
  }
  if (!message.empty()) show(errors_.add_exit(rank, message, lost_peer, Clock::now()));
}

void JobOutput::say(const std::string& line, int64_t epoch, bool is_error) {
  observer_.on_line(line, is_error);
  add_output(kAgent, LogStream::kAgent, epoch, /*step=*/-1, line + "\n");
}

void JobOutput::write(const Event& event) {
  if (!has_folder()) {
    held_events_.push_back(event);
    return;
  }
  if (!events_) events_.emplace(folder_);
  events_->write(event);
}

void JobOutput::show(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) observer_.on_line(line, /*is_error=*/false);
}

void JobOutput::report_problems() {
  const auto report = [this](const std::string& problem) {
    if (!problem.empty()) observer_.on_line(problem, /*is_error=*/true);
  };
  for (auto& [rank, log] : logs_) report(log.take_problem());
  if (events_) report(events_->take_problem());
}

void JobOutput::poll(Clock::time_point now) {
  show(errors_.poll(now));
  report_problems();
}

void JobOutput::flush() { show(errors_.finish()); }

}  // namespace trireme::launch::inline internal
