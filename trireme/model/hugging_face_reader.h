// Reads config.json of Hugging Face's transformers as a model of ours. The file is not trusted. A
// key that changes what is computed and has no counterpart here is refused.
#pragma once

#include <string>
#include <string_view>

#include "trireme/model/family/hugging_face_key.h"

namespace trireme::model {

// Every size is within the range of our key. Keys that only have an effect together are checked by
// validate(). `source` begins every message.
// Throws: ConfigError with the key, the value found and the value expected
HuggingFaceModel parse_hugging_face_config(std::string_view text, const std::string& source);

}  // namespace trireme::model
