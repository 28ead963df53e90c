#include "trireme/launch/agent/job_output.h"

#include <utility>

#include "trireme/base/clock.h"

namespace trireme::launch {
namespace {

constexpr int kAgent = -1;

}  // namespace

void JobOutput::set_folder(const std::filesystem::path& folder) {
  if (has_folder() || folder.empty()) return;
  journal_.emplace(folder);
  // In the order in which they came, so that the files are in order of time.
  for (auto& [rank, lines] : std::exchange(held_, {})) log(rank, std::move(lines));
  for (const Event& event : std::exchange(held_events_, {})) journal_->write(event);
  num_held_bytes_ = 0;
}

void JobOutput::log(int rank, std::vector<LogLine> lines) {
  if (journal_) {
    return journal_->write(rank == kAgent ? agent_log_name(host_) : rank_log_name(rank),
                           std::move(lines));
  }
  for (const LogLine& line : lines) num_held_bytes_ += line.text.size();
  holds_workers_output_ |= rank != kAgent && !lines.empty();
  if (!lines.empty()) held_.emplace_back(rank, std::move(lines));
}

void JobOutput::show(int rank, const std::vector<LogLine>& lines) {
  if (rank == kAgent) return;  // was shown
  for (const LogLine& line : lines) {
    show(errors_.add_line(rank, line.stream, line.text, Clock::now()));
  }
}

void JobOutput::add_output(int rank, LogStream stream, int64_t epoch, int64_t step,
                           std::string_view text) {
  std::vector<LogLine> lines = splitters_[rank].add(stream, epoch, step, text);
  show(rank, lines);
  log(rank, std::move(lines));
}

void JobOutput::add_exit(int rank, int64_t epoch, int64_t step, const std::string& message,
                         bool lost_peer) {
  // A last line without a newline is often the error itself.
  std::vector<LogLine> lines = splitters_[rank].finish(epoch, step);
  show(rank, lines);
  log(rank, std::move(lines));
  if (!message.empty()) show(errors_.add_exit(rank, message, lost_peer, Clock::now()));
}

void JobOutput::say(const std::string& line, int64_t epoch, bool is_error) {
  terminal_.show(line, is_error);
  add_output(kAgent, LogStream::kAgent, epoch, /*step=*/-1, line + "\n");
}

void JobOutput::write(Event event) {
  if (event.time == WallTime()) event.time = std::chrono::system_clock::now();
  // A clock that nobody sets: after the host's clock is set back, times alone would lose the time
  // until it catches up (story.cc).
  event.uptime = in_seconds(Clock::now() - began_);
  if (!journal_) return held_events_.push_back(std::move(event));
  journal_->write(event);
}

void JobOutput::show(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) terminal_.show(line);
}

void JobOutput::report_problems() {
  if (!journal_) return;
  for (const std::string& problem : journal_->take_problems()) {
    terminal_.show(problem, /*is_error=*/true);
  }
}

void JobOutput::poll(Clock::time_point now) {
  show(errors_.poll(now));
  report_problems();
}

void JobOutput::flush() { show(errors_.finish()); }

void JobOutput::finish() {
  // Files first: their problems are for the terminal, which ends last.
  if (journal_) journal_->finish();
  report_problems();
  terminal_.finish();
}

}  // namespace trireme::launch
