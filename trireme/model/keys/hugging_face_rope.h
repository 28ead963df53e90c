// The keys of config.json for rotary positions. A reader has their object's members in the root, as
// "rope_scaling.factor"; a writer puts them into the object.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

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
// rope_local_base_freq, the angle of layers with a window, for classes with has_local_rope.
// missing: what the class assumes without the key
HuggingFaceKey local_base_key(double missing);
// Of a class with has_local_rope: replaces a newer file's rope_parameters, an object for each kind
// of layers, by the older keys. rope_scaling then has the positions of layers with full attention.
// Throws: ConfigError when the object is another one, or scales layers with a window
void unpack_local_rope(nlohmann::json& root, const std::string& source,
                       std::vector<std::string>& notes);
// The reverse, for a writer.
void nest_local_rope(nlohmann::ordered_json& root);

// For the end of DeepSeek's keys.
void check_deepseek_rope(const JsonView& root, ModelConfig& config);

}  // namespace trireme::model
