#include "trireme/tasks/language/foreign/frozen_source.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/model/family/frozen_weights.h"
#include "trireme/model/family/plan.h"

namespace trireme::tasks {
namespace {

using Tensors = std::map<std::string, checkpoint::SourceTensor>;

// What the model keeps of weights that are among `tensors`, by name.
std::map<std::string, model::FrozenPart> parts_of(const Tensors& tensors,
                                                  const model::ModelConfig& config) {
  std::map<std::string, model::FrozenPart> parts;
  if (!config.lora.is_on() || !has_scales(config.lora.base)) return parts;
  const model::ModelPlan plan = model::make_plan(config);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    const auto part = model::frozen_part(parameter.name, config.lora.base);
    if (part && tensors.contains(part->weight)) parts.emplace(parameter.name, *part);
  }
  return parts;
}

class FrozenSource : public checkpoint::TensorSource {
 public:
  FrozenSource(std::map<std::string, model::FrozenPart> parts,
               std::unique_ptr<checkpoint::TensorSource> weights)
      : parts_(std::move(parts)), weights_(std::move(weights)), tensors_(weights_->tensors()) {
    for (const auto& [name, part] : parts_) {
      checkpoint::SourceTensor tensor = weights_->tensors().at(part.weight);
      tensor.dtype = part.is_scales ? at::kFloat : dtype_of_codes(part.format);
      if (tensor.shape.size() == 2) tensor.shape[1] /= part.numbers();
      tensors_[name] = std::move(tensor);
    }
    for (const auto& [name, part] : parts_) tensors_.erase(part.weight);
  }

  const Tensors& tensors() const override { return tensors_; }
  std::string kind() const override { return weights_->kind(); }

  at::Tensor read(const std::string& name) const override {
    const auto found = parts_.find(name);
    if (found == parts_.end()) return weights_->read(name);
    const model::FrozenPart& part = found->second;
    const std::lock_guard lock(mutex_);
    if (encoded_ != part.weight) {
      try {
        codes_ = encode(weights_->read(part.weight), part.format);
      } catch (const ConfigError& error) {
        throw CheckpointError(concat(part.weight, ": ", error.what()));
      }
      encoded_ = part.weight;
    }
    return part.is_scales ? codes_.scales : codes_.codes;
  }

 private:
  std::map<std::string, model::FrozenPart> parts_;
  std::unique_ptr<checkpoint::TensorSource> weights_;
  Tensors tensors_;
  mutable std::mutex mutex_;
  mutable std::string encoded_;  // the weight whose codes_ these are
  mutable WeightCodes codes_;
};

}  // namespace

std::unique_ptr<checkpoint::TensorSource> frozen(std::unique_ptr<checkpoint::TensorSource> weights,
                                                 const model::ModelConfig& config) {
  auto parts = parts_of(weights->tensors(), config);
  if (parts.empty()) return weights;
  return std::make_unique<FrozenSource>(std::move(parts), std::move(weights));
}

std::unique_ptr<checkpoint::TensorSource> open_to_freeze(const std::filesystem::path& folder,
                                                         const model::ModelConfig& config) {
  if (!std::filesystem::exists(folder / checkpoint::kManifestName)) return nullptr;
  auto saved = std::make_unique<checkpoint::SavedTensors>(folder);
  if (parts_of(saved->tensors(), config).empty()) return nullptr;
  return frozen(std::move(saved), config);
}

}  // namespace trireme::tasks
