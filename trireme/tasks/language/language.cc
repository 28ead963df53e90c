#include "trireme/tasks/language/language.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_source.h"
#include "trireme/model/experts/routing_counts.h"
#include "trireme/model/family/transformer_axes.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/costs.h"
#include "trireme/tasks/language/expert_report.h"
#include "trireme/tasks/language/foreign_tokenizer.h"
#include "trireme/tasks/language/foreign_weights.h"
#include "trireme/tasks/language/token_identity.h"

namespace trireme::tasks {
namespace {

class LanguageStage : public train::StageModel {
 public:
  LanguageStage(std::unique_ptr<model::LanguageModel> model, const train::StageRequest& request)
      : model_(std::move(model)), part_(request.part), hidden_(train::hidden_edge(request.stage)) {}

  torch::nn::Module& module() override { return model_->module(); }
  std::vector<parallel::Unit> units() const override { return model_->units(); }
  void run_units_with(parallel::RunUnit run) override { model_->run_units_with(std::move(run)); }

  std::vector<at::Tensor> forward(const train::StageInput& in) override {
    const model::PartOutput out = model_->forward_part({.tokens_BT = in["tokens"],
                                                        .hidden = in[hidden_],
                                                        .documents_BT = in["documents"],
                                                        .training = in.training});
    if (part_.has_head) return {model_->head_loss(out.hidden, in["targets"], in["head"]).sum};
    std::vector<at::Tensor> outputs = {out.hidden};
    if (out.head_weight.defined()) outputs.push_back(out.head_weight);
    return outputs;
  }

  void take_counts(std::span<double> counts) override { model_->take_routing_counts(counts); }
  void use_counts(std::span<const double> counts) override { model_->use_routing_counts(counts); }

  int64_t num_terms(const dataset::Batch& batch) const override {
    return model_->num_targets(batch["targets"]);
  }

 private:
  std::unique_ptr<model::LanguageModel> model_;
  model::ModelPart part_;
  std::string hidden_;
};

class LanguageTask : public train::Task {
 public:
  std::unique_ptr<train::Task> clone() const override {
    return std::make_unique<LanguageTask>(*this);
  }

  void add_keys(train::Keys& keys) override {
    keys.add("model", config_.model);
    keys.add("model", config_.model.attention);
    keys.add("model", config_.model.sparse);
    keys.add("data", config_.data);
  }

  void check(const train::RunConfig& /*config*/) const override {
    model::ModelConfig model = config_.model;
    if (model.vocab_size == 0) model.vocab_size = 1;  // the tokenizer sets it in open()
    model::validate(model);
  }

  void take_keys_of(const std::filesystem::path& folder, train::RunConfig& config) override {
    if (!is_hugging_face_folder(folder)) return;
    const model::HuggingFaceModel found = read_foreign_model(folder).model;
    config_.model = found.config;
    if (found.dtype) config.train.precision = *found.dtype;
  }
  std::unique_ptr<checkpoint::TensorSource> open_weights(
      const std::filesystem::path& folder) const override {
    if (!is_hugging_face_folder(folder)) return nullptr;
    const DescribedModel described = read_foreign_model(folder);
    require_same_model(described, config_.model);
    if (tokenizer_) require_tokenizer_of(folder, config_.model.vocab_size, *tokenizer_);
    auto source = checkpoint::open_tensors(folder);
    const c10::ScalarType dtype = dtype_of(folder, *source, described);
    return std::make_unique<ForeignWeights>(folder, std::move(source), config_.model,
                                            described.model.has_adjacent_pairs, dtype);
  }

  void open(bool evaluates) override {
    tokenizer_ = dataset::load_tokenizer(config_.data.path);
    take_vocabulary();
    training_ = open_tokens(config_.data.path);
    if (evaluates) validation_ = open_tokens(dataset::validation_prefix(config_.data.path));
  }

  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override { return validation_.get(); }
  std::string data_name() const override { return config_.data.path; }
  train::DataIdentity identify(const dataset::Source& source) const override {
    return tasks::identify(dynamic_cast<const dataset::TokenSource&>(source).file(), *tokenizer_);
  }
  double sample_bytes() const override {
    // int64 tokens and targets, and the document of each token.
    const double bytes_per_token = config_.data.separate_documents ? 24 : 16;
    return bytes_per_token * static_cast<double>(config_.model.sequence_length);
  }
  void write_files(const std::filesystem::path& folder) const override {
    dataset::save_tokenizer(*tokenizer_, (folder / "tokenizer").string());
  }

  std::vector<std::string> axes() const override {
    return {"tensor", "context", "expert", "pipeline"};
  }

  void check_layout(const train::RunConfig& config) const override {
    const int64_t experts = config_.model.sparse.experts;
    TRIREME_CHECK(config.parallel.expert == 1 || experts > 0, "parallel.expert is ",
                  config.parallel.expert,
                  " and model.experts 0, so that there are none to share out; set parallel.expert "
                  "to 1");
    TRIREME_CHECK(config.parallel.expert_chunk == 0 || experts > 0, "parallel.expert_chunk is ",
                  config.parallel.expert_chunk,
                  " and model.experts 0, so that no token goes to experts; set it to 0");
    TRIREME_CHECK(config.parallel.expert == 1 || config.parallel.expert <= experts,
                  "parallel.expert is ", config.parallel.expert, " and model.experts ", experts,
                  ", so that a rank would have none; set parallel.expert to at most ", experts);
    const int64_t replicas = config.parallel.expert_replicas;
    TRIREME_CHECK(replicas == 0 || config.parallel.expert > 1, "parallel.expert_replicas is ",
                  replicas,
                  " and parallel.expert 1, so that every rank has all experts; set "
                  "parallel.expert_replicas to 0");
    TRIREME_CHECK(replicas <= experts, "parallel.expert_replicas is ", replicas,
                  " and model.experts ", experts, "; set parallel.expert_replicas to at most ",
                  experts);
    model::check_axes(config_.model,
                      {.tensor = config.parallel.tensor,
                       .context = config.parallel.context,
                       .context_form = config.parallel.context_form},
                      "model.sequence_length");
  }

  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    return model::make_plan(config_.model, sizes).parameters();
  }
  int64_t num_parameters() const override { return model::num_parameters(config_.model); }
  std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const override {
    return tasks::layer_costs(config, config_);
  }
  std::optional<plan::Workload> workload(const train::RunConfig& config) const override {
    return workload_of(config, config_);
  }

