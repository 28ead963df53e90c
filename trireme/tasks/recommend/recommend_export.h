// Exports the parts of a recommendation model: the tables and the dense layers, with a config that
// says how they belong together.
#pragma once

#include <filesystem>

#include "trireme/tasks/export/export_options.h"

namespace trireme::tasks {

// Writes model.safetensors, with "<table>.weight" [rows, width] and the parameters of the dense
// layers; ids.safetensors, with "<table>.ids" of tables with an open vocabulary, the id of each of
// their rows; config.json, with the family, the widths and the features; and a card. With kDcp only
// the weights.
// Throws: as export_to_hugging_face() (tasks/language); ConfigError for another form
ExportReport export_recommend_model(const std::filesystem::path& path,
                                    const std::filesystem::path& output,
                                    const ExportOptions& options);

}  // namespace trireme::tasks
