// Exports a trained diffusion transformer: as a folder that diffusers loads, or only the weights.
#pragma once

#include <filesystem>

#include "trireme/tasks/export/export_options.h"

namespace trireme::tasks {

// What export_to_hugging_face() (tasks/language) is for language models: with kDiffusers a folder
// of DiTTransformer2DModel, with the schedule of the noise beside it. kSafetensors and kDcp are
// those of export_plain().
// Throws: as that; ConfigError for another form
ExportReport export_diffusion_model(const std::filesystem::path& path,
                                    const std::filesystem::path& output,
                                    const ExportOptions& options);

}  // namespace trireme::tasks
