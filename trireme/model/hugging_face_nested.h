// The config.json of a class whose language model is one of several parts: its keys are in an
// object text_config, those of its vision tower in vision_config, and its own beside them. A kind
// describes them as one list, in which the names of the tower's keys begin with kVisionPrefix.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

// Turns the file into that list. Does nothing for a flat file.
// Throws: ConfigError, one line, when a part is missing or of another class, or the file says a key
//         twice
void unnest(nlohmann::json& root, const HuggingFaceKind& kind, const std::string& source);

// The reverse, of keys as they are written.
void nest(nlohmann::ordered_json& object, const HuggingFaceKind& kind);

}  // namespace trireme::model
