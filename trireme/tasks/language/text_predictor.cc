#include "trireme/tasks/language/text_predictor.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/dataset/rows/line_rows.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/model.h"
#include "trireme/tasks/language/foreign/class_labels.h"
#include "trireme/tasks/language/trained_model.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/saved_run.h"

namespace trireme::tasks {
namespace {

class TextPredictor : public train::Predictor {
 public:
  TextPredictor(const train::PredictRequest& request, const LanguageConfig& config)
      : T_(config.model.sequence_length),
        top_(request.top),
        classes_(read_classes(request.saved.run_folder() / kClassesFile)),
        tokenizer_(find_tokenizer(request.saved.folder(), request.config)) {
    const std::string folder = request.saved.run_folder().string();
    TRIREME_CHECK(tokenizer_, folder,
                  " has no tokenizer.json; put the run's own beside checkpoints/");
    for (const char* const token : {"[CLS]", "<s>"}) {
      if (!begin_) begin_ = tokenizer_->added_token(token);
    }
    TRIREME_CHECK(begin_, folder,
                  ": the tokenizer has no added token [CLS] or <s>, which begins a text; expected "
                  "that of a model that classifies texts");
    if (!request.input_format.empty())
      form_ = choose(dataset::kTextForms, "--input-format", request.input_format);
    if (!request.has_model) return;
    request.saved.require_room(model::num_parameters(config.model), request.config.dtype());
    model_ = model::make_model(config.model, request.config.train.seed, request.config.dtype());
    request.saved.load(model_->module());
  }

  std::unique_ptr<dataset::RowSource> open(std::span<const std::string> inputs) override {
    return dataset::open_line_rows(
        inputs, {.sequence_length = T_,
                 .encode = [this](std::string_view text) { return encode(text); },
                 .form = form_});
  }

  at::Tensor outputs(const dataset::Batch& batch) override {
    const model::PartOutput out =
        model_->forward_part({.tokens_BT = batch["tokens"], .documents_BT = batch["documents"]});
    const at::Tensor no_labels_B = at::zeros({batch.size()}, at::kLong);
    return model_->class_loss(out.hidden, no_labels_B).logits_BC;
  }
  std::vector<train::Answer> answers(const at::Tensor& outputs) override {
    return train::class_answers(outputs, classes_.names(), top_);
  }

 private:
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> tokens = tokenizer_->encode(text);
    tokens.insert(tokens.begin(), *begin_);
    tokens.push_back(tokenizer_->end_of_document());
    return tokens;
  }

  int64_t T_;
  int64_t top_;
  dataset::ClassNames classes_;
  std::unique_ptr<dataset::Tokenizer> tokenizer_;
  std::optional<int32_t> begin_{};  // the token that begins a text
  std::optional<dataset::TextForm> form_{};
  std::unique_ptr<model::LanguageModel> model_;  // null: other ranks have it
};

}  // namespace

std::unique_ptr<train::Predictor> make_text_predictor(const train::PredictRequest& request,
                                                      const LanguageConfig& config) {
  TRIREME_CHECK(config.objective.is_classify(), request.saved.folder().string(),
                " is of a language model, which has no classes to predict; use `trireme generate` "
                "or `trireme evaluate`");
  return std::make_unique<TextPredictor>(request, config);
}

}  // namespace trireme::tasks
