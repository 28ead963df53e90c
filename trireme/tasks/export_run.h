// Exports a checkpoint of a run of any task.
#pragma once

#include <filesystem>
#include <optional>

#include "trireme/tasks/export/export_options.h"

namespace trireme::tasks {

// As export_to_hugging_face(), export_image_model(), export_recommend_model(),
// export_diffusion_model() and, for other tasks, export_plain().
// form: instead of options.form. Empty: what transformers or diffusers loads, or safetensors for a
//       task of which neither has a model; set to what was chosen.
// Throws: as they do
ExportReport export_run(const std::filesystem::path& path, const std::filesystem::path& output,
                        ExportOptions options, std::optional<ExportForm>& form);

}  // namespace trireme::tasks
