#include "trireme/tasks/vision/foreign_image_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/model/hugging_face.h"
#include "trireme/tasks/export/foreign_keys.h"
#include "trireme/tasks/vision/image_configs.h"
#include "trireme/tasks/vision/image_model.h"

namespace trireme::tasks {
namespace {

// A name of each class, twice.
constexpr JsonLimits kImageConfigLimits{.max_bytes = size_t{64} << 20,
                                        .max_values = size_t{1} << 21};
constexpr int64_t kColours = 3;  // that timm's statistics are of

bool is_harmless_of_transformers(std::string_view name) {
  constexpr std::string_view kOthers[] = {"encoder_stride", "num_labels", "out_features",
                                          "out_indices",    "pooler_act", "pooler_output_size",
                                          "stage_names"};
  return model::is_harmless_key(name) || std::ranges::find(kOthers, name) != std::end(kOthers);
}

int64_t integer_or(const JsonView& root, std::string_view key, int64_t missing, int64_t maximum) {
  const auto found = given(root, key);
  return found ? found->integer(1, maximum) : missing;
}

int64_t classes_of_transformers(const JsonView& root) {
  if (const auto names = given(root, "id2label")) return std::ssize(names->members());
  return integer_or(root, "num_labels", 0, kMaxClasses);
}

ForeignImageConfig transformers_resnet(const JsonView& root) {
  constexpr FixedKey kFixed[] = {{"downsample_in_bottleneck", "false"},
                                 {"downsample_in_first_stage", "false"},
                                 {"embedding_size", "64"},
                                 {"hidden_act", R"("relu")"}};
  constexpr std::string_view kTaken[] = {"depths", "hidden_sizes", "layer_type", "num_channels"};
  check_foreign_keys(root, kFixed, kTaken, is_harmless_of_transformers);
  ResNetShape shape = resnet_shape(ImageFamily::kResNet50);  // transformers' default
  if (const auto depths = given(root, "depths")) shape.depths = depths->integers(1, kMaxLayers);
  if (const auto type = given(root, "layer_type")) {
    shape.is_bottleneck = type->text() == "bottleneck";
    if (!shape.is_bottleneck && type->text() != "basic") type->fail(R"("basic" or "bottleneck")");
  }
  const auto family = find_resnet(shape);
  if (!family) {
    root.at("depths").fail(concat("those of a ResNet-18, 34, 50, 101 or 152 with the layer_type ",
                                  shape.is_bottleneck ? "bottleneck" : "basic"));
  }
  if (const auto widths = given(root, "hidden_sizes")) {
    if (widths->integers(1) != shape.widths())
      widths->fail(
          concat(nlohmann::json(shape.widths()).dump(), ": nothing else is computed here"));
  }
  ForeignImageConfig found{.names = ResNetNames::kTransformers};
  found.model.family = *family;
  return found;
}

ForeignImageConfig transformers_vit(const JsonView& root) {
  constexpr FixedKey kFixed[] = {{"hidden_act", R"("gelu")"}, {"qkv_bias", "true"}};
  constexpr std::string_view kTaken[] = {"attention_probs_dropout_prob",
                                         "hidden_dropout_prob",
                                         "hidden_size",
                                         "image_size",
                                         "intermediate_size",
                                         "layer_norm_eps",
                                         "num_attention_heads",
                                         "num_channels",
                                         "num_hidden_layers",
                                         "patch_size"};
  check_foreign_keys(root, kFixed, kTaken, is_harmless_of_transformers);
  ForeignImageConfig found;
  found.model.family = ImageFamily::kVit;
  model::VitConfig& vit = found.vit;
  vit.width = integer_or(root, "hidden_size", 768, kMaxWidth);
  vit.layers = integer_or(root, "num_hidden_layers", 12, kMaxLayers);
  vit.heads = integer_or(root, "num_attention_heads", 12, kMaxWidth);
  vit.ffn_width = integer_or(root, "intermediate_size", 3072, kMaxFfnWidth);
  vit.image_size = integer_or(root, "image_size", 224, kMaxImageSize);
  vit.patch_size = integer_or(root, "patch_size", 16, kMaxImageSize);
  vit.channels = integer_or(root, "num_channels", 3, kMaxChannels);
  vit.norm_epsilon = 1e-12;
  if (const auto epsilon = given(root, "layer_norm_eps"))
    vit.norm_epsilon = epsilon->number(kEpsilon.minimum, kEpsilon.maximum);
  return found;
}

ForeignImageConfig of_transformers(const JsonView& root) {
  const JsonView type = root.at("model_type");
  const bool is_vit = type.text() == "vit";
  if (!is_vit && type.text() != "resnet")
    type.fail(R"("resnet" or "vit", the image classifiers of transformers that are read)");
  ForeignImageConfig found = is_vit ? transformers_vit(root) : transformers_resnet(root);
  found.vit.classes = classes_of_transformers(root);
  return found;
}

// The statistics of the pixels that the weights were trained on.
void take_pixels(const JsonView& pixels, ForeignImageConfig& found) {
  const auto mean = given(pixels, "mean"), deviation = given(pixels, "std");
  if (!mean || !deviation) return;
  for (const auto& [name, normalise] : kNormalisations) {
    const PixelStatistics ours = pixel_statistics(normalise, kColours);
    if (mean->value() == ours.mean && deviation->value() == ours.deviation)
      found.normalise = normalise;
  }
  if (!found.normalise)
    found.notes.emplace_back(
        "pretrained_cfg has another mean and std of pixels than data.normalise can say");
}

ForeignImageConfig of_timm(const JsonView& root) {
  constexpr FixedKey kFixed[] = {{"global_pool", R"("avg")"}};
  constexpr std::string_view kTaken[] = {"architecture", "model_args", "num_classes",
                                         "pretrained_cfg"};
  check_foreign_keys(root, kFixed, kTaken, [](std::string_view name) {
    return name == "num_features" || name == "labels" || name.starts_with("label_");
  });
  ForeignImageConfig found;
  const JsonView architecture = root.at("architecture");
  const auto* const family = find_choice(kImageFamilies, architecture.text());
  if (family == nullptr || family->value == ImageFamily::kVit)
    architecture.fail(
        "resnet18, resnet34, resnet50, resnet101 or resnet152, the models of timm that are read");
  found.model.family = family->value;
  found.vit.classes = integer_or(root, "num_classes", 0, kMaxClasses);
  if (const auto arguments = given(root, "model_args")) {
    // As many channels as the first layer has, and classes as the last.
    constexpr std::string_view kArguments[] = {"in_chans", "num_classes"};
    check_foreign_keys(*arguments, kFixed, kArguments, [](std::string_view) { return false; });
  }
  if (const auto pixels = given(root, "pretrained_cfg")) take_pixels(*pixels, found);
  return found;
}

// See own_config().
ForeignImageConfig of_our_export(const JsonView& root) {
  ForeignImageConfig found;
  const JsonView family = root.at("family"), model = root.at("model");
  const auto* const known = find_choice(kImageFamilies, family.text());
  if (known == nullptr) family.fail("one of " + joined(names_of(kImageFamilies)));
  found.model.family = known->value;
  found.vit.classes = std::ssize(root.at("classes").elements());
  if (known->value != ImageFamily::kVit) {
    const JsonView stem = model.at("stem");
    const auto* const known_stem = find_choice(kResNetStems, stem.text());
    if (known_stem == nullptr) stem.fail("one of " + joined(names_of(kResNetStems)));
    found.model.stem = known_stem->value;
    return found;
  }
  model::VitConfig& vit = found.vit;
  vit.image_size = root.at("height").integer(1, kMaxImageSize);
  vit.channels = root.at("channels").integer(1, kMaxChannels);
  vit.patch_size = model.at("patch_size").integer(1, kMaxImageSize);
  vit.layers = model.at("layers").integer(1, kMaxLayers);
  vit.width = model.at("width").integer(1, kMaxWidth);
  vit.heads = model.at("heads").integer(1, kMaxWidth);
  vit.ffn_width = model.at("ffn_width").integer(1, kMaxFfnWidth);
  vit.norm_epsilon = model.at("norm_epsilon").number(kEpsilon.minimum, kEpsilon.maximum);
  return found;
}

}  // namespace

ForeignImageConfig parse_foreign_image_config(std::string_view text, const std::string& source) {
  const nlohmann::json parsed = parse_json(text, source, kImageConfigLimits);
  const JsonView root(parsed, source);
  ForeignImageConfig found;
  if (root.find("model_type")) {
    found = of_transformers(root);
  } else if (root.find("architecture")) {
    found = of_timm(root);
  } else if (root.find("family")) {
    found = of_our_export(root);
  } else {
    throw ConfigError(concat(source,
                             " is of no image classifier; expected \"model_type\" of transformers, "
                             "\"architecture\" of timm or \"family\" of an export of Trireme"));
  }
  TRIREME_CHECK(found.vit.classes <= kMaxClasses, source, " has ", found.vit.classes,
                " classes; expected at most ", kMaxClasses);
  if (found.model.family == ImageFamily::kVit) validate(found.vit);
  return found;
}

}  // namespace trireme::tasks
