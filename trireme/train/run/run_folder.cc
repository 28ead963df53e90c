#include "trireme/train/run/run_folder.h"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/locale/text.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/run/run_facts.h"

namespace trireme::train {

namespace fs = std::filesystem;

RunFolder::RunFolder(fs::path path, std::unique_ptr<FolderLock> lock,
                     std::function<void(const fs::path&)> write_files)
    : path_(std::move(path)), lock_(std::move(lock)), write_files_(std::move(write_files)) {}

void RunFolder::start(const std::string& config, int64_t last_step) {
  write_files_(path_);
  // Before the config, because resume.cc judges a run's lines by that run's own config.
  metrics_.emplace(path_, last_step);
  write_config(config);
  // After it: a folder without a config has no run, and is left as it was found.
  write_file_atomically(path_ / kRunFactsName, run_facts());
}

void RunFolder::write_config(const std::string& config) {
  config_ = config;
  write_file_atomically(path_ / kConfigName, config_);
}

// False when something else is at the path by now.
bool RunFolder::make_again() {
  try {
    make_folders(path_.parent_path());
    std::error_code failure;
    if (!fs::create_directory(path_, failure)) return false;
    make_folders(path_);  // makes its name durable
    lock_ = std::make_unique<FolderLock>(path_);
  } catch (const Error&) {
    return false;  // someone else was faster with the lock
  }
  return true;
}

RunFolder::Loss RunFolder::recover(const StepMetrics& metrics) {
  const std::string path = path_.string();
  const fs::path moved = lock_->place();
  // The checkpoint is worth more than the metrics.
  const auto finish = [&](const fs::path& refuge) -> std::string {
    try {
      metrics_.emplace(refuge, metrics.step - 1);
      metrics_->write(metrics);
      metrics_->sync();
      return "";
    } catch (const Error& error) {
      return concat("; its metrics are not complete: ", error.what());
    }
  };
  if (!moved.empty()) {
    const std::string problem = finish(moved);
    return {moved,
            concat("output.folder ", path, " was moved to ", moved.string(),
                   " during the run, which saved step ", metrics.step,
                   " there and stopped; continue with --output.folder=", moved.string(), problem)};
  }
  if (make_again()) {
    start(config_, 0);
    const std::string problem = finish(path_);
    return {
        path_,
        concat("output.folder ", path,
               " was removed during the run, which made it again for the "
               "checkpoint of step ",
               metrics.step,
               " and stopped; the same command goes on from there, or remove the folder once more",
               problem)};
  }
  return {{},
          concat("output.folder ", path,
                 " was removed during the run, and something else is at its place, "
                 "which is left alone; the run stopped after step ",
                 metrics.step, ", which could not be saved")};
}

namespace {

namespace fs = std::filesystem;

struct Noted {
  std::string job;
  int64_t job_epoch = 0;
  int64_t number = 0;
};

std::vector<Noted> read_noted(const std::string& text, const std::string& source) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  std::vector<Noted> noted;
  TextReader lines(text);
  for (std::string line; std::getline(lines, line);) {
    try {
      const nlohmann::json value = parse_json(line, source);
      const JsonView view(value, source);
      noted.push_back({view.at("job").text(), view.at("job_epoch").integer(1, kMost),
                       view.at("epoch").integer(1, kMost)});
    } catch (const ConfigError&) {  // a kill cut it short
    }
  }
  return noted;
}

// The newest number that the folder shows anywhere, so that it holds without epochs.jsonl too.
int64_t newest_number(const fs::path& folder, const std::vector<Noted>& noted) {
  // Without an agent lines and checkpoints are of epoch 1, whichever epoch a job gives them.
  int64_t newest = newest_epoch_in(folder / kMetricsName);
  if (newest == 1) newest = 0;
  for (const Noted& each : noted) newest = std::max(newest, each.number);
  for (const fs::path& each : checkpoint::list(folder / "checkpoints")) {
    const int64_t epoch = checkpoint::epoch_of(each.filename().string());
    if (epoch > 1) newest = std::max(newest, epoch);
  }
  return newest;
}

}  // namespace

int64_t number_epoch(const fs::path& folder, const std::string& job, int64_t job_epoch) {
  const fs::path path = folder / kEpochsName;
  const std::string text = fs::exists(path) ? read_file(path) : "";
  const std::vector<Noted> noted = read_noted(text, path.string());
  if (job_epoch == 0) return std::max<int64_t>(1, newest_number(folder, noted));
  const auto before = std::ranges::find(noted, job, &Noted::job);
  const int64_t number = before != noted.end() ? before->number - before->job_epoch + job_epoch
                                               : newest_number(folder, noted) + job_epoch;
  OutputFile file(path, /*append=*/true);
  // One that a kill cut short must not swallow this line.
  const bool is_torn = !text.empty() && !text.ends_with('\n');
  const nlohmann::json line{{"job", job}, {"job_epoch", job_epoch}, {"epoch", number}};
  file.write(concat(is_torn ? "\n" : "", line.dump(), "\n"));
  file.sync();
  return number;
}

}  // namespace trireme::train
