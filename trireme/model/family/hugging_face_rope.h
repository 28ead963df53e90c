// The keys of config.json for rotary positions. A reader has their object's members in the root, as
// "rope_scaling.factor"; a writer puts them into the object.
#pragma once

#include <vector>

#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

// The name of the object of a scaling, and what its members' names begin with in the root.
inline constexpr const char* kRopeObject = "rope_scaling";
inline constexpr const char* kRopePrefix = "rope_scaling.";

// max_position_embeddings, on which the dynamic scaling depends.
HuggingFaceKey length_key();
// After those of the sequence length, the heads and the angle.
std::vector<HuggingFaceKey> rope_keys();
// Phi-3 has the length of the pretraining beside the object, and turns parts of heads.
std::vector<HuggingFaceKey> phi3_rope_keys();
// For the end of DeepSeek's keys.
void check_deepseek_rope(const JsonView& root, ModelConfig& config);

}  // namespace trireme::model
