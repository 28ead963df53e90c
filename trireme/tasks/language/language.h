// The task of language modelling: predict each token from those before it, or hidden tokens from
// all others, prefer one answer to another, or learn from a teacher. Models are the families of
// trireme/model, data is a token file. Also says what a run costs, in the words of the cost model
// (trireme/plan).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/dataset/tokenizer.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/text_model.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/tasks/language/objective.h"
#include "trireme/tasks/language/outputs/teacher_outputs.h"
#include "trireme/tasks/language/sources/token_data_config.h"
#include "trireme/tasks/language/teacher.h"
#include "trireme/train/config/config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

// What the stages of a model that reads texts share on a rank.
struct TextGroups {
  std::vector<model::TokenGroup> now{};  // of the forward, by microbatch
};

// The keys of the task, in the sections [model], [data] and [objective].
struct LanguageConfig {
  model::ModelConfig model;
  TokenDataConfig data;
  ObjectiveConfig objective;
  // Of objective.teacher, once the data is open; null: there is none.
  std::shared_ptr<const Teacher> teacher{};
  // What it says, of a file that objective.teacher names instead; null: there is none.
  std::shared_ptr<const TeacherOutputs> outputs{};
  // Whether this is the frozen model from which another one learns. Its last stage gives hidden
  // states and has no loss.
  bool is_teacher = false;
  // Whether this is a frozen classifier: its last stage gives the logits of each text's classes.
  bool is_answering = false;
  // Set when it is a frozen model that reads texts: its last stage says what comes next, see
  // generation/text_ranks.h.
  std::shared_ptr<TextGroups> texts{};
  // Of a teacher whose last stage gives linear_top_outputs() instead; top_k 0: it does not.
  struct Recording {
    int64_t top_k = 0;
    double temperature = 1;
  } recording{};

  // Takes the model of another program, and the objective that it was trained with.
  void take_model(const model::ModelConfig& other);
  // Tokens that the model reads of a sequence: those of a decoder too.
  int64_t tokens_per_sequence() const {
    return model.sequence_length + model.seq2seq.target_length;
  }
  // Whether samples say which document each token belongs to; padding of a text is one of its own.
  bool has_documents() const { return data.separate_documents || objective.is_classify(); }
  // Sequences of the model that a sample has.
  int64_t sequences_per_sample() const { return objective.is_dpo() ? 2 : 1; }
};

std::unique_ptr<train::Task> make_language_task();
// The task of a frozen model that reads texts.
std::unique_ptr<train::Task> make_reading_task(const model::ModelConfig& model,
                                               std::shared_ptr<TextGroups> texts);
inline constexpr train::TaskKind kLanguage = {"language", "predict the next token of text",
                                              make_language_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
LanguageConfig& language_of(train::RunConfig& config);
const LanguageConfig& language_of(const train::RunConfig& config);
// The tokenizer of the task's data. Null before Task::open().
const dataset::Tokenizer* tokenizer_of(const train::RunConfig& config);

// Of the forward of a token in the teacher, a third of its forward and backward; 0 without one.
double teacher_flops_per_token(const LanguageConfig& own);

// Of a sample, with the teacher's. of_sequence: of the model
double sample_flops(const LanguageConfig& own, double of_sequence);

// One step of a resolved config, with the model's vocabulary known.
plan::Workload workload_of(const train::RunConfig& config, const LanguageConfig& own);

// As plan::layer_costs().
std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config,
                                             const LanguageConfig& own);

}  // namespace trireme::tasks
