// Length: the model and the data of one task, which are read together.
#include "trireme/tasks/language/language.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/dataset/labelled/class_names.h"
#include "trireme/dataset/samples/packed_source.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_stream.h"
#include "trireme/model/experts/router.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/costs/part_training.h"
#include "trireme/tasks/language/expert_report.h"
#include "trireme/tasks/language/foreign/class_labels.h"
#include "trireme/tasks/language/foreign/foreign_model.h"
#include "trireme/tasks/language/foreign/foreign_weights.h"
#include "trireme/tasks/language/foreign/frozen_source.h"
#include "trireme/tasks/language/foreign/imported_files.h"
#include "trireme/tasks/language/foreign/peft_adapters.h"
#include "trireme/tasks/language/language_stage.h"
#include "trireme/tasks/language/preference_loss.h"
#include "trireme/tasks/language/sources/data_files.h"
#include "trireme/tasks/language/text_predictor.h"
#include "trireme/tasks/language/token_data.h"
#include "trireme/tasks/language/token_identity.h"
#include "trireme/train/run/reference_scores.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {

// The task connects the families of trireme/model with what the loop asks of every task. The size
// of the vocabulary may be left to the tokenizer, which is read in open(); before that check()
// takes 1 for it. A folder of Hugging Face gives its keys before those of the config are read, so
// the config can still change them. Its weights come later, and only if model and tokenizer are
// then still the folder's.

namespace {

// What is trained, as the loop and the planner see it.
class LanguageTaskModel : public train::TaskModel {
 public:
  // config: of the task, which outlives it
  explicit LanguageTaskModel(const LanguageConfig& config) : config_(config) {}

  train::ModelTraits traits() const override {
    const model::ModelConfig& model = config_.model;
    const model::ExpertConfig& sparse = model.sparse;
    const std::string experts = sparse.experts == 0 ? ""
                                                    : concat(", ", sparse.experts, " experts, ",
                                                             sparse.experts_per_token, " a token");
    return {
        .name = concat(model.family, ", ", layers_name(model), " layers, width ", model.width,
                       experts, ", vocabulary ", model.vocab_size,
                       model.classes == 0 ? "" : concat(", ", model.classes, " classes")),
        .axes = {"tensor", "context", "expert", "pipeline"},
        .num_parameters = model::num_parameters(model),
        .flops_per_sample = sample_flops(config_, model::flops_per_sequence(model)),
        .num_counts = model::num_sparse_blocks(model) * model::num_routing_counts(sparse.experts),
        .memory_keys = {
            .states = {train::with_value("model.layers", model.layers),
                       train::with_value("model.width", model.width),
                       train::with_value("model.ffn_width", model.ffn_width),
                       train::with_value("model.vocab_size", model.vocab_size)},
            .activations = {train::with_value("model.sequence_length", model.sequence_length)}}};
  }
  double flops_per_sample(const train::RunConfig& config) const override {
    return sample_flops(config_, trained_parts_of(config, config_.model).flops_per_sequence());
  }
  void check(const train::RunConfig& config) const override {
    check_place(config_.data);
    const model::AdapterConfig& lora = config_.model.lora;
    TRIREME_CHECK(
        lora.init.empty() || !config.init.folder.empty(), "lora.init is \"", shown(lora.init),
        "\" and init.folder empty; set it to the Hugging Face folder of the model that the "
        "adapters are added to");
    visit_keys<model::AdapterConfig>([&](const auto& key) {
      TRIREME_CHECK(lora.is_on() || lora.*key.member == model::AdapterConfig{}.*key.member, "lora.",
                    key.name,
                    " is set and lora.rank 0, so that there are no adapters; set the "
                    "rank, or leave it out");
    });
    TRIREME_CHECK(lora.init.empty() || !lora.dora || !has_scales(lora.base), "lora.init is \"",
                  shown(lora.init), "\", lora.dora true and lora.base \"",
                  name_of(kWeightFormats, lora.base),
                  "\", which changes the lengths of the rows that peft's magnitudes are of; set "
                  "lora.base to \"run\" or \"bf16\"");
    TRIREME_CHECK(!lora.is_on() || config_.model.sparse.router_bias_rate == 0,
                  "model.router_bias_rate is ", config_.model.sparse.router_bias_rate,
                  ", which changes routers, and lora.rank ", lora.rank,
                  ", which leaves the model as it is; set model.router_bias_rate to 0");
    model::ModelConfig model = config_.model;
    if (model.vocab_size == 0) model.vocab_size = 1;  // the tokenizer sets it in open()
    model.classes = least_classes();
    model::validate(model);
    if (lora.is_on()) model::make_plan(model);  // its patterns must match
    check_sources(config_, config);
    check_padding(config_);
    if (!config_.texts) check_masking(config_);  // texts are no samples
    if (!config_.texts) check_spans(config_);
    check_objective(config_, config);
    check_images(config_);
  }
  void check_layout(const train::RunConfig& config) const override {
    const int64_t experts = config_.model.sparse.experts;
    TRIREME_CHECK(
        config.parallel.expert == 1 || experts > 0, "parallel.expert is ", config.parallel.expert,
        " and model.experts 0, so there are no experts to distribute; set parallel.expert to 1");
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
    const model::VisionConfig& vision = config_.model.vision;
    TRIREME_CHECK(
        !vision.is_on() || config.parallel.tensor <= std::min(vision.heads, vision.ffn_width),
        "parallel.tensor is ", config.parallel.tensor, " and vision.heads ", vision.heads,
        ", vision.ffn_width ", vision.ffn_width,
        ", so that a rank would have no part of the vision tower; lower parallel.tensor");
    if (config_.model.lora.is_on()) {  // a rank must have whole blocks of lora.base
      model::ModelConfig model = config_.model;
      model.vocab_size = std::max(model.vocab_size, config.parallel.tensor);
      model.classes = least_classes();
      model::make_plan(model, {.tensor = static_cast<int>(config.parallel.tensor)});
    }
    model::check_axes(config_.model,
                      {.tensor = config.parallel.tensor,
                       .context = config.parallel.context,
                       .context_form = config.parallel.context_form},
                      "model.sequence_length");
  }

