// A checkpoint that is exported.
#pragma once

#include <filesystem>

#include "trireme/checkpoint/manifest.h"
#include "trireme/tasks/export/export_options.h"
#include "trireme/train/state/run_state.h"

namespace trireme::tasks {

struct ExportInput {
  // path: as for train::find_checkpoint()
  // Throws: CheckpointError, also when it has no such weights as the options ask for
  ExportInput(const std::filesystem::path& path, const ExportOptions& options);

  std::filesystem::path folder;  // of the checkpoint
  checkpoint::Manifest manifest;
  train::RunState state;

  // That has checkpoints/, with what the task wrote.
  std::filesystem::path run_folder() const;
};

}  // namespace trireme::tasks
