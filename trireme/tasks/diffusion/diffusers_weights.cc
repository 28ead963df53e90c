#include "trireme/tasks/diffusion/diffusers_weights.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/model/dit/dit_plan.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "config.json";
constexpr const char* kSchedulerFile = "scheduler_config.json";
constexpr size_t kMostConfigBytes = size_t{1} << 20;

// Our prefix of what diffusers has in each block's first norm.
constexpr std::string_view kShared = "emb.";
// The product whose rows are the noise of a pixel's channels, and perhaps their variances.
constexpr std::string_view kLastProduct = "proj_out_2.";
// Computed here, and in newer versions of diffusers.
constexpr std::string_view kPositions = "pos_embed.pos_embed";

bool is_of_last_product(const std::string& name) { return name.starts_with(kLastProduct); }

}  // namespace

std::optional<DiffusersFolder> find_diffusers_folder(const fs::path& folder) {
  for (const auto& [model, scheduler] :
       {std::pair(folder, folder), std::pair(folder / "transformer", folder / "scheduler")}) {
    if (!is_file(model / kModelFile)) continue;
    const fs::path file = scheduler / kSchedulerFile;
    return DiffusersFolder{.model = model, .scheduler = is_file(file) ? file : fs::path()};
  }
  return std::nullopt;
}

DiffusersModel read_diffusers_model(const DiffusersFolder& folder) {
  const fs::path file = folder.model / kModelFile;
  return parse_diffusers_config(read_file(file, kMostConfigBytes), file.string());
}

void read_diffusers_noise(const DiffusersFolder& folder, NoiseConfig& noise) {
  if (folder.scheduler.empty()) return;
  take_diffusers_scheduler(read_file(folder.scheduler, kMostConfigBytes), folder.scheduler.string(),
                           noise);
}

std::vector<model::HuggingFaceTensor> diffusers_tensors(const model::DitConfig& dit) {
  std::vector<model::HuggingFaceTensor> tensors;
  const model::ModelPlan plan = model::make_dit_plan(dit, /*tensor_ranks=*/1);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    model::HuggingFaceTensor tensor = model::own_tensor(parameter);
    if (!parameter.name.starts_with(kShared)) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    for (int64_t layer = 0; layer < dit.layers; ++layer) {
      tensor.name = concat("transformer_blocks.", layer, ".norm1.", parameter.name);
      tensors.push_back(tensor);
    }
  }
  return tensors;
}

DiffusersWeights::DiffusersWeights(const DiffusersFolder& folder, const DiffusersModel& model)
    : path_(folder.model), model_(model), source_(checkpoint::open_tensors(folder.model)) {
  std::set<std::string> wanted, missing, unexpected, different;
  for (const model::HuggingFaceTensor& tensor : diffusers_tensors(model.dit)) {
    wanted.insert(tensor.name);
    const auto found = source_->tensors().find(tensor.name);
    if (found == source_->tensors().end()) {
      missing.insert(tensor.name);
      continue;
    }
    std::vector<int64_t> shape = tensor.shape;
    if (model.has_variances && is_of_last_product(tensor.name)) shape.front() *= 2;
    const auto& [dtype, stored_shape] = found->second;
    if (stored_shape != shape || !c10::isFloatingType(dtype)) {
      different.insert(concat(tensor.name, " is ", c10::toString(dtype), " ",
                              at::IntArrayRef(stored_shape), " and should be ",
                              at::IntArrayRef(shape)));
    }
    const std::string& parameter = tensor.parts.front();
    stored_[parameter].push_back(tensor.name);
    tensors_[parameter] = {dtype, tensor.shape};
  }
  for (const auto& [name, tensor] : source_->tensors()) {
    if (!wanted.contains(name) && name != kPositions) unexpected.insert(name);
  }
  if (missing.empty() && unexpected.empty() && different.empty()) return;
  throw CheckpointError(concat(path_.string(), " does not fit its ", kModelFile,
                               listed("missing", missing), listed("unexpected", unexpected),
                               listed("with a different shape or dtype", different),
                               "; save the model again with save_pretrained()"));
}

at::Tensor DiffusersWeights::read_finite(const std::string& stored) const {
  at::Tensor values = source_->read(stored);
  train::require_finite(values, stored, path_);
  return values;
}

at::Tensor DiffusersWeights::read(const std::string& name) const {
  const auto found = stored_.find(name);
  if (found == stored_.end())
    throw CheckpointError(concat(path_.string(), " has no tensor of the parameter \"", name, "\""));
  const std::vector<std::string>& copies = found->second;
  at::Tensor values = read_finite(copies.front());
  for (size_t i = 1; i < copies.size(); ++i) {
    if (at::equal(values, read_finite(copies[i]))) continue;
    throw CheckpointError(concat(
        path_.string(), ": ", copies[i], " has other values than ", copies.front(),
        "; all blocks share one embedding of timesteps and classes here, as in the paper, so a "
        "model whose blocks have learnt different ones cannot be read"));
  }
  if (!model_.has_variances || !is_of_last_product(name)) return values;
  // For each place of a patch the noise of all channels, and then their variances.
  const int64_t P = model_.dit.patch_size, C = model_.dit.channels;
  at::Tensor by_place = values.view({P * P, 2, C, -1}).select(1, 0);
  return by_place.reshape(tensors_.at(name).shape).contiguous();
}

int64_t DiffusersWeights::num_rounded(c10::ScalarType dtype) const {
  return std::ranges::count_if(tensors_, [&](const auto& item) {
    return at::promote_types(item.second.dtype, dtype) != dtype;
  });
}

}  // namespace trireme::tasks