  std::vector<model::ParameterPlan> parameters(model::AxisSizes sizes) const override {
    return model::make_plan(config_.model, sizes).parameters();
  }
  std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config) const override {
    return tasks::layer_costs(config, config_);
  }
  std::optional<plan::Workload> workload(const train::RunConfig& config) const override {
    // The cost model has blocks of one kind.
    if (config_.model.has_decoder() || config_.model.vision.is_on()) return std::nullopt;
    return workload_of(config, config_);
  }

  std::vector<train::StageEdges> edges(int num_stages) const override {
    std::vector<model::ModelPart> parts;
    for (int stage = 0; stage < num_stages; ++stage) {
      const mesh::Range blocks = mesh::split_range(config_.model.num_blocks(), num_stages, stage);
      parts.push_back({.first_layer = blocks.offset, .num_layers = blocks.size});
    }
    return edges_of(parts);
  }
  std::vector<train::StageEdges> edges_of(std::span<const model::ModelPart> stages) const override {
    std::vector<train::StageEdges> result;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      result.push_back(edges_of_stage(config_, static_cast<int>(stage), stages));
    }
    return result;
  }

  std::unique_ptr<train::StageModel> make_stage(const train::StageRequest& request) const override {
    return make_language_stage(config_, request);
  }

 private:
  // As the data sets them in open(), or some number of them before.
  int64_t least_classes() const {
    const bool has_classes =
        config_.objective.is_classify() && model::family_of(config_.model).has_classes();
    return config_.model.classes == 0 && has_classes ? 2 : config_.model.classes;
  }

  static std::string layers_name(const model::ModelConfig& model) {
    const std::string own = std::to_string(model.layers);
    return model.has_decoder() ? concat(own, " + ", model.decoder_layers()) : own;
  }

  const LanguageConfig& config_;
};

class LanguageTask : public train::Task, public train::PredictingTask {
 public:
  LanguageTask() = default;
  LanguageTask(const LanguageTask& other)
      : Task(other),
        PredictingTask(other),
        config_(other.config_),
        place_(other.place_),
        tokenizer_(other.tokenizer_),
        classes_(other.classes_),
        chat_template_(other.chat_template_),
        training_(other.training_),
        validation_(other.validation_) {}
  LanguageTask& operator=(const LanguageTask&) = delete;

