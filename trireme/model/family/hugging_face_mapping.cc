#include "trireme/model/family/hugging_face_mapping.h"

#include <nlohmann/json.hpp>

namespace trireme::model {

HuggingFaceKey::Value always(HuggingFaceValue value) {
  return [value = std::move(value)](const ModelConfig& /*config*/) { return value; };
}

HuggingFaceKey head_width_key(int64_t missing_width) {
  return {
      .name = "head_dim",
      .value = [](const ModelConfig& config) -> HuggingFaceValue { return config.head_width(); },
      .take =
          [](const JsonView& found, HuggingFaceModel& model) {
            ModelConfig& config = model.config;
            const int64_t width = read_as(found, &AttentionConfig::head_width);
            config.attention.head_width = config.heads * width == config.width ? 0 : width;
          },
      .missing = [missing_width](const ModelConfig& config) -> HuggingFaceValue {
        return missing_width > 0 ? missing_width : config.width / config.heads;
      }};
}

HuggingFaceKey no_quantization_key() {
  return {.name = "quantization_config",
          .take =
              [](const JsonView& found, HuggingFaceModel& /*model*/) {
                if (!found.value().is_null())
                  found.fail("weights that are not quantised: save them dequantised first");
              },
          .missing = always(nullptr),
          .is_written = false,
          .is_compared = false};
}

HuggingFaceKey fixed(std::string name, HuggingFaceValue value, HuggingFaceKey::Value missing) {
  return {
      .name = std::move(name), .value = always(std::move(value)), .missing = std::move(missing)};
}

HuggingFaceKey expected(std::string name, HuggingFaceValue value) {
  HuggingFaceKey key = fixed(std::move(name), std::move(value));
  key.is_written = false;
  return key;
}

HuggingFaceKey written(std::string name, HuggingFaceValue value) {
  HuggingFaceKey key = fixed(std::move(name), std::move(value));
  key.is_compared = false;
  key.is_kept = [](const ModelConfig& /*config*/) { return true; };
  return key;
}

HuggingFaceKey ignored(std::string name) {
  return {.name = std::move(name), .is_written = false, .is_compared = false};
}

}  // namespace trireme::model
