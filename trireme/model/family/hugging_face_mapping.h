// Helpers with which a family describes its keys of config.json (hugging_face_form.h).
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "trireme/base/bounded_json.h"
#include "trireme/base/key.h"
#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

// The part of the config in which a key of struct Section lies.
template <typename Section, typename Config>
auto& section_of(Config& config) {
  if constexpr (std::is_same_v<Section, AttentionConfig>) {
    return config.attention;
  } else if constexpr (std::is_same_v<Section, RopeConfig>) {
    return config.rope;
  } else if constexpr (std::is_same_v<Section, ExpertConfig>) {
    return config.sparse;
  } else if constexpr (std::is_same_v<Section, EncoderDecoderConfig>) {
    return config.seq2seq;
  } else if constexpr (std::is_same_v<Section, VisionConfig>) {
    return config.vision;
  } else {
    static_assert(std::is_same_v<Section, ModelConfig>);
    return config;
  }
}

// The file's value for our key `member`, within that key's range.
template <typename Section, typename Value>
Value read_as(const JsonView& found, Value Section::*member) {
  if constexpr (std::is_same_v<Value, bool>) {
    return found.boolean();
  } else {
    Range range;
    visit_keys<Section>([&](const auto& key) {
      if constexpr (std::is_same_v<decltype(key.member), Value Section::*>) {
        if (key.member == member) range = key.range;
      }
    });
    if constexpr (std::is_same_v<Value, int64_t>) {
      return found.integer(static_cast<int64_t>(range.minimum),
                           static_cast<int64_t>(range.maximum));
    } else {
      return found.number(static_cast<double>(range.minimum), static_cast<double>(range.maximum));
    }
  }
}

// A function that gives `value` for every model.
HuggingFaceKey::Value always(HuggingFaceValue value);

// A key with the meaning of ours.
template <typename Section, typename Value>
HuggingFaceKey mapped(std::string name, Value Section::*member,
                      HuggingFaceKey::Value missing = {}) {
  return {.name = std::move(name),
          .value = [member](const ModelConfig& config) -> HuggingFaceValue {
            return section_of<Section>(config).*member;
          },
          .take =
              [member](const JsonView& found, HuggingFaceModel& model) {
                section_of<Section>(model.config).*member = read_as(found, member);
              },
          .missing = std::move(missing)};
}
// head_dim. missing_width: what the class assumes without the key; 0: width / heads
HuggingFaceKey head_width_key(int64_t missing_width = 0);
// quantization_config, which is refused: of classes whose weights are read as they are.
HuggingFaceKey no_quantization_key();
// A key with one value for all our models.
HuggingFaceKey fixed(std::string name, HuggingFaceValue value, HuggingFaceKey::Value missing = {});
// The same for a key that is not written.
HuggingFaceKey expected(std::string name, HuggingFaceValue value);
// A key that is written, and ignored by readers: it does not change the logits. They say when the
// file has another value, and an export of an imported model keeps that one.
HuggingFaceKey written(std::string name, HuggingFaceValue value);
// A key that is neither.
HuggingFaceKey ignored(std::string name);

}  // namespace trireme::model
