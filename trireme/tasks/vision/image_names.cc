#include "trireme/tasks/vision/image_names.h"

#include <string_view>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

using model::HuggingFaceTensor;
using Plan = std::span<const model::ParameterPlan>;

struct Renaming {
  std::string_view from;  // the beginning of a name
  std::string_view to;
};

// Replaces the first beginning that fits.
template <size_t N>
std::string renamed(std::string_view name, const Renaming (&table)[N]) {
  for (const auto& [from, to] : table) {
    if (name.starts_with(from)) return concat(to, name.substr(from.size()));
  }
  throw InternalError(concat("the parameter ", name, " has no name elsewhere"));
}

// Longer names before those that they begin with.
constexpr Renaming kVitBlock[] = {{"attention.attention.query.", "attn.qkv."},
                                  {"attention.output.dense.", "attn.proj."},
                                  {"intermediate.dense.", "mlp.fc1."},
                                  {"output.dense.", "mlp.fc2."},
                                  {"layernorm_before.", "norm1."},
                                  {"layernorm_after.", "norm2."}};
constexpr Renaming kVitRest[] = {
    {"vit.embeddings.cls_token", "cls_token"},
    {"vit.embeddings.position_embeddings", "pos_embed"},
    {"vit.embeddings.patch_embeddings.projection.", "patch_embed.proj."},
    {"vit.layernorm.", "norm."},
    {"classifier.", "head."}};
constexpr std::string_view kVitLayers = "vit.encoder.layer.";

std::string timm_vit_name(std::string_view name) {
  if (!name.starts_with(kVitLayers)) return renamed(name, kVitRest);
  const size_t dot = name.find('.', kVitLayers.size());
  return concat("blocks.", name.substr(kVitLayers.size(), dot - kVitLayers.size()), ".",
                renamed(name.substr(dot + 1), kVitBlock));
}

constexpr Renaming kResNetBlock[] = {
    {"conv1.", "layer.0.convolution."},         {"conv2.", "layer.1.convolution."},
    {"conv3.", "layer.2.convolution."},         {"bn1.", "layer.0.normalization."},
    {"bn2.", "layer.1.normalization."},         {"bn3.", "layer.2.normalization."},
    {"downsample.0.", "shortcut.convolution."}, {"downsample.1.", "shortcut.normalization."}};
constexpr Renaming kResNetRest[] = {{"conv1.", "resnet.embedder.embedder.convolution."},
                                    {"bn1.", "resnet.embedder.embedder.normalization."},
                                    {"fc.", "classifier.1."}};
constexpr std::string_view kResNetGroup = "layer";

// "layer1.0.conv1.weight" has group 1 and block 0.
std::string hf_resnet_name(std::string_view name) {
  if (!name.starts_with(kResNetGroup)) return renamed(name, kResNetRest);
  const char group = name.at(kResNetGroup.size());
  const size_t begin = kResNetGroup.size() + 2, dot = name.find('.', begin);
  return concat("resnet.encoder.stages.", static_cast<char>(group - 1), ".layers.",
                name.substr(begin, dot - begin), ".", renamed(name.substr(dot + 1), kResNetBlock));
}

// A norm's weight is the only one with one dimension.
bool is_norm_weight(const model::ParameterPlan& parameter) {
  return parameter.name.ends_with(".weight") && parameter.layout.whole_shape().size() == 1;
}

std::vector<std::string> statistics_of(const model::ParameterPlan& norm_weight) {
  const std::string_view weight = norm_weight.name;
  const auto norm = weight.substr(0, weight.rfind('.'));
  return {concat(norm, ".running_mean"), concat(norm, ".running_var")};
}

}  // namespace

std::vector<HuggingFaceTensor> own_tensors(Plan plan) {
  std::vector<HuggingFaceTensor> tensors;
  for (const model::ParameterPlan& parameter : plan)
    tensors.push_back(model::own_tensor(parameter));
  return tensors;
}

std::vector<HuggingFaceTensor> timm_vit_tensors(Plan plan) {
  std::vector<HuggingFaceTensor> tensors;
  for (HuggingFaceTensor& tensor : own_tensors(plan)) {
    constexpr std::string_view kQuery = ".query.";
    const bool is_joined = tensor.name.find(".key.") != std::string::npos ||
                           tensor.name.find(".value.") != std::string::npos;
    if (is_joined) continue;
    const size_t at = tensor.name.find(kQuery);
    if (at != std::string::npos) {
      for (const char* const other : {".key.", ".value."}) {
        std::string part = tensor.name;
        tensor.parts.push_back(part.replace(at, kQuery.size(), other));
      }
      tensor.shape.front() *= std::ssize(tensor.parts);
    }
    tensor.name = timm_vit_name(tensor.name);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<HuggingFaceTensor> resnet_tensors(Plan plan) {
  std::vector<HuggingFaceTensor> tensors;
  for (const model::ParameterPlan& parameter : plan) {
    tensors.push_back(model::own_tensor(parameter));
    if (!is_norm_weight(parameter)) continue;
    for (const std::string& name : statistics_of(parameter)) {
      tensors.push_back({.name = name, .shape = parameter.layout.whole_shape(), .parts = {name}});
    }
  }
  return tensors;
}

std::vector<HuggingFaceTensor> hf_resnet_tensors(Plan plan) {
  std::vector<HuggingFaceTensor> tensors = resnet_tensors(plan);
  for (HuggingFaceTensor& tensor : tensors) tensor.name = hf_resnet_name(tensor.name);
  return tensors;
}

std::set<std::string> running_statistics(Plan plan) {
  std::set<std::string> names;
  for (const model::ParameterPlan& parameter : plan) {
    if (!is_norm_weight(parameter)) continue;
    for (const std::string& name : statistics_of(parameter)) names.insert(name);
  }
  return names;
}

}  // namespace trireme::tasks