  // Tokens go to every stage, for their number, positions and documents. A tied head's weight comes
  // from the embedding's stage, and its gradient goes back there.
  std::vector<train::StageEdges> edges(int num_stages) const override {
    const int last = num_stages - 1;
    const bool sends_head = config_.model.has_tied_head() && last > 0;
    std::vector<train::StageEdges> result;
    for (int stage = 0; stage <= last; ++stage) {
      train::StageEdges edges{.inputs = {"tokens"}};
      if (config_.data.separate_documents) edges.inputs.push_back("documents");
      if (stage > 0) edges.inputs.push_back(train::hidden_edge(stage));
      if (stage == last) edges.inputs.push_back("targets");
      if (stage == last && sends_head) edges.inputs.push_back("head");
      edges.outputs.push_back(stage == last ? "loss" : train::hidden_edge(stage + 1));
      if (stage == 0 && sends_head) edges.outputs.push_back("head");
      result.push_back(std::move(edges));
    }
    return result;
  }

  std::unique_ptr<train::StageModel> make_stage(const train::StageRequest& request) const override {
    const train::RunConfig& config = request.config;
    auto model = model::make_model(config_.model, config.train.seed, config.dtype(), request.axes,
                                   request.part);
    model->set_recompute(
        model::recompute_plan(config.train.recompute, config.train.recompute_modules));
    return std::make_unique<LanguageStage>(std::move(model), request);
  }

  std::string model_name() const override {
    const model::ExpertConfig& sparse = config_.model.sparse;
    const std::string experts = sparse.experts == 0 ? ""
                                                    : concat(", ", sparse.experts, " experts, ",
                                                             sparse.experts_per_token, " a token");
    return concat(config_.model.family, ", ", config_.model.layers, " layers, width ",
                  config_.model.width, experts, ", vocabulary ", config_.model.vocab_size);
  }
  std::string samples_name() const override {
    return concat("sequences of ", config_.model.sequence_length, " tokens");
  }
  train::Throughput throughput() const override {
    const int64_t T = config_.model.sequence_length;
    return {.unit = "tokens",
            .per_sample = T,
            .flops = static_cast<double>(T) * model::flops_per_token(config_.model)};
  }
  train::MemoryKeys memory_keys() const override {
    const model::ModelConfig& model = config_.model;
    return {.states = {train::with_value("model.layers", model.layers),
                       train::with_value("model.width", model.width),
                       train::with_value("model.ffn_width", model.ffn_width),
                       train::with_value("model.vocab_size", model.vocab_size)},
            .activations = {train::with_value("model.sequence_length", model.sequence_length)}};
  }

  int64_t num_counts() const override {
    return model::num_sparse_blocks(config_.model) *
           model::num_routing_counts(config_.model.sparse.experts);
  }
  train::CallbackTable callbacks() const override {
    static constexpr train::CallbackKind kCallbacks[] = {{ExpertReport::kName, make_expert_report}};
    return kCallbacks;
  }

  LanguageConfig& config() { return config_; }
  const LanguageConfig& config() const { return config_; }
  const dataset::Tokenizer* tokenizer() const { return tokenizer_.get(); }

 private:
  void take_vocabulary() {
    int64_t& vocab_size = config_.model.vocab_size;
    const int64_t needed = tokenizer_->vocab_size();
    if (vocab_size == 0) vocab_size = needed;
    TRIREME_CHECK(vocab_size >= needed, "model.vocab_size is ", vocab_size, "; the tokenizer of ",
                  config_.data.path, " has ", needed, " tokens: set it to 0 or to at least that");
  }

  std::shared_ptr<const dataset::TokenSource> open_tokens(const std::string& prefix) const {
    return std::make_shared<const dataset::TokenSource>(
        prefix, dataset::TokenOptions{.sequence_length = config_.model.sequence_length,
                                      .vocab_size = config_.model.vocab_size,
                                      .documents = config_.data.separate_documents});
  }

  LanguageConfig config_;
  std::shared_ptr<const dataset::Tokenizer> tokenizer_;
  std::shared_ptr<const dataset::TokenSource> training_;
  std::shared_ptr<const dataset::TokenSource> validation_;  // null without evaluation
};

}  // namespace

std::unique_ptr<train::Task> make_language_task() { return std::make_unique<LanguageTask>(); }

LanguageConfig& language_of(train::RunConfig& config) {
  return train::task_of<LanguageTask>(config).config();
}
const LanguageConfig& language_of(const train::RunConfig& config) {
  return train::task_of<const LanguageTask>(config).config();
}
const dataset::Tokenizer* tokenizer_of(const train::RunConfig& config) {
  return train::task_of<const LanguageTask>(config).tokenizer();
}

}  // namespace trireme::tasks
