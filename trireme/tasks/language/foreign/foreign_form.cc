#include "trireme/tasks/language/foreign/foreign_form.h"

#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/family/family.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorSource;
using model::HuggingFaceTensor;
using model::ModelConfig;

// The name of a LayerNorm's tensor in files that were converted from TensorFlow: gamma for weight,
// beta for bias.
std::string older_name(const std::string& name) {
  for (const auto& [newer, older] : {std::pair("weight", "gamma"), {"bias", "beta"}}) {
    const std::string ending = concat("LayerNorm.", newer);
    if (name.ends_with(ending))
      return concat(name.substr(0, name.size() - ending.size()), "LayerNorm.", older);
  }
  return name;
}

// The tensor at `name`, or at the same without `base_prefix`; "": there is none.
std::string stored_name(
    const TensorSource& source, const std::string& name, std::string_view base_prefix,
    std::span<const std::pair<std::string_view, std::string_view>> other_prefixes) {
  const bool has_prefix = name.starts_with(base_prefix);
  const std::string base = has_prefix ? name.substr(base_prefix.size()) : name;
  for (const std::string& one : {name, base, older_name(name), older_name(base)}) {
    if (source.tensors().contains(one)) return one;
  }
  for (const auto& [own, other] : other_prefixes) {
    if (!name.starts_with(own)) continue;
    std::string one = concat(other, name.substr(own.size()));
    if (source.tensors().contains(one)) return one;
  }
  return "";
}

}  // namespace

ForeignForm look_up(const TensorSource& source, std::vector<HuggingFaceTensor> tensors,
                    std::string_view base_prefix, const ModelConfig& config,
                    const std::string& head,
                    std::span<const std::pair<std::string_view, std::string_view>> others) {
  ForeignForm form;
  form.head = stored_name(source, head, base_prefix, others);
  for (HuggingFaceTensor& tensor : tensors) {
    std::string stored = stored_name(source, tensor.name, base_prefix, others);
    const bool is_embedding = form.wanted.empty();
    if (stored.empty() && is_embedding && config.has_tied_head()) stored = form.head;
    form.num_found += stored.empty() ? 0 : 1;
    form.wanted.push_back({std::move(tensor), std::move(stored)});
  }
  return form;
}

namespace {

ForeignForm own_form(const TensorSource& source, const ModelConfig& config) {
  std::vector<HuggingFaceTensor> tensors;
  const model::ModelPlan plan = model::make_plan(config);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    tensors.push_back(model::own_tensor(parameter));
  }
  for (const checkpoint::Entry& buffer : expert_buffers(config)) {
    tensors.push_back({buffer.name, buffer.layout.whole_shape(), {buffer.name}});
  }
  return look_up(source, std::move(tensors), "", config);
}

// Empty when transformers has no class for the model.
std::optional<ForeignForm> hugging_face_form(const TensorSource& source,
                                             const ModelConfig& config) {
  try {
    const model::HuggingFaceForm form =
        model::family_of(config).hugging_face_form(model::make_plan(config));
    ForeignForm found = look_up(source, form.tensors, form.kind->base_prefix, config,
                                std::string(form.kind->head), form.kind->other_prefixes);
    found.kind = form.kind;
    found.architecture = form.kind->architecture;
    return found;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

ForeignForm torchtitan_form(const TensorSource& source, const ModelConfig& config) {
  ForeignForm found =
      look_up(source, model::family_of(config).torchtitan_tensors(model::make_plan(config)),
              "model.", config, "model.output.weight");
  found.architecture = "torchtitan's Transformer";
  found.has_adjacent_pairs = true;
  found.beside = {"optimizer.", "lr_scheduler.", "dataloader.", "train_state."};
  return found;
}

}  // namespace

ForeignForm find_form(const fs::path& path, const TensorSource& source, const ModelConfig& config) {
  const std::int64_t num_tensors = std::ssize(source.tensors());
  if (config.layers > num_tensors) {
    throw CheckpointError(concat(path.string(), " has ", num_tensors,
                                 " tensors, and model.layers is ", config.layers,
                                 "; expected some for each layer: they are not of one model"));
  }
  ForeignForm best = own_form(source, config);
  // Only classes whose experts have biases have all of a block in one tensor.
  const int64_t stacked = config.sparse.expert_bias ? config.sparse.experts : 1;
  if (model::num_sparse_blocks(config) * config.sparse.experts / stacked > num_tensors) return best;
  std::optional<ForeignForm> other = hugging_face_form(source, config);
  if (other && other->num_found >= best.num_found) best = *other;
  std::vector<HuggingFaceTensor> tensors =
      model::family_of(config).joined_tensors(model::make_plan(config));
  if (!tensors.empty()) {
    ForeignForm joined = look_up(source, std::move(tensors), "model.", config);
    if (joined.num_found > best.num_found) {
      joined.architecture = other ? other->architecture : "";
      best = std::move(joined);
    }
  }
  ForeignForm titan = torchtitan_form(source, config);
  return titan.num_found > best.num_found ? titan : best;
}

bool are_equal(const TensorSource& source, const std::string& one, const std::string& other) {
  const checkpoint::SourceTensor &a = source.tensors().at(one), &b = source.tensors().at(other);
  if (a.shape != b.shape) return false;
  const c10::ScalarType wide = at::promote_types(a.dtype, b.dtype);
  return at::equal(source.read(one).to(wide), source.read(other).to(wide));
}

std::vector<checkpoint::Entry> expert_buffers(const model::ModelConfig& config) {
  const model::ExpertConfig& sparse = config.sparse;
  std::vector<checkpoint::Entry> entries;
  const auto add = [&](const std::string& name, c10::ScalarType dtype) {
    entries.push_back({name, at::zeros({sparse.experts}, dtype),
                       mesh::Layout({sparse.experts}, {{"tensor", 1}}), 0});
  };
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (!sparse.is_sparse(layer)) continue;
    const std::string gate = concat("model.layers.", layer, ".mlp.gate.");
    if (sparse.has_router_bias()) add(gate + "e_score_correction_bias", at::kFloat);
    const bool balances_batch =
        sparse.balance_loss > 0 && sparse.balance_over == model::BalanceOver::kBatch;
    if (balances_batch) add(gate + "assignments", at::kLong);
  }
  return entries;
}

}  // namespace trireme::tasks
