#include "trireme/tasks/language/language_stage.h"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/init.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/preference_loss.h"
#include "trireme/train/task/task_metrics.h"

namespace trireme::tasks {
namespace {

class LanguageStage : public train::StageModel {
 public:
  LanguageStage(std::unique_ptr<model::LanguageModel> model, const LanguageConfig& config,
                const train::StageRequest& request)
      : model_(std::move(model)),
        config_(config),
        seed_(request.config.train.seed),
        part_(request.part),
        stage_(request.stage),
        carried_(model::family_of(config.model).carried(config.model)),
        hidden_(train::hidden_edge(request.stage)),
        context_(request.axes.context),
        device_(request.config.device),
        waiting_(request.axes.ring.waiting) {}

  torch::nn::Module& module() override { return model_->module(); }
  std::vector<parallel::Unit> units() const override { return model_->units(); }
  void run_units_with(parallel::RunUnit run) override { model_->run_units_with(std::move(run)); }

  void initialise(std::span<const parallel::Shard> shards) override {
    model::initialise(shards, seed_, [this](std::string_view name) {
      return model::initialiser_of(config_.model, name);
    });
  }

  std::vector<at::Tensor> forward(const train::StageInput& in) override {
    if (config_.texts) return read_texts(in);
    const model::PartOutput out = model_->forward_part({.tokens_BT = sequences(in["tokens"]),
                                                        .hidden = in[hidden_],
                                                        .documents_BT = sequences(in["documents"]),
                                                        .training = place(in.training),
                                                        .decoder_tokens_BU = in["decoder_tokens"],
                                                        .carried = carried(in),
                                                        .images = in["images"]});
    if (part_.has_head && config_.is_answering) return {class_logits(out.hidden)};
    if (part_.has_head && config_.objective.is_dpo()) return compare(out.hidden, in);
    if (part_.has_head && config_.objective.is_distill()) return imitate(out.hidden, in);
    if (part_.has_head && config_.objective.is_classify()) return classify(out.hidden, in);
    if (part_.has_head && config_.recording.top_k > 0) return record(out.hidden, in);
    if (part_.has_head && config_.is_teacher) {
      tied_head_ = in["head"];
      return {out.hidden};
    }
    if (part_.has_head) return {model_->head_loss(out.hidden, in["targets"], in["head"]).sum};
    return for_later_stages(out);
  }

  void use_teacher(train::StageModel& stage) override {
    teacher_ = dynamic_cast<LanguageStage*>(&stage);
  }
  std::vector<at::Tensor> head() override {
    const at::NoGradGuard guard;
    const parallel::LinearHead head = model_->whole_head();
    if (!head.bias_v.defined()) return {head.w_vD};
    return {head.w_vD, head.bias_v};
  }
  void use_teacher_head(std::vector<at::Tensor> head) override {
    TRIREME_CHECK(head.front().size(0) == config_.model.vocab_size, "the teacher's head has ",
                  head.front().size(0), " rows and the vocabulary ", config_.model.vocab_size);
    for (at::Tensor& tensor : head) tensor = tensor.to(device_);
    remote_head_ = std::move(head);
  }

  void take_counts(std::span<double> counts) override { model_->take_routing_counts(counts); }
  void use_counts(std::span<const double> counts) override { model_->use_routing_counts(counts); }

  // Context ranks have the tokens of one pair or text in parts; the first of them counts it.
  int64_t num_terms(const dataset::Batch& batch) const override {
    if (config_.objective.is_dpo() || config_.objective.is_classify())
      return is_first_of_context() ? batch.size() : 0;
    return model_->num_targets(batch["targets"]);
  }

 private:
  // The tensors of earlier parts.
  model::NamedTensors carried(const train::StageInput& in) const {
    model::NamedTensors tensors;
    for (const model::CarriedTensor& tensor : carried_) {
      if (tensor.is_received_by(part_))
        tensors.emplace_back(tensor.name, in[carried_edge(tensor, stage_)]);
    }
    return tensors;
  }
  std::vector<at::Tensor> for_later_stages(const model::PartOutput& out) const {
    std::vector<at::Tensor> outputs;
    if (out.hidden.defined()) outputs.push_back(out.hidden);
    for (const model::CarriedTensor& tensor : carried_) {
      if (!tensor.is_sent_by(part_)) continue;
      outputs.push_back(model::find_tensor(out.carried, tensor.name));
    }
    return outputs;
  }

  // What comes behind the texts of a group, or scores of the targets. The weights stay the same, so
  // a tied head travels once, and then a tensor without elements.
  std::vector<at::Tensor> read_texts(const train::StageInput& in) {
    const auto number = static_cast<size_t>(in["group"].item<int64_t>());
    const model::TokenGroup& group = config_.texts->now.at(number);
    const bool decodes = config_.model.has_decoder();
    model::PartOutput out =
        model_->forward_part({.tokens_BT = decodes ? at::Tensor() : in["tokens"],
                              .hidden = in[hidden_],
                              .decoder_tokens_BU = decodes ? in["tokens"] : at::Tensor(),
                              .carried = carried(in),
                              .cached = group.cached,
                              .sends_head = !has_sent_head_});
    if (!part_.has_head) {
      if (has_sent_head_)
        out.carried.emplace_back(model::kHeadWeight, at::empty({0}, out.hidden.options()));
      has_sent_head_ = true;
      return for_later_stages(out);
    }
    if (in["head"].defined() && in["head"].numel() > 0) tied_head_ = in["head"];
    if (group.targets_n.defined())
      return {model_->token_scores(out.hidden, group.targets_n, tied_head_)};
    return {model_->next_logits(out.hidden, *group.cached, tied_head_)};
  }

