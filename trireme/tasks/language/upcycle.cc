#include "trireme/tasks/language/upcycle.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/shards.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/model/family/init.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/foreign/foreign_form.h"
#include "trireme/tasks/language/language.h"
#include "trireme/tasks/language/trained_model.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/gradient_compression.h"
#include "trireme/train/state/derived_run.h"
#include "trireme/train/state/run_state.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;
using model::ModelConfig;

// A tensor name of a checkpoint, split into prefix and parameter name.
struct TensorName {
  std::string prefix;  // "", "optimizer.exp_avg.", "callback.average."
  std::string parameter;
};

// The parts of a tensor's name; empty when it belongs to no parameter of the model.
std::optional<TensorName> parse_name(const std::string& tensor,
                                     const std::map<std::string, mesh::Layout>& parameters) {
  for (size_t begin = 0; begin != std::string::npos;) {
    const std::string rest = tensor.substr(begin);
    if (parameters.contains(rest)) return TensorName{tensor.substr(0, begin), rest};
    const size_t dot = tensor.find('.', begin);
    begin = dot == std::string::npos ? dot : dot + 1;
  }
  return std::nullopt;
}

std::map<std::string, mesh::Layout> parameters_of(const ModelConfig& config) {
  std::map<std::string, mesh::Layout> parameters;
  const model::ModelPlan plan = model::make_plan(config);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    parameters.emplace(parameter.name, parameter.layout);
  }
  return parameters;
}

// "model.layers.3.mlp.gate_proj.weight" -> "model.layers.3.mlp.experts.gate_proj".
std::string expert_name(const std::string& dense) {
  const std::string mlp = ".mlp.", weight = ".weight";
  const size_t at = dense.find(mlp);
  if (at == std::string::npos || !dense.ends_with("_proj.weight")) return "";
  const size_t begin = at + mlp.size();
  return dense.substr(0, begin) + "experts." +
         dense.substr(begin, dense.size() - weight.size() - begin);
}

// The experts are all that may change in the model.
void check_same_model(const train::RunConfig& before, train::RunConfig after) {
  ModelConfig& model = language_of(after).model;
  model.family = "llama";
  model.sparse = {};
  const std::vector<train::Override> old = train::settings(before), now = train::settings(after);
  for (size_t i = 0; i < old.size(); ++i) {
    TRIREME_CHECK(!old[i].first.starts_with("model.") || old[i] == now[i], now[i].first, " is ",
                  now[i].second, " and in the dense model ", old[i].second,
                  "; only the keys of experts can be new: leave it out");
  }
}

train::RunConfig sparse_config(const std::string& toml, const fs::path& folder,
                               const fs::path& output, const UpcycleOptions& options) {
  std::vector<train::Override> overrides(options.overrides.begin(), options.overrides.end());
  overrides.emplace_back("output.folder", output.string());
  train::RunConfig config =
      train::parse_config(toml, folder.string(), train::TaskTable(&kLanguage, 1), overrides);
  const train::RunConfig saved = saved_language_config(toml, folder);
  const ModelConfig& before = language_of(saved).model;
  ModelConfig& after = language_of(config).model;
  TRIREME_CHECK(before.sparse.experts == 0, folder.string(), " has ", before.sparse.experts,
                " experts already; expected the checkpoint of a dense model");
  TRIREME_CHECK(!before.lora.is_on(), folder.string(), " has adapters (lora.rank is ",
                before.lora.rank,
                "); export it, which merges them, import that, and give the imported run");
  TRIREME_CHECK(before.family == "llama", folder.string(), " has a model of the family ",
                before.family, "; expected llama, whose feed-forwards can become experts");
  check_same_model(saved, config);
  after.family = "mixtral";
  model::validate(after);
  TRIREME_CHECK(after.expert_width() == before.ffn_width, "model.expert_width is ",
                after.expert_width(), " and the dense feed-forward has ", before.ffn_width,
                "; experts are copies of it: leave model.expert_width out");
  TRIREME_CHECK(after.sparse.shared_experts == 0, "model.shared_experts is ",
                after.sparse.shared_experts,
                "; their result would be added to that of the copies: set it to 0");
  TRIREME_CHECK(!after.sparse.expert_bias && after.sparse.swiglu_limit == 0,
                "model.expert_bias is ", after.sparse.expert_bias ? "true" : "false",
                " and model.swiglu_limit ", after.sparse.swiglu_limit,
                "; the dense feed-forward has neither: leave them out");
  TRIREME_CHECK(after.sparse.router_normalise && after.sparse.router_scale == 1,
                "model.router_normalise is ", after.sparse.router_normalise ? "true" : "false",
                " and model.router_scale ", after.sparse.router_scale,
                "; expected true and 1: otherwise the weights of a token's copies do not sum to 1, "
                "and the sparse model is not the dense one");
  return config;
}

// The tensors of the new run.
class Copies {
 public:
  Copies(const fs::path& folder, const checkpoint::Manifest& manifest,
         const train::RunConfig& config, double noise)
      : folder_(folder),
        manifest_(manifest),
        config_(config),
        model_(language_of(config).model),
        noise_(noise),
        sparse_(parameters_of(model_)) {}

