// Whether the tensor and context axes can divide a transformer; for a task to check a config before
// the model is built.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/model/family/config.h"
#include "trireme/parallel/context/context_form.h"

namespace trireme::model {

struct TransformerAxes {
  int64_t tensor = 1;   // parallel.tensor
  int64_t context = 1;  // parallel.context
  parallel::ContextForm context_form = parallel::ContextForm::kRing;
};

// tokens: what the model's sequence_length is to the user, such as "model.sequence_length"
// Throws: ConfigError with the key, its value, the reason, and what to do
void check_axes(const ModelConfig& model, const TransformerAxes& axes, std::string_view tokens);

}  // namespace trireme::model