  // The sequences of all samples: [P, 2, T] -> [2P, T] for pairs.
  at::Tensor sequences(const at::Tensor& tokens) const {
    return config_.objective.is_dpo() && tokens.defined() ? tokens.flatten(0, 1) : tokens;
  }
  // The place of a sample's first sequence among those of all samples.
  std::optional<model::TrainingPlace> place(std::optional<model::TrainingPlace> training) const {
    if (training) {
      training->first_sample *= config_.sequences_per_sample();
      training->num_samples *= config_.sequences_per_sample();
    }
    return training;
  }
  bool is_first_of_context() const { return context_ == nullptr || context_->rank() == 0; }

  // Loss, metrics and scores of pairs.
  // Comm: 16 bytes per pair all-reduced over the context axis
  std::vector<at::Tensor> compare(const at::Tensor& hidden, const train::StageInput& in) {
    const at::Tensor reference_P2 = in["reference"];
    const int64_t P = reference_P2.size(0);
    at::Tensor losses_P2;
    PreferenceLoss found;
    const model::LossFunction of_tokens = [&](const at::Tensor& losses_S) {
      const int64_t t = P == 0 ? 0 : losses_S.numel() / (2 * P);
      losses_P2 = losses_S.view({P, 2, t}).sum(2);
      sum_over_context(losses_P2);
      found = preference_loss(
          losses_P2, reference_P2,
          {.beta = config_.objective.beta, .label_smoothing = config_.objective.label_smoothing});
      if (!is_first_of_context()) {
        found.sum.zero_();
        found.metrics.zero_();
      }
      return parallel::LossOfTokens{
          .value = found.sum,
          .slopes_S = found.slopes_P2.unsqueeze(2).expand({P, 2, t}).reshape({-1})};
    };
    const model::Loss loss =
        model_->head_loss(hidden, sequences(in["targets"]), in["head"], of_tokens);
    return {loss.sum, found.metrics, losses_P2.neg()};
  }
  void sum_over_context(const at::Tensor& losses_P2) const {
    if (context_ == nullptr) return;
    const auto start = std::chrono::steady_clock::now();
    context_->all_reduce(losses_P2)->wait();
    if (waiting_) *waiting_ += std::chrono::steady_clock::now() - start;
  }

  // Loss and metrics of texts, on the first rank of the context; hidden is empty on the others.
  std::vector<at::Tensor> classify(const at::Tensor& hidden, const train::StageInput& in) {
    const model::ClassLoss loss = model_->class_loss(hidden, in["targets"]);
    return {loss.of_texts.sum,
            train::accuracy_state(loss.logits_BC, in["targets"].narrow(0, 0, hidden.size(0)))};
  }

  // Shapes: -> [B, classes]
  at::Tensor class_logits(const at::Tensor& hidden) {
    const at::Tensor no_labels_B = at::zeros({hidden.size(0)}, at::kLong).to(hidden.device());
    return model_->class_loss(hidden, no_labels_B).logits_BC;
  }

  // What a teacher says of each token: [B, T, 2k + 1] fp64, the tokens, their log-probabilities,
  // and that of the rest; zeros for the tokens of other ranks of the context axis.
  std::vector<at::Tensor> record(const at::Tensor& hidden, const train::StageInput& in) {
    const parallel::TopOutputs top = model_->top_outputs(
        hidden, in["tokens"], in["head"], config_.recording.top_k, config_.recording.temperature);
    return {
        at::cat({top.tokens_Sk.to(at::kDouble), top.log_p_Sk, top.log_rest_S.unsqueeze(-1)}, -1)};
  }

  // Loss and metrics of a student beside its teacher, or beside what that has said.
  std::vector<at::Tensor> imitate(const at::Tensor& hidden, const train::StageInput& in) {
    const parallel::DistillationOptions options{.temperature = config_.objective.temperature,
                                                .weight = config_.objective.weight};
    const parallel::DistillationLoss loss =
        config_.outputs
            ? model_->distillation_loss(
                  hidden, in["targets"], in["head"],
                  parallel::TopOutputs{in[kTeacherTokens], in[kTeacherLogP], in[kTeacherLogRest]},
                  options)
            : loss_beside_teacher(hidden, in, options);
    const at::Tensor count = at::full_like(loss.divergence, static_cast<double>(loss.count));
    return {loss.sum, at::stack({loss.cross_entropy, count, loss.divergence, count})};
  }

