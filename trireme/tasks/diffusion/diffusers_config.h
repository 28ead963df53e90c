// The JSON files of diffusers that describe a diffusion transformer and its noise: config.json of
// DiTTransformer2DModel and scheduler_config.json. Each key is mapped to one of ours, has the only
// value that is computed here, or changes nothing; any other is refused by its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/model/dit/dit_config.h"
#include "trireme/tasks/diffusion/diffusion_config.h"

namespace trireme::tasks {

// The contents of a config.json.
struct DiffusersModel {
  model::DitConfig dit{};
  // The last product also has the logarithm of a variance for each pixel, behind its noise.
  bool has_variances = false;
};

// The text of config.json for DiTTransformer2DModel, and of scheduler_config.json for
// DDIMScheduler.
std::string diffusers_config(const model::DitConfig& dit);
std::string diffusers_scheduler(const NoiseConfig& noise);

// source: begins every message
// Throws: ConfigError with the key, the value found and the value expected
DiffusersModel parse_diffusers_config(std::string_view text, const std::string& source);
// Of any scheduler that knows these keys: the noise that training adds. class_dropout stays.
// Throws: as that
void take_diffusers_scheduler(std::string_view text, const std::string& source, NoiseConfig& noise);

}  // namespace trireme::tasks
