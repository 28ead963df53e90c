#include "trireme/model/hugging_face_nested.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"

namespace trireme::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kText = "text_config";
constexpr const char* kVision = "vision_config";
// Of parts: about loading, and the program that wrote the file.
constexpr std::string_view kOfAnyPart[] = {"_attn_implementation_autoset",
                                           "_name_or_path",
                                           "architectures",
                                           "dtype",
                                           "model_type",
                                           "torch_dtype",
                                           "transformers_version"};

bool is_of_any_part(const std::string& name) {
  return std::ranges::find(kOfAnyPart, name) != std::end(kOfAnyPart);
}

json take_part(json& root, const char* name, std::string_view type, const std::string& source) {
  const auto found = root.find(name);
  TRIREME_CHECK(found != root.end() && found->is_object(), source, " has no object ", name,
                "; expected the config.json that transformers' save_pretrained() writes");
  json part = std::move(*found);
  root.erase(found);
  const auto of = part.find("model_type");
  TRIREME_CHECK(of == part.end() || *of == json(type), source, ": ", name, ".model_type is ",
                of == part.end() ? "" : of->dump(-1, ' ', true).substr(0, 200), "; expected \"",
                type, "\": no other is read here");
  return part;
}

}  // namespace

void unnest(json& root, const HuggingFaceKind& kind, const std::string& source) {
  if (kind.text_type.empty()) return;
  const json text = take_part(root, kText, kind.text_type, source);
  const json vision = take_part(root, kVision, kind.vision_type, source);
  for (const auto& [name, value] : text.items()) {
    if (is_of_any_part(name)) continue;
    const auto outside = root.find(name);
    const bool counts = std::ranges::find(kind.outer, name) != kind.outer.end();
    TRIREME_CHECK(!counts, source, ": ", kText, " has ", in_quotes(name),
                  ", which is a key of the whole model; remove it there");
    // Token ids and the like do not change what is computed.
    const bool differs = outside != root.end() && *outside != value;
    TRIREME_CHECK(!differs || (name != "tie_word_embeddings" && name != "vocab_size"), source, ": ",
                  in_quotes(name), " is another value in ", kText,
                  "; expected one: make them the same");
    if (outside == root.end()) root[name] = value;
  }
  for (const auto& [name, value] : vision.items()) {
    if (!is_of_any_part(name)) root[kVisionPrefix + name] = value;
  }
}

void nest(ordered_json& object, const HuggingFaceKind& kind) {
  if (kind.text_type.empty()) return;
  ordered_json outer = ordered_json::object();
  ordered_json text = {{"model_type", kind.text_type}}, vision = {{"model_type", kind.vision_type}};
  constexpr std::string_view kPrefix = kVisionPrefix;
  for (const auto& [name, value] : object.items()) {
    if (name.starts_with(kPrefix)) {
      vision[name.substr(kPrefix.size())] = value;
    } else if (std::ranges::find(kind.outer, name) != kind.outer.end() || is_of_any_part(name)) {
      outer[name] = value;
    } else {
      text[name] = value;
      if (name == "tie_word_embeddings") outer[name] = value;
    }
  }
  outer[kText] = std::move(text);
  outer[kVision] = std::move(vision);
  object = std::move(outer);
}

}  // namespace trireme::model