  std::unique_ptr<train::Task> clone() const override {
    return std::make_unique<LanguageTask>(*this);
  }

  void add_keys(train::Keys& keys) override {
    keys.add("model", config_.model);
    keys.add("model", config_.model.attention);
    keys.add("model", config_.model.rope);
    keys.add("model", config_.model.sparse);
    keys.add("model", config_.model.seq2seq);
    keys.add("lora", config_.model.lora);
    keys.add("vision", config_.model.vision);
    keys.add("data", config_.data);
    keys.add("objective", config_.objective);
  }

  train::TaskTraits traits() const override {
    static constexpr train::CallbackKind kCallbacks[] = {{ExpertReport::kName, make_expert_report}};
    const int64_t T = config_.model.sequence_length;
    const bool is_dpo = config_.objective.is_dpo(), has_images = config_.model.vision.is_on();
    const int64_t tokens = config_.sequences_per_sample() * config_.tokens_per_sequence();
    // int64 tokens and targets, and the document of each token.
    const double bytes_per_token = config_.has_documents() ? 24 : 16;
    const dataset::TokenSamples* const samples = tokens_of(without_outputs(training_.get()));
    const std::string packed = samples != nullptr ? samples->description() : "";
    std::vector<std::string> files = imported_file_names();
    files.push_back(dataset::tokenizer_json_path("tokenizer").string());
    files.push_back(dataset::tokenizer_model_path("tokenizer").string());
    if (is_dpo) files.emplace_back(train::kReferenceFile);
    if (config_.objective.is_classify()) files.emplace_back(kClassesFile);
    return {
        .data_key = config_.data.sources.empty() ? "data.path" : "data.sources",
        .data_name = config_.data.name(),
        .samples_name = concat(is_dpo ? "pairs of " : "", "sequences of ", T, " tokens",
                               packed.empty() ? "" : ", ", packed,
                               config_.outputs ? ", with " + config_.outputs->description() : ""),
        .unit = "tokens",
        .units_per_sample = tokens,
        .sample_bytes = has_images
                            ? 0
                            : bytes_per_token * static_cast<double>(tokens) +
                                  (config_.outputs ? config_.outputs->bytes_per_sample() : 0),
        .metrics = metrics(),
        .validation_names = dataset::listed_names(config_.data.validation_sets.empty()
                                                      ? config_.data.sources
                                                      : config_.data.validation_sets),
        .num_scores = is_dpo ? 2 : 0,
        .teacher_key = kTeacherKey,
        .teacher_name = config_.objective.teacher,
        .file_names = std::move(files),
        .new_parameters = adapter_patterns(),
        .new_head = new_head_patterns(),
        .unread_parameters = config_.objective.is_classify() ? "cls.*" : "",
        .callbacks = kCallbacks};
  }
  const train::TaskModel& model() const override { return model_; }

  void take_keys_of(const std::filesystem::path& folder, train::RunConfig& config) override {
    if (!is_hugging_face_folder(folder)) return;
    const model::HuggingFaceModel found = open_foreign_model(folder).model;
    const model::AdapterConfig lora = config_.model.lora;
    config_.take_model(found.config);
    config_.model.lora = lora;
    if (found.dtype) config.train.precision = *found.dtype;
  }
  std::unique_ptr<checkpoint::TensorSource> open_weights(
      const std::filesystem::path& folder) const override {
    const std::string& adapters = config_.model.lora.init;
    if (classes_) require_same_classes(folder, *classes_);
    if (!is_hugging_face_folder(folder)) {
      TRIREME_CHECK(adapters.empty(), "lora.init is \"", shown(adapters), "\" and init.folder \"",
                    shown(folder.string()),
                    "\"; expected a Hugging Face folder, whose model the adapters are added to");
      return open_to_freeze(folder, config_.model);
    }
    ForeignModel foreign = open_foreign_model(folder);
    require_same_model(foreign, config_.model);
    if (tokenizer_) require_tokenizer_of(folder, config_.model.vocab_size, *tokenizer_);
    const c10::ScalarType dtype = stored_dtype(folder, *foreign.tensors);
    auto weights = std::make_unique<ForeignWeights>(
        folder, std::move(foreign.tensors), config_.model.without_adapters(),
        foreign.model.has_adjacent_pairs, dtype, new_head_patterns());
    if (adapters.empty()) return frozen(std::move(weights), config_.model);
    return frozen(
        std::make_unique<PeftAdapters>(adapters, config_.model, foreign.model.has_adjacent_pairs,
                                       std::move(weights)),
        config_.model);
  }
  std::vector<std::string> notes_on_weights(const std::filesystem::path& folder,
                                            c10::ScalarType dtype) const override {
    if (!is_hugging_face_folder(folder)) return {};
    return notes_on(open_foreign_model(folder), dtype, "--train.precision");
  }
  void take_files(const std::filesystem::path& weights,
                  const std::filesystem::path& folder) const override {
    take_imported_files(weights, folder);
  }

