#include "trireme/tasks/vision/image_configs.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/dataset/image/image_source.h"
#include "trireme/model/hugging_face.h"

namespace trireme::tasks {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& object) {
  // A class may be the name of a folder that is not UTF-8.
  return object.dump(2, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n";
}

constexpr int64_t kFirstWidth = 64;  // of a ResNet's first group

ordered_json vit_keys(const model::VitConfig& vit) {
  return {{"architectures", {"ViTForImageClassification"}},
          {"model_type", "vit"},
          {"hidden_size", vit.width},
          {"num_hidden_layers", vit.layers},
          {"num_attention_heads", vit.heads},
          {"intermediate_size", vit.ffn_width},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", vit.norm_epsilon},
          {"image_size", vit.image_size},
          {"patch_size", vit.patch_size},
          {"num_channels", vit.channels},
          {"qkv_bias", true},
          {"hidden_dropout_prob", vit.dropout},
          {"attention_probs_dropout_prob", vit.dropout}};
}

ordered_json resnet_keys(const ExportedImageModel& model) {
  const ResNetShape shape = resnet_shape(model.problem.config.model.family);
  return {{"architectures", {"ResNetForImageClassification"}},
          {"model_type", "resnet"},
          {"num_channels", model.problem.shape.channels},
          {"embedding_size", kFirstWidth},
          {"hidden_sizes", shape.widths()},
          {"depths", shape.depths},
          {"layer_type", shape.is_bottleneck ? "bottleneck" : "basic"},
          {"hidden_act", "relu"},
          {"downsample_in_first_stage", false},
          {"downsample_in_bottleneck", false}};
}

// timm multiplies the width by the ratio and drops the fraction.
double mlp_ratio(const model::VitConfig& vit) {
  double ratio = static_cast<double>(vit.ffn_width) / static_cast<double>(vit.width);
  while (static_cast<int64_t>(static_cast<double>(vit.width) * ratio) < vit.ffn_width) {
    ratio = std::nextafter(ratio, std::numeric_limits<double>::infinity());
  }
  return ratio;
}

// The part of the shorter side that is kept in evaluation; images of one size stay whole.
double kept_part(const ExportedImageModel& model) {
  return model.problem.config.data.image_size > 0 ? dataset::ImageOptions{}.centre : 1;
}

PixelStatistics statistics_of(const ExportedImageModel& model) {
  return pixel_statistics(model.problem.config.pixels.normalise, model.problem.shape.channels);
}

}  // namespace

std::vector<int64_t> ResNetShape::widths() const {
  std::vector<int64_t> widths;
  for (size_t group = 0; group < depths.size(); ++group)
    widths.push_back((kFirstWidth << group) * (is_bottleneck ? 4 : 1));
  return widths;
}

ResNetShape resnet_shape(ImageFamily family) {
  switch (family) {
    case ImageFamily::kResNet18: return {{2, 2, 2, 2}, false};
    case ImageFamily::kResNet34: return {{3, 4, 6, 3}, false};
    case ImageFamily::kResNet50: return {{3, 4, 6, 3}, true};
    case ImageFamily::kResNet101: return {{3, 4, 23, 3}, true};
    case ImageFamily::kResNet152: return {{3, 8, 36, 3}, true};
    case ImageFamily::kVit: break;
  }
  TRIREME_ASSERT(false, "a ResNet of another family");
}

std::optional<ImageFamily> find_resnet(const ResNetShape& shape) {
  for (const auto& [name, family] : kImageFamilies) {
    if (family != ImageFamily::kVit && resnet_shape(family) == shape) return family;
  }
  return std::nullopt;
}

ExportedImageModel exported_model(const ImageProblem& problem, const TrainedImages& images) {
  ExportedImageModel model{.problem = problem, .classes = images.classes};
  model.problem.take_images(images.shape, std::ssize(images.classes), kTrainedImagesFile);
  while (std::ssize(model.classes) < model.problem.config.vit.classes) {
    model.classes.push_back(std::to_string(model.classes.size()));
  }
  return model;
}

