#include "trireme/cli/train/run_log.h"

#include <chrono>
#include <utility>

namespace trireme::cli {

RunLog::RunLog(std::filesystem::path run_folder)
    : run_folder_(std::move(run_folder)),
      writer_(run_folder_ / launch::kLogFolderName / launch::rank_log_name(0)) {}

void RunLog::start(int64_t epoch, int64_t step) {
  const std::lock_guard lock(mutex_);
  has_started_ = true;
  epoch_ = epoch;
  step_ = step;
  identity_ = identity_of(run_folder_);
  for (launch::LogLine& line : std::exchange(held_, {})) {
    line.epoch = epoch;
    write(std::move(line));
  }
}

void RunLog::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void RunLog::add(const std::string& text, launch::LogStream stream) {
  const std::lock_guard lock(mutex_);
  launch::LogLine line{.time = std::chrono::system_clock::now(),
                       .epoch = epoch_,
                       .step = step_,
                       .stream = stream,
                       .text = text};
  if (has_started_) {
    write(std::move(line));
  } else if (held_.size() < kMostHeld) {
    held_.push_back(std::move(line));
  }
}

// A folder that was moved or removed must not be made again by its log.
void RunLog::write(launch::LogLine line) {
  if (identity_of(run_folder_) == identity_) writer_.write(line);
}

}  // namespace trireme::cli