  std::vector<checkpoint::Entry> make() {
    ModelConfig dense = model_;
    dense.family = "llama";
    dense.sparse = {};
    const auto dense_parameters = parameters_of(dense);
    for (const auto& [name, record] : manifest_.tensors) {
      const auto parsed = parse_name(name, dense_parameters);
      // Skip tensors that belong to no parameter, such as compression residuals.
      if (!parsed || name.starts_with(train::kCompressionPrefix)) continue;
      prefixes_.emplace(parsed->prefix, record.dtype);
      if (sparse_.contains(parsed->parameter)) {
        add(name, checkpoint::read_tensor(folder_, manifest_, name));
      } else {
        add_experts(*parsed, dense_parameters.at(parsed->parameter).whole_shape());
      }
    }
    for (const auto& [name, layout] : sparse_) {
      if (name.ends_with(".mlp.gate.weight")) add_router(name, layout.whole_shape());
    }
    return std::move(entries_);
  }

 private:
  static bool holds_weights(const std::string& prefix) {
    return prefix.empty() || prefix == concat(train::kOptimizerPrefix, train::kMasterState, ".") ||
           prefix.starts_with("callback.");
  }

  void add(std::string name, at::Tensor values) {
    const mesh::Layout layout(values.sizes().vec(), {{"tensor", 1}});
    entries_.push_back({std::move(name), std::move(values), layout, 0});
  }

  void add_experts(const TensorName& dense, const std::vector<int64_t>& shape) {
    const std::string name = expert_name(dense.parameter);
    const auto found = sparse_.find(name);
    TRIREME_ASSERT(found != sparse_.end(), "no expert for ", dense.parameter);
    const at::Tensor values =
        checkpoint::read_tensor(folder_, manifest_, dense.prefix + dense.parameter);
    TRIREME_CHECK(values.sizes() == at::IntArrayRef(shape), "the optimizer keeps ",
                  dense.prefix + dense.parameter, " of shape ", values.sizes(), " for a weight of ",
                  at::IntArrayRef(shape),
                  "; only states with the weight's own shape can be copied, such as AdamW's: train "
                  "the dense model's last steps with optimizer.name = \"adamw\"");
    std::vector<int64_t> of_all = shape;
    of_all.insert(of_all.begin(), model_.sparse.experts);
    at::Tensor copies = values.unsqueeze(0).expand(of_all).contiguous();
    if (noise_ > 0 && holds_weights(dense.prefix)) {
      copies = (copies.to(at::kFloat) + noise_of(name, dense.parameter, of_all))
                   .to(values.scalar_type());
    }
    add(dense.prefix + name, copies);
  }

  // The same for a weight, its master and its average.
  at::Tensor noise_of(const std::string& name, const std::string& dense,
                      const std::vector<int64_t>& shape) const {
    const double deviation =
        checkpoint::read_tensor(folder_, manifest_, dense).to(at::kDouble).std().item<double>();
    const at::Tensor noise = at::empty(shape, at::kFloat);
    const std::vector<int64_t> origin(shape.size(), 0);
    model::fill_normal(noise, {origin, shape}, shape,
                       random_key(static_cast<uint64_t>(config_.train.seed), "upcycle/" + name),
                       noise_ * deviation);
    return noise;
  }

  // Drawn as in a new model; the optimizer has seen no gradient of it.
  void add_router(const std::string& name, const std::vector<int64_t>& shape) {
    const at::Tensor weights = at::empty(shape, at::kFloat);
    const std::vector<int64_t> origin(shape.size(), 0);
    model::initialise(weights, {origin, shape}, shape, model::initialiser_of(model_, name),
                      static_cast<uint64_t>(config_.train.seed), name);
    for (const auto& [prefix, dtype] : prefixes_) {
      add(prefix + name, (holds_weights(prefix) ? weights : at::zeros_like(weights)).to(dtype));
    }
  }

  const fs::path& folder_;
  const checkpoint::Manifest& manifest_;
  const train::RunConfig& config_;
  const ModelConfig& model_;
  double noise_;
  std::map<std::string, mesh::Layout> sparse_;
  std::map<std::string, c10::ScalarType> prefixes_;  // of the checkpoint's tensors
  std::vector<checkpoint::Entry> entries_;
};

}  // namespace

Upcycled upcycle(const fs::path& path, const fs::path& output, const UpcycleOptions& options) {
  const fs::path folder = train::find_checkpoint(path);
  const checkpoint::Manifest manifest = checkpoint::read_manifest(folder);
  train::RunState state = train::parse_state(manifest.state, folder.string(), manifest.step);
  const train::RunConfig config = sparse_config(state.config, folder, output, options);
  TRIREME_CHECK(config.optimizer.state_dtype != train::StateDtype::kInt8, folder.string(),
                " has int8 states, which are not copied to experts; resume the dense run for a "
                "step with --optimizer.state_dtype=fp32 --resume.allow=optimizer.state_dtype");
  const ModelConfig& sparse = language_of(config).model;
  ModelConfig dense = sparse;
  dense.family = "llama";
  dense.sparse = {};

  std::vector<checkpoint::Entry> entries = Copies(folder, manifest, config, options.noise).make();
  // New routers have learnt nothing in earlier steps.
  std::ranges::move(expert_buffers(sparse), std::back_inserter(entries));
  state.config = train::to_toml(config);
  train::DerivedRun run(folder, output);
  const auto world = comm::make_thread_group(1);
  checkpoint::save(run.checkpoints(), state.step, entries, train::to_json(state), *world.front());
  run.commit(state.config, config.task->traits().file_names);
  return {.checkpoint = folder,
          .step = manifest.step,
          .sparse_blocks = model::num_sparse_blocks(sparse),
          .experts = sparse.sparse.experts,
          .dense_parameters = model::num_parameters(dense),
          .parameters = model::num_parameters(sparse)};
}

}  // namespace trireme::tasks