  std::unique_ptr<train::Task> make_teacher(train::RunConfig& config) const override {
    if (!config_.teacher) return nullptr;
    auto task = std::make_unique<LanguageTask>(*this);
    task->config_.model = config_.teacher->model;
    task->config_.model.lora.dropout = 0;
    task->config_.objective = {};
    task->config_.teacher = nullptr;
    task->config_.is_teacher = true;
    config.init = {.folder = config_.teacher->folder.string()};
    if (config_.teacher->model.sparse.experts < config.parallel.expert) config.parallel.expert = 1;
    return task;
  }
  train::DataIdentity identify_teacher() const override {
    if (config_.outputs) return config_.outputs->identity();
    return config_.teacher ? tasks::identify_teacher(*config_.teacher) : train::DataIdentity();
  }

  void open(bool evaluates) override {
    place_ = open_place(config_.data);
    const DataFiles files = training_files(config_.data);
    const DataFiles beside = evaluates ? validation_files(config_.data, *place_) : DataFiles();
    check_prefixes(files);
    if (!config_.data.validation_sets.empty()) check_prefixes(beside);
    tokenizer_ = shared_tokenizer(files, beside, *place_);
    chat_template_ = shared_chat_template(files, *place_);
    settle_tokens(config_, *tokenizer_);
    if (config_.objective.is_classify()) take_classes();
    if (config_.objective.is_distill()) open_teacher_or_outputs();
    training_ = open_training(files, *place_, config_);
    const dataset::TokenSamples* const samples = tokens_of(training_.get());
    if (samples != nullptr && samples->images() != nullptr) {
      config_.model.vision.images_per_sequence =
          static_cast<double>(samples->images()->num_documents()) /
          static_cast<double>(samples->size());
    }
    validation_.clear();
    for (NamedSamples& set : open_tokens(beside, *place_, config_)) {
      validation_.push_back({std::move(set.name), std::move(set.samples)});
    }
    if (config_.outputs) use_outputs();
  }

  void cancel_reads() const override { place_->cancel(); }

  const dataset::Source& training() const override { return *training_; }
  const dataset::Source* validation() const override {
    const bool is_one = validation_.size() == 1 && validation_.front().name.empty();
    return is_one ? validation_.front().source.get() : nullptr;
  }
  std::vector<train::ValidationSet> validation_sets() const override {
    std::vector<train::ValidationSet> sets;
    for (const Evaluated& set : validation_) {
      if (!set.name.empty()) sets.push_back({set.name, set.source.get()});
    }
    return sets;
  }
  train::DataIdentity identify(const dataset::Source& source) const override {
    train::DataIdentity identity = tasks::identify(*without_outputs(&source), *tokenizer_);
    if (classes_) identity.checksums["classes"] = checksum_of(classes_->text());
    return identity;
  }
  void write_files(const std::filesystem::path& folder) const override {
    dataset::save_tokenizer(*tokenizer_, (folder / "tokenizer").string());
    keep_chat_template(chat_template_, *place_, folder);
    if (classes_) write_file_atomically(folder / kClassesFile, classes_->text());
  }
  std::unique_ptr<train::Predictor> make_predictor(const train::PredictRequest& request) override {
    return make_text_predictor(request, config_);
  }
  std::unique_ptr<train::Task> make_answering(const train::PredictRequest& /*request*/) override {
    auto task = std::make_unique<LanguageTask>(*this);
    task->config_.is_answering = true;
    return task;
  }
  LanguageConfig& config() { return config_; }
  const LanguageConfig& config() const { return config_; }
  const dataset::Tokenizer* tokenizer() const { return tokenizer_.get(); }