  // The teacher's head is whole while it runs. It records nothing, and the student what it would
  // without one.
  parallel::DistillationLoss loss_beside_teacher(const at::Tensor& hidden,
                                                 const train::StageInput& in,
                                                 const parallel::DistillationOptions& options) {
    const bool is_remote = !remote_head_.empty();
    TRIREME_ASSERT((teacher_ != nullptr || is_remote) && in["teacher"].defined(),
                   "a student without a teacher");
    const bool records = at::GradMode::is_enabled();
    const at::NoGradGuard guard;
    parallel::DistillationLoss loss;
    const auto beside = [&](const parallel::LinearHead& of_teacher) {
      const at::AutoGradMode mode(records);
      loss = model_->distillation_loss(hidden, in["targets"], in["head"], of_teacher, options);
      return loss.sum;
    };
    if (is_remote) {
      beside(model_->own_part({.x = in["teacher"],
                               .w_vD = remote_head_[0],
                               .bias_v = remote_head_.size() > 1 ? remote_head_[1] : at::Tensor(),
                               .softcap = config_.teacher->model.logits_softcap}));
    } else {
      teacher_->model_->run_head(in["teacher"], teacher_->tied_head_, beside);
    }
    return loss;
  }

  std::unique_ptr<model::LanguageModel> model_;
  const LanguageConfig& config_;
  uint64_t seed_;
  model::ModelPart part_;
  int stage_;
  std::vector<model::CarriedTensor> carried_;
  std::string hidden_;
  comm::Communicator* context_;
  at::Device device_;
  std::shared_ptr<std::chrono::nanoseconds> waiting_;
  LanguageStage* teacher_ = nullptr;     // the last stage of the teacher
  std::vector<at::Tensor> remote_head_;  // of a teacher on other ranks: weight, bias; empty: none
  at::Tensor tied_head_;                 // of a frozen model whose embedding is in another stage
  bool has_sent_head_ = false;           // to the last stage of a model that reads texts
};

}  // namespace

std::string carried_edge(const model::CarriedTensor& tensor, int stage) {
  return tensor.is_relayed ? concat(tensor.name, " ", stage) : tensor.name;
}

train::StageEdges edges_of_stage(const LanguageConfig& config, int stage,
                                 std::span<const model::ModelPart> stages) {
  const bool is_last = stage + 1 == std::ssize(stages);
  const model::ModelPart& part = stages[static_cast<size_t>(stage)];
  const model::Family& family = model::family_of(config.model);
  train::StageEdges edges{.inputs = {"tokens"}};
  if (family.has_decoder() && !config.texts) edges.inputs.push_back("decoder_tokens");
  if (config.has_documents()) edges.inputs.push_back("documents");
  if (part.embeds && config.model.vision.is_on() && !config.texts) edges.inputs.push_back("images");
  if (stage > 0 && family.continues_at(config.model, part.first_layer))
    edges.inputs.push_back(train::hidden_edge(stage));
  if (config.texts) {
    edges.inputs.push_back("group");
  } else if (is_last && !config.is_teacher && !config.is_answering) {
    edges.inputs.push_back("targets");
  }
  if (is_last && config.outputs) {
    edges.inputs.insert(edges.inputs.end(), {kTeacherTokens, kTeacherLogP, kTeacherLogRest});
  } else if (is_last && config.objective.is_distill()) {
    edges.inputs.push_back("teacher");
  }
  if (is_last && config.objective.is_dpo()) edges.inputs.push_back("reference");
  if (is_last) {
    const bool gives_scores = config.texts || config.is_answering || config.recording.top_k > 0;
    edges.outputs.push_back(gives_scores ? "scores" : config.is_teacher ? "teacher" : "loss");
  } else if (family.continues_at(config.model, part.end())) {
    edges.outputs.push_back(train::hidden_edge(stage + 1));
  }
  for (const model::CarriedTensor& tensor : family.carried(config.model)) {
    if (tensor.is_received_by(part)) edges.inputs.push_back(carried_edge(tensor, stage));
    if (tensor.is_sent_by(part)) edges.outputs.push_back(carried_edge(tensor, stage + 1));
  }
  if (is_last && config.objective.is_dpo())
    edges.outputs.insert(edges.outputs.end(), {"metrics", "scores"});
  const bool has_metrics = config.objective.is_distill() || config.objective.is_classify();
  if (is_last && has_metrics && !config.is_answering) edges.outputs.push_back("metrics");
  return edges;
}

std::vector<train::Metric> distillation_metrics() {
  return {{.name = "cross_entropy"}, {.name = "divergence"}};
}

std::vector<train::Metric> classification_metrics() { return {{.name = "accuracy"}}; }

std::unique_ptr<train::StageModel> make_language_stage(const LanguageConfig& config,
                                                       const train::StageRequest& request) {
  auto model = model::make_model(config.model, request.config.train.seed, request.config.dtype(),
                                 request.axes, request.part);
  model->set_recompute(request.config.recompute_plan());
  return std::make_unique<LanguageStage>(std::move(model), config, request);
}

}  // namespace trireme::tasks
