#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/llama/llama_form.h"

namespace trireme::model {
namespace {

using LlavaKeys = std::vector<HuggingFaceKey>;

template <typename Value>
HuggingFaceKey vision_key(const char* name, Value VisionConfig::*member, HuggingFaceValue missing) {
  return mapped(concat(kVisionPrefix, name), member, always(std::move(missing)));
}

// What LlamaConfig and CLIPVisionConfig assume: files of LLaVA leave most of it out.
LlavaKeys llava_keys() {
  LlavaKeys keys = kLlamaKind.keys();
  const std::pair<std::string_view, int64_t> assumed[] = {
      {"hidden_size", 4096},       {"intermediate_size", 11008}, {"num_hidden_layers", 32},
      {"num_attention_heads", 32}, {"vocab_size", 32000},        {"max_position_embeddings", 2048}};
  for (HuggingFaceKey& key : keys) {
    const auto* const found =
        std::ranges::find(assumed, key.name, &std::pair<std::string_view, int64_t>::first);
    if (found != std::end(assumed)) key.missing = always(found->second);
  }
  HuggingFaceKey image_token =
      mapped("image_token_index", &VisionConfig::image_token, always(int64_t{32000}));
  image_token.other_name = "image_token_id";
  HuggingFaceKey image_tokens = written("image_seq_length", int64_t{0});
  image_tokens.value = [](const ModelConfig& config) -> HuggingFaceValue {
    return config.vision.num_patches();
  };
  LlavaKeys own = {
      vision_key("num_hidden_layers", &VisionConfig::layers, int64_t{12}),
      vision_key("hidden_size", &VisionConfig::width, int64_t{768}),
      vision_key("num_attention_heads", &VisionConfig::heads, int64_t{12}),
      vision_key("intermediate_size", &VisionConfig::ffn_width, int64_t{3072}),
      vision_key("image_size", &VisionConfig::image_size, int64_t{224}),
      vision_key("patch_size", &VisionConfig::patch_size, int64_t{32}),
      vision_key("layer_norm_eps", &VisionConfig::norm_epsilon, 1e-5),
      fixed(concat(kVisionPrefix, "hidden_act"), std::string("quick_gelu"),
            always(std::string("quick_gelu"))),
      fixed(concat(kVisionPrefix, "num_channels"), VisionConfig::kChannels,
            always(VisionConfig::kChannels)),
      written(concat(kVisionPrefix, "attention_dropout"), 0.0),
      // Of training from nothing, and of CLIP's own head and text model.
      ignored(concat(kVisionPrefix, "dropout")),
      ignored(concat(kVisionPrefix, "initializer_factor")),
      ignored(concat(kVisionPrefix, "initializer_range")),
      ignored(concat(kVisionPrefix, "projection_dim")),
      ignored(concat(kVisionPrefix, "vocab_size")),
      mapped("vision_feature_layer", &VisionConfig::feature_layer, always(int64_t{-2})),
      fixed("vision_feature_select_strategy", std::string("default"),
            always(std::string("default"))),
      fixed("projector_hidden_act", std::string("gelu"), always(std::string("gelu"))),
      fixed("multimodal_projector_bias", true, always(true)), std::move(image_token),
      std::move(image_tokens), ignored("ignore_index")};
  std::ranges::move(own, std::back_inserter(keys));
  return keys;
}

void begin_llava(HuggingFaceModel& model) {
  model.config.family = "llama";
  model.config.vision.layers = 1;
}

constexpr std::string_view kOuter[] = {"vision_feature_layer", "vision_feature_select_strategy",
                                       "projector_hidden_act", "multimodal_projector_bias",
                                       "image_token_index",    "image_token_id",
                                       "image_seq_length",     "ignore_index"};

// The prefixes here, those of older files, and those of newer versions of transformers.
constexpr std::string_view kTower = "vision_tower.vision_model.";
constexpr std::pair<std::string_view, std::string_view> kOtherPrefixes[] = {
    {kTower, "vision_tower."},
    {kTower, "model.vision_tower."},
    {kTower, "model.vision_tower.vision_model."},
    {"multi_modal_projector.", "model.multi_modal_projector."},
    {"language_model.model.", "model.language_model."},
    {"language_model.lm_head.", "lm_head."}};

}  // namespace

const HuggingFaceKind kLlavaKind{.name = "LLaVA",
                                 .type = "llava",
                                 .architecture = "LlavaForConditionalGeneration",
                                 .keys = llava_keys,
                                 .begin = begin_llava,
                                 .base_prefix = "",
                                 .head = "language_model.lm_head.weight",
                                 .text_type = "llama",
                                 .vision_type = "clip_vision_model",
                                 .outer = kOuter,
                                 .other_prefixes = kOtherPrefixes};

std::string llava_name(std::string_view name) {
  constexpr std::string_view kModel = "model.";
  if (!name.starts_with(kModel)) return concat("language_model.", name);
  const std::string_view rest = name.substr(kModel.size());
  const std::string tower = concat(kVisionTower, ".");
  if (rest.starts_with(tower)) return concat(kTower, rest.substr(tower.size()));
  return rest.starts_with(kProjector) ? std::string(rest) : concat("language_model.", name);
}

}  // namespace trireme::model
