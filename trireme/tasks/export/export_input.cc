#include "trireme/tasks/export/export_input.h"

#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {

ExportInput::ExportInput(const std::filesystem::path& path, const ExportOptions& options)
    : folder(train::find_checkpoint(path)),
      manifest(checkpoint::read_manifest(folder)),
      state(train::parse_state(manifest.state, folder.string(), manifest.step)) {
  train::require_weights(options.weights, manifest.state, folder);
}

std::filesystem::path ExportInput::run_folder() const { return train::run_folder_of(folder); }

}  // namespace trireme::tasks
