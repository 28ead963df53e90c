#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/model/bert/bert.h"
#include "trireme/model/family/branch_plan.h"
#include "trireme/model/family/hugging_face_mapping.h"

namespace trireme::model {
namespace {

// Every head has its own keys and values.
HuggingFaceKey bert_heads_key() {
  HuggingFaceKey key = mapped("num_attention_heads", &ModelConfig::heads);
  key.take = [](const JsonView& found, HuggingFaceModel& model) {
    model.config.heads = model.config.kv_heads = read_as(found, &ModelConfig::heads);
  };
  return key;
}

std::vector<HuggingFaceKey> bert_keys() {
  std::vector<HuggingFaceKey> keys = {
      mapped("vocab_size", &ModelConfig::vocab_size),
      mapped("hidden_size", &ModelConfig::width),
      mapped("num_hidden_layers", &ModelConfig::layers),
      bert_heads_key(),
      mapped("intermediate_size", &ModelConfig::ffn_width),
      fixed("hidden_act", std::string("gelu"), always(std::string("gelu"))),
      mapped("hidden_dropout_prob", &ModelConfig::dropout, always(0.1)),
      written("attention_probs_dropout_prob", 0.0),  // see docs/reference/models.md, dropout
      mapped("max_position_embeddings", &ModelConfig::sequence_length, always(int64_t{512})),
      mapped("type_vocab_size", &ModelConfig::token_types, always(int64_t{2})),
      mapped("layer_norm_eps", &ModelConfig::norm_epsilon, always(1e-12)),
      fixed("tie_word_embeddings", true, always(true)),
      expected("is_decoder", false),
      expected("add_cross_attention", false),
      expected("position_embedding_type", std::string("absolute"))};
  // The heads of other tasks, in files of several versions.
  for (const char* name :
       {"classifier_dropout", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
        "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"}) {
    keys.push_back(ignored(name));
  }
  return keys;
}

// The number of classes: of names, or as a number where there are none.
HuggingFaceKey bert_classes_key() {
  return {.name = "id2label",
          .value = [](const ModelConfig& config) -> HuggingFaceValue { return config.classes; },
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                if (found.value().is_object()) {
                  const auto count = static_cast<int64_t>(found.value().size());
                  if (count < 2 || count > kMaxClasses) found.fail("at least two classes");
                  model.config.classes = count;
                } else {
                  model.config.classes = read_as(found, &ModelConfig::classes);
                }
              },
          .missing = always(int64_t{2}),
          .is_written = false,
          .is_compared = false};
}

std::vector<HuggingFaceKey> bert_classifier_keys() {
  std::vector<HuggingFaceKey> keys = bert_keys();
  std::erase_if(keys, [](const HuggingFaceKey& key) { return key.name == "classifier_dropout"; });
  keys.push_back(bert_classes_key());
  HuggingFaceKey problem = expected("problem_type", std::string("single_label_classification"));
  problem.missing = problem.value;
  keys.push_back(std::move(problem));
  const auto dropout = [](const ModelConfig& config) -> HuggingFaceValue { return config.dropout; };
  keys.push_back(
      {.name = "classifier_dropout", .value = dropout, .missing = dropout, .is_compared = false});
  return keys;
}

constexpr std::pair<std::string_view, std::string_view> kCopies[] = {
    {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
constexpr std::string_view kOtherTasks[] = {"bert.pooler.", "cls.seq_relationship."};

const HuggingFaceKind kBertKind{
    .name = "BERT",
    .type = "bert",
    .architecture = "BertForMaskedLM",
    .keys = bert_keys,
    .begin = [](HuggingFaceModel& model) { model.config.family = "bert"; },
    .base_prefix = "bert.",
    .head = "cls.predictions.decoder.weight",
    .copies = kCopies,
    .other_tasks = kOtherTasks};

constexpr std::string_view kTasksOfPretraining[] = {"cls."};

const HuggingFaceKind kBertClassifierKind{.name = "BERT",
                                          .type = "bert",
                                          .architecture = "BertForSequenceClassification",
                                          .keys = bert_classifier_keys,
                                          .begin =
                                              [](HuggingFaceModel& model) {
                                                model.config.family = "bert";
                                                model.config.classes = 2;
                                              },
                                          .base_prefix = "bert.",
                                          .head = "",
                                          .other_tasks = kTasksOfPretraining};

class BertFamily : public Family {
 public:
  void check(const ModelConfig& config) const override { check_plain_attention(config); }

  bool has_tied_head(const ModelConfig& config) const override { return config.classes == 0; }
  bool has_classes() const override { return true; }
  std::string_view trained_beside_adapters(const ModelConfig& config) const override {
    return config.classes > 0 ? "bert.pooler.*, classifier.*" : "";
  }
  bool is_causal() const override { return false; }

  ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const override {
    ModelPlan plan(config, sizes);
    const TensorCuts& cuts = plan.cuts();
    const int64_t D = config.width, F = config.ffn_width, H = config.head_width();
    const std::string embeddings = "bert.embeddings.";
    plan.add_split(embeddings + "word_embeddings.weight", {config.vocab_size, D}, 0, cuts.vocab);
    plan.add_whole(embeddings + "position_embeddings.weight", {config.sequence_length, D});
    plan.add_whole(embeddings + "token_type_embeddings.weight", {config.token_types, D});
    add_layer_norm(plan, embeddings + "LayerNorm");
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = concat("bert.encoder.layer.", layer, ".");
      for (const char* name : {"query", "key", "value"}) {
        const auto& heads = name[0] == 'q' ? cuts.heads : cuts.kv_heads;
        add_columns(plan, concat(block, "attention.self.", name), {D, D}, heads, H);
      }
      add_rows(plan, block + "attention.output.dense", {D, D}, cuts.heads, H);
      add_layer_norm(plan, block + "attention.output.LayerNorm");
      add_columns(plan, block + "intermediate.dense", {F, D}, cuts.ffn);
      add_rows(plan, block + "output.dense", {D, F}, cuts.ffn);
      add_layer_norm(plan, block + "output.LayerNorm");
    }
    if (config.classes > 0) {
      plan.add_whole("bert.pooler.dense.weight", {D, D});
      plan.add_whole("bert.pooler.dense.bias", {D});
      plan.add_whole("classifier.weight", {config.classes, D});
      plan.add_whole("classifier.bias", {config.classes});
      return plan;
    }
    const std::string head = "cls.predictions.";
    plan.add_split(head + "bias", {config.vocab_size}, 0, cuts.vocab);
    plan.add_whole(head + "transform.dense.weight", {D, D});
    plan.add_whole(head + "transform.dense.bias", {D});
    add_layer_norm(plan, head + "transform.LayerNorm");
    return plan;
  }

  // As the paper's code: no matrix is scaled by the number of layers.
  Initialiser initialiser_of(const ModelConfig& config, std::string_view name) const override {
    if (name.ends_with(".LayerNorm.weight")) return {.value = 1};
    if (name.ends_with("bias")) return {};
    return {.std = 0.02};
  }

  std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                        const ModelPart& part,
                                        at::ScalarType dtype) const override {
    return std::make_shared<Bert>(config, axes, part, dtype);
  }

  double matmul_parameters(const ModelConfig& config, bool /*sparse*/) const override {
    const auto D = static_cast<double>(config.width), F = static_cast<double>(config.ffn_width);
    return 4 * D * D + 2 * D * F;
  }

  double head_matmul_parameters(const ModelConfig& config) const override {
    const auto D = static_cast<double>(config.width);
    if (config.classes == 0) return Family::head_matmul_parameters(config) + D * D;
    // One token of a text meets them.
    const double all = D * D + static_cast<double>(config.classes) * D;
    return all / static_cast<double>(config.sequence_length);
  }

  // A branch reads the residual stream itself, so its recomputation begins with one tensor. A block
  // keeps the feed-forward's tensors before and after the activation.
  KeptByBlock kept_by_block(const ModelConfig& /*config*/) const override {
    return {.branch_inputs = 1, .feed_forward = 2};
  }

  std::span<const HuggingFaceKind* const> hugging_face_kinds() const override {
    static constexpr const HuggingFaceKind* kKinds[] = {&kBertKind, &kBertClassifierKind};
    return kKinds;
  }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    HuggingFaceForm form{.kind = plan.config().classes > 0 ? &kBertClassifierKind : &kBertKind};
    for (const ParameterPlan& parameter : plan.parameters()) {
      form.tensors.push_back(own_tensor(parameter));
    }
    return form;
  }
};

}  // namespace

const Family& bert_family() {
  static const BertFamily family;
  return family;
}

}  // namespace trireme::model
