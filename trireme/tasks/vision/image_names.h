// The tensors of an image model under the names of other programs, and how each is made of our
// parameters and buffers. ResNets have torchvision's names, which are timm's, and ViTs those of
// transformers.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/model/family/hugging_face_form.h"
#include "trireme/model/family/plan.h"

namespace trireme::tasks {

// Of a plan's parameters, in its order.
std::vector<model::HuggingFaceTensor> own_tensors(std::span<const model::ParameterPlan> plan);

// timm's VisionTransformer: query, key and value are one tensor.
std::vector<model::HuggingFaceTensor> timm_vit_tensors(std::span<const model::ParameterPlan> plan);

// The parameters of a ResNet and the running statistics of its norms, under our names.
std::vector<model::HuggingFaceTensor> resnet_tensors(std::span<const model::ParameterPlan> plan);
// The same under those of transformers' ResNetForImageClassification.
std::vector<model::HuggingFaceTensor> hf_resnet_tensors(std::span<const model::ParameterPlan> plan);
// Those of a ResNet's tensors that are running statistics.
std::set<std::string> running_statistics(std::span<const model::ParameterPlan> plan);

}  // namespace trireme::tasks
