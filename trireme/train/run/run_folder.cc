#include "trireme/train/run/run_folder.h"

#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::train::inline internal {

namespace fs = std::filesystem;

RunFolder::RunFolder(fs::path path, std::unique_ptr<FolderLock> lock,
                     std::function<void(const fs::path&)> write_files)
    : path_(std::move(path)), lock_(std::move(lock)), write_files_(std::move(write_files)) {}

void RunFolder::start(const std::string& config, int64_t last_step) {
  write_files_(path_);
  // Before the config, because resume.cc judges a run's lines by that run's own config.
  metrics_.emplace(path_, last_step);
  write_config(config);
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

}  // namespace trireme::train::inline internal
