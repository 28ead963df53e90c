// The keys of config.json that say factors of activations.
#pragma once

#include <vector>

#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

// Granite's four. Without them the class multiplies by 1, scores too. A factor of scores is
// 1 / sqrt(model.query_scalar), a whole number: another one is refused.
std::vector<HuggingFaceKey> scale_keys();

}  // namespace trireme::model