 private:
  std::vector<train::Metric> metrics() const {
    if (config_.objective.is_dpo()) return preference_metrics();
    if (config_.objective.is_distill()) return distillation_metrics();
    if (config_.objective.is_classify()) return classification_metrics();
    return {};
  }

  void open_teacher_or_outputs() {
    if (is_file(config_.objective.teacher)) {
      config_.outputs = open_outputs(config_.objective.teacher);
    } else {
      config_.teacher = open_teacher(config_, *tokenizer_);
    }
  }
  void use_outputs() {
    TRIREME_CHECK(validation_sets().empty(), "objective.teacher ", shown(config_.objective.teacher),
                  " is a file of outputs, which has none of the named validation sets; set "
                  "train.evaluate_interval to 0, or objective.teacher to the teacher itself");
    config_.outputs->require_origin(
        origin_of(config_, identify(*training_),
                  validation() != nullptr ? identify(*validation()) : train::DataIdentity()));
    training_ =
        std::make_shared<const TaughtSource>(training_, config_.outputs, OutputsOf::kTraining);
    for (Evaluated& set : validation_) {
      set.source =
          std::make_shared<const TaughtSource>(set.source, config_.outputs, OutputsOf::kValidation);
    }
  }

  // What a pretrained model lacks.
  std::string new_head_patterns() const {
    if (!config_.objective.is_classify()) return "";
    return std::string(model::family_of(config_.model).trained_beside_adapters(config_.model));
  }

  void take_classes() {
    const std::string path = dataset::classes_path(config_.data.path).string();
    classes_ = read_classes(path, *place_);
    int64_t& classes = config_.model.classes;
    TRIREME_CHECK(classes == 0 || classes == classes_->size(), "model.classes is ", classes,
                  " and ", path, " has ", classes_->size(),
                  "; expected the same: set it to 0, or prepare data with the model's classes");
    classes = classes_->size();
  }

  // Of the evaluation; the name is "" beside data.path.
  struct Evaluated {
    std::string name;
    std::shared_ptr<const dataset::Source> source;
  };

  LanguageConfig config_;
  LanguageTaskModel model_{config_};
  // Of the data.
  std::shared_ptr<const FilePlace> place_{std::shared_ptr<void>(), &local_files()};
  std::shared_ptr<const dataset::Tokenizer> tokenizer_;
  std::optional<dataset::ClassNames> classes_;  // of labelled data
  std::string chat_template_;                   // of its conversations; "": none
  // With what a teacher says of them, of a file, if there is one.
  std::shared_ptr<const dataset::Source> training_;
  std::vector<Evaluated> validation_;  // empty without evaluation
};

}  // namespace

void LanguageConfig::take_model(const model::ModelConfig& other) {
  // Devlin et al. 2018, arXiv:1810.04805, section 3.1.
  constexpr double kUsualMaskedShare = 0.15;
  model = other;
  if (model.classes > 0) {
    objective.name = Objective::kClassify;
  } else if (!model.is_causal() && !objective.is_classify()) {
    data.masked_share = kUsualMaskedShare;
  }
}

std::unique_ptr<train::Task> make_language_task() { return std::make_unique<LanguageTask>(); }

std::unique_ptr<train::Task> make_reading_task(const model::ModelConfig& model,
                                               std::shared_ptr<TextGroups> texts) {
  auto task = std::make_unique<LanguageTask>();
  task->config().model = model;
  task->config().model.lora.dropout = 0;
  task->config().model.lora.init.clear();  // the checkpoint has the adapters
  if (model.vision.is_on())
    task->config().data.packing = dataset::Packing::kWhole;  // as it must be
  task->config().texts = std::move(texts);
  return task;
}

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
