// Exports the weights of any run under the names that they have in its checkpoints, with its
// config.
#pragma once

#include <filesystem>

#include "trireme/tasks/export/export_options.h"

namespace trireme::tasks {

// Writes model.safetensors, the run's config.toml and a card; with kDcp a checkpoint of
// torch.distributed.checkpoint. Every tensor of floating point that is no state of the optimizer or
// of a callback is a weight. Without options.dtype each kind of run has fp32, or fp64 if it
// computes so.
// Throws: as export_to_hugging_face() (tasks/language); ConfigError for another form
ExportReport export_plain(const std::filesystem::path& path, const std::filesystem::path& output,
                          const ExportOptions& options);

}  // namespace trireme::tasks
