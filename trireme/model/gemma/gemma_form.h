// Gemma 2 and 3 in Hugging Face's form. Of Gemma 3 the text model, "gemma3_text".
#pragma once

#include <span>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/plan.h"

namespace trireme::model {

std::span<const HuggingFaceKind* const> gemma_kinds();

// Gemma 3 with model.qk_norm, otherwise Gemma 2. Tensors have the names of our parameters.
// Throws: ConfigError when transformers has no class that computes the same, with the key in its
//         way
HuggingFaceForm gemma_form(const ModelPlan& plan);

}  // namespace trireme::model
