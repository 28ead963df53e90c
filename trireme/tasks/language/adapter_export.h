// Adapters in the format of the package peft: adapter_model.safetensors and adapter_config.json,
// which its PeftModel.from_pretrained() adds to the model that they were trained for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <c10/core/ScalarType.h>

#include "trireme/model/family/model_config.h"
#include "trireme/tasks/export/export_source.h"

namespace trireme::tasks {

struct AdapterExport {
  int64_t num_tensors = 0;
  int64_t num_parameters = 0;
};

// Writes both files into `folder`. Where transformers has one matrix for several layers of the
// model, such as query, key and value, the adapters of these layers become one of their ranks' sum,
// whose B has blocks. Parameters of lora.also_train go along as modules_to_save.
// base_model: the name or folder that adapter_config.json gives for the model; may be empty
// Memory: an adapter
// Throws: ConfigError when the model has no adapters, and as peft_form(); CheckpointError when a
//         tensor is missing or damaged
AdapterExport write_adapters(const std::filesystem::path& folder, const model::ModelConfig& config,
                             const std::string& base_model, ExportSource& source,
                             c10::ScalarType dtype);

}  // namespace trireme::tasks