std::string transformers_config(const ExportedImageModel& model, c10::ScalarType dtype) {
  ordered_json object = model.is_vit() ? vit_keys(model.problem.config.vit) : resnet_keys(model);
  object["torch_dtype"] = name_of(model::kTorchDtypes, dtype);
  ordered_json names = ordered_json::object(), numbers = ordered_json::object();
  for (size_t i = 0; i < model.classes.size(); ++i) {
    names[std::to_string(i)] = model.classes[i];
    numbers[model.classes[i]] = i;
  }
  object["id2label"] = std::move(names);
  object["label2id"] = std::move(numbers);
  return text_of(object);
}

// ConvNext's processor brings the shorter side to size / crop_pct and cuts out the middle, which is
// what evaluation does.
std::string transformers_preprocessor(const ExportedImageModel& model) {
  const PixelStatistics pixels = statistics_of(model);
  const bool is_cut = kept_part(model) < 1;
  constexpr int kBilinear = 2;
  ordered_json object = {
      {"image_processor_type", is_cut ? "ConvNextImageProcessor" : "ViTImageProcessor"},
      {"do_resize", true}};
  if (is_cut) {
    object["size"] = {{"shortest_edge", model.problem.shape.height}};
    object["crop_pct"] = kept_part(model);
  } else {
    object["size"] = {{"height", model.problem.shape.height}, {"width", model.problem.shape.width}};
  }
  object["resample"] = kBilinear;
  object["do_rescale"] = true;
  object["rescale_factor"] = 1.0 / 255;
  object["do_normalize"] = true;
  object["image_mean"] = pixels.mean;
  object["image_std"] = pixels.deviation;
  return text_of(object);
}

std::string timm_architecture(const ExportedImageModel& model) {
  // Whose size the arguments replace.
  if (model.is_vit()) return "vit_base_patch16_224";
  return name_of(kImageFamilies, model.problem.config.model.family);
}

std::string timm_config(const ExportedImageModel& model) {
  const auto [channels, height, width] = model.problem.shape;
  const model::VitConfig& vit = model.problem.config.vit;
  const PixelStatistics pixels = statistics_of(model);
  ordered_json arguments = {{"in_chans", channels}};
  if (model.is_vit()) {
    arguments["img_size"] = vit.image_size;
    arguments["patch_size"] = vit.patch_size;
    arguments["embed_dim"] = vit.width;
    arguments["depth"] = vit.layers;
    arguments["num_heads"] = vit.heads;
    arguments["mlp_ratio"] = mlp_ratio(vit);
  }
  const ordered_json object = {{"architecture", timm_architecture(model)},
                               {"num_classes", model.classes.size()},
                               {"model_args", arguments},
                               {"label_names", model.classes},
                               {"pretrained_cfg",
                                {{"num_classes", model.classes.size()},
                                 {"input_size", {channels, height, width}},
                                 {"fixed_input_size", model.is_vit()},
                                 {"interpolation", "bilinear"},
                                 {"crop_pct", kept_part(model)},
                                 {"crop_mode", "center"},
                                 {"mean", pixels.mean},
                                 {"std", pixels.deviation},
                                 {"first_conv", model.is_vit() ? "patch_embed.proj" : "conv1"},
                                 {"classifier", model.is_vit() ? "head" : "fc"}}}};
  return text_of(object);
}

std::string own_config(const ExportedImageModel& model) {
  const VisionConfig& config = model.problem.config;
  const PixelStatistics pixels = statistics_of(model);
  ordered_json object = {{"family", name_of(kImageFamilies, config.model.family)},
                         {"channels", model.problem.shape.channels},
                         {"height", model.problem.shape.height},
                         {"width", model.problem.shape.width},
                         {"mean", pixels.mean},
                         {"deviation", pixels.deviation},
                         {"centre", kept_part(model)},
                         {"classes", model.classes}};
  if (model.is_vit()) {
    object["model"] = {
        {"patch_size", config.vit.patch_size}, {"layers", config.vit.layers},
        {"width", config.vit.width},           {"heads", config.vit.heads},
        {"ffn_width", config.vit.ffn_width},   {"norm_epsilon", config.vit.norm_epsilon}};
  } else {
    object["model"] = {{"stem", name_of(kResNetStems, config.model.stem)}};
  }
  return text_of(object);
}

}  // namespace trireme::tasks
