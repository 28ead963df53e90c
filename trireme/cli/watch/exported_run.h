// A run's folder as trackers get it after the fact.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "trireme/train/tracking/mlflow_client.h"

namespace trireme::cli {

struct ExportedRun {
  std::filesystem::path folder{};
  train::MlflowStart start{};  // its names, parameters and tags
  std::string status{};        // in MlflowClient's words, as its files and processes say now
  int64_t ended_ms = 0;        // since 1970; 0: it runs
};

// experiment, name: "": as the run's config and folder have them
// Throws: ConfigError when the folder is no run's
ExportedRun exported_run(const std::filesystem::path& folder, const std::string& experiment,
                         const std::string& name);

}  // namespace trireme::cli
